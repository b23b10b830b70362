"""First stage of a search: which providers can fill which slot, one vectorised condition after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import numpy as np

from placement.forest.arrays import Mask, Rows
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.search.conditions import (
    Carries,
    Condition,
    Exists,
    Fits,
    GivesPart,
    InTree,
    IsIn,
    OffersClass,
    conditions_of,
    split,
)
from placement.search.query import GroupQuery, Slot
from placement.search.trace import ProvidersPassed, Trace


@dataclass(frozen=True)
class Choices:
    """The providers that can fill a slot: `own` for their own tree, `foreign` as sharing ones for others.

    `count` is the number of rows of the forest.
    """

    count: int
    own: Rows
    foreign: Rows

    @cached_property
    def own_mask(self) -> Mask:
        """`own`, as one flag per row of the forest."""
        return _flags(self.count, self.own)

    @cached_property
    def foreign_mask(self) -> Mask:
        """`foreign`, as one flag per row of the forest."""
        return _flags(self.count, self.foreign)


def _flags(count: int, rows: Rows) -> Mask:
    flags = np.zeros(count, bool)
    flags[rows] = True
    return flags


_Serves = Callable[[int, int], Fits | GivesPart | OffersClass]
_NO_ROWS: Rows = np.empty(0, np.intp)


def providers_matching(forest: Forest, group: GroupQuery) -> Rows:
    """The providers that alone satisfy everything a group says, ascending.

    This is the rule of suffixed groups and of the provider list.
    """
    narrowing = _Narrowing(forest, group)
    narrowing.serve(group.resources)
    return narrowing.rows


def choices_of(
    forest: Forest,
    slot: Slot,
    sharing: Sharing,
    trace: Trace | None = None,
    among: Rows | None = None,
    *,
    with_room: bool = True,
) -> Choices:
    """The providers that can fill the slot, of all or `among` some.

    Without `with_room` those that could if amounts did not matter.
    """
    serves: _Serves = _offers
    if with_room:
        serves = Fits if slot.rule is None else partial(GivesPart, rule=slot.rule)
    narrowing = _Narrowing(forest, slot.group, trace, among, serves)
    if slot.rule is not None:
        narrowing.serve(slot.resources)
        # A sharing provider would give its parts to several trees.
        own = narrowing.rows[~np.isin(narrowing.rows, sharing.providers)]
        return Choices(forest.count, own, _NO_ROWS)
    if slot.suffixed:
        narrowing.serve(slot.resources)
        return Choices(forest.count, narrowing.rows, _sharing_among(narrowing.rows, sharing))
    return _unsuffixed_choices(forest, slot, sharing, narrowing)


def _offers(class_id: int, _amount: int) -> OffersClass:
    return OffersClass(class_id)


def _unsuffixed_choices(forest: Forest, slot: Slot, sharing: Sharing, narrowing: _Narrowing) -> Choices:
    group = slot.group
    narrowing.begin(slot.resources)
    for ban in (Carries((), group.forbidden), IsIn((), group.forbidden_aggregates)):
        if ban.forbidden:
            for condition in split(ban, one_by_one=narrowing.one_by_one):
                narrowing.keep(condition)
    foreign = _NO_ROWS
    if group.in_tree is None and not sharing.is_empty:
        members = narrowing.rows[IsIn(group.member_of).among(forest, narrowing.rows)]
        foreign = _sharing_among(members, sharing)
    if group.member_of:
        # Not one by one: the same provider, or the root, must be in an aggregate of every set.
        narrowing.keep(IsIn(group.member_of, or_root=True))
    if group.in_tree is not None:
        narrowing.keep(InTree(group.in_tree))
    return Choices(forest.count, narrowing.rows, foreign)


def _sharing_among(rows: Rows, sharing: Sharing) -> Rows:
    if sharing.is_empty:
        return _NO_ROWS
    return np.intersect1d(rows, sharing.providers).astype(np.intp)


def _fitting(forest: Forest, resources: tuple[tuple[int, int], ...]) -> Rows:
    """The providers that can take an allocation of every amount now, ascending."""
    flags = (forest.column(class_id).fitting_flags(amount, forest.count) for class_id, amount in resources)
    return np.flatnonzero(reduce(np.logical_and, flags))


class _Narrowing:
    """A set of providers that each condition makes smaller."""

    def __init__(
        self,
        forest: Forest,
        group: GroupQuery,
        trace: Trace | None = None,
        among: Rows | None = None,
        serves: _Serves = Fits,
    ) -> None:
        self.rows: Rows = _NO_ROWS
        self._among = among
        self.one_by_one = trace is not None and trace.one_by_one
        self._forest = forest
        self._group = group
        self._trace = trace
        self._serves = serves

    def serve(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Only those that give the resources, and meet everything else that the group says."""
        self.begin(resources)
        for condition in conditions_of(self._group, one_by_one=self.one_by_one):
            self.keep(condition)

    def begin(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Begin with the providers that serve all the resources; with all providers if none are asked for."""
        first, *others = (
            (self._serves(class_id, amount) for class_id, amount in resources) if resources else (Exists(),)
        )
        if self._among is None and self._trace is None and others and self._serves is Fits:
            # Of all providers, flags are quicker than narrowing rows.
            self.rows = _fitting(self._forest, resources)
            return
        if self._among is None:
            self._take(first, None, first.everywhere(self._forest))
        else:
            self.rows = self._among
            self.keep(first)
        for condition in others:
            self.keep(condition)

    def keep(self, condition: Condition) -> None:
        """Only those that meet the condition, too."""
        self._take(condition, self.rows, self.rows[condition.among(self._forest, self.rows)])

    def _take(self, condition: Condition, before: Rows | None, rows: Rows) -> None:
        self.rows = rows
        if self._trace is not None:
            self._trace.providers.append(ProvidersPassed(self._group, condition, before, rows))
