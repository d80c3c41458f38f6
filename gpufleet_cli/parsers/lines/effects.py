"""Which exceptions are only consequences of another rank's trouble, by their own text.

`effect: ` in front of a detail means that the printer waited, was told to stop, or lost the store's
host: such an exception never makes its rank a suspect. What may be either is not called an effect.

>>> mark_effect("DistBackendError: NCCL error in: x.cpp:77, remote process exited or there was a network error")
'effect: DistBackendError: NCCL error in: x.cpp:77, remote process exited or there was a network error'
>>> mark_effect("KeyError: 'text'")
"KeyError: 'text'"
"""

from __future__ import annotations

EFFECT = "effect: "

_TYPES = (
    "ChildFailedError",
    "SignalException",
    "CancelledError",
    "KeyboardInterrupt",
    "DistNetworkError",
    "DistStoreError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "RendezvousTimeoutError",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousGracefulExitError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "RayActorError",
    "ActorDiedError",
    "ActorUnavailableError",
    "WorkerCrashedError",
    "NodeDiedError",
    "RayTaskError",
    "RankShouldRestart",
    "HealthCheckPassed",
    "WorkerGroupError",
    "PipeClosedError",
)
_TEXTS = (
    "collective operation timeout",
    "timed out in blocking wait",
    "before timing out",
    "communicator was aborted",
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "remote process error",
    "ncclUniqueId",
    "failed to pass monitoredBarrier",
    "reached monitoredBarrier",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket Timeout",
    "onnection was likely closed",
    "failed to recv, got 0 bytes",
    "wait timeout after",
    "The client socket has timed out",
    "driver shutting down",
    "more than 1EB memory",
    "RankShouldRestart",
    "The actor died",
    "lost connection to the head node",
)
_GLOO_WAIT = ("Timed out waiting", "operation to complete")
_DATA_CLIENTS = (
    "requests",
    "urllib3",
    "botocore",
    "aiobotocore",
    "aiohttp",
    "huggingface_hub",
    "s3fs",
    "gcsfs",
    "fsspec",
    "pyarrow",
    "streaming",
    "webdataset",
)
_LAUNCHERS = (
    "accelerate/commands/",
    "deepspeed/launcher/",
    "torch/distributed/launch",
    "torch/distributed/run.py",
)


def mark_effect(detail: str, frames: tuple[str, ...] = ()) -> str:
    """The detail, with `effect: ` in front where its text or its frames say so."""
    return f"{EFFECT}{detail}" if is_effect(detail, frames) else detail


def is_effect(detail: str, frames: tuple[str, ...] = ()) -> bool:
    """Whether an exception is a consequence: by type, by words, or raised by a launcher."""
    name = detail.partition(":")[0].rpartition(".")[2].strip()
    if any(f"/{package}/" in frame for frame in frames for package in _DATA_CLIENTS):
        return False  # a reset connection to a data source is this rank's own trouble
    if name in _TYPES or any(words in detail for words in _TEXTS):
        return True
    if all(words in detail for words in _GLOO_WAIT):
        return True
    if name in ("CalledProcessError", "SystemExit", "RuntimeError"):
        return any(place in frame for frame in frames[-3:] for place in _LAUNCHERS)
    if name == "AssertionError":
        return any("dynamic_rendezvous.py" in frame for frame in frames)
    return False
