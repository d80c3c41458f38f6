"""The folder: many writers and no lock, one file an incident, and readers that survive any file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from functools import reduce
from pathlib import Path

import msgspec
import pytest
from incident_makers import NOW_NS, changed, incident

from gpufleet_cli.errors import SourceError
from gpufleet_cli.history import folder
from gpufleet_cli.history.folder import keep, name_of, read
from gpufleet_cli.history.record import DAY_NS, Incident, encoded, joined

ROOT = Path(__file__).parents[2]


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_an_incident_is_one_file(tmp_path: Path) -> None:
    """Said again it is the same one; with more evidence another stands in its place."""
    place = tmp_path / "history"
    keep(place, incident(1), is_own=True)
    keep(place, incident(2), is_own=True)
    before = files(place)
    keep(place, incident(1), is_own=True)
    assert before == files(place)
    assert 2 == len(before)
    richer = incident(1, kind="network", facts=200)
    assert richer == keep(place, richer, is_own=True)
    assert 2 == len(files(place))
    assert (incident(2), richer) == read(place).incidents


def test_the_users_folder_is_theirs_and_a_shared_one_everybodys(tmp_path: Path) -> None:
    """Who may look into a folder may read its files, and a share that is not mounted is not written beneath."""
    own, shared = tmp_path / "a" / "own", tmp_path / "shared"
    keep(own, incident(), is_own=True)
    assert 0o700 == stat.S_IMODE(own.stat().st_mode)
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()}
    shared.mkdir()
    shared.chmod(0o2775)
    before = os.umask(0o077)
    try:
        keep(shared, incident(), is_own=False)
    finally:
        os.umask(before)
    assert {0o664} == {stat.S_IMODE(path.stat().st_mode) for path in shared.iterdir()}
    with pytest.raises(FileNotFoundError):
        keep(tmp_path / "not" / "mounted", incident(), is_own=False)


def test_two_writers_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read before either wrote: two files, one incident with all of both, and the next writer makes one
    file of them."""
    one = incident(looked_ns=NOW_NS - 50, facts=300)
    other = incident(looked_ns=NOW_NS - 90, diagnosed_ns=NOW_NS, facts=200)
    with monkeypatch.context() as blind:
        blind.setattr(folder, "_of_incident", lambda *_: iter(()))
        keep(tmp_path, one, is_own=False)
        keep(tmp_path, other, is_own=False)
    assert 2 == len(files(tmp_path))
    whole = joined(one, other)
    assert (whole,) == read(tmp_path).incidents
    keep(tmp_path, one, is_own=False)
    assert [name_of(whole)] == files(tmp_path)


def test_many_write_at_once(tmp_path: Path) -> None:
    """Processes that write the same incidents with different evidence: each ends up joined, in one file after
    the next writer at the latest."""
    code = (
        "import sys, pathlib; sys.path.insert(0, 'tests')\n"
        "from incident_makers import incident, NOW_NS\n"
        "from gpufleet_cli.history.folder import keep\n"
        "me = int(sys.argv[2])\n"
        "for n in range(12):\n"
        "    keep(pathlib.Path(sys.argv[1]), incident(n, facts=me, looked_ns=NOW_NS - me), is_own=False)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(number)], cwd=ROOT) for number in range(4)]
    assert [0] * 4 == [writer.wait() for writer in writers]
    found = read(tmp_path)
    assert () == found.not_read
    assert [(3, NOW_NS - 3)] * 12 == [(one.facts, one.looked_ns) for one in found.incidents]
    for one in found.incidents:
        keep(tmp_path, one, is_own=False)
    assert 12 == len(files(tmp_path))


def test_a_file_that_is_taken_away_while_it_is_read_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer put two files together between the list and the reading."""
    keep(tmp_path, incident(facts=1), is_own=False)
    inner, done = folder._bytes, []

    def racing(path: Path) -> bytes:
        if not done:
            done.append(path)
            keep(tmp_path, incident(facts=2), is_own=False)
        return inner(path)

    monkeypatch.setattr(folder, "_bytes", racing)
    (found,) = read(tmp_path).incidents
    assert 2 == found.facts


def hostile(place: Path) -> dict[str, str]:
    """Files that are none, by name, and a word of what is said of each."""
    good = encoded(incident())
    os.mkfifo(place / "pipe.json")
    (place / "link.json").symlink_to("/etc/passwd")
    (place / "folder.json").mkdir()
    contents = {
        "torn.json": (good[: len(good) // 2], "truncated"),
        "empty.json": (b"", "truncated"),
        "huge.json": (b" " * (folder.MOST_BYTES + 1), "larger than 64 KiB"),
        "deep.json": (b'{"id":' + b"[" * 60_000, ""),
        "list.json": (b"[1, 2]", "expected `object`"),
        "bytes.json": (b"\xff\xfe\x00", "malformed"),
        "other.json": (encoded(changed(incident(), schema="gpufleet.incident/v9")), "v9"),
        "time.json": (good.replace(b'"at_ns":', b'"at_ns":9'), "<= 9223372036854775807"),
        "minus.json": (good.replace(b'"facts":100', b'"facts":-1'), ">= 0"),
        "nodes.json": (
            encoded(changed(incident(), nodes=tuple(map(str, range(65))))),
            "length <= 64",
        ),
        "sure.json": (good.replace(b'"confidence":0.9', b'"confidence":1e999'), ""),
        "\x1b[2Jred.json": (b"{", "truncated"),
    }
    for name, (data, _) in contents.items():
        (place / name).write_bytes(data)
    told = {name.replace("\x1b", "\\u001b"): word for name, (_, word) in contents.items()}
    return {**told, "pipe.json": "no regular file", "link.json": "symbolic", "folder.json": ""}


def test_a_bad_file_costs_itself_and_is_named(tmp_path: Path) -> None:
    """Torn, huge, foreign, a pipe, a link, a deep nest, numbers that no clock can show."""
    expected = hostile(tmp_path)
    keep(tmp_path, incident(), is_own=False)
    (tmp_path / ".draft.json.1.tmp").write_bytes(b"{")
    (tmp_path / "README.md").write_text("this is the team's history")
    began = time.monotonic()
    found = read(tmp_path)
    assert time.monotonic() - began < 30, "a pipe or a nest held it up"
    assert (incident(),) == found.incidents
    assert set(expected) == {one.name for one in found.not_read}
    for one in found.not_read:
        assert one.why
        assert expected[one.name].lower() in one.why.lower(), one


def test_a_writer_takes_away_only_what_it_understands_whole(tmp_path: Path) -> None:
    """A newer program's record has fields that ours would lose; a file under a wrong name is not ours."""
    kept = incident(facts=50)
    newer = encoded(kept).replace(b"}", b',"field_of_next_year":1}')
    (tmp_path / name_of(kept)).write_bytes(newer)
    (tmp_path / name_of(changed(kept, facts=7))).write_bytes(encoded(changed(kept, facts=8)))
    (tmp_path / "by-hand.json").write_bytes(encoded(changed(kept, facts=9)))
    before = set(files(tmp_path))
    keep(tmp_path, incident(facts=60), is_own=False)
    assert before < set(files(tmp_path))
    assert (incident(facts=60),) == read(tmp_path).incidents


def test_old_files_are_not_opened_where_the_last_weeks_are_asked_for(tmp_path: Path) -> None:
    """Their names tell the hour; what bears no such name is read."""
    old, new = incident(100), incident(3)
    for one in (old, new):
        keep(tmp_path, one, is_own=False)
    (tmp_path / name_of(old)).write_bytes(b"torn")
    found = read(tmp_path, since_ns=NOW_NS - 30 * DAY_NS)
    assert ((new,), ()) == (found.incidents, found.not_read)


def test_too_many_files_are_cut_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest count."""
    monkeypatch.setattr(folder, "MOST_FILES", 2)
    for days in (1, 2, 3):
        keep(tmp_path, incident(days), is_own=False)
    found = read(tmp_path)
    assert (incident(2), incident(1)) == found.incidents
    assert ["1 older files"] == [one.name for one in found.not_read]


def test_a_folder_that_is_not_there_is_empty_and_one_that_is_a_file_is_told(tmp_path: Path) -> None:
    """No history yet is no error."""
    assert folder.Kept() == read(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceError, match="cannot be read: not a directory"):
        read(tmp_path / "file")


def test_a_record_keeps_every_field(tmp_path: Path) -> None:
    """Written and read again it is the same, so that joining is by content."""
    full = incident(
        looked_ns=1, diagnosed_ns=2, server="https://a", context="c", uid="u", gpus=8, ranks=(0, 7),
        xids=(79,), lost_gpu_hours=0.25, ended_ns=NOW_NS, summary="Rank 0 went silent.",
    )  # fmt: skip
    keep(tmp_path, full, is_own=False)
    assert (full,) == read(tmp_path).incidents
    assert full == msgspec.json.decode(encoded(full), type=Incident)
    assert full == reduce(joined, [full, full, full])
