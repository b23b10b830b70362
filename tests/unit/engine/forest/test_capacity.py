"""Sums by group are those of the inventories, whatever was applied and removed."""

from __future__ import annotations

import random
from collections import defaultdict

from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import MILLION, InventoryRow, ProviderRecord, ProviderRow
from placement.engine.forest.totals import NO_AGGREGATE, by_aggregate, by_root

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
    uuid = f"00000000-0000-4000-8000-{id_:012}"
    row = ProviderRow(id_, uuid, 0, None if id_ == root else root, root, revision)
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
                (sums.group, sums.class_id): [
                    sums.total,
                    sums.reserved,
                    round((sums.total - sums.reserved) * sums.ratio, 6),
                    sums.used,
                ]
                for sums in found
            }
            assert told == expected(records, per_root=per_root)
