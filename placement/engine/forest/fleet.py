"""The whole fleet: a number for every tree, by what it uses, has left, or has left but cannot use.

Trees come in the order of `Fleet.roots`. Every array of this module has one entry for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.totals import NO_AGGREGATE, groups_of_sets

NOTHING = 255
"""The level of a tree that has none of what is shown."""


_ALL, _MOST_LEVEL = 100, 200


_ENDLESS = 2**62


class Fleet(NamedTuple):
    """A list of trees in the order of their groups, in each group hosts before shared storage, by storage id.

    `groups` are the aggregates that trees are counted for (`groups_of_sets`); `group_of` is the place of each
    tree's group among these. `is_storage` says which trees are no hosts.
    """

    roots: Rows
    ids: Amounts
    groups: list[int]
    group_of: Rows
    is_storage: Mask

    @property
    def id_bytes(self) -> bytes:
        """The storage ids, four bytes each, or eight where one needs more; little-endian."""
        return self.ids.astype("<u4" if self.is_narrow else "<f8").tobytes()

    @property
    def is_narrow(self) -> bool:
        """Whether each id has four bytes."""
        return not len(self.ids) or int(self.ids.max()) < 2**32

    @property
    def storage(self) -> int:
        """How many of the trees are shared storage."""
        return int(np.count_nonzero(self.is_storage))

    def counts(self) -> list[int]:
        """Return how many hosts each group has."""
        counts: list[int] = np.bincount(self.group_of[~self.is_storage], minlength=len(self.groups)).tolist()
        return counts

    @property
    def group_bytes(self) -> bytes:
        """Where each group starts, and where the last one ends: four bytes each, little-endian."""
        starts = np.searchsorted(self.group_of, np.arange(len(self.groups) + 1))
        return starts.astype("<u4").tobytes()


class TreeShares(NamedTuple):
    """A part of a whole for each tree, such as used of capacity; a whole of 0 means that it has none."""

    part: Amounts
    whole: Amounts

    @property
    def levels(self) -> Rows:
        """The part in percent of the whole, rounded as `rounded_share` does; at most 200, or NOTHING."""
        whole = np.maximum(self.whole, 1)
        rounded = (2 * _ALL * self.part.astype(np.float64) + whole) // (2 * whole)
        percent = np.where(self.part < whole, np.clip(rounded, 1, _ALL - 1), np.maximum(rounded, _ALL + 1))
        percent = np.where(self.part == whole, _ALL, np.where(self.part <= 0, 0, percent))
        levels: Rows = np.where(self.whole > 0, np.minimum(percent, _MOST_LEVEL), NOTHING).astype(np.intp)
        return levels

    @property
    def level_bytes(self) -> bytes:
        """The levels, a byte each."""
        return self.levels.astype(np.uint8).tobytes()

    @property
    def weight(self) -> tuple[int, int]:
        """The levels of all trees together, and how many trees have some of the whole."""
        levels = self.levels[self.whole > 0]
        return int(levels.sum()), len(levels)

    def totals(self) -> tuple[int, int]:
        """Return the parts and the wholes of all trees together."""
        return int(self.part.sum()), int(self.whole.sum())

    def at(self, place: int) -> tuple[int, int]:
        """Return the part and the whole of one tree."""
        return int(self.part[place]), int(self.whole[place])

    def most_left(self, among: Mask) -> int:
        """Return the place of the tree, of these, with the largest rest of its whole."""
        return int(np.argmax(np.where(among, self.whole - self.part, -_ENDLESS)))

    def ranked(self, *, rising: bool) -> list[int]:
        """Return the places of the trees by level, trees without a level last; ties keep their order."""
        levels = self.levels
        order = levels if rising else -levels
        ranked = np.argsort(np.where(levels == NOTHING, 2 * _MOST_LEVEL, order), kind="stable")
        found: list[int] = ranked.tolist()
        return found


def fleet_of(
    forest: Forest,
    preferred: Sequence[Collection[int]],
    only: Collection[int] = (),
    sharing: Indices | None = None,
) -> Fleet:
    """Return all trees, or trees with a root in all aggregates of `only`; `preferred` as in `groups_of_sets`.

    A tree with a root in `sharing` is shared storage, each other one is a host.
    """
    groups, group_of_set = groups_of_sets(forest, preferred)
    roots = forest.roots
    if only:
        required = tuple(frozenset((each,)) for each in only)
        roots = roots[forest.aggregates.satisfying(roots, required, frozenset())]
    group_of = group_of_set[forest.aggregates.numbers[roots]]
    # Groups without any of these trees are left out.
    present, group_of = np.unique(group_of, return_inverse=True)
    groups = [groups[place] for place in present.tolist()]
    ids = forest.providers.id[roots]
    is_storage = np.zeros(len(roots), bool) if sharing is None else np.isin(roots, sharing)
    # In the smallest type that holds them, keys of 100,000 trees are sorted in a millisecond.
    key = (2 * group_of + is_storage).astype(np.min_scalar_type(2 * len(groups) + 1))
    order = np.argsort(ids, kind="stable")
    order = order[np.argsort(key[order], kind="stable")]
    return Fleet(roots[order], ids[order], groups, group_of[order], is_storage[order])


def shares_in_use(forest: Forest, fleet: Fleet, class_id: int) -> TreeShares:
    """Return the used part of the capacity of a class."""
    column = forest.column(class_id)
    entries, held = column.entries, column.held
    capacity = np.maximum(entries.capacity_of[held], 0)
    return _shares(forest, fleet, entries.provider[held], entries.used[held], capacity)


def by_group(fleet: Fleet, shares: TreeShares) -> list[tuple[int, int]]:
    """Return the parts and wholes of the trees of each group together."""
    sums = (np.bincount(fleet.group_of, amounts, len(fleet.groups)) for amounts in shares)
    part, whole = (summed.astype(np.int64).tolist() for summed in sums)
    return list(zip(part, whole, strict=True))


def hosts_without(fleet: Fleet, met: Mask) -> list[int]:
    """Return the places of the hosts that do not meet a condition; shared storage is none."""
    found: list[int] = np.flatnonzero(~met & ~fleet.is_storage).tolist()
    return found


def hosts_after(fleet: Fleet, after: int, count: int) -> list[int]:
    """Return the places of the first `count` hosts with storage ids above `after`, by id."""
    places = np.flatnonzero(~fleet.is_storage & (fleet.ids > after))
    found: list[int] = places[np.argsort(fleet.ids[places])][:count].tolist()
    return found


def free_cores(forest: Forest, fleet: Fleet, cpus: int, memory: int) -> TreeShares:
    """Return how many whole cores are untouched, of all that can be allocated.

    A core is a provider of the class `cpus` below another one, without memory of its own. Where a provider
    with memory offers the CPUs, each CPU counts.
    """
    return _shares(forest, fleet, *_cores(forest, cpus, memory))


def stranded_cores(
    forest: Forest, fleet: Fleet, cpus: int, memory: int, request: tuple[int, int]
) -> TreeShares:
    """Return how many free cores are stranded: beside them `request`, (cores, memory), does not fit.

    Cores and memory below one provider with memory are beside each other. The whole is all free cores.
    """
    provider, free, _ = _cores(forest, cpus, memory)
    column, parents = forest.column(memory), forest.providers.parent
    # The nearest provider of each one, from itself upwards, that offers memory; else its root.
    beside = provider.copy()
    while (further := (column.entries_of(beside) < 0) & (parents[beside] >= 0)).any():
        beside = np.where(further, parents[beside], beside)
    together = np.bincount(beside, free, forest.count).astype(np.int64)
    at = column.entries_of(beside)
    free_memory = np.where(at >= 0, column.entries.free[at], _ENDLESS)
    in_vain = (together[beside] < request[0]) | (free_memory < request[1])
    return _shares(forest, fleet, provider, free * in_vain, free)


def overfull(forest: Forest) -> list[tuple[int, int, int, int]]:
    """Return inventories with more in use than capacity: (storage id of the provider, class, used, capacity).

    Nothing fits there until something is released.
    """
    found: list[tuple[int, int, int, int]] = []
    for class_id, column in forest.inventories.items():
        entries = column.entries
        at = column.occupied()
        at = at[(entries.free[at] < 0) & (entries.used[at] > 0)]
        ids = forest.providers.id[entries.provider[at]]
        rows = zip(ids.tolist(), entries.used[at].tolist(), entries.capacity_of[at].tolist(), strict=True)
        found += [(id_, class_id, in_use, max(most, 0)) for id_, in_use, most in rows]
    return found


def places_of(fleet: Fleet, ids: Sequence[int]) -> list[int | None]:
    """Return the places of the trees with these storage ids, None for ids that are not in the fleet."""
    order = np.argsort(fleet.ids, kind="stable")
    ascending = fleet.ids[order]
    found = np.searchsorted(ascending, np.array(ids, np.int64))
    return [
        int(order[at]) if at < len(order) and ascending[at] == id_ else None
        for at, id_ in zip(found.tolist(), ids, strict=True)
    ]


# Trees with adjoining storage ids share a block, so that all levels of one tree are in one of them.
_TREES_OF_A_BLOCK = 1024
_ID_BYTES = 8


def level_blocks(fleet: Fleet, shares: Mapping[str, TreeShares]) -> Iterator[tuple[int, bytes]]:
    """Yield the levels of all trees by class, in blocks, each with its first id.

    A block is a line with the classes that its trees have, the step from each id to the next in eight bytes,
    little-endian, and by class the levels, a byte each.
    """
    order = np.argsort(fleet.ids)
    ids = fleet.ids[order]
    levels = {name: each.levels[order].astype(np.uint8) for name, each in shares.items()}
    for start in range(0, len(ids), _TREES_OF_A_BLOCK):
        some = slice(start, start + _TREES_OF_A_BLOCK)
        offered = {name: each[some] for name, each in levels.items() if (each[some] != NOTHING).any()}
        steps = np.diff(ids[some], prepend=0).astype("<i8")
        columns = (column.tobytes() for column in (steps, *offered.values()))
        yield int(ids[start]), b"\n".join((",".join(offered).encode(), b"".join(columns)))


def levels_of(id_: int, block: bytes) -> dict[str, int]:
    """Return the levels of a tree by class, if it is in this block of `level_blocks`."""
    head, _, columns = block.partition(b"\n")
    names = head.decode().split(",") if head else []
    count = len(columns) // (_ID_BYTES + len(names))
    ids = np.frombuffer(columns, "<i8", count).cumsum()
    places = np.flatnonzero(ids == id_).tolist()
    found = {
        name: columns[(_ID_BYTES + at) * count + place] for place in places for at, name in enumerate(names)
    }
    return {name: level for name, level in found.items() if level != NOTHING}


def _cores(forest: Forest, cpus: int, memory: int) -> tuple[Indices, Amounts, Amounts]:
    """Return the providers of cores or of CPUs beside memory, how many each has free, and in all."""
    column = forest.column(cpus)
    at = column.occupied()
    entries = column.entries
    provider = entries.provider[at]
    is_core: Mask = (forest.column(memory).entries_of(provider) < 0) & (
        forest.providers.parent[provider] >= 0
    )
    capacity = np.maximum(entries.capacity_of[at], 0)
    untouched = (capacity > 0) & (entries.used[at] == 0)
    free = np.where(is_core, untouched, np.clip(entries.free[at], 0, capacity))
    return provider, free.astype(np.int64), np.where(is_core, capacity > 0, capacity).astype(np.int64)


def _shares(forest: Forest, fleet: Fleet, provider: Indices, part: Amounts, whole: Amounts) -> TreeShares:
    """Return the amounts of these providers, summed over each tree."""
    count = len(fleet.roots)
    # The place of the tree of each row; one past the last for rows of other trees.
    place = np.full(forest.count + 1, count, np.intp)
    place[fleet.roots] = np.arange(count)
    roots = forest.providers.root[: forest.count]
    of_provider = place[np.where(roots >= 0, roots, forest.count)][provider]
    part, whole = (np.bincount(of_provider, amounts, count + 1)[:count] for amounts in (part, whole))
    return TreeShares(part.astype(np.int64), whole.astype(np.int64))


def hosts_of_aggregates(forest: Forest, fleet: Fleet) -> Counter[int]:
    """Return how many hosts each aggregate has; a host counts in all of its aggregates."""
    numbers, sets = forest.aggregates.numbers[fleet.roots[~fleet.is_storage]], forest.aggregates.sets
    found: Counter[int] = Counter()
    for ids, count in zip(sets, np.bincount(numbers, minlength=len(sets)).tolist(), strict=True):
        for id_ in ids or (NO_AGGREGATE,):
            found[id_] += count
    return found
