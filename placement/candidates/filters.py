"""First stage of a search: which providers can fill which slot, one vectorised condition after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.candidates.arrays import Mask, Rows
from placement.candidates.forest import Forest
from placement.candidates.query import GroupQuery, Slot
from placement.candidates.sharing import Sharing

_NO_TREE = -2


@dataclass(frozen=True)
class Choices:
    """Who can fill a slot: `own` for the tree they are in, `foreign` as sharing providers of another tree.

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


_NOBODY: Rows = np.empty(0, np.intp)


def providers_matching(forest: Forest, group: GroupQuery) -> Rows:
    """All providers that alone satisfy everything a group says, ascending.

    This is the rule of suffixed groups and of the provider list (Placement API).
    """
    rows = _fitting(forest, group.resources)
    rows = _with_traits(forest, rows, group)
    if group.member_of or group.forbidden_aggregates:
        rows = rows[forest.aggregates.satisfying(rows, group.member_of, group.forbidden_aggregates)]
    return rows[_in_tree(forest, rows, group)]


def choices_of(forest: Forest, slot: Slot, sharing: Sharing) -> Choices:
    """Who can fill the slot."""
    if slot.suffixed:
        own = providers_matching(forest, slot.group)
        return Choices(forest.count, own, _sharing_among(own, sharing))
    return _unsuffixed_choices(forest, slot, sharing)


def _unsuffixed_choices(forest: Forest, slot: Slot, sharing: Sharing) -> Choices:
    group = slot.group
    rows = _fitting(forest, slot.resources)
    if group.forbidden:
        rows = rows[forest.traits.satisfying(rows, (), group.forbidden)]
    if group.forbidden_aggregates:
        rows = rows[forest.aggregates.satisfying(rows, (), group.forbidden_aggregates)]
    member = forest.aggregates.satisfying(rows, group.member_of)
    foreign = _NOBODY if group.in_tree is not None else _sharing_among(rows[member], sharing)
    if group.member_of:
        # The aggregates of a root span its tree, for the unsuffixed group only.
        member |= forest.aggregates.satisfying(forest.roots_of(rows), group.member_of)
        rows = rows[member]
    return Choices(forest.count, rows[_in_tree(forest, rows, group)], foreign)


def _sharing_among(rows: Rows, sharing: Sharing) -> Rows:
    if sharing.is_empty:
        return _NOBODY
    return np.intersect1d(rows, sharing.providers).astype(np.intp)


def _fitting(forest: Forest, resources: tuple[tuple[int, int], ...]) -> Rows:
    if not resources:
        return np.flatnonzero(forest.alive())
    (first_class, first_amount), *others = resources
    rows = forest.column(first_class).fitting(first_amount)
    for class_id, amount in others:
        rows = rows[forest.column(class_id).among_fitting(rows, amount)]
    return rows


def _with_traits(forest: Forest, rows: Rows, group: GroupQuery) -> Rows:
    if not group.required and not group.forbidden:
        return rows
    return rows[forest.traits.satisfying(rows, group.required, group.forbidden)]


def _in_tree(forest: Forest, rows: Rows, group: GroupQuery) -> Mask | slice:
    if group.in_tree is None:
        return slice(None)
    named = forest.row_of_uuid(group.in_tree)
    root = forest.providers.root[named] if named >= 0 else _NO_TREE
    matching: Mask = forest.providers.root[rows] == root
    return matching
