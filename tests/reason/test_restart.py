"""What a restart would find once the nodes to blame are out."""

from __future__ import annotations

import pytest

from gpufleet_cli.facts import Origin, RestartRoom
from gpufleet_cli.reason import restart


def room(node: str, places: bool | None) -> RestartRoom:
    where = Origin(path="kubernetes/spares.json")
    return RestartRoom(
        node=node, places=places, why=f"of {node}", cause=None, nodes=(), spare_nodes=0,
        origin=where,
    )  # fmt: skip


@pytest.mark.parametrize("places", [True, False, None])
def test_one_node_has_its_own_answer(places: bool | None) -> None:
    """Not that of another node of the gang."""
    found = restart.without([room("a", not places), room("b", places)], ["b"])
    assert found is not None
    assert ("b", places, "of b") == (found.node, found.spares.places, found.spares.why)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [(True, True, None), (True, False, False), (False, True, False), (None, False, False)],
)
def test_several_nodes(first: bool | None, second: bool | None, both: bool | None) -> None:
    """A no without one node holds for more of them; a yes for each alone is none for all."""
    found = restart.without([room("a", first), room("b", second)], ["a", "b"])
    assert found is not None
    assert found.spares.places is both


def test_nobody_asked() -> None:
    """No file, no node to blame, another node: nothing is said."""
    assert restart.without([], ["a"]) is None
    assert restart.without([room("a", True)], []) is None
    assert restart.without([room("a", True)], ["b"]) is None
