"""What a log file's place and name say: hints on who wrote it, since collecting renames files.

    /var/log/pods/NS_POD_UID/CONTAINER/N.log[.20250303-214100[.gz]]   kubelet; N: restart count
    /var/log/containers/POD_NS_CONTAINER-ID.log                       its links
    TOP/RUNID/attempt_K/LOCALRANK/stdout.log                          torchrun --log-dir
    slurm-418822.out, run-418822-gpu-n03-12.out                       Slurm (%j, %N, %t)
    TOP/containers/ID/ID-json.log                                     Docker, gathered in a folder a node
    worker-<id>-<job>-<pid>.out                                       Ray
    nvrx_log_HOST.log                                                 NVRx
    rank_12.log, gpu-node-7.rank3.err, node-3/ds.log, host_0_gpu-j05.output
    POD.log, POD_CONTAINER.log, NS_POD_CONTAINER.log, POD.previous.log

>>> hints("logs/ns1_train-0_8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60/pytorch/2.log").who
(('attempt', 2), ('container', 'pytorch'), ('namespace', 'ns1'), ('pod', 'train-0'), ('pod_uid', '8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60'))
>>> hints("gpu-b07/none_k3v9q1zt/attempt_0/3/stderr.log").who
(('attempt', 0), ('local_rank', 3), ('node', 'gpu-b07'))
>>> hints("logs/gpu-b07/containers/3f9c1d5e7a21/3f9c1d5e7a21-json.log").who
(('node', 'gpu-b07'),)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gpufleet_cli.parsers.wrappers.layer import NOBODY, Value, Who, who_of


class Hints(NamedTuple):
    """`stream` is the path without rotation; `order` sorts the files of one stream, oldest first.

    `certain`: the names follow from a layout and are no guess from a name.
    `single`: one process writes this file, so a rank proven for one line holds for all.
    """

    who: Who
    stream: str
    order: tuple[int, str]
    certain: bool
    single: bool


_KUBELET = re.compile(
    r"(?:^|/)(?P<namespace>[a-z0-9][-a-z0-9]{0,62})_(?P<pod>[a-z0-9][-a-z0-9.]{0,252})_"
    r"(?P<pod_uid>[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32})/(?P<container>[^/]{1,63})/(?P<attempt>\d{1,6})\.log$"
)
_CONTAINER_LINK = re.compile(
    r"(?:^|/)(?P<pod>[a-z0-9][-a-z0-9.]{0,252})_(?P<namespace>[a-z0-9][-a-z0-9]{0,62})_"
    r"(?P<container>[a-z0-9][-a-z0-9.]{0,62})-[0-9a-f]{64}\.log$"
)
_TORCHRUN = re.compile(
    r"(?:(?:^|/)(?P<top>[^/]+)/)?(?P<run>[^/]+)/attempt_(?P<attempt>\d{1,6})/(?P<local_rank>\d{1,6})/"
    r"(?:std(?:out|err)\.log|error\.json)$"
)
_DOCKER = re.compile(
    r"(?:^|/)(?P<top>[^/]+)/(?:var/lib/docker/)?containers/(?P<id>[0-9a-f]{12,64})/(?P=id)-json\.log$"
)
_RAY = re.compile(
    r"(?:^|/)(?:python-core-)?worker-[0-9a-f]{8,64}-[0-9a-f]{2,16}-(?P<pid>\d{1,10})\.(?:out|err)$"
)
_NVRX = re.compile(r"(?:^|/)nvrx_log_(?P<host>[^/]{1,255}?)\.log$")
_MUST_GATHER = re.compile(
    r"(?:^|/)namespaces/(?P<namespace>[^/]+)/pods/(?P<pod>[^/]+)/(?P<container>[^/]+)/[^/]+/logs/(?P<which>current|previous)\.log$"
)
_DUMP = re.compile(r"(?:^|/)(?P<namespace>[^/]+)/(?P<pod>[^/]+)/logs\.txt$")
_ROTATED = re.compile(
    r"^(?P<base>.+?)(?:\.(?P<date>\d{8}-\d{6})|\.(?P<number>\d{1,3})|-(?P<day>\d{8}(?:-\d{6})?))?(?P<pack>\.(?:gz|zst|xz|bz2|lz4))?$"
)
_EXTENSION = re.compile(
    r"\.(?:log|txt|out|err|output|stdout|stderr|jsonl?|ndjson|csv|logs)$", re.IGNORECASE
)
_PREVIOUS = re.compile(r"[._-](?:previous|prev)$|^previous$", re.IGNORECASE)
_RANK = re.compile(
    r"(?:^|[._-])(?:global[_-]?)?rank[._-]?(?P<rank>\d{1,6})(?=$|[._-])", re.IGNORECASE
)
_LOCAL_RANK = re.compile(
    r"(?:^|[._-])local[_-]?rank[_-]?(?P<rank>\d{1,4})(?=$|[._-])", re.IGNORECASE
)
_NODE_INDEX = re.compile(
    r"^(?:node|host|machine)[_-]?(?P<index>\d{1,5})(?:[_-](?P<name>[A-Za-z].*))?$", re.IGNORECASE
)
_SLURM = re.compile(
    r"^(?:[A-Za-z][\w.]*-)?(?P<job>\d{3,10})(?:_\d{1,7})?(?:[._-](?P<node>[A-Za-z][\w.-]*?))?(?:[._-](?P<task>\d{1,6}))?$"
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_POD_LIKE = re.compile(
    r"-(?:worker|workers|master|launcher|trainer|replica|ps|chief|leader|head)-\d|-[a-z0-9]{8,10}-[a-z0-9]{5}$|-\d+-\d+(?:-[a-z0-9]{5})?$"
)
_NODE_LIKE = re.compile(
    r"gpu|node|host|dgx|hgx|[abhl]\d00|gb\d00|^ip-\d|^\d+\.\d+\.\d+\.\d+$|compute|\.internal$|^nid\d|instance",
    re.IGNORECASE,
)
_NODE_SURELY = re.compile(r"^ip-\d|\.internal$|^nid\d|node-?\d|^\d+\.\d", re.IGNORECASE)
_WORD_LIST = (
    "all app application combined console container current default ds data debug demo dmesg dump dumps err error "
    "errors events export filter-log-events full hang incident info job jobs journal kern kernel log logs loki "
    "loki-query-range main master merged messages node nodes output out pod pods previous query-range ranks "
    "readme license run sample screen slurm stderr stdin stdout stern syslog test tmp torchrun train trainer training "
    "worker workers containers docker ray session_latest attempt metrics"
)
_WORDS = frozenset(_WORD_LIST.split())


def _is_name(text: str) -> bool:
    """A host or pod name: it has a number or a hash in it, and is not that alone."""
    return (
        _NAME.fullmatch(text) is not None
        and text.lower() not in _WORDS
        and not text.isdigit()
        and any(c.isalpha() for c in text)
        and any(c.isdigit() for c in text)
        and re.fullmatch(r"[0-9a-f]{10,64}(?:-json)?", text) is None
    )


def _named(text: str) -> dict[str, Value]:
    """A name as a pod's, as a node's too where it looks like one; `reason` knows the real names."""
    if not _is_name(text):
        return {}
    if _POD_LIKE.search(text) or not _NODE_LIKE.search(text):
        return {"pod": text}
    return {"node": text} if _NODE_SURELY.search(text) else {"pod": text, "node": text}


def _folder(text: str, fields: dict[str, Value | None]) -> None:
    """What the folder of a file names where the file itself names less."""
    rank = _RANK.search(text)
    if rank is not None:  # mpirun --output-filename writes rank.12/stderr
        fields.setdefault("prefix_rank", int(rank["rank"]))
        return
    index = _NODE_INDEX.match(text)
    if index is not None:
        fields.setdefault("node_rank", int(index["index"]))
        fields.setdefault("node", index["name"] or text)
    elif _is_name(text) and (_POD_LIKE.search(text) or _NODE_LIKE.search(text)):
        if _POD_LIKE.search(text):
            fields.setdefault("pod", text)
        else:
            fields.setdefault("node", text)
    elif _is_name(text) and text[-1].isdigit() and "pod" not in fields and "node" not in fields:
        fields["pod"] = text


def of_node_file(path: str) -> Who:
    """What a path on a node says for certain: kubelet's log folders and links."""
    base = str(_unrotated(path)[0])
    found = _KUBELET.search(base)
    if found is not None:
        return who_of({**found.groupdict(), "attempt": int(found["attempt"])})
    found = _CONTAINER_LINK.search(base)
    if found is None:
        return NOBODY
    return who_of(found.groupdict())


def _unrotated(path: str) -> tuple[str, tuple[int, str]]:
    """The path of the stream, and the place of this file in it: dated and numbered ones are older."""
    found = _ROTATED.match(path)
    assert found is not None
    base, date, number, day = found["base"], found["date"], found["number"], found["day"]
    if date or (day and _EXTENSION.search(base)):
        return base, (1, date or day)
    if number and (_EXTENSION.search(base) or base.rsplit("/", 1)[-1] in ("messages", "syslog")):
        return base, (0, f"{999 - int(number):03}")
    if found["pack"]:
        return path[: -len(found["pack"])], (2, "")
    return path, (2, "")


@lru_cache(maxsize=65_536)
def hints(path: str) -> Hints:
    """Everything the path says."""
    stream, order = _unrotated(path)
    sure = _from_layout(stream)
    if sure is not None:
        who, certain, single = sure
        return Hints(who, stream, order, certain, single)
    return Hints(_from_names(stream), stream, order, False, False)


def _from_layout(path: str) -> tuple[Who, bool, bool] | None:
    who = of_node_file(path)
    if who:
        return who, True, False
    found = _TORCHRUN.search(path)
    if found is not None:
        fields = _top(found["top"] or "")
        numbers = {"attempt": int(found["attempt"]), "local_rank": int(found["local_rank"])}
        return who_of({**fields, **numbers}), False, True
    found = _DOCKER.search(path)
    if found is not None and found["top"] not in ("docker", "lib", "var"):
        return who_of({"node": found["top"]}), False, False
    found = _RAY.search(path)
    if found is not None:
        return who_of({"pid": int(found["pid"])}), True, True
    found = _NVRX.search(path)
    if found is not None:
        return who_of({"host": found["host"]}), True, False
    found = _MUST_GATHER.search(path)
    if found is not None:
        names = {name: found[name] for name in ("namespace", "pod", "container")}
        return who_of({**names, "previous": found["which"] == "previous" or None}), True, False
    found = _DUMP.search(path)
    if found is not None and _is_name(found["pod"]):
        return who_of(found.groupdict()), True, False
    return None


def _top(text: str) -> dict[str, Value]:
    """The folder above torchrun's run id stands for the machine or pod whose agent wrote it."""
    index = _NODE_INDEX.match(text)
    if index is not None:
        return {"node_rank": int(index["index"]), "node": index["name"] or text}
    if _is_name(text) and _NODE_LIKE.search(text) and not _POD_LIKE.search(text):
        return {"node": text}
    return _named(text)


def _from_names(path: str) -> Who:
    """Hints from the stem, then from the folder above it."""
    *folders, name = path.split("/")
    stem = _EXTENSION.sub("", name)
    fields: dict[str, Value | None] = {}
    if _PREVIOUS.search(stem) or any(folder.lower() == "previous" for folder in folders):
        fields["previous"] = True
        stem = _PREVIOUS.sub("", stem)
    stem = _numbers(stem, name, fields)
    fields.update(_stem_names(stem))
    if folders:
        _folder(folders[-1], fields)
    return who_of(fields)


def _numbers(stem: str, name: str, fields: dict[str, Value | None]) -> str:
    """Take rank, node index and Slurm's numbers out of a stem; what is left may be a name."""
    local = _LOCAL_RANK.search(stem)
    if local is not None:
        fields["local_rank"] = int(local["rank"])
        stem = (stem[: local.start()] + stem[local.end() :]).strip("._-")
    rank = _RANK.search(stem)
    if rank is not None:
        fields["prefix_rank"] = int(rank["rank"])
        stem = (stem[: rank.start()] + stem[rank.end() :]).strip("._-")
    index = _NODE_INDEX.match(stem)
    if index is not None:
        fields["node_rank"] = int(index["index"])
        fields["node"] = index["name"] or stem
        return ""
    slurm = _SLURM.match(stem)
    if slurm is not None and (name.endswith((".out", ".err")) or name.startswith("slurm")):
        if slurm["task"] is not None and slurm["node"] is not None:
            fields["task"] = int(slurm["task"])
        if slurm["node"] is not None and _is_name(slurm["node"]):
            fields["node"] = slurm["node"]
        return ""
    return stem


def _stem_names(stem: str) -> dict[str, Value]:
    """`POD`, `POD_CONTAINER` or `NS_POD_CONTAINER`."""
    parts = stem.split("_")
    if len(parts) == 1:
        return _named(stem)
    if len(parts) == 2 and _is_name(parts[0]) and "-" in parts[0]:
        return {**_named(parts[0]), "container": parts[1]}
    if len(parts) == 3 and _is_name(parts[1]) and "-" in parts[1]:
        return {"namespace": parts[0], **_named(parts[1]), "container": parts[2]}
    return {}
