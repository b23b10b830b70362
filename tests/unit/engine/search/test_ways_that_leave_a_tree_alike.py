"""Of the ways in which a tree takes a request, each that leaves it different is offered, and each once."""

from __future__ import annotations

from uuid import UUID

from placement.engine.domain.inventories import Inventory
from placement.engine.search.simulation import SearchedForest
from tests.forests import World
from tests.naive import NaiveProvider
from tests.querystring import parsed


def test_cores_are_alike_where_their_traits_are() -> None:
    uuids = [str(UUID(int=number)) for number in range(1, 6)]
    fast = frozenset({"CUSTOM_FAST"})
    cores = [NaiveProvider(uuid, uuids[0], {"PCPU": Inventory(2)}) for uuid in uuids[1:4]]
    fast_core = NaiveProvider(uuids[4], uuids[0], {"PCPU": Inventory(2)}, traits=fast)
    world = World([NaiveProvider(uuids[0]), *cores, fast_core])
    query = world.query(parsed([("resources", "PCPU:2")]))
    world.load()
    forest = SearchedForest(world.forest.snapshot(), world.sharing, 1)
    [root] = forest.roots.tolist()
    ways = forest.candidates("two CPUs", query, root)
    found = [forest.traits.of(draw.row) for [draw] in ways]
    assert found == [frozenset(), frozenset({world.traits["CUSTOM_FAST"]})]
