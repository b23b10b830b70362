"""First stage of a search: which providers can fill which slot, one vectorised condition after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.candidates.arrays import Indices
from placement.candidates.conditions import (
    Carries,
    Condition,
    Exists,
    Fits,
    InTree,
    IsIn,
    conditions_of,
    split,
)
from placement.candidates.forest import Forest
from placement.candidates.query import GroupQuery, Slot
from placement.candidates.sharing import Sharing
from placement.candidates.trail import ProvidersPassed, Trail


@dataclass(frozen=True, slots=True)
class Choices:
    """Who can fill a slot: `own` for the tree they are in, `foreign` as sharing providers of another tree."""

    own: Indices
    foreign: Indices


def providers_matching(forest: Forest, group: GroupQuery, trail: Trail | None = None) -> Indices:
    """All providers that alone satisfy everything a group says, ascending.

    This is the rule of suffixed groups and of the provider list (Placement API).
    """
    narrowing = _Narrowing(forest, group, trail)
    narrowing.fit(group.resources)
    for condition in conditions_of(group, one_by_one=narrowing.one_by_one):
        narrowing.keep(condition)
    return narrowing.rows


def choices_of(forest: Forest, slot: Slot, sharing: Sharing, trail: Trail | None = None) -> Choices:
    """Who can fill the slot."""
    if slot.suffixed:
        own = providers_matching(forest, slot.group, trail)
        return Choices(own, np.intersect1d(own, sharing.providers))
    return _unsuffixed_choices(forest, slot, sharing, trail)


def _unsuffixed_choices(forest: Forest, slot: Slot, sharing: Sharing, trail: Trail | None) -> Choices:
    group = slot.group
    narrowing = _Narrowing(forest, group, trail)
    narrowing.fit(slot.resources)
    for ban in (Carries((), group.forbidden), IsIn((), group.forbidden_aggregates)):
        if ban.forbidden:
            for condition in split(ban, one_by_one=narrowing.one_by_one):
                narrowing.keep(condition)
    foreign = np.empty(0, np.int32)
    if group.in_tree is None and not sharing.is_empty:
        members = narrowing.rows[IsIn(group.member_of).among(forest, narrowing.rows)]
        foreign = np.intersect1d(members, sharing.providers)
    if group.member_of:
        # Not one by one: the same provider, or the root, must be in an aggregate of every set.
        narrowing.keep(IsIn(group.member_of, or_root=True))
    if group.in_tree is not None:
        narrowing.keep(InTree(group.in_tree))
    return Choices(narrowing.rows, foreign)


class _Narrowing:
    """Providers that become fewer, condition by condition."""

    def __init__(self, forest: Forest, group: GroupQuery, trail: Trail | None) -> None:
        self.rows: Indices = np.empty(0, np.int32)
        self.one_by_one = trail is not None and trail.one_by_one
        self._forest = forest
        self._group = group
        self._trail = trail

    def fit(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Begin with those that fit all the resources, with all providers if there are none."""
        if not resources:
            self._take(Exists(), None, np.flatnonzero(self._forest.alive()).astype(np.int32))
            return
        first, *others = (Fits(class_id, amount) for class_id, amount in resources)
        self._take(first, None, first.everywhere(self._forest))
        for condition in others:
            self.keep(condition)

    def keep(self, condition: Condition) -> None:
        """Only those that meet the condition, too."""
        self._take(condition, self.rows, self.rows[condition.among(self._forest, self.rows)])

    def _take(self, condition: Condition, before: Indices | None, rows: Indices) -> None:
        self.rows = rows
        if self._trail is not None:
            self._trail.providers.append(ProvidersPassed(self._group, condition, before, rows))
