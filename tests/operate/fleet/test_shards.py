"""Shards: every file once, nothing cut that belongs together, the same on every machine."""

from __future__ import annotations

import random

import pytest

from gpufleet_cli.operate.fleet.shards import MOST_FILES, File, cut, pieces, share


def listing(count: int, seed: int = 1) -> list[File]:
    rng = random.Random(seed)
    names = [f"logs/rank_{n}.log" for n in range(count)]
    names += [f"logs/rank_{n}.log.1.gz" for n in range(0, count, 3)]
    names += [f"dumps/nccl_trace_rank_{n}" for n in range(count)]
    names += ["manifest.json", "bundle/manifest.json", "topology.json"]
    found = [File(name=name, size_bytes=rng.randrange(10_000)) for name in names]
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("most", [1, 5_000, 50_000, 1 << 40])
def test_every_file_is_in_one_shard(most: int) -> None:
    files = listing(40)
    shards = cut(files, most_bytes=most)
    assert sorted(files, key=str) == sorted((file for shard in shards for file in shard), key=str)
    for shard in shards:
        own = pieces(shard)
        assert len(own) == 1 or sum(file.size_bytes for file in shard) <= most


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_shares_are_the_whole_and_alike(count: int) -> None:
    """Each task asks for its own alone; none has much more than another."""
    files = listing(60)
    shares = [share(random.Random(n).sample(files, len(files)), n, count) for n in range(count)]
    assert sorted(files, key=str) == sorted((file for one in shares for file in one), key=str)
    sizes = [sum(file.size_bytes for file in one) for one in shares]
    largest = max(sum(file.size_bytes for file in piece) for piece in pieces(files))
    assert max(sizes) - min(sizes) <= largest + len(files)


def test_rotated_files_and_manifests_stay_together() -> None:
    files = listing(30)
    for shards in (cut(files, most_bytes=1), [share(files, n, 50) for n in range(50)]):
        home = {file.name: n for n, shard in enumerate(shards) for file in shard}
        for n in range(0, 30, 3):
            assert home[f"logs/rank_{n}.log"] == home[f"logs/rank_{n}.log.1.gz"]
        assert home["manifest.json"] == home["bundle/manifest.json"]


def test_a_shard_has_so_many_files_at_most() -> None:
    """Empty files have no size, and fill a disk's table all the same."""
    files = [File(name=f"{n:06}", size_bytes=0) for n in range(2 * MOST_FILES + 1)]
    assert [MOST_FILES, MOST_FILES, 1] == [len(one) for one in cut(files, most_bytes=1 << 40)]
