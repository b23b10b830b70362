"""Allocation of the CPUs and NUMA nodes of a host to a pod, also out of what reservations hold for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from placement.engine.numa.accumulator import (
    check_binding,
    deal_differing_cores,
    even_shares,
    take_cpus,
    thinned,
)
from placement.engine.numa.host import (
    CPU,
    FACE_VALUE,
    INVALID_TOPOLOGY,
    MILLI,
    NO_CPUS,
    NOT_ENOUGH_CPUS,
    NOTHING,
    UNALIGNED,
    BindPolicy,
    Distribution,
    Holding,
    HostState,
    NumaAmounts,
    PodDemand,
    PodRefused,
    RefusalClass,
    ResourceAmounts,
    numa_used,
    summed,
)

OUT_OF_SCOPE = "pod has a nominated reservation but cannot be allocated within its NUMA scope"
INCOMPATIBLE = "reservation NUMA scope is incompatible with the best topology hint"
NO_MATCH = "node(s) no reservations match"
PREFIX = "Reservation(s) "


@dataclass(frozen=True, slots=True)
class Allocation:
    """A mask of logical CPUs for one pod, and its amounts on NUMA nodes if it is aligned."""

    cpus: int = 0
    amounts: NumaAmounts = NOTHING


@dataclass(frozen=True, slots=True)
class ReservedCredit:
    """Reserved CPUs and amounts that a pod may use although they are recorded as used.

    `preferred` CPUs (a mask) are taken first. Each mask in `returned` and the `reusable_amounts`
    count as freed once. `numa_limits`: what NUMA nodes give of the resources in it, whatever else is
    recorded.
    Source: koordinator.md, "Available CPUs and the view", "Per-NUMA accounts", "Reservations".
    """

    preferred: int = 0
    returned: tuple[int, ...] = ()
    reusable_amounts: NumaAmounts = NOTHING
    numa_limits: NumaAmounts | None = None


NO_CREDIT = ReservedCredit()


class NumaAllocator:
    """An allocator for a pod on a host, with one view of what is free for all affinities that are tried."""

    def __init__(self, host: HostState, demand: PodDemand, credit: ReservedCredit = NO_CREDIT) -> None:
        self.host = host
        self.demand = demand
        self._credit = credit
        self._use = host.use.without(credit.returned) if credit.returned else host.use

    @property
    def uses_reservations(self) -> bool:
        """Whether CPUs or amounts are reserved for the pod."""
        return self._credit is not NO_CREDIT

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
        used = numa_used(self.host, self._use, self._credit.reusable_amounts)
        limits = self._credit.numa_limits or NOTHING
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
    def known_requests(self) -> ResourceAmounts:
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
            raise PodRefused(INVALID_TOPOLOGY, refusal_class=RefusalClass.ERROR, obstacle=NO_CPUS)
        shares = {} if affinity is None else self._split(affinity)
        if cpus is None:
            return Allocation(amounts=NumaAmounts(shares))
        if self.free_cpus.bit_count() < cpus.need:
            raise PodRefused(NOT_ENOUGH_CPUS, obstacle=NO_CPUS)
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
            raise PodRefused(NOT_ENOUGH_CPUS, obstacle=NO_CPUS)
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
            layout = self.host.layout
            is_whole = not layout.is_uneven and not any(count % layout.threads for count in counts.values())
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
        """Return the share of each NUMA node in every requested resource."""
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
        if full and self.host.layout.is_uneven:
            whole = self.host.layout.whole_cores(self.free_cpus)
            limits = {numa: rooms[numa] // MILLI for numa in affinity}
            dealt = deal_differing_cores(self.host.layout, whole, amount // MILLI, limits)
            if dealt:
                return {numa: MILLI * dealt[numa] for numa in sorted(dealt)}
        if full and not cpus.strict and self.host.rules.isolation_first:
            shares = self._share_whole_cores(amount, rooms, affinity, core)
            if shares:
                return shares
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


def allocate_designated(host: HostState, demand: PodDemand, designated_allocation: Allocation) -> Allocation:
    """Return the designated CPUs, and the request split over the designated amounts.

    Raises PodRefused unless the pod would get exactly these CPUs and its request fits these amounts.
    Source: koordinator.md, "Designated allocation".
    """
    given = replace(host, capacity=designated_allocation.amounts, held=NOTHING, cpu_ratio=FACE_VALUE)
    affinity = tuple(designated_allocation.amounts) or None
    allocation = NumaAllocator(given, demand, ReservedCredit(preferred=designated_allocation.cpus)).allocate(
        affinity
    )
    if allocation.cpus != designated_allocation.cpus:
        raise PodRefused(NOT_ENOUGH_CPUS, obstacle=NO_CPUS)
    return allocation


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation: what it holds in total, and what its owners have left of that.

    `cpus` is the mask of remaining CPUs, `milli_cpus` what is left of its CPU request on the whole host. A
    `restricted` reservation gives nothing beyond what remains.
    """

    cpus: int = 0
    remaining_amounts: NumaAmounts = NOTHING
    total_amounts: NumaAmounts = NOTHING
    restricted: bool = False
    milli_cpus: int = 0


def what_is_left(holding: Holding, owner_holdings: Iterable[Holding]) -> Holding:
    """Return the rest of a reservation: its holding less the holdings of its owners.

    Source: koordinator.md, "Reservations".
    """
    holdings = list(owner_holdings)
    taken = summed(owner.amounts for owner in holdings)
    remaining = {
        numa: left
        for numa, amounts in holding.amounts.items()
        if (left := amounts_left(amounts, taken.get(numa, {})))
    }
    cpus = holding.cpus.difference(*(owner.cpus for owner in holdings))
    return replace(holding, cpus=cpus, amounts=NumaAmounts(remaining))


def amounts_left(held: ResourceAmounts, taken: ResourceAmounts) -> dict[str, int]:
    """Return amounts by name less others, without used-up resources."""
    return {name: left for name, amount in held.items() if (left := amount - taken.get(name, 0)) > 0}


@dataclass(frozen=True, slots=True)
class HostReservations:
    """The reservations of a host that a pod may use.

    `nominated` is the place in `matched` of the one that it must use. `required`: it must use one of them.
    `ignored`: the pod treats everything reserved as free.
    """

    matched: tuple[Reservation, ...] = ()
    nominated: int | None = None
    required: bool = False
    ignored: bool = False


NO_RESERVATIONS = HostReservations()


class FoundAllocation(NamedTuple):
    """An allocation that a pod would get, and the place of the matched reservation behind it, if any."""

    allocation: Allocation
    reservation: int | None = None


class ReservedPlacing:
    """The allocation of a pod on a host that holds reservations for it.

    `explore` tries the matched reservations in turn, `nominate` takes from one of them, and `allocate` has
    the last word. What a reservation gives to the pod reaches the allocator as `ReservedCredit`.
    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self, host: HostState, demand: PodDemand, reservations: HostReservations = NO_RESERVATIONS
    ) -> None:
        self._host = host
        self._demand = demand
        self._reservations = reservations
        self._free_allocator = NumaAllocator(host, demand)
        # It sees everything as free that any matched reservation gives.
        self._widest_allocator = self._allocator(reservations.matched) if reservations.matched else None
        if reservations.required and len(reservations.matched) == 1 and reservations.matched[0].restricted:
            self._widest_allocator = self._only_from(reservations.matched[0])

    @property
    def widest_allocator(self) -> NumaAllocator:
        """The allocator that sees everything as free that the pod could use in any way."""
        return self._widest_allocator or self._free_allocator

    def explore(self, affinity: Sequence[int] | None) -> FoundAllocation:
        """Return an allocation out of the first matched reservation that fits, else of free capacity.

        Raises PodRefused.
        """
        reservations = self._reservations
        if reservations.ignored or not (reservations.matched or reservations.required):
            return FoundAllocation(self.widest_allocator.allocate(affinity))
        refusals: dict[str, None] = {}
        for place in range(len(reservations.matched)):
            try:
                return FoundAllocation(self.nominate(place, affinity), place)
            except PodRefused as refused:
                refusals.update(dict.fromkeys(refused.refusal.reasons))
        if reservations.required:
            raise PodRefused(*refusals or (f"{PREFIX}{NO_MATCH}",), obstacle=NO_CPUS)
        return FoundAllocation(self._free_allocator.allocate(affinity))

    def fits(self, affinity: Sequence[int]) -> bool:
        """Return whether `explore` would succeed."""
        if self._widest_allocator is None and not self._reservations.required:
            return self._free_allocator.fits(affinity)
        try:
            self.explore(affinity)
        except PodRefused:
            return False
        return True

    def allocate(self, affinity: Sequence[int] | None) -> Allocation:
        """Return the final allocation of the pod: from the nominated reservation, or from free capacity.

        Raises PodRefused; a nominated reservation that cannot be used never leads to free capacity.
        """
        reservations = self._reservations
        if reservations.ignored or (reservations.nominated is None and reservations.required):
            return self.explore(affinity).allocation
        if reservations.nominated is None:
            return self._free_allocator.allocate(affinity)
        try:
            return self.nominate(reservations.nominated, affinity)
        except PodRefused as refused:
            if reservations.required:
                raise
            refusal_class = refused.refusal.refusal_class
            raise PodRefused(OUT_OF_SCOPE, refusal_class=refusal_class, obstacle=NO_CPUS) from refused

    def nominate(self, place: int, affinity: Sequence[int] | None) -> Allocation:
        """Return the allocation of the pod out of one of the matched reservations.

        Raises PodRefused if that reservation cannot be nominated.
        """
        reservation, cpus = self._reservations.matched[place], self._demand.cpus
        try:
            if not reservation.restricted:
                return self._allocator((reservation,)).allocate(affinity)
            if cpus is not None and cpus.need > (reservation.cpus & ~self._host.unallocatable).bit_count():
                raise PodRefused(NOT_ENOUGH_CPUS, obstacle=NO_CPUS)
            return self._only_from(reservation).allocate(affinity)
        except PodRefused as refused:
            if self._reservations.required:
                reasons: Iterable[str] = (f"{PREFIX}{reason}" for reason in refused.refusal.reasons)
            elif affinity is not None:
                reasons = (INCOMPATIBLE,)
            else:
                raise
            refusal_class = refused.refusal.refusal_class
            raise PodRefused(*reasons, refusal_class=refusal_class, obstacle=NO_CPUS) from refused

    def _only_from(self, reservation: Reservation) -> NumaAllocator:
        """Return an allocator for what the reservation has left, whichever pods are recorded on its CPUs."""
        host, remaining = self._host, reservation.remaining_amounts
        others = host.layout.cpus & ~reservation.cpus
        # The rest of every resource that the reservation holds, 0 for used-up ones.
        resources = set().union(*(reservation.total_amounts or remaining).values())
        limits = {
            numa: {name: remaining.get(numa, {}).get(name, 0) for name in resources}
            for numa in reservation.total_amounts.keys() | remaining.keys()
        }
        credit = ReservedCredit(
            preferred=reservation.cpus,
            returned=(reservation.cpus,) * len(host.use.counts),
            numa_limits=NumaAmounts(limits),
        )
        limited = replace(host, unallocatable=host.unallocatable | others)
        return NumaAllocator(limited, self._demand, credit)

    def _allocator(self, reservations: tuple[Reservation, ...]) -> NumaAllocator:
        preferred = 0
        for reservation in reservations:
            preferred |= reservation.cpus
        credit = ReservedCredit(
            preferred=preferred,
            returned=tuple(reservation.cpus for reservation in reservations if reservation.cpus),
            reusable_amounts=summed(reservation.remaining_amounts for reservation in reservations),
        )
        return NumaAllocator(self._host, self._demand, credit)


def split_amount(
    amount: int, rooms: Mapping[int, int], affinity: Sequence[int], grain: int = 1
) -> dict[int, int]:
    """Return the share of each NUMA node of an affinity: from the poorest on, equal parts of the rest.

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
