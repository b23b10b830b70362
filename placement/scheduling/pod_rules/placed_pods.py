"""Which pods are placed where, counted by what others ask of them; a node that changed costs one node.

Counts are made when somebody asks for the first time, and kept: where no pod says anything about others,
nobody asks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.forest.arrays import Amounts, Indices
from placement.kubernetes.pod_affinity import Bearer, PodSelector, PodTerm, WeightedTerm
from placement.scheduling.columns.labels import LabelKey
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.node_rows import NodeRows
from placement.scheduling.node_info import NodeInfo

# Pods of so many kinds can be asked about in turn without counting anew; each keeps nodes as they were then.
_SELECTIONS_KEPT = 32
_REQUIRED_WEIGHT = 1
"""What a required affinity of a placed pod is worth to others (kube-scheduler: hardPodAffinityWeight)."""

Selectors = tuple[PodSelector, ...]
"""Pods that all of these select."""
Wishes = Mapping[WeightedTerm | PodTerm, Mapping[int, int]]
"""How many pods in which row have a term."""


class _Counted(NamedTuple):
    """How many pods are in each row, when the nodes were these."""

    order: object
    nodes: NodeRows
    counts: Amounts


class _Wishes(NamedTuple):
    """The terms of placed pods, when the nodes were these; `about`: those that select some pods."""

    order: object
    nodes: NodeRows
    terms: dict[WeightedTerm | PodTerm, dict[int, int]]
    about: dict[Bearer, Wishes]


class PlacedPods:
    """The pods of a cluster. Threads share it: what it returns never changes."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Selectors, bool], _Counted] = {}
        self._wishes: _Wishes | None = None
        self._lock = threading.Lock()

    def matching(self, columns: NodeColumns, selectors: Selectors, *, staying: bool = False) -> Amounts:
        """How many pods that all selectors select are on each node; `columns` are all of the cluster.

        `staying`: pods that are being deleted do not count.
        """
        asked = selectors, staying
        with self._lock:
            known = self._counted.pop(asked, None)
            if known is None or known.order is not columns.order:
                rows, counts = list(range(len(columns.nodes))), np.zeros(len(columns.nodes), np.int64)
            else:
                rows, counts = columns.changed_since(known.nodes.marks).tolist(), known.counts
            if rows:
                counts = counts.copy()
                selected: dict[Bearer, bool] = {}
                for row in rows:
                    counts[row] = _count(columns.nodes[row], selectors, staying, selected)
            self._counted[asked] = _Counted(columns.order, columns.nodes, counts)
            if len(self._counted) > _SELECTIONS_KEPT:
                del self._counted[next(iter(self._counted))]
        return counts

    def wishes_about(self, columns: NodeColumns, bearer: Bearer) -> Wishes:
        """The terms of placed pods that select such a pod: required ones against it, and those for the score.

        The latter have a weight, which is negative if the pod would rather be apart. Each term is tried once,
        until the terms change.
        """
        with self._lock:
            wishes = self._wishes = self._counted_wishes(columns)
            found = wishes.about.get(bearer)
            if found is None:
                found = {wish: rows for wish, rows in wishes.terms.items() if _selects(wish, bearer)}
                wishes.about[bearer] = found
                if len(wishes.about) > _SELECTIONS_KEPT:
                    del wishes.about[next(iter(wishes.about))]
        return found

    def _counted_wishes(self, columns: NodeColumns) -> _Wishes:
        known = self._wishes
        terms: dict[WeightedTerm | PodTerm, dict[int, int]] = {}
        own: set[object] = set()
        if known is None or known.order is not columns.order:
            for row, node in enumerate(columns.nodes):
                _add(terms, own, row, node, 1)
            return _Wishes(columns.order, columns.nodes, terms, {})
        changed = [
            (row, known.nodes[row], columns.nodes[row])
            for row in columns.changed_since(known.nodes.marks).tolist()
            if known.nodes[row].with_affinity or columns.nodes[row].with_affinity
        ]
        if not changed:
            return known._replace(nodes=columns.nodes)
        terms.update(known.terms)
        for row, before, after in changed:
            _add(terms, own, row, before, -1)
            _add(terms, own, row, after, 1)
        return _Wishes(columns.order, columns.nodes, terms, {})


def _selects(wish: WeightedTerm | PodTerm, bearer: Bearer) -> bool:
    term = wish.term if isinstance(wish, WeightedTerm) else wish
    return term.pods.selects(bearer)


def _count(node: NodeInfo, selectors: Selectors, staying: bool, selected: dict[Bearer, bool]) -> int:
    total = 0
    for bearer, count in (node.staying_bearers if staying else node.bearers).items():
        is_meant = selected.get(bearer)
        if is_meant is None:
            is_meant = selected[bearer] = all(each.selects(bearer) for each in selectors)
        total += count * is_meant
    return total


def _add(
    terms: dict[WeightedTerm | PodTerm, dict[int, int]], own: set[object], row: int, node: NodeInfo, each: int
) -> None:
    """Count the terms of a node; only rows of our `own` terms are written to."""
    for pod in node.with_affinity:
        for term in _terms_of(pod):
            if term not in own:
                own.add(term)
                terms[term] = dict(terms.get(term, ()))
            rows = terms.setdefault(term, {})
            rows[row] = rows.get(row, 0) + each
            if not rows[row]:
                del rows[row]
            if not rows:
                del terms[term]


def _terms_of(pod: RecordedPod) -> Iterator[WeightedTerm | PodTerm]:
    affinity = pod.affinity
    yield from affinity.apart
    yield from (WeightedTerm(_REQUIRED_WEIGHT, term) for term in affinity.near)
    yield from affinity.rather_near
    yield from (WeightedTerm(-weight, term) for weight, term in affinity.rather_apart)


def places(columns: NodeColumns, topology_key: str) -> Indices:
    """The place in which each node is, by number; negative where it has none."""
    return columns.label(LabelKey(topology_key)).codes


def per_place(at: Indices, counts: Amounts) -> Amounts:
    """For each node, the sum over all nodes that are in its place; 0 where it has none."""
    there = at >= 0
    totals = np.zeros(int(at.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, at[there], counts[there])
    found = np.zeros(len(at), np.int64)
    found[there] = totals[at[there]]
    return found


def in_rows(rows: Mapping[int, int], length: int) -> Amounts:
    """Numbers of some rows as a column."""
    column = np.zeros(length, np.int64)
    column[list(rows)] = list(rows.values())
    return column
