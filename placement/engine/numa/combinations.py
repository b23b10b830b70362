"""The combinations of NUMA nodes that are tried for a pod; alike NUMA nodes are interchangeable.

Source: koordinator.md, "Many NUMA nodes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, combinations, islice
from math import comb

from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.cpus import members_of

# Hosts of twelve NUMA nodes have 4,095 combinations, and all are looked at. Of larger ones as many, narrow
# ones first, and of each further size a choice. All choices together are as many again.
MOST_EXAMINED = 4096
# Hosts with fewer NUMA nodes have so few combinations that comparing NUMA nodes costs more than it saves.
_FEW = 4
# A search for one combination tries this many counts of like NUMA nodes at most.
_MOST_STEPS = 16

NumaKinds = Mapping[int, int]
"""The kind of each NUMA node by its id: NUMA nodes of one kind are alike for the pod."""


def kinds_of(allocator: NumaAllocator) -> NumaKinds:
    """Return the kind of each NUMA node of a host for a pod, as the lowest id of that kind.

    NUMA nodes are alike if they have the same amounts, the same pods beside each other, and CPUs that lie on
    cores and are in use in the same way. What is reserved for the pod may be anywhere, so then all differ.
    """
    numa_ids = sorted(allocator.available)
    if len(numa_ids) <= _FEW or allocator.uses_reservations:
        return {numa: numa for numa in numa_ids}
    known: dict[object, int] = {}
    return {numa: known.setdefault(_properties(allocator, numa), numa) for numa in numa_ids}


def _properties(allocator: NumaAllocator, numa: int) -> object:
    """Return all about a NUMA node that decides about the pod, without ids."""
    host, layout = allocator.host, allocator.host.layout
    amounts = (allocator.available[numa], host.capacity.get(numa, {}))
    neighbours = (host.neighbours.single >> numa & 1, host.neighbours.shared >> numa & 1)
    here, use = layout.numa_nodes.get(numa, 0), host.use
    masks = (
        *use.counts,
        use.pcpu_level,
        use.numa_level,
        host.unallocatable,
        host.pool,
        allocator.free_cpus,
    )
    cpus = list(members_of(here))
    in_use = tuple(tuple(mask >> cpu & 1 for cpu in cpus) if mask & here else () for mask in masks)
    return (
        *(frozenset(row.items()) for row in amounts),
        neighbours,
        layout.shape_of_numa.get(numa, ()),
        in_use,
    )


class NumaCombinations:
    """The combinations of the NUMA nodes of a host that could serve a pod, by size."""

    def __init__(self, allocator: NumaAllocator) -> None:
        self._allocator = allocator
        self._numa_ids = sorted(allocator.available)
        self.kinds = kinds_of(allocator)
        self._complete: set[int] = set()
        count, looked_at = len(self._numa_ids), 0
        self.sizes = range(allocator.fewest_numa_nodes, count + 1)
        for size in self.sizes:
            looked_at += comb(count, size)
            if size == count or looked_at <= MOST_EXAMINED:
                self._complete.add(size)

    def of_size(self, size: int) -> Iterator[tuple[int, ...]]:
        """Yield combinations of `size` NUMA nodes, ids ascending, in lexicographic order.

        Where there are too many, NUMA nodes of one kind are counted, and the lowest ids stand for the others.
        """
        if size in self._complete:
            return combinations(self._numa_ids, size)
        most = max(1, MOST_EXAMINED // len(self._numa_ids))
        places = self._places()
        ordered = (islice(self._with_room(each, size), most // 2) for each in (places, places[::-1]))
        return iter(sorted(set(chain.from_iterable(ordered))))

    def word(self, numa_ids: Sequence[int]) -> tuple[int, ...]:
        """Return the kinds of an ascending combination in turn: equal words are equally good for the pod."""
        return tuple(map(self.kinds.__getitem__, numa_ids))

    def _places(self) -> list[tuple[int, ...]]:
        """Return the NUMA nodes by kind, the kinds with most room for the pod first, ids ascending.

        NUMA nodes without any room for one of its resources are left out: they are in no common combination.
        """
        by_kind: dict[int, list[int]] = {}
        for numa in self._numa_ids:
            by_kind.setdefault(self.kinds[numa], []).append(numa)
        rooms, requests = self._allocator.rooms, self._allocator.known_requests

        def shares(numa: int) -> list[int]:
            return sorted(rooms[name][numa] * 1_000_000 // amount for name, amount in requests.items())

        useful = [ids for ids in by_kind.values() if all(rooms[name][ids[0]] for name in requests)]
        useful.sort(key=lambda ids: ([-share for share in shares(ids[0])], ids))
        return list(map(tuple, useful))

    def _with_room(self, places: Sequence[tuple[int, ...]], size: int) -> Iterator[tuple[int, ...]]:
        """Yield combinations with room for each resource, as many of the first kinds as possible first."""
        rooms = self._allocator.rooms
        amounts = list(self._allocator.known_requests.items())
        # The most that so many NUMA nodes of the kinds from a place on have, by place and resource.
        most = [
            [_largest_sums(rooms[name][numa] for ids in rest for numa in ids) for name, _ in amounts]
            for rest in (places[at:] for at in range(len(places) + 1))
        ]
        steps = _MOST_STEPS * MOST_EXAMINED // len(self._numa_ids)

        def chosen(at: int, left: int, missing: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            nonlocal steps
            steps -= 1
            if steps < 0 or any(
                len(row) <= left or row[left] < lacks for row, lacks in zip(most[at], missing, strict=True)
            ):
                return
            if not left:
                yield ()
                return
            if at == len(places):
                return
            ids = places[at]
            for count in range(min(left, len(ids)), -1, -1):
                less = tuple(
                    lacks - count * rooms[name][ids[0]]
                    for (name, _), lacks in zip(amounts, missing, strict=True)
                )
                for rest in chosen(at + 1, left - count, less):
                    yield ids[:count] + rest

        for found in chosen(0, size, tuple(amount for _, amount in amounts)):
            yield tuple(sorted(found))


def _largest_sums(amounts: Iterable[int]) -> list[int]:
    """Return the largest sum of so many of these amounts, from none to all of them."""
    return list(accumulate(sorted(amounts, reverse=True), initial=0))
