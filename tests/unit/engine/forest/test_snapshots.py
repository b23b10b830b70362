"""A search looks at the forest as it was when the search began, whatever is applied meanwhile."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from placement.engine.domain.inventories import Inventory
from placement.engine.forest.inventories import Draw
from placement.engine.forest.providers import InventoryRow, ProviderRecord, ProviderRow
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from tests.forests import World, without
from tests.naive import NaiveProvider
from tests.strategies import Search, searches


def looked_at(world: World, query) -> object:
    found = world.search(query)
    answer = Answer(world.forest, found)
    return list(answer.elements()), [list(tree) for tree in answer.tree_summaries(answer.trees())]


@given(searches(), st.data())
def test_a_snapshot_stays_as_it_was(given_search: Search, data: st.DataObject) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    before = looked_at(world, query)
    forest = world.forest
    kept = forest.snapshot()
    again = [forest.snapshot()]
    parents = {provider.parent for provider in providers}
    for number in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.sampled_from(providers))
        if chosen.uuid in parents or data.draw(st.booleans()):
            change = without(chosen) if data.draw(st.booleans()) else chosen
            if forest.knows(world.ids[chosen.uuid]):
                forest.apply([world.record(change, revision=2 + number)])
        else:
            forest.remove(world.ids[chosen.uuid])
        again.append(forest.snapshot())
    after = looked_at(world, query)
    world.forest = kept
    assert looked_at(world, query) == before
    world.forest = again[-1]
    assert looked_at(world, query) == after
    assert again[0] is kept


def a_provider(number: int, used: int = 0) -> ProviderRecord:
    row = ProviderRow(number, f"{number:08x}-0000-4000-8000-000000000000", used, None, number, used)
    return ProviderRecord(row, (InventoryRow(1, 10, 1, 10, 1, used),), frozenset(), frozenset())


def a_forest() -> World:
    world = World([])
    world.forest.apply([a_provider(number) for number in range(1, 5)])
    return world


def test_nothing_is_copied_where_nobody_looks():
    forest = a_forest().forest
    forest.snapshot()
    used, revisions = forest.column(1).entries.used, forest.providers.revision
    forest.apply([a_provider(2, used=3)])
    assert forest.column(1).entries.used is used
    assert forest.providers.revision is revisions


def test_what_somebody_looks_at_is_copied_once():
    forest = a_forest().forest
    kept = forest.snapshot()
    forest.apply([a_provider(2, used=3)])
    copied = forest.column(1).entries.used
    assert copied is not kept.column(1).entries.used
    forest.apply([a_provider(2, used=4)])
    assert forest.column(1).entries.used is copied
    assert kept.column(1).entries.used[1] == 0


def test_looking_for_an_unknown_class_changes_no_snapshot():
    forest = a_forest().forest
    kept = forest.snapshot()
    forest.apply([replace(a_provider(9), inventories=())])
    assert list(kept.column(77).free_of(kept.roots)) == [0, 0, 0, 0]
    assert 77 not in forest.inventories


def test_a_look_that_brings_nothing_keeps_the_snapshot():
    forest = a_forest().forest
    kept = forest.snapshot()
    forest.apply([])
    assert forest.snapshot() is kept


def test_what_is_made_of_a_snapshot_stays_when_the_snapshot_is_gone():
    forest = a_forest().forest
    copied = SimulatedForest(forest.snapshot())
    before = copied.providers.id.tolist(), copied.column(1).entries.used.tolist()
    forest.apply([a_provider(2, used=9)])
    forest.remove(3)
    forest.apply([a_provider(7, used=1)])
    assert (copied.providers.id.tolist(), copied.column(1).entries.used.tolist()) == before
    del copied
    # Nobody looks any more, so nothing is copied.
    forest.snapshot()
    used = forest.column(1).entries.used
    forest.apply([a_provider(2, used=3)])
    assert forest.column(1).entries.used is used


def test_a_simulated_forest_is_gone_with_its_last_user():
    """A cycle would keep its copied columns until a full collection, and the next write would copy more."""
    world = World([NaiveProvider(str(UUID(int=1)), None, {"VCPU": Inventory(8)})])
    world.load()
    gc.disable()
    try:
        simulated = SimulatedForest(world.forest.snapshot())
        class_id = world.classes["VCPU"]
        simulated.take([Draw(int(simulated.roots[0]), class_id, 2)])
        assert simulated.free(int(simulated.roots[0]), class_id) == 6
        kept = weakref.ref(simulated)
        del simulated
        assert kept() is None
    finally:
        gc.enable()
