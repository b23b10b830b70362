"""The placed pods of a cluster for rules between pods: which are on which node, and which terms they have.

Counts are made at the first request, and kept: where no pod says anything about others, there is none. A node
that changed costs one node.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices
from placement.pods.manifests.affinity import Bearer, PodSelector, PodTerm, WeightedTerm
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import LabelKey, NodeColumns, NodeRows

# This many selections are kept without counting anew; each keeps nodes as they were then.
_SELECTIONS_KEPT = 32
_REQUIRED_WEIGHT = 1
"""The weight of a required affinity of a placed pod for others (kube-scheduler: hardPodAffinityWeight)."""

Selectors = tuple[PodSelector, ...]
"""Pods that all of these select."""
Wishes = Mapping[WeightedTerm | PodTerm, Mapping[int, int]]
"""The number of pods that have a term, by term and row."""


class _CountedWishes(NamedTuple):
    """The terms of placed pods, when the nodes were these; `about`: the terms that select some pods."""

    order: object
    nodes: NodeRows
    terms: dict[WeightedTerm | PodTerm, dict[int, int]]
    about: dict[Bearer, Wishes]


class PlacedPods:
    """The pods of a cluster. Threads share it: what it returns never changes."""

    def __init__(self) -> None:
        # The pods in each row that are selected, with the nodes of that time and their order.
        self._counted: dict[tuple[Selectors, bool], tuple[object, NodeRows, Amounts]] = {}
        self._wishes: _CountedWishes | None = None
        self._lock = threading.Lock()

    def matching(self, columns: NodeColumns, selectors: Selectors, *, staying: bool = False) -> Amounts:
        """Return how many pods that all selectors select are on each node; `columns` are all of the cluster.

        `staying`: pods that are being deleted do not count.
        """
        asked = selectors, staying
        with self._lock:
            known = self._counted.pop(asked, None)
            if known is None or known[0] is not columns.order:
                rows, counts = list(range(len(columns.nodes))), np.zeros(len(columns.nodes), np.int64)
            else:
                rows, counts = columns.nodes.changed_since(known[1].marks), known[2]
            if rows:
                counts = counts.copy()
                selected: dict[Bearer, bool] = {}
                for row, node in zip(rows, columns.nodes.at(rows), strict=True):
                    total = 0
                    for bearer, count in (node.staying_bearers if staying else node.bearers).items():
                        is_meant = selected.get(bearer)
                        if is_meant is None:
                            is_meant = selected[bearer] = all(each.selects(bearer) for each in selectors)
                        total += count * is_meant
                    counts[row] = total
            self._counted[asked] = (columns.order, columns.nodes, counts)
            if len(self._counted) > _SELECTIONS_KEPT:
                del self._counted[next(iter(self._counted))]
        return counts

    def wishes_about(self, columns: NodeColumns, bearer: Bearer) -> Wishes:
        """Return terms of placed pods that select such a pod: required ones against it, and scored ones.

        The latter have a weight, which is negative if the placed pod prefers to be apart. Each term is tried
        once, until the terms change.
        """
        with self._lock:
            wishes = self._wishes = self._counted_wishes(columns)
            found = wishes.about.get(bearer)
            if found is None:
                found = {
                    wish: rows
                    for wish, rows in wishes.terms.items()
                    if (wish.term if isinstance(wish, WeightedTerm) else wish).pods.selects(bearer)
                }
                wishes.about[bearer] = found
                if len(wishes.about) > _SELECTIONS_KEPT:
                    del wishes.about[next(iter(wishes.about))]
        return found

    def _counted_wishes(self, columns: NodeColumns) -> _CountedWishes:
        known = self._wishes
        terms: dict[WeightedTerm | PodTerm, dict[int, int]] = {}
        own: set[object] = set()
        if known is None or known.order is not columns.order:
            for row, node in enumerate(columns.nodes):
                _add(terms, own, row, node, 1)
            return _CountedWishes(columns.order, columns.nodes, terms, {})
        rows = columns.nodes.changed_since(known.nodes.marks)
        if not rows:
            return known
        changed = [
            (row, before, after)
            for row, before, after in zip(rows, known.nodes.at(rows), columns.nodes.at(rows), strict=True)
            if before.with_affinity or after.with_affinity
        ]
        if not changed:
            return known._replace(nodes=columns.nodes)
        terms.update(known.terms)
        for row, before, after in changed:
            _add(terms, own, row, before, -1)
            _add(terms, own, row, after, 1)
        return _CountedWishes(columns.order, columns.nodes, terms, {})


def _add(
    terms: dict[WeightedTerm | PodTerm, dict[int, int]], own: set[object], row: int, node: NodeInfo, each: int
) -> None:
    """Count the terms of a node; only rows of our `own` terms are written to."""
    for affinity in (pod.affinity for pod in node.with_affinity):
        wishes: tuple[WeightedTerm | PodTerm, ...] = (
            *affinity.apart_terms,
            *(WeightedTerm(_REQUIRED_WEIGHT, term) for term in affinity.near_terms),
            *affinity.preferred_near_terms,
            *(WeightedTerm(-weight, term) for weight, term in affinity.preferred_apart_terms),
        )
        for term in wishes:
            if term not in own:
                own.add(term)
                terms[term] = dict(terms.get(term, ()))
            rows = terms.setdefault(term, {})
            rows[row] = rows.get(row, 0) + each
            if not rows[row]:
                del rows[row]
            if not rows:
                del terms[term]


def places(columns: NodeColumns, topology_key: str) -> Indices:
    """Return the number of the place of each node; negative where it has none."""
    return columns.label(LabelKey(topology_key)).codes


def per_place(at: Indices, counts: Amounts) -> Amounts:
    """Return for each node the sum over all nodes that are in its place; 0 where it has none."""
    there = at >= 0
    totals = np.zeros(int(at.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, at[there], counts[there])
    found = np.zeros(len(at), np.int64)
    found[there] = totals[at[there]]
    return found


def in_same_place(columns: NodeColumns, topology_key: str, counts: Amounts | Mapping[int, int]) -> Amounts:
    """Return for each node the sum over all nodes in its place by this key; `counts` is by row."""
    at = places(columns, topology_key)
    return per_place(at, in_rows(counts, len(at)) if isinstance(counts, Mapping) else counts)


def in_rows(rows: Mapping[int, int], length: int) -> Amounts:
    """Return numbers of some rows as a column."""
    column = np.zeros(length, np.int64)
    column[list(rows)] = list(rows.values())
    return column
