"""Pods and the reservations of nodes: which one a pod would use, and where that makes it go.

A node on which a pod may use a reservation comes before all others. Only those nodes are looked at here;
everything else is for the ranking of the shape.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement.dialects.koordinator.pod.pod_request import PodImport
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.forest.arrays import Mask
from placement.numa.refusal import Refusal
from placement.numa.reservations import NO_MATCH, PREFIX, Reservations
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.numa_fit import Fit
from placement.scheduling.pipeline import Estimates, PodShape, Ranked, ShapeRanking
from placement.scheduling.reservation_looks import Look, as_seen, kept_on

USES_RESERVATION = -1
"""What a pod misses on a node where it uses a reservation: less than anywhere else."""


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

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """The nodes on which the pod fits, in allowed rows: first where it uses a reservation."""
        found = [(node, look) for node, look in self._looks(columns) if look.kept is not None]
        if allowed is not None:
            found = [each for each in found if allowed[columns.row_of(each[0].name)]]
        found.sort(key=lambda each: _key(*each))
        for node, look in found:
            yield _ranked(node, look)
        if self._affinity is None:
            used = {node.name for node, _ in found}
            others = self._ranking.best_first(columns, allowed)
            yield from (ranked for ranked in others if ranked.node.name not in used)

    def refusals(self, columns: NodeColumns) -> dict[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        if self._affinity is None:
            found = {**self._ranking.refusals(columns)}
        else:
            no_match = Refusal((f"{PREFIX}{NO_MATCH}",))
            found = {node.name: no_match for node in columns.nodes}
        for node, look in self._looks(columns):
            if look.kept is not None:
                found.pop(node.name, None)
            elif self._affinity is not None and isinstance(look.result.answer, Refusal):
                found[node.name] = look.result.answer
        return found

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """How well the pod fits on a node, where it does without using a reservation."""
        return self._ranking.ranked_on(node)

    def standings(self, columns: NodeColumns) -> Estimates:
        """On which nodes the pod fits, its scores, and what it misses: -1 where it uses a reservation."""
        found = self._ranking.standings(columns)
        fits, missed, scores = found.fits.copy(), found.missed.copy(), found.highest.copy()
        if self._affinity is not None:
            fits[:] = False
        for node, look in self._looks(columns):
            if look.kept is not None:
                row = columns.row_of(node.name)
                fits[row], missed[row], scores[row] = True, USES_RESERVATION, look.result.score
        return replace(found, fits=fits, missed=missed, highest=scores)

    def _looks(self, columns: NodeColumns) -> Iterator[tuple[NodeInfo, Look]]:
        """The nodes with reservations that the pod may use, and how it stands with these."""
        nodes, required = columns.by_name, self._affinity is not None
        for name in self._nodes:
            node = nodes.get(name)
            matched = [] if node is None else [kept for kept in kept_on(node) if self._may_use(kept.held)]
            if node is not None and matched:
                yield node, self._ranking.on_reservations.look(node, matched, required=required)

    def _may_use(self, reservation: RecordedPod) -> bool:
        terms = reservation.keeps
        assert terms is not None
        if terms.is_over(self._now) or not terms.owned_by(self._document):
            return False
        return self._affinity is None or self._affinity.accepts(reservation.name, terms.labels)


def _key(node: NodeInfo, look: Look) -> tuple[int, int, int, int, str]:
    """How a node on which a pod uses a reservation compares with others: the lower comes first."""
    order, fill = look.preference
    return order, look.result.missed, fill, -look.result.score, node.name


def _ranked(node: NodeInfo, look: Look) -> Ranked:
    result, used = look.result, look.kept
    assert used is not None
    assert isinstance(result.answer, Fit)
    opened = node.opened(frozenset({used.held.consumer}))
    return Ranked(node, result.missed, result.score, result.answer, look.reservations, used.held, opened)


class IgnoringRanking:
    """A pod that takes what is reserved as if it were free, and the nodes of a cluster."""

    def __init__(self, ranking: ShapeRanking) -> None:
        self._ranking = ranking

    @property
    def shape(self) -> PodShape:
        """All that decides on which nodes the pod fits."""
        return self._ranking.shape

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """The nodes on which the pod fits, in allowed rows; reserved CPUs are given first."""
        for ranked in self._ranking.best_first(self._ranking.on_reservations.opened(columns), allowed):
            yield _ignoring(columns.by_name[ranked.node.name], ranked)

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """How well the pod fits on a node, where it does."""
        return _ignoring(node, self._ranking.ranked_on(node.opened(node.reserving)))

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        return self._ranking.refusals(self._ranking.on_reservations.opened(columns))

    def standings(self, columns: NodeColumns) -> Estimates:
        """On which nodes the pod fits, what it misses there and its scores."""
        return self._ranking.standings(self._ranking.on_reservations.opened(columns))


def _ignoring(node: NodeInfo, ranked: Ranked) -> Ranked:
    """A node as it is, when it was ranked as if nothing were reserved there."""
    if node is ranked.node:
        return ranked
    everything = Reservations(as_seen(node, kept_on(node)), ignored=True)
    return ranked._replace(node=node, reservations=everything, opened=ranked.node)


PodRanking = ShapeRanking | ReservationRanking | IgnoringRanking
