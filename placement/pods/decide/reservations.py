"""The reservations of nodes, and how pods of one shape fit with them, remembered until a node changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from placement.allocations.kubernetes_resources import host_class
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.allocator import NO_RESERVATIONS, PREFIX, HostReservations, Reservation
from placement.engine.numa.cpus import mask_of
from placement.engine.numa.host import Refusal
from placement.pods.decide.ranking import FilterResult, judged
from placement.pods.decide.rules import HOST, PORTS, SELECTION
from placement.pods.decide.rules.amounts import lacking
from placement.pods.decide.rules.ports import PORTS_TAKEN
from placement.pods.decide.rules.rule import PodShape, concerned
from placement.pods.state.host import counted_holding
from placement.pods.state.model import RecordedReservation
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

_LAST = 2**63
"""The order of reservations that name none."""


class NodeReservation(NamedTuple):
    """A reservation on a node: `whole` as it was given, `left` what no owner has taken."""

    whole: RecordedReservation
    left: RecordedReservation

    @property
    def is_restricted(self) -> bool:
        """Return whether owners get nothing beyond what is left of the reservation."""
        return self.whole.keeps is not None and self.whole.keeps.restricted


class ReservationMatch(NamedTuple):
    """A result of a look at a node with reservations that a pod may use.

    `used` is the reservation that it would use, if it fits out of one. Of several such nodes, the one with
    the lowest `preference` is better: by the order that reservations name, then by which gets fullest.
    """

    result: FilterResult
    reservations: HostReservations = NO_RESERVATIONS
    used: NodeReservation | None = None
    preference: tuple[int, int] = (0, 0)


class ReservationLooks:
    """A cache of looks at nodes with reservations, for pods of one shape.

    Threads share it: all threads would note equal results of a node, and each note is a single step.
    """

    def __init__(self, shape: PodShape) -> None:
        self._request = shape.request
        self._pod = shape.incoming()
        self._selecting, self._of_host = concerned(SELECTION, self._pod), concerned(HOST, self._pod)
        self._looks: dict[int, dict[tuple[frozenset[str], bool], ReservationMatch]] = {}
        self._opened: tuple[NodeColumns, NodeColumns] | None = None

    def look(
        self, node: NodeInfo, reservations: Sequence[NodeReservation], *, required: bool
    ) -> ReservationMatch:
        """Return how a pod fits on a node where it may use these reservations.

        `required`: the pod must use one. It can use a reservation if the host as a whole has enough with it.
        """
        known = self._looks.setdefault(node.serial, {})
        key = frozenset(each.whole.consumer for each in reservations), required
        found = known.get(key)
        if found is None:
            found = known[key] = self._looked(node, sorted(reservations, key=self._preference), required)
        return found

    def opened(self, columns: NodeColumns) -> NodeColumns:
        """Return the nodes as if nothing were reserved; only nodes changed since the last call are made."""
        known, nodes = self._opened, columns.nodes
        if known is not None and known[0].order is known[1].order is columns.order:
            changed = (nodes[row] for row in columns.nodes.changed_since(known[0].nodes.marks))
            made = known[1].updated(node.opened(node.reserving) for node in changed)
        else:
            made = columns.updated(node.opened(node.reserving) for node in nodes if node.reservations)
        # A question about a few nodes is no reason to forget the others.
        if known is None or 2 * len(nodes) > len(known[0].nodes):
            self._opened = columns, made
        return made

    def trim(self, columns: NodeColumns, most: int) -> None:
        """Forget the former states of nodes of the cluster, once there are more than `most`."""
        looks = self._looks
        if len(looks) > most:
            self._looks = {node.serial: looks[node.serial] for node in columns.nodes if node.serial in looks}

    def _looked(
        self, node: NodeInfo, reservations: Sequence[NodeReservation], required: bool
    ) -> ReservationMatch:
        for rule in self._selecting:
            refusal = rule.refuse(node, self._pod)
            if refusal is not None:
                return ReservationMatch(FilterResult(refusal))
        if PORTS.concerns(self._pod):
            refuse = PORTS.refuse
            reservations = [each for each in reservations if refuse(_opened(node, each), self._pod) is None]
            if not reservations:
                return ReservationMatch(FilterResult(PORTS_TAKEN))
        lacks = [self._lacks(node, each) for each in reservations]
        usable = [each for each, lack in zip(reservations, lacks, strict=True) if lack is None]
        if usable:
            return self._judged(node, usable, required)
        found = [lack for lack in lacks if lack is not None]
        reasons = dict.fromkeys(f"{PREFIX}{reason}" for lack in found for reason in lack.reasons)
        return ReservationMatch(FilterResult(replace(found[0], reasons=tuple(reasons))))

    def _lacks(self, node: NodeInfo, reservation: NodeReservation) -> Refusal | None:
        amounts, bound = self._request.amounts, node.host.binding.binds(self._request)
        short = [
            name
            for name in sorted(amounts.keys() & reservation.whole.requests.keys())
            if reservation.is_restricted and amounts[name] > reservation.left.requests.get(name, 0)
            # CPUs of a pod's own are looked for one by one.
            if not (bound and name == "cpu")
        ]
        if short:
            obstacle = Obstacle(ConditionKind.AMOUNT, host_class(short[0]).name)
            return Refusal(tuple(f"Insufficient {name}" for name in short), obstacle=obstacle)
        opened = _opened(node, reservation)
        return lacking(opened.offers, opened.free, opened.left, amounts, bound=bound)

    def _judged(
        self, node: NodeInfo, node_reservations: Sequence[NodeReservation], required: bool
    ) -> ReservationMatch:
        """Judge a pod on what a reservation has left, then on the rest of the node if that is allowed."""
        seen = as_seen(node, node_reservations)
        alone = tuple(replace(each, restricted=True) for each in seen)
        for reservations in (
            HostReservations(alone, required=True),
            HostReservations(seen, required=required),
        ):
            pod = replace(self._pod, reservations=reservations, answers={})
            result = judged(self._of_host, node, pod)
            if not isinstance(result.answer, Refusal) and result.answer.nominated is not None:
                used = node_reservations[result.answer.nominated]
                return ReservationMatch(result, reservations, used, self._preference(used))
        return ReservationMatch(result, reservations)

    def _preference(self, reservation: NodeReservation) -> tuple[int, int]:
        """Return the order that a reservation names, and how full it would be, on average of its resources.

        That is 0 to 100, counted downwards; an exceeded resource counts 0.
        """
        terms, held = reservation.whole.keeps, reservation.whole.requests
        assert terms is not None
        asked = self._request.amounts
        fullness = []
        for resource in asked.keys() & held.keys():
            used = held[resource] - reservation.left.requests.get(resource, 0) + asked[resource]
            fullness.append(100 * used // held[resource] if used <= held[resource] else 0)
        return terms.order or _LAST, -(sum(fullness) // max(1, len(fullness)))


def _opened(node: NodeInfo, reservation: NodeReservation) -> NodeInfo:
    """Return the node without the reservation."""
    return node.opened(frozenset({reservation.whole.consumer}))


def reservations_on(node: NodeInfo) -> Iterator[NodeReservation]:
    """Yield the reservations of a node, in their order."""
    yield from map(NodeReservation, node.reservations, node.reservations_left)


def as_seen(node: NodeInfo, reservations: Iterable[NodeReservation]) -> tuple[Reservation, ...]:
    """Return reservations of a node as the NUMA allocator sees them."""
    return tuple(
        Reservation(
            cpus=mask_of(each.left.holding.cpus),
            remaining_amounts=counted_holding(each.left.holding, node.offers).amounts,
            total_amounts=counted_holding(each.whole.holding, node.offers).amounts,
            restricted=each.is_restricted,
            milli_cpus=each.left.requests.get("cpu", 0),
        )
        for each in reservations
    )
