"""First stage of a search: which providers can fill which slot, one vectorised condition after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.candidates.arrays import Indices, Mask
from placement.candidates.forest import Forest
from placement.candidates.query import GroupQuery, Slot
from placement.candidates.sharing import Sharing

_NO_TREE = -2


@dataclass(frozen=True, slots=True)
class Choices:
    """Who can fill a slot: `own` for the tree they are in, `foreign` as sharing providers of another tree."""

    own: Indices
    foreign: Indices


def providers_matching(forest: Forest, group: GroupQuery) -> Indices:
    """All providers that alone satisfy everything a group says, ascending.

    This is the rule of suffixed groups and of the provider list (Placement API).
    """
    rows = _fitting(forest, group.resources)
    rows = _with_traits(forest, rows, group)
    rows = rows[forest.aggregates.satisfying(rows, group.member_of, group.forbidden_aggregates)]
    return rows[_in_tree(forest, rows, group)]


def choices_of(forest: Forest, slot: Slot, sharing: Sharing) -> Choices:
    """Who can fill the slot."""
    if slot.suffixed:
        own = providers_matching(forest, slot.group)
        return Choices(own, np.intersect1d(own, sharing.providers))
    return _unsuffixed_choices(forest, slot, sharing)


def _unsuffixed_choices(forest: Forest, slot: Slot, sharing: Sharing) -> Choices:
    group, roots = slot.group, forest.providers.root
    rows = _fitting(forest, slot.resources)
    rows = rows[forest.traits.satisfying(rows, (), group.forbidden)]
    rows = rows[forest.aggregates.satisfying(rows, (), group.forbidden_aggregates)]
    member = forest.aggregates.satisfying(rows, group.member_of)
    foreign = np.empty(0, np.int32)
    if group.in_tree is None and not sharing.is_empty:
        foreign = np.intersect1d(rows[member], sharing.providers)
    if group.member_of:
        # The aggregates of a root span its tree, for the unsuffixed group only.
        member |= forest.aggregates.satisfying(roots[rows], group.member_of)
        rows = rows[member]
    return Choices(rows[_in_tree(forest, rows, group)], foreign)


def _fitting(forest: Forest, resources: tuple[tuple[int, int], ...]) -> Indices:
    if not resources:
        return np.flatnonzero(forest.alive()).astype(np.int32)
    (first_class, first_amount), *others = resources
    rows = forest.column(first_class).fitting(first_amount)
    for class_id, amount in others:
        rows = rows[forest.column(class_id).among_fitting(rows, amount)]
    return rows


def _with_traits(forest: Forest, rows: Indices, group: GroupQuery) -> Indices:
    if not group.required and not group.forbidden:
        return rows
    return rows[forest.traits.satisfying(rows, group.required, group.forbidden)]


def _in_tree(forest: Forest, rows: Indices, group: GroupQuery) -> Mask | slice:
    if group.in_tree is None:
        return slice(None)
    named = forest.row_of_uuid(group.in_tree)
    root = forest.providers.root[named] if named >= 0 else _NO_TREE
    matching: Mask = forest.providers.root[rows] == root
    return matching
