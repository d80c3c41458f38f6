"""Make the bundled incident fixtures/train-run-7, or check that it is what this script makes.

    python scripts/make_train_run_7.py           write fixtures/train-run-7
    python scripts/make_train_run_7.py --check   exit 1 if the committed files differ

One job of 1,024 ranks on 128 nodes. Rank 800's GPU falls off the bus in the middle of a step; the
other 1,023 ranks wait ten minutes for it in an all-reduce of the default group, then abort. Hosts,
addresses and ids are invented. Line formats are those of torch 2.9, NCCL 2.27, torchtitan, torchrun
(`--tee 3`), `kubectl logs --timestamps` and `journalctl -k -o short-iso-precise`; the dumps are
Flight Recorder pickles of version 2.10. Only the standard library is used, and one seed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from pathlib import Path
from random import Random

from train_run_7.cluster import kernel_log, pods, topology
from train_run_7.logs import pod_log
from train_run_7.recorder import dumps_tar
from train_run_7.world import FIRST_STEP, JOB, LAST_STEP, NAMESPACE, SEED, nodes

KERNEL_OF = (0, 12, 43, 44, 71, 88, 99, 100, 101, 127)


def contents() -> dict[str, bytes]:
    """Every file of the fixture before compression; a name that ends in .gz is compressed."""
    fleet = nodes()
    noise = Random(SEED)
    losses = {s: 1.9 + 0.05 * noise.random() for s in range(FIRST_STEP, LAST_STEP + 1)}
    job = {"name": JOB, "namespace": NAMESPACE, "checkpoint_interval_seconds": 1800}
    files = {
        "job.json": json.dumps(job) + "\n",
        "topology.json": topology(fleet),
        "kubernetes/pods.json.gz": pods(fleet),
    }
    files |= {f"logs/{node.pod}.log.gz": pod_log(node, losses.__getitem__) for node in fleet}
    files |= {f"kernel/{fleet[i].name}.log": kernel_log(fleet[i]) for i in KERNEL_OF}
    return {name: text.encode() for name, text in files.items()} | {
        "dumps.tar.gz": dumps_tar(fleet)
    }


def compressed(data: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=9, mtime=0) as packed:
        packed.write(data)
    return out.getvalue()


def differences(root: Path, made: dict[str, bytes]) -> list[str]:
    """Names whose content differs. Two builds of zlib may pack the same content into other bytes,
    so a packed file is the same when it holds the same."""
    here = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    wrong = sorted(here.keys() ^ made.keys())
    for name in sorted(here.keys() & made.keys()):
        data = here[name].read_bytes()
        if (gzip.decompress(data) if name.endswith(".gz") else data) != made[name]:
            wrong.append(name)
    return wrong


def write(root: Path, made: dict[str, bytes]) -> None:
    for name, data in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compressed(data) if name.endswith(".gz") else data)


def main() -> int:
    home = Path(__file__).resolve().parent.parent / "fixtures" / JOB
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--to", type=Path, default=home, help="folder of the fixture")
    options = parser.parse_args()
    made = contents()
    if not options.check:
        write(options.to, made)
        return 0
    wrong = differences(options.to, made)
    sys.stderr.write("".join(f"{name} differs from what the script makes\n" for name in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
