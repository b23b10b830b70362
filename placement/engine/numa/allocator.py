"""Allocation of the CPUs and NUMA nodes of a host to a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from placement.engine.numa.accumulator import check_binding, even_shares, take_cpus, thinned
from placement.engine.numa.amounts import CPU, MILLI, NOTHING, Amounts, NumaAmounts
from placement.engine.numa.demand import (
    INVALID_TOPOLOGY,
    NOT_ENOUGH_CPUS,
    UNALIGNED,
    BindPolicy,
    Distribution,
    PodDemand,
    PodRefused,
    RefusalClass,
)
from placement.engine.numa.host import FACE_VALUE, HostState, numa_used

# Dividing an amount over the NUMA nodes of an affinity.


def split_amount(
    amount: int, rooms: Mapping[int, int], affinity: Sequence[int], grain: int = 1
) -> dict[int, int]:
    """Return what each NUMA node of an affinity gives: from the poorest on, an equal share of the rest.

    Shares are multiples of `grain` unless there is less room. They add up to less than the amount if it does
    not fit; `rooms` is what each NUMA node has left. Source: koordinator.md, "Splitting a request".
    """
    shares = {}
    nodes = len(affinity)
    for room, numa in sorted([(rooms.get(numa, 0), numa) for numa in affinity]):
        share = min(room, amount // grain // nodes * grain)
        nodes -= 1
        if share:
            shares[numa] = share
            amount -= share
    return shares


def deal_amount(amount: int, rooms: Mapping[int, int], affinity: Sequence[int], grain: int) -> dict[int, int]:
    """Deal an amount evenly over an ascending affinity in multiples of `grain`, remainders to the first.

    Return nothing if the affinity has too little room for that. Source: koordinator.md, "DistributeEvenly".
    """
    units = [rooms.get(numa, 0) // grain for numa in affinity]
    if amount % grain or sum(units) * grain < amount:
        return {}
    shares = even_shares(units, amount // grain)
    return {numa: share * grain for numa, share in zip(affinity, shares, strict=True) if share}


@dataclass(frozen=True, slots=True)
class ReservedCredit:
    """Reserved CPUs and amounts that a pod may use although they are recorded as used.

    `preferred` CPUs (a mask) are taken first. Each mask in `returned` and the `reusable` amounts count as
    freed once. `limits`: what NUMA nodes give of the resources in it, whatever else is recorded.
    Source: koordinator.md, "Available CPUs and the view", "Per-NUMA accounts", "Reservations".
    """

    preferred: int = 0
    returned: tuple[int, ...] = ()
    reusable: NumaAmounts = NOTHING
    limits: NumaAmounts | None = None


NO_CREDIT = ReservedCredit()


@dataclass(frozen=True, slots=True)
class Allocation:
    """A mask of logical CPUs for one pod, and its amounts on NUMA nodes if it is aligned."""

    cpus: int = 0
    amounts: NumaAmounts = NOTHING


class NumaAllocator:
    """An allocator for a pod on a host, with one view of what is free for all affinities that are tried."""

    def __init__(self, host: HostState, demand: PodDemand, credit: ReservedCredit = NO_CREDIT) -> None:
        self.host = host
        self.demand = demand
        self._credit = credit
        self._use = host.use.without(credit.returned) if credit.returned else host.use

    @cached_property
    def free_cpus(self) -> int:
        """The CPUs that the pod may get, as a mask; a strict bind policy leaves only some of them."""
        free, cpus = self.host.free_cpus(self._use), self.demand.cpus
        if cpus is not None and cpus.group:
            free &= ~self.host.barred_cpus(cpus.group, cpus.exclusive)
        return thinned(self.host.layout, free, cpus.bind) if cpus is not None and cpus.strict else free

    @cached_property
    def available(self) -> dict[int, dict[str, int]]:
        """The amounts that NUMA nodes can give to the pod (koordinator.md, "Per-NUMA accounts")."""
        used = numa_used(self.host, self._use, self._credit.reusable)
        limits = self._credit.limits or NOTHING
        limited = set().union(*limits.values())
        cpus, available = self.demand.cpus, {}
        for numa, capacity in self.host.capacity.items():
            taken = used.get(numa, {})
            amounts = {name: max(0, amount - taken.get(name, 0)) for name, amount in capacity.items()}
            for name in limited & amounts.keys():
                amounts[name] = limits.get(numa, {}).get(name, 0)
            if cpus is not None and cpus.strict and CPU in amounts:
                amounts[CPU] = min(amounts[CPU], MILLI * self._free_counts.get(numa, 0))
            available[numa] = amounts
        return available

    @cached_property
    def rooms(self) -> Mapping[str, Mapping[int, int]]:
        """The amounts that each NUMA node can give of the requested resources, by name."""
        return {
            resource: {numa: left.get(resource, 0) for numa, left in self.available.items()}
            for resource in self.known_requests
        }

    @cached_property
    def known_requests(self) -> Amounts:
        """The requested amounts of resources that any NUMA node of the host reports, by name."""
        known = set().union(*self.available.values())
        return {
            name: amount for name, amount in sorted(self.demand.amounts.items()) if name in known and amount
        }

    def allocate(self, affinity: Sequence[int] | None) -> Allocation:
        """Allocate on the NUMA nodes of an ascending affinity, or anywhere on the host without one.

        Raises PodRefused. Source: koordinator.md, "Splitting a request", "Strict bind policy".
        """
        cpus = self.demand.cpus
        if cpus is not None and not self.host.layout.cpus:
            raise PodRefused(INVALID_TOPOLOGY, status=RefusalClass.ERROR)
        shares = {} if affinity is None else self._split(affinity)
        if cpus is None:
            return Allocation(amounts=NumaAmounts(shares))
        if self.free_cpus.bit_count() < cpus.need:
            raise PodRefused(NOT_ENOUGH_CPUS)
        wanted = [(cpus.need, self.free_cpus)]
        if shares:
            counts = self._counts({numa: amounts.get(CPU, 0) for numa, amounts in shares.items()})
            nodes = self.host.layout.numa_nodes
            wanted = [(count, self.free_cpus & nodes.get(numa, 0)) for numa, count in counts.items()]
        taken, host, preferred = 0, self.host, self._credit.preferred
        for need, free in wanted:
            part = cpus._replace(need=need)
            taken |= take_cpus(host.layout, self._use, free, part, host.rules, preferred)
        if taken.bit_count() != cpus.need:
            raise PodRefused(NOT_ENOUGH_CPUS)
        if cpus.strict:
            check_binding(self.host.layout, taken, cpus.bind)
        return Allocation(taken, NumaAmounts(shares) if shares else NOTHING)

    def fits(self, affinity: Sequence[int]) -> bool:
        """Return whether `allocate` would succeed; count instead of trying wherever counting suffices."""
        cpus = self.demand.cpus
        if not self.has_room(affinity):
            return False
        if cpus is None:
            return True  # an amount for which there is room can always be split
        if not self.host.layout.cpus:
            return False
        if CPU in self.known_requests:
            shares = self._share(CPU, affinity)
            counts = self._counts(shares)
            enough = sum(counts.values()) == cpus.need and sum(shares.values()) == self.known_requests[CPU]
            # Only a need for whole cores can fail although there are enough CPUs.
            needs_cores = cpus.strict and cpus.bind is BindPolicy.FULL_PCPUS
            is_whole = not any(count % self.host.layout.threads for count in counts.values())
            if not enough or not needs_cores or (is_whole and not self._credit.preferred):
                return enough
        try:
            self.allocate(affinity)
        except PodRefused:
            return False
        return True

    def has_room(self, affinity: Iterable[int]) -> bool:
        """Return whether these NUMA nodes together have all the amounts, which `allocate` needs."""
        for resource, amount in self.known_requests.items():
            if sum(map(self.rooms[resource].__getitem__, affinity)) < amount:
                return False
        return True

    @cached_property
    def fewest_numa_nodes(self) -> int:
        """The least number of NUMA nodes that can have room; one more than exist if all are too few."""
        fewest = 1
        for resource, amount in self.known_requests.items():
            largest_first = sorted(self.rooms[resource].values(), reverse=True)
            fewest = max(fewest, 1 + sum(together < amount for together in accumulate(largest_first)))
        return fewest

    @cached_property
    def _free_counts(self) -> Mapping[int, int]:
        return {
            numa: (self.free_cpus & mask).bit_count() for numa, mask in self.host.layout.numa_nodes.items()
        }

    def _split(self, affinity: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return what each NUMA node gives of every requested resource."""
        by_numa: dict[int, dict[str, int]] = {}
        missing = []
        for resource, amount in self.known_requests.items():
            shares = self._share(resource, affinity)
            for numa, share in shares.items():
                by_numa.setdefault(numa, {})[resource] = share
            if sum(shares.values()) < amount:
                missing.append(resource)
        if missing:
            raise PodRefused(*(f"Insufficient NUMA {resource}" for resource in missing), obstacle=UNALIGNED)
        return {numa: by_numa[numa] for numa in sorted(by_numa)}

    def _share(self, resource: str, affinity: Sequence[int]) -> dict[int, int]:
        amount, rooms, cpus = self.known_requests[resource], self.rooms[resource], self.demand.cpus
        if resource != CPU or cpus is None:
            return split_amount(amount, rooms, affinity)
        full = cpus.bind is BindPolicy.FULL_PCPUS
        core = MILLI * self.host.layout.threads
        if full and not cpus.strict and self.host.rules.isolation_first:
            whole = self._share_whole_cores(amount, rooms, affinity, core)
            if whole:
                return whole
        if self.host.rules.distribution is not Distribution.PACKED:
            for grain in (core, MILLI) if full else (MILLI,):
                dealt = deal_amount(amount, rooms, affinity, grain)
                if dealt:
                    return dealt
        return split_amount(amount, rooms, affinity, core if full and cpus.strict else MILLI)

    def _share_whole_cores(
        self, amount: int, rooms: Mapping[int, int], affinity: Sequence[int], core: int
    ) -> dict[int, int]:
        """Deal the request in free whole cores, with an odd rest on one more core; empty if they are too few.

        Source: koordinator.md, "Whole cores over NUMA nodes".
        """
        whole = self.host.layout.whole_cores(self.free_cpus)
        rooms = {
            numa: min(rooms[numa], MILLI * (whole & self.host.layout.numa_nodes.get(numa, 0)).bit_count())
            for numa in affinity
        }
        odd = amount % core
        deals = self.host.rules.distribution is not Distribution.PACKED
        share = deal_amount if deals else split_amount
        shares = share(amount - odd, rooms, affinity, core)
        if sum(shares.values()) < amount - odd:
            return {}
        if odd:
            left = {numa: rooms[numa] - shares.get(numa, 0) for numa in affinity}
            numa = max(affinity, key=lambda numa: (left[numa] >= odd, -shares.get(numa, 0)))
            if left[numa] < odd:
                return {}
            shares[numa] = shares.get(numa, 0) + odd
        return shares

    def _counts(self, milli: Mapping[int, int]) -> dict[int, int]:
        """Return how many CPUs to take on each NUMA node."""
        free = self._free_counts
        return {numa: min(free.get(numa, 0), share // MILLI) for numa, share in milli.items()}


# Designated allocations: another scheduler has already chosen them.


def allocate_designated(host: HostState, demand: PodDemand, designated: Allocation) -> Allocation:
    """Return the designated CPUs, and the request split over the designated amounts.

    Raises PodRefused unless the pod would get exactly these CPUs and its request fits these amounts.
    Source: koordinator.md, "Designated allocation".
    """
    given = replace(host, capacity=designated.amounts, held=NOTHING, cpu_ratio=FACE_VALUE)
    affinity = tuple(designated.amounts) or None
    allocation = NumaAllocator(given, demand, ReservedCredit(preferred=designated.cpus)).allocate(affinity)
    if allocation.cpus != designated.cpus:
        raise PodRefused(NOT_ENOUGH_CPUS)
    return allocation
