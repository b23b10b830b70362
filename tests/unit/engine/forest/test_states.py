"""Many changes taken over at once leave the forest that each of them by itself would leave."""

import uuid
from array import array
from collections.abc import Collection
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from placement.engine.domain.inventories import Inventory
from placement.engine.forest import bulk
from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import (
    LARGEST_RATIO,
    MILLION,
    InventoryRow,
    ProviderRecord,
    ProviderRow,
    ProviderStates,
)
from tests.forests import snapshot_of

# What a provider offers of a class: an inventory, and how much of it is in use.
Offer = tuple[Inventory, int]

RATIOS = st.sampled_from((1.0, 16.0, 1.1, 0.0000015, 3.4e38)) | st.floats(0.001, 1e3)
UNITS = [st.sampled_from(units) for units in ((1, 1, 4), (2**31 - 1, 5), (1, 1, 2))]
inventories = st.builds(Inventory, st.integers(1, 2**31 - 1), st.integers(0, 9), *UNITS, RATIOS)
offers = st.dictionaries(st.integers(1, 4), st.tuples(inventories, st.integers(0, 2**33)), max_size=3)
memberships = {"traits": st.frozensets(st.integers(1, 4), max_size=2)}
memberships["aggregates"] = st.frozensets(st.integers(1, 2))
held = st.fixed_dictionaries({"offers": offers, **memberships})
# Eight providers in trees of up to four: a provider stands below its parent, a root below none.
PARENTS: dict[int, int | None] = {1: None, 2: 1, 3: 1, 4: 2, 5: None, 6: 5, 7: None, 8: None}


# The same after some moved, one of them with whom is below it, one below another that became a root.
MOVED: dict[int, int | None] = {**PARENTS, 2: 5, 3: 6, 6: None, 7: 4, 8: 7}


def root_of(id_: int, parents: dict[int, int | None] = PARENTS) -> int:
    parent = parents[id_]
    return id_ if parent is None else root_of(parent, parents)


def record(
    id_: int, given: dict[str, Any], revision: int, parents: dict[int, int | None] = PARENTS
) -> ProviderRecord:
    head = ProviderRow(id_, str(uuid.UUID(int=id_)), revision, parents[id_], root_of(id_, parents), revision)
    rows = tuple(
        InventoryRow(
            class_id,
            inventory.capacity,
            inventory.min_unit,
            inventory.max_unit,
            inventory.step_size,
            used,
            inventory.total,
            inventory.reserved,
            round(min(inventory.allocation_ratio, LARGEST_RATIO) * MILLION),
        )
        for class_id, (inventory, used) in given["offers"].items()
    )
    return ProviderRecord(head, rows, given["traits"], given["aggregates"])


def told(
    providers: dict[int, dict[str, Any]],
    revision: int,
    strangers: Collection[int] = (),
    parents: dict[int, int | None] = PARENTS,
) -> ProviderStates:
    heads = [(id_, revision, parents[id_] or 0, root_of(id_, parents), revision, 0) for id_ in providers]
    offers = [
        (id_, class_id, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, used, i.allocation_ratio)
        for id_, given in providers.items()
        for class_id, (i, used) in given["offers"].items()
    ]
    columns = zip(*offers, strict=True) if offers else [()] * 9
    return ProviderStates(
        [array("q", column) for column in zip(*heads, strict=True)],
        {id_: str(uuid.UUID(int=id_)) for id_ in strangers},
        [array("q")] * 3,
        sorted(providers),
        [array("d" if at == 8 else "q", column) for at, column in enumerate(columns)],
        *(
            # Each by itself, so that a set comes as often as it is carried.
            [(given[kind], array("q", [id_])) for id_, given in providers.items() if given[kind]]
            for kind in ("traits", "aggregates")
        ),
    )


def contents(forest: Forest) -> dict[int, Any]:
    """All that the forest says of each provider, by its id; nothing of where in its columns."""
    found = {}
    providers = forest.providers
    for row in np.flatnonzero(forest.alive()).tolist():
        own: dict[str, Any] = {
            "generation": int(providers.generation[row]),
            "revision": int(providers.revision[row]),
            "parent": int(providers.id[providers.parent[row]]) if providers.parent[row] >= 0 else None,
            "root": int(providers.id[providers.root[row]]),
            "traits": forest.traits.of(row),
            "aggregates": forest.aggregates.of(row),
        }
        for class_id, column in forest.inventories.items():
            entry = column.entry_of(row)
            if entry >= 0:
                own[f"class {class_id}"] = [
                    getattr(columns, name)[entry].item()
                    for columns in (column.entries, column.offers)
                    for name in columns._fields
                    if name != "provider"
                ]
                assert column.entries.provider[entry] == row
        found[int(providers.id[row])] = own
    return found


def fitting(forest: Forest) -> dict[tuple[int, int], list[int]]:
    """Who can take an amount of a class, as searches ask it."""
    return {
        (class_id, amount): sorted(forest.providers.id[column.fitting(amount)].tolist())
        for class_id, column in forest.inventories.items()
        for amount in (1, 3, 4, 6, 2**30)
    }


def nothing_is_lost(forest: Forest) -> None:
    """Each entry of a column is held or vacant, none both; sets are kept that somebody has, and no others."""
    for members in (forest.traits, forest.aggregates):
        carried = {members.of(row) for row in np.flatnonzero(forest.alive()).tolist()}
        assert {ids for ids in members.sets if ids} == {ids for ids in carried if ids}
    for column in forest.inventories.values():
        assert len(column.occupied()) == column.count
        assert len(set(column._vacant)) == len(column._vacant)


changes = st.lists(
    st.dictionaries(st.sampled_from(sorted(PARENTS)), held, min_size=1), min_size=1, max_size=4
)


@given(st.fixed_dictionaries(dict.fromkeys(PARENTS, held)), changes, st.booleans())
def test_many_at_once_leave_what_one_by_one_would(before, changed, is_loaded):
    at_once, one_by_one = Forest(), Forest()
    present = dict(before)
    records = [record(id_, given, 1) for id_, given in before.items()]
    for forest in (at_once, one_by_one):
        forest.load(snapshot_of(told(before, 1, before))) if is_loaded else forest.apply(records)
    for revision, some in enumerate(changed, start=2):
        present.update(some)
        kept = at_once.snapshot()
        former = contents(kept), fitting(kept)
        stamps = at_once.providers.tree_stamp.copy()
        shapes = at_once.shape_version, one_by_one.shape_version
        several = told(some, revision)
        assert bulk.strangers(at_once, sorted(some)) == []
        bulk.apply(at_once, several)
        one_by_one.apply([record(id_, given, revision) for id_, given in some.items()])
        assert contents(at_once) == contents(one_by_one)
        assert fitting(at_once) == fitting(one_by_one)
        nothing_is_lost(at_once)
        # What was kept of a tree, or of who shares, holds no longer than it may.
        touched = {root_of(id_) for id_ in some}
        raised = np.flatnonzero(at_once.providers.tree_stamp > stamps)
        assert set(at_once.providers.id[raised].tolist()) == touched
        assert (at_once.shape_version > shapes[0]) == (one_by_one.shape_version > shapes[1])
        assert (contents(kept), fitting(kept)) == former
    anew = Forest()
    anew.load(snapshot_of(told(present, 1, present)))
    assert fitting(anew).items() <= fitting(at_once).items()
    one, other = contents(anew), contents(at_once)
    for own in (*one.values(), *other.values()):
        del own["generation"], own["revision"]
    assert one == other


NOTHING: dict[str, Any] = {"offers": {}, "traits": frozenset(), "aggregates": frozenset()}
SOMETHING: dict[str, Any] = {**NOTHING, "offers": {1: (Inventory(8), 3)}, "traits": frozenset({2})}


def trees(forest: Forest) -> dict[int, tuple[list[int], int]]:
    """By the id of each root all that are in its tree, as the list of the tree says, and their number."""
    providers = forest.providers
    return {
        int(providers.id[root]): (
            sorted(providers.id[forest.in_trees(np.array([root]))].tolist()),
            int(providers.tree_size[root]),
        )
        for root in forest.roots.tolist()
    }


def from_end_to_end(forest: Forest) -> bool:
    """Whether the list of each tree says the same forwards and backwards."""
    providers, rows = forest.providers, np.flatnonzero(forest.alive())
    following, preceding = providers.next[rows], providers.previous[rows]
    return bool(
        (providers.previous[following[following >= 0]] == rows[following >= 0]).all()
        and (providers.next[preceding[preceding >= 0]] == rows[preceding >= 0]).all()
    )


@given(
    st.fixed_dictionaries(dict.fromkeys(PARENTS, held)),
    st.sampled_from([set(), {1}, {5, 7}, {1, 2, 5}, {1, 2, 3, 4, 7}, set(PARENTS)]),
    st.integers(0, 8),
    st.booleans(),
)
@example(dict.fromkeys(PARENTS, NOTHING), set(PARENTS), 4, False)
def test_many_that_are_new_or_moved_come_as_one_by_one(providers, known, parted_at, some_are_gone):
    """Also with rows that others have left, and if they are told in two portions."""
    at_once, one_by_one = Forest(), Forest()
    for forest in (at_once, one_by_one):
        forest.apply([record(id_, providers[id_], 1) for id_ in sorted(known)])
        if some_are_gone:
            gone = ProviderRow(99, str(uuid.UUID(int=99)), 1, None, 99, 1)
            offers = (InventoryRow(1, 5, 1, 5, 1, 0),)
            forest.apply([ProviderRecord(gone, offers, frozenset({1}), frozenset({2}))])
            forest.remove(99)
    kept = at_once.snapshot()
    former = contents(kept), trees(kept)
    parts = [
        told({id_: providers[id_] for id_ in some}, 2, set(some) - known, MOVED)
        for some in (sorted(PARENTS)[:parted_at], sorted(PARENTS)[parted_at:])
        if some
    ]
    assert bulk.have_ancestors(at_once, parts)
    bulk.apply(at_once, *parts)
    one_by_one.apply([record(id_, given, 2, MOVED) for id_, given in providers.items()])
    assert contents(at_once) == contents(one_by_one)
    assert trees(at_once) == trees(one_by_one)
    assert at_once.shape_version > kept.shape_version
    assert fitting(at_once) == fitting(one_by_one)
    assert [at_once.row_of_uuid(str(uuid.UUID(int=id_))) for id_ in PARENTS] == at_once.rows_of(
        np.array(list(PARENTS))
    ).tolist()
    assert from_end_to_end(at_once)
    assert from_end_to_end(one_by_one)
    nothing_is_lost(at_once)
    assert (contents(kept), trees(kept)) == former


def test_a_parent_that_was_not_told_of_is_missed():
    forest = Forest()
    forest.apply([record(1, NOTHING, 1)])
    below = told(dict.fromkeys((2, 4), SOMETHING), 2, {2, 4})
    elsewhere = told({6: SOMETHING}, 2, {6})
    assert bulk.have_ancestors(forest, [below])
    assert not bulk.have_ancestors(forest, [below, elsewhere])
    assert bulk.have_ancestors(forest, [elsewhere, told({5: SOMETHING}, 2, {5})])


def test_a_class_that_is_new_is_offered_and_what_is_offered_as_before_is_not_copied():
    forest = Forest()
    forest.apply([record(id_, NOTHING, 1) for id_ in PARENTS])
    kept = forest.snapshot()
    bulk.apply(forest, told(dict.fromkeys(PARENTS, SOMETHING), 2))
    assert sorted(forest.providers.id[forest.column(1).fitting(5)].tolist()) == sorted(PARENTS)
    assert 1 not in kept.inventories
    kept = forest.snapshot()
    bulk.apply(forest, told({1: {**SOMETHING, "offers": {1: (Inventory(8), 5)}}}, 3))
    assert forest.column(1).offers.total is kept.column(1).offers.total
    assert forest.column(1).entries.used is not kept.column(1).entries.used


def test_a_capacity_far_below_zero_is_loaded_as_it_is_put():
    given = {**NOTHING, "offers": {1: (Inventory(1, 9, allocation_ratio=3.4e38), 0)}}
    loaded, put = Forest(), Forest()
    loaded.load(snapshot_of(told({1: given}, 1, {1})))
    put.apply([record(1, given, 1)])
    assert contents(loaded) == contents(put)
