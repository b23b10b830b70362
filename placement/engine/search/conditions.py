"""The conditions of a search: of a group on one provider, and of the query on whole trees.

Each condition tells which of some providers meet it. A search applies few compound conditions; a search
that is to be explained applies their parts one by one, through the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placement.engine.domain.groups import SplitRule
from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.search.query import GroupQuery, IdSet, IsCoreTree, IsOpen


@dataclass(frozen=True, slots=True)
class Fits:
    """A condition that the provider can take one allocation of `amount` now.

    Source: placement-api.md, "When does an allocation fit".
    """

    class_id: int
    amount: int

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column."""
        return forest.column(self.class_id).fitting(self.amount)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return the mask of the rows that meet it."""
        return forest.column(self.class_id).among_fitting(rows, self.amount)


@dataclass(frozen=True, slots=True)
class OffersClass:
    """A condition that the provider has an inventory of the class, however much of it is free."""

    class_id: int

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column."""
        column = forest.column(self.class_id)
        return column.entries.provider[column.occupied()].astype(np.intp)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return the mask of the rows that meet it."""
        met: Mask = forest.column(self.class_id).entries_of(rows) >= 0
        return met


@dataclass(frozen=True, slots=True)
class GivesPart:
    """A condition that the provider can give a part of the amount; under some rules only all that it has.

    Source: placement-api.md, "Split amounts".
    """

    class_id: int
    amount: int
    rule: SplitRule

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column: others are not looked at."""
        rows = OffersClass(self.class_id).everywhere(forest)
        return rows[self.among(forest, rows)]

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return the mask of the rows that meet it."""
        column = forest.column(self.class_id)
        headroom, least, step, whole = column.parts(rows)
        met: Mask = column.entries_of(rows) >= 0
        if self.rule in (SplitRule.REQUIRE, SplitRule.ISOLATE):
            return met & (whole >= 1)
        return met & (np.minimum(headroom, self.amount) >= -(-least // step) * step)


@dataclass(frozen=True, slots=True)
class Carries:
    """A condition to have a trait of every set in `required` and none that is `forbidden`.

    `at_root`: it is asked of roots of trees.
    """

    required: tuple[IdSet, ...] = ()
    forbidden: IdSet = frozenset()
    at_root: bool = False

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return the mask of the rows that meet it."""
        return forest.traits.satisfying(rows, self.required, self.forbidden)


@dataclass(frozen=True, slots=True)
class IsIn:
    """A condition to be in an aggregate of every `required` set and in no `forbidden` one.

    `or_root`: the root of the provider may be so instead, as the aggregates of a root span its tree.
    `at_root`: it is asked of roots of trees.
    """

    required: tuple[IdSet, ...] = ()
    forbidden: IdSet = frozenset()
    or_root: bool = False
    at_root: bool = False

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return the mask of the rows that meet it."""
        met = forest.aggregates.satisfying(rows, self.required, self.forbidden)
        if self.or_root:
            roots = forest.providers.root[rows]
            met = met | forest.aggregates.satisfying(roots, self.required, self.forbidden)
        return met


@dataclass(frozen=True, slots=True)
class InTree:
    """A condition that the provider is in the tree of the named provider; an unknown one has no tree."""

    uuid: str

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return the mask of the rows that meet it."""
        named = forest.row_of_uuid(self.uuid)
        if named < 0:
            return np.zeros(len(rows), bool)
        met: Mask = forest.providers.root[rows] == forest.providers.root[named]
        return met


@dataclass(frozen=True, slots=True)
class Exists:
    """A condition that every provider meets."""

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers, ascending."""
        return np.flatnonzero(forest.alive())

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return all of the rows."""
        return np.ones(len(rows), bool)


ProviderCondition = Fits | GivesPart | OffersClass | Carries | IsIn | InTree | Exists


def conditions_of(group: GroupQuery, *, one_by_one: bool) -> Iterator[ProviderCondition]:
    """Yield the conditions of a suffixed group on its provider, beside resources."""
    if group.required or group.forbidden:
        yield from split(Carries(group.required, group.forbidden), one_by_one=one_by_one)
    if group.member_of or group.forbidden_aggregates:
        yield from split(IsIn(group.member_of, group.forbidden_aggregates), one_by_one=one_by_one)
    if group.in_tree is not None:
        yield InTree(group.in_tree)


def split(condition: Carries | IsIn, *, one_by_one: bool = True) -> Iterator[Carries | IsIn]:
    """Yield the condition itself, or all its parts if `one_by_one`."""
    if not one_by_one:
        yield condition
        return
    yield from (
        replace(condition, required=(any_of,), forbidden=frozenset()) for any_of in condition.required
    )
    for id_ in sorted(condition.forbidden):
        yield replace(condition, required=(), forbidden=frozenset((id_,)))


@dataclass(frozen=True, slots=True)
class OnHost:
    """A condition of a group, asked of a whole host: something that could serve the group there meets it."""

    group: GroupQuery
    condition: Carries | IsIn | InTree


@dataclass(frozen=True, slots=True)
class Together:
    """A condition that some provider serving the base group has a trait of the set."""

    any_of: IdSet


@dataclass(frozen=True, slots=True)
class Combines:
    """A condition that all groups fit together: sums, group_policy and same_subtree included."""


PlaceCondition = Carries | IsIn | IsCoreTree | IsOpen | OnHost
TreeCondition = PlaceCondition | Together | Combines
