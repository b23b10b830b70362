"""Reservations: CPUs and amounts held for pods that are to come, and a pod that may use them.

Nobody can make one yet: the service places every pod with `NO_RESERVATIONS`, only the worked cases pass
others. What a reservation gives back to a pod reaches the allocator as `ReservedCredit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from placement.numa.allocator import Allocation, NumaAllocator, ReservedCredit
from placement.numa.amounts import NOTHING, NumaAmounts, summed
from placement.numa.cpuset import mask_of
from placement.numa.demand import PodDemand
from placement.numa.host import HostState
from placement.numa.ledger import Holding
from placement.numa.refusal import NOT_ENOUGH_CPUS, Refused

OUT_OF_SCOPE = "pod has a nominated reservation but cannot be allocated within its NUMA scope"
NO_MATCH = "node(s) no reservations match"


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a reservation holds in total, and what of that its owners have left.

    `cpus` is the mask of remaining CPUs. A `restricted` one gives nothing beyond what remains.
    """

    cpus: int = 0
    remaining: NumaAmounts = NOTHING
    total: NumaAmounts = NOTHING
    restricted: bool = False


def what_is_left(held: Holding, owners: Iterable[Holding], restricted: bool = False) -> Reservation:
    """What a reservation has left, from what it holds in total and what its owners took out of it.

    Source: koordinator.md, "Reservations".
    """
    owned = list(owners)
    taken = summed(owner.amounts for owner in owned)
    remaining = {
        numa: {
            name: left
            for name, amount in amounts.items()
            if (left := amount - taken.get(numa, {}).get(name, 0)) > 0
        }
        for numa, amounts in held.amounts.items()
    }
    return Reservation(
        cpus=mask_of(held.cpus.difference(*(owner.cpus for owner in owned))),
        remaining=NumaAmounts(remaining),
        total=held.amounts,
        restricted=restricted,
    )


@dataclass(frozen=True, slots=True)
class Reservations:
    """The reservations of a host that a pod may use.

    `nominated` is the place in `matched` of the one it has to use. `required`: it must use one of them.
    `ignored`: it takes whatever is reserved as if it were free. `owned` is what owners of the matched ones
    hold there: it is recorded twice, by them and by their reservation.
    """

    matched: tuple[Reservation, ...] = ()
    nominated: int | None = None
    required: bool = False
    ignored: bool = False
    owned: NumaAmounts = NOTHING


NO_RESERVATIONS = Reservations()


class Found(NamedTuple):
    """What a pod would get, and the place of the matched reservation it would come from, if from any."""

    allocation: Allocation
    reservation: int | None = None


class Placing:
    """A pod on a host where some of what is held is reserved for it.

    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self, host: HostState, demand: PodDemand, reservations: Reservations = NO_RESERVATIONS
    ) -> None:
        self._host = host
        self._demand = demand
        self._reservations = reservations
        self._on_free_capacity = self._allocator(())
        self._on_everything = self._allocator(reservations.matched) if reservations.matched else None

    @property
    def widest_allocator(self) -> NumaAllocator:
        """The allocator that sees everything as free which could be used in any way."""
        return self._on_everything or self._on_free_capacity

    def explore(self, affinity: Sequence[int] | None) -> Found:
        """What the pod gets from the first matched reservation that will do, else from free capacity.

        Raises Refused.
        """
        reservations = self._reservations
        if reservations.ignored or not (reservations.matched or reservations.required):
            return Found(self.widest_allocator.allocate(affinity))
        refusals: dict[str, None] = {}
        for place, reservation in enumerate(reservations.matched):
            try:
                return Found(self._allocate_from(reservation, affinity), place)
            except Refused as refused:
                refusals.update(dict.fromkeys(refused.refusal.reasons))
        if reservations.required:
            raise Refused(*(f"Reservation(s) {reason}" for reason in refusals or (NO_MATCH,)))
        return Found(self._on_free_capacity.allocate(affinity))

    def fits(self, affinity: Sequence[int]) -> bool:
        """Whether `explore` would succeed."""
        if self._on_everything is None and not self._reservations.required:
            return self._on_free_capacity.fits(affinity)
        try:
            self.explore(affinity)
        except Refused:
            return False
        return True

    def allocate(self, affinity: Sequence[int] | None) -> Allocation:
        """What the pod gets in the end: from the nominated reservation, or from free capacity.

        Raises Refused; a nominated reservation that cannot be used never leads to free capacity.
        """
        reservations = self._reservations
        if reservations.ignored or (reservations.nominated is None and reservations.required):
            return self.explore(affinity).allocation
        if reservations.nominated is None:
            return self._on_free_capacity.allocate(affinity)
        try:
            return self.nominate(reservations.nominated, affinity)
        except Refused as refused:
            if reservations.required:
                raise
            raise Refused(OUT_OF_SCOPE, status=refused.refusal.status) from refused

    def nominate(self, place: int, affinity: Sequence[int] | None) -> Allocation:
        """What the pod gets out of one of the matched reservations.

        Raises Refused if that cannot be nominated.
        """
        try:
            return self._allocate_from(self._reservations.matched[place], affinity)
        except Refused as refused:
            if not self._reservations.required:
                raise
            reasons = (f"Reservation(s) {reason}" for reason in refused.refusal.reasons)
            raise Refused(*reasons, status=refused.refusal.status) from refused

    def _allocate_from(self, reservation: Reservation, affinity: Sequence[int] | None) -> Allocation:
        credit = self._credit((reservation,))
        allocation = NumaAllocator(self._host, self._demand, credit).allocate(affinity)
        if not reservation.restricted:
            return allocation
        limited = replace(credit, limits=_limits(reservation))
        allocation = NumaAllocator(self._host, self._demand, limited).allocate(affinity)
        if allocation.cpus & ~reservation.cpus:
            raise Refused(NOT_ENOUGH_CPUS)
        return allocation

    def _allocator(self, opened: tuple[Reservation, ...]) -> NumaAllocator:
        return NumaAllocator(self._host, self._demand, self._credit(opened))

    def _credit(self, opened: tuple[Reservation, ...]) -> ReservedCredit:
        preferred = 0
        for reservation in opened:
            preferred |= reservation.cpus
        remaining = (reservation.remaining for reservation in opened)
        return ReservedCredit(
            preferred=preferred,
            returned=tuple(reservation.cpus for reservation in opened if reservation.cpus),
            reusable=summed((self._reservations.owned, *remaining)) if opened else self._reservations.owned,
        )


def _limits(reservation: Reservation) -> NumaAmounts:
    """What remains of every resource that the reservation holds, 0 where that is nothing."""
    resources = set().union(*(reservation.total or reservation.remaining).values())
    numa_ids = reservation.total.keys() | reservation.remaining.keys()
    return NumaAmounts(
        {
            numa: {name: reservation.remaining.get(numa, {}).get(name, 0) for name in resources}
            for numa in numa_ids
        }
    )
