"""Pods and the reservations of nodes: which one a pod would use, and where that makes it go.

A node on which a pod may use a reservation comes before all others. Only those nodes are looked at here;
everything else is for the ranking of the shape.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodImport
from placement.dialects.koordinator.resources import host_class
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.domain.explanation import Kind, Obstacle
from placement.numa.cpuset import mask_of
from placement.numa.refusal import Refusal
from placement.numa.reservations import (
    NO_MATCH,
    NO_RESERVATIONS,
    PREFIX,
    Reservation,
    Reservations,
)
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.filter import FilterResult, PodJudge, lacking
from placement.scheduling.host import counted_holding
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.pipeline import PodShape, Ranked, ShapeRanking

_LAST = 2**63


class Kept(NamedTuple):
    """A reservation on a node: all that it was given, and what it has left."""

    held: RecordedPod
    left: RecordedPod

    @property
    def is_restricted(self) -> bool:
        """Whether owners get nothing beyond what is left of it."""
        return self.held.keeps is not None and self.held.keeps.restricted


@dataclass(frozen=True, slots=True)
class _Found:
    """A node on which a pod fits out of a reservation, and how it compares with others."""

    key: tuple[int, int, int, int, str]
    ranked: Ranked


class _Look(NamedTuple):
    """How a pod stands with reservations of a node."""

    verdict: FilterResult
    reservations: Reservations = NO_RESERVATIONS
    usable: Sequence[Kept] = ()

    @property
    def kept(self) -> Kept | None:
        """The reservation that the pod would use, if it fits out of one."""
        answer = self.verdict.answer
        if isinstance(answer, Refusal) or answer.nominated is None:
            return None
        return self.usable[answer.nominated]


class ReservationRanking:
    """A pod that may use reservations, and the nodes of a cluster.

    `ranking` is that of its shape, `document` its manifest, `nodes` are the names of nodes with reservations.
    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self,
        ranking: ShapeRanking,
        incoming: PodImport,
        document: Mapping[str, Any],
        nodes: Sequence[str],
        now: datetime.datetime,
    ) -> None:
        self._ranking = ranking
        self._affinity = incoming.reservation_affinity
        self._document = document
        self._nodes = nodes
        self._now = now

    @property
    def shape(self) -> PodShape:
        """All that decides on which nodes the pod fits without reservations."""
        return self._ranking.shape

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """The nodes on which the pod fits: those where it uses a reservation, then all others."""
        found = sorted(self._found(columns), key=lambda each: each.key)
        yield from (each.ranked for each in found)
        if self._affinity is None:
            used = {each.ranked.node.name for each in found}
            others = self._ranking.best_first(columns)
            yield from (ranked for ranked in others if ranked.node.name not in used)

    def refusals(self, columns: NodeColumns) -> dict[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        found = {} if self._affinity else self._ranking.refusals(columns)
        if self._affinity is not None:
            no_match = Refusal((f"{PREFIX}{NO_MATCH}",))
            found = {node.name: no_match for node in columns.nodes}
        for node, matched in self._matched(columns):
            look = self._look(node, matched)
            if look.kept is not None:
                found.pop(node.name, None)
            elif self._affinity is not None and isinstance(look.verdict.answer, Refusal):
                found[node.name] = look.verdict.answer
        return found

    def _found(self, columns: NodeColumns) -> Iterator[_Found]:
        for node, matched in self._matched(columns):
            verdict, reservations, _ = look = self._look(node, matched)
            if look.kept is None or isinstance(verdict.answer, Refusal):
                continue
            used = look.kept.held
            opened = node.without(frozenset({used.consumer}))
            ranked = Ranked(node, verdict.missed, verdict.score, verdict.answer, reservations, used, opened)
            order, fill = self._preference(look.kept)
            yield _Found((order, verdict.missed, fill, -verdict.score, node.name), ranked)

    def _matched(self, columns: NodeColumns) -> Iterator[tuple[NodeInfo, Sequence[Kept]]]:
        """The nodes with reservations that the pod may use, and those, the one to use first before others."""
        for node in columns.among(self._nodes).nodes:
            matched = [kept for kept in kept_on(node) if self._may_use(kept.held)]
            if matched:
                yield node, sorted(matched, key=self._preference)

    def _may_use(self, reservation: RecordedPod) -> bool:
        terms = reservation.keeps
        assert terms is not None
        if terms.is_over(self._now) or not terms.owned_by(self._document):
            return False
        return self._affinity is None or self._affinity.accepts(reservation.name, terms.labels)

    def _preference(self, kept: Kept) -> tuple[int, int]:
        """The lower comes first: by the order that reservations name, then the one that gets fullest."""
        assert kept.held.keeps is not None
        return kept.held.keeps.order or _LAST, -self._fill(kept)

    def _fill(self, kept: Kept) -> int:
        """How full the reservation would be, 0 to 100; 0 if it has not enough."""
        request, held = self.shape.request, kept.held.requests
        asked = {} if request is None else request.amounts
        shares = []
        for resource in asked.keys() & held.keys():
            used = held[resource] - kept.left.requests.get(resource, 0) + asked[resource]
            shares.append(100 * used // held[resource] if used <= held[resource] else 0)
        return sum(shares) // len(shares) if shares else 0

    def _look(self, node: NodeInfo, matched: Sequence[Kept]) -> _Look:
        """How the pod stands with the reservations with which the host as a whole has enough."""
        refusal = self.shape.selection.refusal(node.attributes)
        if refusal is not None:
            return _Look(FilterResult(refusal))
        lacks = [self._lacks(node, kept) for kept in matched]
        usable = [kept for kept, lack in zip(matched, lacks, strict=True) if lack is None]
        if usable:
            return self._judged(node, usable)
        found = [lack for lack in lacks if lack is not None]
        reasons = dict.fromkeys(f"{PREFIX}{reason}" for lack in found for reason in lack.reasons)
        return _Look(FilterResult(replace(found[0], reasons=tuple(reasons))))

    def _lacks(self, node: NodeInfo, kept: Kept) -> Refusal | None:
        request = self.shape.request
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
        opened = node.without(frozenset({kept.held.consumer}))
        return lacking(opened.offers, opened.free, opened.left, amounts, bound=bound)

    def _judged(self, node: NodeInfo, usable: Sequence[Kept]) -> _Look:
        """What a reservation has left comes first, then what else the node has, if the reservation allows."""
        seen, required = _as_seen(node, usable), self._affinity is not None
        alone = tuple(replace(each, restricted=True) for each in seen)
        for reservations in (Reservations(alone, required=True), Reservations(seen, required=required)):
            judge = PodJudge(self.shape.request, self.shape.settings.host_scoring)
            look = _Look(judge.judge(node.host, node.totals, reservations), reservations, usable)
            if look.kept is not None:
                break
        return look


class IgnoringRanking:
    """A pod that takes what is reserved as if it were free, and the nodes of a cluster."""

    def __init__(self, ranking: ShapeRanking, nodes: Sequence[str]) -> None:
        self._ranking = ranking
        self._nodes = nodes

    @property
    def shape(self) -> PodShape:
        """All that decides on which nodes the pod fits."""
        return self._ranking.shape

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """The nodes on which the pod fits; reserved CPUs are given first."""
        closed = {node.name: node for node in columns.among(self._nodes).nodes}
        for ranked in self._ranking.best_first(self._opened(columns)):
            node = closed.get(ranked.node.name)
            if node is None:
                yield ranked
            else:
                everything = Reservations(_as_seen(node, list(kept_on(node))), ignored=True)
                yield replace(ranked, node=node, reservations=everything, opened=ranked.node)

    def refusals(self, columns: NodeColumns) -> dict[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        return self._ranking.refusals(self._opened(columns))

    def _opened(self, columns: NodeColumns) -> NodeColumns:
        return columns.updated(
            node.without(frozenset(each.consumer for each in node.reservations))
            for node in columns.among(self._nodes).nodes
        )


PodRanking = ShapeRanking | ReservationRanking | IgnoringRanking


def kept_on(node: NodeInfo) -> Iterator[Kept]:
    """The reservations of a node, in their order."""
    left = node.holders[len(node.pods) :]
    yield from map(Kept, node.reservations, left)


def _as_seen(node: NodeInfo, kept: Sequence[Kept]) -> tuple[Reservation, ...]:
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
