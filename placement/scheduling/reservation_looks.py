"""How pods of one shape stand with the reservations of nodes, remembered until a node changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.resources import host_class
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.domain.explanation import Kind, Obstacle
from placement.kubernetes.node_selection import NodeSelection
from placement.numa.cpuset import mask_of
from placement.numa.refusal import Refusal
from placement.numa.reservations import NO_RESERVATIONS, PREFIX, Reservation, Reservations
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.filter import FilterResult, PodJudge, lacking
from placement.scheduling.host import counted_holding
from placement.scheduling.node_info import NodeInfo
from placement.scoring.order import Order

_LAST = 2**63


class Kept(NamedTuple):
    """A reservation on a node: all that it was given, and what it has left."""

    held: RecordedPod
    left: RecordedPod

    @property
    def is_restricted(self) -> bool:
        """Whether owners get nothing beyond what is left of it."""
        return self.held.keeps is not None and self.held.keeps.restricted


class Look(NamedTuple):
    """How a pod stands with reservations of a node that it may use.

    `kept` is the one that it would use, if it fits out of one; of several such nodes the one with the lowest
    `preference` is better: by the order that reservations name, then the one that gets fullest.
    """

    result: FilterResult
    reservations: Reservations = NO_RESERVATIONS
    kept: Kept | None = None
    preference: tuple[int, int] = (0, 0)


class ReservationLooks:
    """Pods of one shape and the reservations of nodes.

    Threads share them: what they note about a node is the same whoever notes it, and is noted at once.
    """

    def __init__(self, request: PodRequest | None, selection: NodeSelection, scoring: Order) -> None:
        self._request = request
        self._selection = selection
        self._judge = PodJudge(request, scoring)
        self._looks: dict[int, dict[tuple[frozenset[str], bool], Look]] = {}
        self._opened: tuple[NodeColumns, NodeColumns] | None = None

    def look(self, node: NodeInfo, matched: Sequence[Kept], *, required: bool) -> Look:
        """How a pod stands with a node whose `matched` reservations it may use.

        `required`: it must use one. It can use those with which the host as a whole has enough.
        """
        known = self._looks.setdefault(node.serial, {})
        key = frozenset(kept.held.consumer for kept in matched), required
        found = known.get(key)
        if found is None:
            found = known[key] = self._looked(node, sorted(matched, key=self._preference), required)
        return found

    def opened(self, columns: NodeColumns) -> NodeColumns:
        """The nodes as if nothing were reserved: only those that changed since the last time are made."""
        known, nodes = self._opened, columns.nodes
        if known is not None and known[0].order is known[1].order is columns.order:
            changed = (nodes[row] for row in columns.changed_since(known[0].marks))
            made = known[1].updated(node.opened(node.reserving) for node in changed)
        else:
            made = columns.updated(node.opened(node.reserving) for node in nodes if node.reservations)
        # Being asked about a few nodes is no reason to forget the others.
        if known is None or 2 * len(nodes) > len(known[0].nodes):
            self._opened = columns, made
        return made

    def trim(self, columns: NodeColumns, most: int) -> None:
        """Forget what nodes were before they were what they are now, if more than `most` are remembered."""
        if len(self._looks) > most:
            known = self._looks
            self._looks = {node.serial: known[node.serial] for node in columns.nodes if node.serial in known}

    def _looked(self, node: NodeInfo, matched: Sequence[Kept], required: bool) -> Look:
        refusal = self._selection.refusal(node.attributes)
        if refusal is not None:
            return Look(FilterResult(refusal))
        lacks = [self._lacks(node, kept) for kept in matched]
        usable = [kept for kept, lack in zip(matched, lacks, strict=True) if lack is None]
        if usable:
            return self._judged(node, usable, required)
        found = [lack for lack in lacks if lack is not None]
        reasons = dict.fromkeys(f"{PREFIX}{reason}" for lack in found for reason in lack.reasons)
        return Look(FilterResult(replace(found[0], reasons=tuple(reasons))))

    def _lacks(self, node: NodeInfo, kept: Kept) -> Refusal | None:
        request = self._request
        amounts = {} if request is None else request.amounts
        bound = request is not None and node.host.bind.binds(request)
        short = [
            name
            for name in sorted(amounts.keys() & kept.held.requests.keys())
            if kept.is_restricted and amounts[name] > kept.left.requests.get(name, 0)
            # CPUs of a pod's own are looked for one by one.
            if not (bound and name == "cpu")
        ]
        if short:
            obstacle = Obstacle(Kind.AMOUNT, host_class(short[0]).name)
            return Refusal(tuple(f"Insufficient {name}" for name in short), obstacle=obstacle)
        opened = node.opened(frozenset({kept.held.consumer}))
        return lacking(opened.offers, opened.free, opened.left, amounts, bound=bound)

    def _judged(self, node: NodeInfo, usable: Sequence[Kept], required: bool) -> Look:
        """What a reservation has left comes first, then what else the node has, if the reservation allows."""
        seen = as_seen(node, usable)
        alone = tuple(replace(each, restricted=True) for each in seen)
        for reservations in (Reservations(alone, required=True), Reservations(seen, required=required)):
            result = self._judge.judge(node.host, node.totals, reservations)
            if not isinstance(result.answer, Refusal) and result.answer.nominated is not None:
                kept = usable[result.answer.nominated]
                return Look(result, reservations, kept, self._preference(kept))
        return Look(result, reservations)

    def _preference(self, kept: Kept) -> tuple[int, int]:
        assert kept.held.keeps is not None
        return kept.held.keeps.order or _LAST, -self._fill(kept)

    def _fill(self, kept: Kept) -> int:
        """How full the reservation would be, 0 to 100; 0 if it has not enough."""
        held = kept.held.requests
        asked = {} if self._request is None else self._request.amounts
        shares = []
        for resource in asked.keys() & held.keys():
            used = held[resource] - kept.left.requests.get(resource, 0) + asked[resource]
            shares.append(100 * used // held[resource] if used <= held[resource] else 0)
        return sum(shares) // len(shares) if shares else 0


def kept_on(node: NodeInfo) -> Iterator[Kept]:
    """The reservations of a node, in their order."""
    yield from map(Kept, node.reservations, node.reservations_left)


def as_seen(node: NodeInfo, kept: Iterable[Kept]) -> tuple[Reservation, ...]:
    """Reservations of a node as the NUMA allocator sees them."""
    return tuple(
        Reservation(
            cpus=mask_of(each.left.holding.cpus),
            remaining=counted_holding(each.left.holding, node.offers).amounts,
            total=counted_holding(each.held.holding, node.offers).amounts,
            restricted=each.is_restricted,
            milli_cpus=each.left.requests.get("cpu", 0),
        )
        for each in kept
    )
