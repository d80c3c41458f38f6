"""A target is read whole, in order, within limits, and what is not read is named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import socket
import stat
import struct
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
import zstandard

from gpufleet_cli import archive, bundle, evidence, unpack
from gpufleet_cli.bundle import Evidence, Target, read_target
from gpufleet_cli.errors import ParseError, TargetError

LINE = b"2026-03-11T03:41:07Z step: 48211 loss: 2.31\n"


def write(folder: Path, **files: bytes) -> Path:
    """`a__b_log=b"..."` becomes a/b.log."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def contents(target: Target) -> dict[str, bytes]:
    return {evidence.path: evidence.read() for evidence in target.evidences}


def gaps(target: Target) -> dict[str, str]:
    return {gap.what: gap.why for gap in target.gaps}


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return buffer.getvalue()


PACKERS = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


# --- Folders --------------------------------------------------------------------------------------


def test_folder_is_read_in_sorted_order(tmp_path: Path) -> None:
    """The order of a listing never reaches the report."""
    write(tmp_path, b_log=b"2", a_log=b"1", c__x_log=b"3", c__a__y_log=b"4")
    target = read_target(tmp_path)
    assert ["a.log", "b.log", "c/a/y.log", "c/x.log"] == [one.path for one in target.evidences]
    assert (target.kind, target.name, target.gaps) == ("directory", tmp_path.name, ())


def test_empty_folder_is_a_target_without_evidence(tmp_path: Path) -> None:
    """Nothing to read is an answer, not an error."""
    assert read_target(tmp_path).evidences == ()


def test_plain_file_keeps_its_place_on_disk(tmp_path: Path) -> None:
    """Parsers map such a file or hand it to a worker."""
    write(tmp_path, a_log=LINE)
    (only,) = read_target(tmp_path).evidences
    assert only.file == tmp_path / "a.log"
    assert only.content is None
    assert (only.head, only.read(), only.size_bytes, only.damage()) == (LINE, LINE, len(LINE), None)


def test_head_is_the_first_bytes_only(tmp_path: Path) -> None:
    """Ten thousand heads are looked at before one file is read."""
    write(tmp_path, a_log=b"x" * 200_000)
    (only,) = read_target(tmp_path).evidences
    assert len(only.head) == bundle.HEAD_BYTES


def test_case_json_is_never_read(tmp_path: Path) -> None:
    """The answer of a handed case is not evidence, wherever and however it lies."""
    write(tmp_path, case_json=b"{}", deep__case_json=b"{}", a_log=LINE)
    (tmp_path / "case.json.gz").write_bytes(gzip.compress(b"{}", mtime=0))
    (tmp_path / "x.tar").write_bytes(tar_of({"case.json": b"{}", "in/case.json": b"{}"}))
    assert ["a.log"] == [one.path for one in read_target(tmp_path).evidences]
    with pytest.raises(TargetError, match="never read"):
        read_target(tmp_path / "case.json")


@pytest.mark.parametrize("suffix", PACKERS)
def test_packed_file_is_unpacked(tmp_path: Path, suffix: str) -> None:
    """Its path is that of the file it unpacks to, so that names such as `_dump_0.gz` still tell."""
    (tmp_path / f"a.log.{suffix}").write_bytes(PACKERS[suffix](LINE * 100))
    (only,) = read_target(tmp_path).evidences
    assert (only.path, only.file) == ("a.log", None)
    assert only.head == only.content == only.read() == LINE * 100
    assert only.damage() is None


@pytest.mark.parametrize("suffix", PACKERS)
def test_streams_behind_each_other_are_one_file(tmp_path: Path, suffix: str) -> None:
    """Log rotation appends."""
    (tmp_path / f"a.log.{suffix}").write_bytes(
        PACKERS[suffix](b"one\n") + PACKERS[suffix](b"two\n")
    )
    (only,) = read_target(tmp_path).evidences
    assert only.read() == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", PACKERS)
def test_cut_stream_gives_what_stands_before_the_cut(tmp_path: Path, suffix: str) -> None:
    """A log that was being written when the node died is still a log, and its end is a gap."""
    whole = os.urandom(400_000)
    packed = PACKERS[suffix](whole)
    (tmp_path / f"a.log.{suffix}").write_bytes(packed[: len(packed) // 2])
    (only,) = read_target(tmp_path).evidences
    content = only.read()
    assert whole.startswith(content)
    assert "cut short" in str(only.damage())


def test_corrupt_stream_is_told(tmp_path: Path) -> None:
    """Bytes that were flipped end the reading, not the run."""
    packed = bytearray(gzip.compress(os.urandom(100_000)))
    packed[50_000:50_020] = b"\xff" * 20
    (tmp_path / "a.log.gz").write_bytes(bytes(packed))
    (only,) = read_target(tmp_path).evidences
    only.read()
    assert only.damage() is not None


def test_names_that_hide_the_packing_are_seen_through(tmp_path: Path) -> None:
    """Contents tell, names do not."""
    (tmp_path / "a.log").write_bytes(gzip.compress(LINE, mtime=0))
    (tmp_path / "b.log.gz").write_bytes(LINE)
    assert {"a.log": LINE, "b.log.gz": LINE} == contents(read_target(tmp_path))


def test_a_file_beside_its_packed_twin_keeps_its_own_name(tmp_path: Path) -> None:
    """Neither hides the other."""
    (tmp_path / "a.log").write_bytes(b"1")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"2", mtime=0))
    assert {"a.log": b"1", "a.log~2": b"2"} == contents(read_target(tmp_path))


def test_hostile_names_are_made_visible(tmp_path: Path) -> None:
    """A path can carry an escape, a newline, a direction mark or bytes that are no text."""
    for name in (b"a\x1b[31m.log", b"b\nc.log", "d\u202ee.log".encode(), b"f\xff.log"):
        (tmp_path / os.fsdecode(name)).write_bytes(LINE)
    paths = [one.path for one in read_target(tmp_path).evidences]
    assert ["a\\u001b[31m.log", "b\\u000ac.log", "d\\u202ee.log", "f\\udcff.log"] == paths
    assert all(one.read() == LINE for one in read_target(tmp_path).evidences)


def test_evidence_travels_to_a_worker(tmp_path: Path) -> None:
    """Parsing runs in other processes."""
    write(tmp_path, a_log=LINE)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(LINE, mtime=0))
    (tmp_path / "c.zip").write_bytes(zip_of({"d.log": LINE}))
    for one in read_target(tmp_path).evidences:
        again: Evidence = pickle.loads(pickle.dumps(one))
        assert (again.path, again.read()) == (one.path, LINE)


def test_ten_thousand_files_take_a_moment(tmp_path: Path) -> None:
    """Listing costs microseconds a file."""
    for number in range(10_000):
        (tmp_path / f"{number}.log").write_bytes(LINE)
    start = time.perf_counter()
    target = read_target(tmp_path)
    assert len(target.evidences) == 10_000
    assert time.perf_counter() - start < 3


# --- Links and special files ----------------------------------------------------------------------


def test_link_that_leads_out_is_named_and_not_followed(tmp_path: Path) -> None:
    """A folder from elsewhere does not get to read our files."""
    outside = write(tmp_path / "outside", secret_log=LINE)
    inside = write(tmp_path / "inside", a_log=LINE)
    (inside / "out.log").symlink_to(outside / "secret.log")
    (inside / "folder").symlink_to(outside)
    target = read_target(inside)
    assert ["a.log"] == [one.path for one in target.evidences]
    assert set(gaps(target)) == {"out.log", "folder"}


def test_links_are_followed_when_asked(tmp_path: Path) -> None:
    """`/var/log/containers` is nothing but links; each goal is read once."""
    outside = write(tmp_path / "outside", a_log=LINE)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "one.log").symlink_to(outside / "a.log")
    (inside / "two.log").symlink_to(outside / "a.log")
    assert {"one.log": LINE} == contents(read_target(inside, follow_links=True))


def test_link_to_something_inside_is_read_once(tmp_path: Path) -> None:
    """`latest.log` beside the file it means would count its lines twice."""
    write(tmp_path, a_log=LINE)
    (tmp_path / "latest.log").symlink_to("a.log")
    target = read_target(tmp_path)
    assert ["a.log"] == [one.path for one in target.evidences]
    assert target.gaps == ()


@pytest.mark.parametrize("follow", [False, True])
def test_loops_end(tmp_path: Path, follow: bool) -> None:
    """A link to the folder itself, or to one above it."""
    inside = write(tmp_path / "inside", a_log=LINE)
    (inside / "self").symlink_to(inside)
    (inside / "up").symlink_to(tmp_path)
    (inside / "circle").symlink_to(inside / "circle")
    assert ["a.log"] == [one.path for one in read_target(inside, follow_links=follow).evidences]


def test_broken_link_is_named(tmp_path: Path) -> None:
    """What it meant is missing."""
    (tmp_path / "gone.log").symlink_to("nowhere")
    assert "does not exist" in gaps(read_target(tmp_path))["gone.log"]


def test_special_files_are_named_and_not_opened(tmp_path: Path) -> None:
    """Opening a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
        named = gaps(read_target(tmp_path))
    assert named == {"pipe": "a named pipe: not opened", "sock": "a socket: not opened"}


# --- Targets that cannot be read ------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/dev/null", "/dev/zero"])
def test_device_is_refused(target: str) -> None:
    """One line, before a byte is read."""
    with pytest.raises(TargetError, match="is a device"):
        read_target(target)


def test_pipe_is_refused(tmp_path: Path) -> None:
    """The hint says how to read a stream."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TargetError, match="named pipe"):
        read_target(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["nowhere", "a.log/below", "x" * 5000, "nul\0byte"])
def test_missing_target_is_an_error(tmp_path: Path, name: str) -> None:
    """A path that does not exist, runs through a file, is too long, or is no path."""
    write(tmp_path, a_log=LINE)
    with pytest.raises(TargetError):
        read_target(f"{tmp_path}/{name}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_a_gap_and_unreadable_target_an_error(tmp_path: Path) -> None:
    """A right that is missing costs its own file."""
    write(tmp_path, a_log=LINE, b_log=LINE)
    (tmp_path / "b.log").chmod(0)
    assert "permission denied" in gaps(read_target(tmp_path))["b.log"]
    with pytest.raises(TargetError, match="permission denied"):
        read_target(tmp_path / "b.log")


def test_file_that_vanishes_is_a_parse_error(tmp_path: Path) -> None:
    """Rotation may take a file away between listing and reading."""
    write(tmp_path, a_log=LINE)
    (only,) = read_target(tmp_path).evidences
    (tmp_path / "a.log").unlink()
    with pytest.raises(ParseError, match="cannot be read"):
        only.read()


# --- Archives -------------------------------------------------------------------------------------

MEMBERS = {"logs/a.log": LINE, "logs/big.log": LINE * 5_000, "top.log": b""}
ARCHIVES = {
    "x.tar": tar_of(MEMBERS),
    "x.tar.gz": gzip.compress(tar_of(MEMBERS)),
    "x.tgz": gzip.compress(tar_of(MEMBERS)),
    "x.tar.zst": zstandard.ZstdCompressor().compress(tar_of(MEMBERS)),
    "x.tar.xz": lzma.compress(tar_of(MEMBERS)),
    "x.zip": zip_of(MEMBERS),
    "odd-name": gzip.compress(tar_of(MEMBERS)),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_is_read_in_place(tmp_path: Path, name: str) -> None:
    """As a target of its own the paths are the members'."""
    (tmp_path / name).write_bytes(ARCHIVES[name])
    target = read_target(tmp_path / name)
    assert contents(target) == MEMBERS
    assert target.gaps == ()
    assert [name] == [entry.name for entry in tmp_path.iterdir()]


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_in_a_folder_is_read_too(tmp_path: Path, name: str) -> None:
    """Below its own name."""
    (tmp_path / name).write_bytes(ARCHIVES[name])
    expected = {f"{name}/{path}": content for path, content in MEMBERS.items()}
    assert expected == contents(read_target(tmp_path))


def test_members_are_unpacked_as_well(tmp_path: Path) -> None:
    """Rotated logs inside a bundle."""
    members = {f"a.log.{suffix}": pack(LINE * 3_000) for suffix, pack in PACKERS.items()}
    for name, made in (("x.tar", tar_of(members)), ("x.zip", zip_of(members)),
                       ("x.tar.gz", gzip.compress(tar_of(members)))):  # fmt: skip
        (tmp_path / name).write_bytes(made)
        read = contents(read_target(tmp_path / name))
        assert ["a.log", "a.log~2", "a.log~3", "a.log~4"] == sorted(read)
        assert set(read.values()) == {LINE * 3_000}


@pytest.mark.parametrize("inner", ["in.tar", "in.tar.gz", "in.zip"])
def test_archive_inside_an_archive_is_not_understood(tmp_path: Path, inner: str) -> None:
    """One level deep."""
    (tmp_path / "x.tar").write_bytes(tar_of({inner: ARCHIVES[f"x.{inner[3:]}"], "a.log": LINE}))
    target = read_target(tmp_path / "x.tar")
    assert ["a.log"] == [one.path for one in target.evidences]
    assert "not understood" in gaps(target)[inner]


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../evil", ".."])
def test_member_that_climbs_out_is_refused(tmp_path: Path, name: str) -> None:
    """It is named, and nothing is written anywhere."""
    for made in (tar_of({name: b"x", "a.log": LINE}), zip_of({name: b"x", "a.log": LINE})):
        (tmp_path / "x").write_bytes(made)
        target = read_target(tmp_path / "x")
        assert ["a.log"] == [one.path for one in target.evidences]
        assert "leads out" in " ".join(gaps(target).values())


def test_links_and_devices_of_a_tar_are_named(tmp_path: Path) -> None:
    """Never followed, whatever the flag."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind in (("soft", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE),
                           ("dev", tarfile.CHRTYPE), ("pipe", tarfile.FIFOTYPE)):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    target = read_target(tmp_path / "x.tar", follow_links=True)
    assert target.evidences == ()
    assert set(gaps(target)) == {"soft", "hard", "dev", "pipe"}


def test_links_of_a_zip_are_named(tmp_path: Path) -> None:
    """Unix modes stand in the upper half of the attributes."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        info = zipfile.ZipInfo("soft")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(info, "/etc/passwd")
    assert gaps(read_target(tmp_path / "x.zip")) == {
        "soft": "a link inside an archive: not followed"
    }


def test_long_names_of_both_kinds(tmp_path: Path) -> None:
    """GNU long names and pax headers."""
    name = "deep/" * 40 + "a.log"
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(LINE), 1.5
            tar.addfile(info, io.BytesIO(LINE))
        (tmp_path / "x.tar").write_bytes(buffer.getvalue())
        assert {name: LINE} == contents(read_target(tmp_path / "x.tar"))


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip", "x.tar.zst"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_cut_archive_costs_its_tail(tmp_path: Path, name: str, share: float) -> None:
    """What can be read is read; the rest is a gap or an error, never a crash."""
    members = {f"{number}.log": os.urandom(3_000) for number in range(20)}
    made = {
        "x.tar": tar_of(members),
        "x.tar.gz": gzip.compress(tar_of(members)),
        "x.zip": zip_of(members),
        "x.tar.zst": zstandard.ZstdCompressor().compress(tar_of(members)),
    }[name]
    (tmp_path / name).write_bytes(made[: int(len(made) * share)])
    target = read_target(tmp_path / name)
    damaged = [one for one in target.evidences if one.damage() is not None]
    assert target.gaps or damaged
    for one in target.evidences:
        assert one in damaged or one.read() == members[one.path]


def test_member_that_stands_twice_counts_once(tmp_path: Path) -> None:
    """The later one, as when extracted, and it is said."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for content in (b"old", b"new"):
            info = tarfile.TarInfo("a.log")
            info.size = 3
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    target = read_target(tmp_path / "x.tar")
    assert {"a.log": b"new"} == contents(target)
    assert "twice" in gaps(target)["a.log"]


def test_checkpoint_that_is_a_zip_is_no_archive_of_ours(tmp_path: Path) -> None:
    """torch.save, numpy and wheels write zips; in a folder only `.zip` is opened."""
    (tmp_path / "model.pt").write_bytes(zip_of({"data.pkl": b"x"}))
    assert ["model.pt"] == [one.path for one in read_target(tmp_path).evidences]


# --- Bombs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_bomb_is_stopped_by_its_ratio(tmp_path: Path, suffix: str) -> None:
    """A few kilobytes that unpack to a gigabyte give nothing, and say why."""
    zeros = bytes(200 << 20)
    (tmp_path / f"a.log.{suffix}").write_bytes(PACKERS[suffix](zeros))
    (only,) = read_target(tmp_path).evidences
    assert only.read() == b""
    assert "over 1,000 times" in str(only.damage())


def test_zip_bomb_is_not_opened(tmp_path: Path) -> None:
    """The directory of the archive tells its ratio."""
    (tmp_path / "x.zip").write_bytes(zip_of({"a.log": bytes(100 << 20), "b.log": LINE}))
    target = read_target(tmp_path / "x.zip")
    assert ["b.log"] == [one.path for one in target.evidences]
    assert "over 1,000 times" in gaps(target)["a.log"]


def test_size_limit_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what does not fit, the first and the last lines are read; the limit stands in the message."""
    monkeypatch.setattr(unpack, "FILE_LIMIT", 4 << 20)
    monkeypatch.setattr(unpack, "HEAD_LIMIT", 1 << 20)
    lines = [b"%d %s\n" % (number, b"x" * 90) for number in range(100_000)]
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"".join(lines)))
    (only,) = read_target(tmp_path).evidences
    read = only.read()
    assert len(read) < 6 << 20
    assert read.startswith(b"".join(lines[:5000]))
    assert read.endswith(b"\n" + b"".join(lines[-5000:]))
    assert len(set(read.splitlines(keepends=True)) - set(lines)) <= 2
    assert "384 MiB" in str(only.damage())


def test_large_file_on_disk_is_not_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same limit where nothing is compressed; who maps the file reads all of it."""
    monkeypatch.setattr(evidence, "FILE_LIMIT", 4 << 20)
    monkeypatch.setattr(unpack, "FILE_LIMIT", 4 << 20)
    monkeypatch.setattr(unpack, "HEAD_LIMIT", 1 << 20)
    (tmp_path / "pods.json").write_bytes(b"{" + b"x" * (9 << 20) + b"}")
    (only,) = read_target(tmp_path).evidences
    assert only.damage() is None
    assert len(only.read()) < 6 << 20
    assert "384 MiB" in str(only.damage())


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip"])
def test_total_limit(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all members together."""
    monkeypatch.setattr(archive, "TOTAL_LIMIT", 100_000)
    (tmp_path / name).write_bytes(ARCHIVES[name])
    target = read_target(tmp_path / name)
    assert ["logs/a.log"] == [one.path for one in target.evidences]
    assert "16 GiB" in " ".join(gaps(target).values())


def test_members_that_share_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive can hold any number of large members: what is unpacked counts, not what is said."""
    monkeypatch.setattr(archive, "TOTAL_LIMIT", 10 << 20)
    contents_of = [number.to_bytes(4, "big") + bytes(4 << 20) for number in range(20)]
    members = {
        f"{number}.gz": gzip.compress(content, mtime=0)
        for number, content in enumerate(contents_of)
    }
    (tmp_path / "x.tgz").write_bytes(gzip.compress(tar_of(members)))
    target = read_target(tmp_path / "x.tgz")
    read = [one for one in target.evidences if one.read()]
    assert len(read) == 2
    assert all("16 GiB" in str(one.damage()) for one in target.evidences if one not in read)
    assert all(one.read() in contents_of for one in read)


def test_member_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of folders and of archives."""
    monkeypatch.setattr(bundle, "MEMBER_LIMIT", 2)
    (tmp_path / "x.tar").write_bytes(ARCHIVES["x.tar"])
    assert len(read_target(tmp_path / "x.tar").evidences) == 2
    write(tmp_path / "folder", a_log=b"", b_log=b"", c_log=b"")
    target = read_target(tmp_path / "folder")
    assert len(target.evidences) == 2
    assert "2 files" in gaps(target)["c.log"]


def test_header_of_a_tar_that_claims_gigabytes(tmp_path: Path) -> None:
    """A long name of 5 GiB is not read into memory."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5 << 30
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    assert "1 MiB" in " ".join(gaps(read_target(tmp_path / "x.tar")).values())


def test_negative_size_ends_the_reading(tmp_path: Path) -> None:
    """Base-256 sizes may be negative, which makes a naive reader loop."""
    header = bytearray(tarfile.TarInfo("a.log").tobuf(tarfile.USTAR_FORMAT)[:512])
    header[124:136] = b"\xff" * 12
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    (tmp_path / "x.tar").write_bytes(bytes(header) + bytes(2048))
    target = read_target(tmp_path / "x.tar")
    assert target.evidences == ()
    assert "makes no sense" in " ".join(gaps(target).values())


def test_xz_that_wants_gigabytes_for_its_dictionary(tmp_path: Path) -> None:
    """The decoder's memory is limited; the file says that it is corrupt or too large."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 29, "preset": 0}]
    (tmp_path / "a.log.xz").write_bytes(lzma.compress(LINE, filters=filters))
    (only,) = read_target(tmp_path).evidences
    only.read()
    assert only.damage() is not None


# --- Standard input, single files, manifest -------------------------------------------------------


class _Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize(
    "given", [LINE, gzip.compress(LINE, mtime=0), tar_of({"standard-input": LINE}), zip_of({"standard-input": LINE}),
              gzip.compress(tar_of({"standard-input": LINE}), mtime=0)],
)  # fmt: skip
def test_standard_input(given: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pasted text, or anything that was piped in."""
    monkeypatch.setattr(sys, "stdin", _Stdin(given))
    assert {"standard-input": LINE} == contents(read_target("-"))


def test_nothing_on_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt pod name in front of the pipe is no incident."""
    monkeypatch.setattr(sys, "stdin", _Stdin(b""))
    with pytest.raises(TargetError, match="nothing came on standard input"):
        read_target("-")


def test_single_file_is_a_target(tmp_path: Path) -> None:
    """Its name is the target's."""
    write(tmp_path, a_log=LINE)
    target = read_target(tmp_path / "a.log")
    assert (target.name, contents(target)) == ("a.log", {"a.log": LINE})


def test_manifest_makes_a_bundle(tmp_path: Path) -> None:
    """It gives the time of capture, and is no evidence itself."""
    manifest = {
        "schema": "gpufleet.bundle/v1",
        "captured_at": "2026-03-11T04:00:00.5Z",
        "job": "train-run-7",
        "namespace": "train",
    }
    write(tmp_path, manifest_json=json.dumps(manifest).encode(), a_log=LINE)
    target = read_target(tmp_path)
    assert (target.kind, target.job, target.namespace) == ("bundle", "train-run-7", "train")
    assert target.captured_ns == 1_773_201_600_500_000_000
    assert ["a.log"] == [one.path for one in target.evidences]


@pytest.mark.parametrize(
    "content", [b"[1]", b"{", b'{"schema": "other/v1"}', b"[" * 100_000, b"\xff"]
)
def test_manifest_of_somebody_else_is_evidence(tmp_path: Path, content: bytes) -> None:
    """A file of that name that is not ours stays a file."""
    write(tmp_path, manifest_json=content)
    target = read_target(tmp_path)
    assert (target.kind, len(target.evidences)) == ("directory", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-", True), (".", True), ("./x", True), ("/x", True), ("../x", True), ("x", False),
     ("job/x", False), (str(Path(__file__)), True)],
)  # fmt: skip
def test_what_is_spelled_like_a_path_is_one(text: str, expected: bool) -> None:
    """The rest is the name of a job."""
    assert bundle.looks_like_path(text) is expected


def test_random_bytes_never_crash(tmp_path: Path) -> None:
    """Any bytes behind any magic."""
    magics = [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY", b"\xfd7zXZ\x00", b"PK\x03\x04",
              b"PK\x05\x06", tar_of({"a": b"x"})[:512]]  # fmt: skip
    for number, magic in enumerate(magics):
        for size in (0, 1, 100, 2000):
            name = f"{number}-{size}.zip"
            (tmp_path / name).write_bytes(magic + struct.pack("<I", size) * (size // 4))
    target = read_target(tmp_path)
    for one in target.evidences:
        one.read()
        one.damage()
