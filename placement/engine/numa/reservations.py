"""Reservations: CPUs and amounts held for future pods, and a pod that may use them.

The share that a reservation gives to a pod reaches the allocator as `ReservedCredit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from placement.engine.numa.allocator import Allocation, NumaAllocator, ReservedCredit
from placement.engine.numa.amounts import NOTHING, Amounts, NumaAmounts, summed
from placement.engine.numa.demand import NOT_ENOUGH_CPUS, PodDemand, PodRefused
from placement.engine.numa.host import Holding, HostState

OUT_OF_SCOPE = "pod has a nominated reservation but cannot be allocated within its NUMA scope"
INCOMPATIBLE = "reservation NUMA scope is incompatible with the best topology hint"
NO_MATCH = "node(s) no reservations match"
PREFIX = "Reservation(s) "


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation: what it holds in total, and what its owners have left of that.

    `cpus` is the mask of remaining CPUs, `milli_cpus` what is left of its CPU request on the whole host. A
    `restricted` reservation gives nothing beyond what remains.
    """

    cpus: int = 0
    remaining: NumaAmounts = NOTHING
    total: NumaAmounts = NOTHING
    restricted: bool = False
    milli_cpus: int = 0


def what_is_left(held: Holding, owners: Iterable[Holding]) -> Holding:
    """Return what a reservation has left, from what it holds in total and what its owners took out of it.

    Source: koordinator.md, "Reservations".
    """
    owned = list(owners)
    taken = summed(owner.amounts for owner in owned)
    remaining = {
        numa: left
        for numa, amounts in held.amounts.items()
        if (left := amounts_left(amounts, taken.get(numa, {})))
    }
    cpus = held.cpus.difference(*(owner.cpus for owner in owned))
    return replace(held, cpus=cpus, amounts=NumaAmounts(remaining))


def amounts_left(held: Amounts, taken: Amounts) -> dict[str, int]:
    """Return what is left of amounts by name after others were taken, without used-up resources."""
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


class Found(NamedTuple):
    """An allocation that a pod would get, and the place of the matched reservation behind it, if any."""

    allocation: Allocation
    reservation: int | None = None


class ReservedPlacing:
    """The allocation of a pod on a host that holds reservations for it.

    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self, host: HostState, demand: PodDemand, reservations: HostReservations = NO_RESERVATIONS
    ) -> None:
        self._host = host
        self._demand = demand
        self._reservations = reservations
        self._on_free_capacity = NumaAllocator(host, demand)
        # What sees everything as free that any matched reservation gives.
        self._on_everything = self._allocator(reservations.matched) if reservations.matched else None
        if reservations.required and len(reservations.matched) == 1 and reservations.matched[0].restricted:
            self._on_everything = self._only_from(reservations.matched[0])

    @property
    def widest_allocator(self) -> NumaAllocator:
        """The allocator that sees everything as free that the pod could use in any way."""
        return self._on_everything or self._on_free_capacity

    def explore(self, affinity: Sequence[int] | None) -> Found:
        """Return what the pod gets from the first matched reservation that fits, else from free capacity.

        Raises PodRefused.
        """
        reservations = self._reservations
        if reservations.ignored or not (reservations.matched or reservations.required):
            return Found(self.widest_allocator.allocate(affinity))
        refusals: dict[str, None] = {}
        for place in range(len(reservations.matched)):
            try:
                return Found(self.nominate(place, affinity), place)
            except PodRefused as refused:
                refusals.update(dict.fromkeys(refused.refusal.reasons))
        if reservations.required:
            raise PodRefused(*refusals or (f"{PREFIX}{NO_MATCH}",))
        return Found(self._on_free_capacity.allocate(affinity))

    def fits(self, affinity: Sequence[int]) -> bool:
        """Return whether `explore` would succeed."""
        if self._on_everything is None and not self._reservations.required:
            return self._on_free_capacity.fits(affinity)
        try:
            self.explore(affinity)
        except PodRefused:
            return False
        return True

    def allocate(self, affinity: Sequence[int] | None) -> Allocation:
        """Return what the pod gets in the end: from the nominated reservation, or from free capacity.

        Raises PodRefused; a nominated reservation that cannot be used never leads to free capacity.
        """
        reservations = self._reservations
        if reservations.ignored or (reservations.nominated is None and reservations.required):
            return self.explore(affinity).allocation
        if reservations.nominated is None:
            return self._on_free_capacity.allocate(affinity)
        try:
            return self.nominate(reservations.nominated, affinity)
        except PodRefused as refused:
            if reservations.required:
                raise
            raise PodRefused(OUT_OF_SCOPE, status=refused.refusal.status) from refused

    def nominate(self, place: int, affinity: Sequence[int] | None) -> Allocation:
        """Return what the pod gets out of one of the matched reservations.

        Raises PodRefused if that reservation cannot be nominated.
        """
        reservation, cpus = self._reservations.matched[place], self._demand.cpus
        try:
            if not reservation.restricted:
                return self._allocator((reservation,)).allocate(affinity)
            if cpus is not None and cpus.need > (reservation.cpus & ~self._host.unallocatable).bit_count():
                raise PodRefused(NOT_ENOUGH_CPUS)
            return self._only_from(reservation).allocate(affinity)
        except PodRefused as refused:
            if self._reservations.required:
                reasons: Iterable[str] = (f"{PREFIX}{reason}" for reason in refused.refusal.reasons)
            elif affinity is not None:
                reasons = (INCOMPATIBLE,)
            else:
                raise
            raise PodRefused(*reasons, status=refused.refusal.status) from refused

    def _only_from(self, reservation: Reservation) -> NumaAllocator:
        """Return an allocator for what the reservation has left, whichever pods are recorded on its CPUs."""
        host, remaining = self._host, reservation.remaining
        others = host.layout.cpus & ~reservation.cpus
        # What remains of every resource that the reservation holds, 0 for used-up ones.
        resources = set().union(*(reservation.total or remaining).values())
        limits = {
            numa: {name: remaining.get(numa, {}).get(name, 0) for name in resources}
            for numa in reservation.total.keys() | remaining.keys()
        }
        credit = ReservedCredit(
            preferred=reservation.cpus,
            returned=(reservation.cpus,) * len(host.use.counts),
            limits=NumaAmounts(limits),
        )
        limited = replace(host, unallocatable=host.unallocatable | others)
        return NumaAllocator(limited, self._demand, credit)

    def _allocator(self, opened: tuple[Reservation, ...]) -> NumaAllocator:
        preferred = 0
        for reservation in opened:
            preferred |= reservation.cpus
        credit = ReservedCredit(
            preferred=preferred,
            returned=tuple(reservation.cpus for reservation in opened if reservation.cpus),
            reusable=summed(reservation.remaining for reservation in opened),
        )
        return NumaAllocator(self._host, self._demand, credit)
