"""Sums by group and by host are what the inventories say, whatever was applied and removed."""

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np

from placement.engine.forest.fleet import (
    NOTHING,
    Fleet,
    TreeShares,
    fleet_of,
    free_cores,
    overfull,
    places_of,
    shares_in_use,
    stranded_cores,
)
from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import MILLION, InventoryRow, ProviderRecord, ProviderRow
from placement.engine.forest.totals import NO_AGGREGATE, by_aggregate, by_root

UUID = "00000000-0000-4000-8000-{:012}"
CPUS, MEMORY, DISK = 1, 2, 3
CLUSTER, OTHER = 7, 8


def provider(id_: int, parent: int | None, root: int, held: dict[int, tuple[int, int]]) -> ProviderRecord:
    """A provider with (capacity, used) by class; roots of even ids are in the cluster."""
    rows = tuple(
        InventoryRow(class_id, capacity, 1, 10**6, 1, used, capacity, 0, MILLION)
        for class_id, (capacity, used) in held.items()
    )
    row = ProviderRow(id_, UUID.format(id_), 0, parent, root, 1)
    aggregates = frozenset({CLUSTER} if id_ % 2 == 0 else ()) if parent is None else frozenset()
    return ProviderRecord(row, rows, frozenset(), aggregates)


def of(forest: Forest, *only: int) -> Fleet:
    return fleet_of(forest.snapshot(), [{CLUSTER}], only)


def test_hosts_come_group_by_group_and_each_once():
    forest = Forest()
    forest.apply([provider(id_, None, id_, {DISK: (10, id_)}) for id_ in range(1, 8)])
    all_ = of(forest)
    assert all_.ids.tolist() == [1, 3, 5, 7, 2, 4, 6]
    assert (all_.groups, all_.counts()) == ([NO_AGGREGATE, CLUSTER], [4, 3])
    assert np.frombuffer(all_.group_bytes, "<u4").tolist() == [0, 4, 7]
    assert np.frombuffer(all_.id_bytes, "<u4").tolist() == all_.ids.tolist()
    assert of(forest, CLUSTER).ids.tolist() == [2, 4, 6]
    assert of(forest, OTHER).ids.tolist() == []
    assert of(forest, CLUSTER, OTHER).ids.tolist() == []
    used = shares_in_use(forest.snapshot(), all_, DISK)
    assert used.part.tolist() == [1, 3, 5, 7, 2, 4, 6]
    assert used.totals() == (28, 70)
    assert used.ranked(rising=False) == [3, 6, 2, 5, 1, 4, 0]
    assert places_of(all_, [6, 99, 1]) == [6, None, 0]


def test_a_host_is_in_the_first_kind_of_group_that_it_has_one_of():
    forest = Forest()
    rows = [provider(id_, None, id_, {DISK: (10, id_)}) for id_ in range(1, 6)]
    sets = ({3, 4, 9}, {3, 4}, {3, 9}, {3}, set())
    forest.apply([replace(each, aggregate_ids=frozenset(ids)) for each, ids in zip(rows, sets, strict=True)])
    found = fleet_of(forest.snapshot(), ({9}, {4}))
    groups = {int(id_): found.groups[at] for id_, at in zip(found.ids, found.group_of, strict=True)}
    assert groups == {1: 9, 2: 4, 3: 9, 4: 3, 5: NO_AGGREGATE}


def test_shared_storage_comes_last_in_its_group_and_is_no_host():
    forest = Forest()
    forest.apply([provider(id_, None, id_, {DISK: (10, id_)}) for id_ in range(1, 6)])
    rows = forest.rows_of(np.array([1, 2]))
    all_ = fleet_of(forest.snapshot(), [{CLUSTER}], sharing=rows)
    assert all_.ids.tolist() == [3, 5, 1, 4, 2]
    assert all_.counts() == [2, 1]
    assert all_.storage == 2


def test_levels_are_percent_and_nothing_is_told_from_zero():
    shares = TreeShares(np.array([0, 1, 3, 5, 90, 0]), np.array([3, 3, 3, 3, 3, 0]))
    assert list(shares.level_bytes) == [0, 33, 100, 167, 200, NOTHING]
    assert shares.ranked(rising=True) == [0, 1, 2, 3, 4, 5]
    assert shares.ranked(rising=False) == [4, 3, 2, 1, 0, 5]


def test_a_core_is_free_if_nobody_has_any_of_it():
    forest = Forest()
    numa = {MEMORY: (64, 60)}
    cores = {11: (2, 0), 12: (2, 1), 13: (2, 2), 14: (0, 0)}
    forest.apply(
        [
            provider(1, None, 1, {DISK: (10, 0)}),
            provider(10, 1, 1, numa),
            *(provider(id_, 10, 1, {CPUS: held}) for id_, held in cores.items()),
            # CPUs beside memory in one provider count by themselves.
            provider(2, None, 2, {CPUS: (8, 3), MEMORY: (100, 0)}),
            provider(3, None, 3, {MEMORY: (100, 0)}),
        ]
    )
    snapshot, all_ = forest.snapshot(), of(forest)
    free = free_cores(snapshot, all_, CPUS, MEMORY)
    assert all_.ids.tolist() == [1, 3, 2]
    assert [free.at(place) for place in range(3)] == [(1, 3), (0, 0), (5, 8)]


def test_stranded_cores_are_free_beside_too_little():
    """Compared with a sum that is written for obviousness."""
    chance = random.Random(7)
    forest, expected, records = Forest(), {}, []
    next_id = 1000
    for root in range(1, 40):
        records.append(provider(root, None, root, {}))
        stranded = free = 0
        for _ in range(chance.randrange(3)):
            next_id += 1
            place, memory = next_id, chance.randrange(30)
            records.append(provider(place, root, root, {MEMORY: (30, 30 - memory)}))
            here = 0
            for _ in range(chance.randrange(8)):
                next_id += 1
                used = chance.randrange(3)
                records.append(provider(next_id, place, root, {CPUS: (2, used)}))
                here += used == 0
            free += here
            stranded += here if here < 4 or memory < 16 else 0
        expected[root] = (stranded, free)
    forest.apply(records)
    snapshot, all_ = forest.snapshot(), of(forest)
    found = stranded_cores(snapshot, all_, CPUS, MEMORY, (4, 16))
    assert {id_: found.at(place) for place, id_ in enumerate(all_.ids.tolist())} == expected
    assert any(stranded for stranded, _ in expected.values())


def test_what_is_overfull_is_found_and_an_empty_forest_has_a_map():
    forest = Forest()
    all_ = of(forest)
    assert (all_.id_bytes, all_.is_narrow, len(all_.roots)) == (b"", True, 0)
    assert shares_in_use(forest.snapshot(), all_, CPUS).level_bytes == b""
    assert stranded_cores(forest.snapshot(), all_, CPUS, MEMORY, (4, 16)).totals() == (0, 0)
    full = provider(1, None, 1, {DISK: (10, 12), MEMORY: (10, 10)})
    forest.apply([full, provider(2, None, 2, {DISK: (0, 0)})])
    assert overfull(forest.snapshot()) == [(1, DISK, 12, 10)]


_CLASSES, _AGGREGATES, _CLUSTERS = (1, 2, 3), (5, 6, 7, 8), frozenset({7, 8})


def record(chance: random.Random, id_: int, root: int, revision: int) -> ProviderRecord:
    inventories = []
    for class_id in chance.sample(_CLASSES, chance.randrange(len(_CLASSES) + 1)):
        total, ratio = chance.randrange(1, 50), chance.choice((1, 2, 16))
        reserved = chance.randrange(total)
        capacity = (total - reserved) * ratio
        used = chance.randrange(capacity + 1)
        amounts = (capacity, 1, 10**6, 1, used, total, reserved, ratio * MILLION)
        inventories.append(InventoryRow(class_id, *amounts))
    row = ProviderRow(id_, UUID.format(id_), 0, None if id_ == root else root, root, revision)
    aggregates = frozenset(chance.sample(_AGGREGATES, chance.randrange(3)))
    return ProviderRecord(row, tuple(inventories), frozenset(), aggregates)


def expected(records: dict[int, ProviderRecord], *, per_root: bool) -> dict[tuple[int, int], list[float]]:
    sums: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for each in records.values():
        root = records[each.row.root_id]
        ours = sorted(root.aggregate_ids & _CLUSTERS) or sorted(root.aggregate_ids) or [NO_AGGREGATE]
        group = root.row.id if per_root else ours[0]
        for row in each.inventories:
            amounts = (row.total, row.reserved, row.capacity, row.used)
            held = sums[group, row.class_id]
            sums[group, row.class_id] = [before + more for before, more in zip(held, amounts, strict=True)]
    return dict(sums)


def test_sums_are_those_of_the_inventories_through_all_changes():
    chance = random.Random(4)
    forest, records = Forest(), {}
    for revision in range(400):
        known = sorted(records)
        roots = [id_ for id_ in known if records[id_].row.root_id == id_]
        members = [id_ for id_ in known if id_ not in roots]
        if members and chance.random() < 0.2:
            gone = chance.choice(members)
            forest.remove(gone)
            del records[gone]
        else:
            id_ = chance.randrange(1, 60)
            root = records[id_].row.root_id if id_ in records else chance.choice([id_, *roots])
            records[id_] = record(chance, id_, root, revision)
            forest.apply([records[id_]])
        snapshot = forest.snapshot()
        for per_root in (False, True):
            found = by_root(snapshot) if per_root else by_aggregate(snapshot, _CLUSTERS)
            told = {
                (group, class_id): [total, reserved, round((total - reserved) * ratio, 6), used]
                for group, class_id, total, reserved, ratio, used in found
            }
            assert told == expected(records, per_root=per_root)
