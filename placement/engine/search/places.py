"""Places: the conditions of a query that whole hosts meet or not, whatever amounts they have.

An explanation asks them first, and once. No host of a candidate fails one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from placement.engine.forest.arrays import Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search.conditions import (
    Carries,
    InTree,
    IsIn,
    OffersClass,
    OnHost,
    PlaceCondition,
    split,
)
from placement.engine.search.filters import flags_of, root_conditions
from placement.engine.search.query import ForestQuery, GroupQuery


def place_conditions(query: ForestQuery) -> list[PlaceCondition]:
    """Return the conditions about places in the order of an explanation: where a host is, then what it is."""
    stated = [
        *(part for condition in root_conditions(query) for part in _parts(condition)),
        *(OnHost(group, condition) for group in query.groups for condition in _of_hosts(group)),
    ]
    return sorted(dict.fromkeys(stated), key=_rank)


def is_location(condition: PlaceCondition) -> bool:
    """Return whether a condition asks where a host is: in which aggregates, or which host it is."""
    inner = condition.condition if isinstance(condition, OnHost) else condition
    return isinstance(inner, IsIn | InTree)


def anywhere(query: ForestQuery) -> ForestQuery:
    """Return the query for hosts of all places; what it forbids stays forbidden."""
    groups = tuple(replace(group, member_of=(), in_tree=None) for group in query.groups)
    return replace(query, groups=groups, root_member_of=(), open_hosts=query.open_elsewhere)


def _parts(condition: PlaceCondition) -> Iterator[PlaceCondition]:
    if isinstance(condition, Carries | IsIn):
        yield from split(condition)
    else:
        yield condition


def _of_hosts(group: GroupQuery) -> Iterator[Carries | IsIn | InTree]:
    """Yield what a group asks of hosts; a suffixed group asks its traits of one provider."""
    if group.member_of:
        # Not one by one: the same provider, or the root, must be in an aggregate of every set.
        yield IsIn(group.member_of, or_root=not group.suffix)
    if group.in_tree is not None:
        yield InTree(group.in_tree)
    if not group.suffix and group.resources:
        yield from split(Carries(group.required, group.forbidden))


def _rank(condition: PlaceCondition) -> int:
    if not is_location(condition):
        return 3
    inner = condition.condition if isinstance(condition, OnHost) else condition
    if isinstance(inner, InTree):
        return 1
    return 0 if isinstance(inner, IsIn) and inner.required else 2


_NONE: Rows = np.empty(0, np.intp)


class PlaceMasks:
    """The hosts of a forest that meet conditions about places."""

    def __init__(self, forest: Forest, sharing: Sharing) -> None:
        self._forest = forest
        self._sharing = sharing
        self._all = np.flatnonzero(forest.alive())

    def meeting(self, condition: PlaceCondition) -> Mask:
        """Return one flag per row of the forest, set at the roots that meet the condition."""
        forest = self._forest
        if isinstance(condition, OnHost):
            return self._of_group(condition.group, condition.condition)
        roots = forest.roots.astype(np.int32)
        return flags_of(forest.count, roots[condition.among(forest, roots)])

    def serving(self, rows: Rows, foreign: Rows) -> Mask:
        """Return the roots that some providers serve: `rows` their own trees, `foreign` ones others."""
        flags = flags_of(self._forest.count, self._forest.roots_of(rows))
        pairs = flags_of(self._forest.count, foreign)[self._sharing.pair_provider]
        flags[self._sharing.pair_anchor[pairs]] = True
        return flags

    def _of_group(self, group: GroupQuery, condition: Carries | IsIn | InTree) -> Mask:
        if isinstance(condition, Carries) and condition.forbidden:
            return self._unspoilt(group, condition)
        own = self._all[condition.among(self._forest, self._all)]
        return self.serving(own, _NONE) | self._served_from_elsewhere(group, condition)

    def _served_from_elsewhere(self, group: GroupQuery, condition: Carries | IsIn | InTree) -> Mask:
        """Return the roots that sharing providers which meet the condition serve; they offer all classes.

        For a trait of the unsuffixed group one class is enough.
        """
        sharers = self._sharing.providers.astype(np.intp)
        itself = IsIn(condition.required) if isinstance(condition, IsIn) else condition
        sharers = sharers[itself.among(self._forest, sharers)]
        whole = [class_id for class_id, _ in group.resources if class_id not in group.split]
        if (isinstance(condition, InTree) and not group.suffix) or (group.split and not whole):
            return np.zeros(self._forest.count, bool)
        if group.suffix:
            for class_id in whole:
                sharers = self._offering(class_id, sharers)
            return self.serving(_NONE, sharers)
        served = [self.serving(_NONE, self._offering(class_id, sharers)) for class_id in whole]
        merged = np.logical_or if isinstance(condition, Carries) else np.logical_and
        return reduce(merged, served)

    def _unspoilt(self, group: GroupQuery, carries: Carries) -> Mask:
        """Return the roots without a class of the group that only providers with a forbidden trait offer."""
        met = np.ones(self._forest.count, bool)
        for class_id, _ in group.resources:
            offering = self._offering(class_id, self._all)
            fine = offering[carries.among(self._forest, offering)]
            offered, spared = (
                self.serving(rows, np.intersect1d(rows, self._sharing.providers)) for rows in (offering, fine)
            )
            met &= spared | ~offered
        return met

    def _offering(self, class_id: int, rows: Rows) -> Rows:
        return rows[OffersClass(class_id).among(self._forest, rows)]
