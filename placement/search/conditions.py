"""What a group asks of one provider, condition by condition.

Each condition tells which of some providers meet it. A search applies few compound conditions; a search that
is to be explained applies their parts one by one, through the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placement.domain.groups import SplitRule
from placement.forest.arrays import Mask, Rows
from placement.forest.forest import Forest
from placement.search.query import GroupQuery, Ids

_NO_TREE = -2


@dataclass(frozen=True, slots=True)
class Fits:
    """The provider can take one allocation of `amount` now.

    Source: placement-api.md, "When does an allocation fit".
    """

    class_id: int
    amount: int

    def everywhere(self, forest: Forest) -> Rows:
        """All providers that meet it, ascending by entry of the column."""
        return forest.column(self.class_id).fitting(self.amount)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        return forest.column(self.class_id).among_fitting(rows, self.amount)


@dataclass(frozen=True, slots=True)
class GivesPart:
    """The provider can give a part of the amount; under some rules only all that it has.

    Source: placement-api.md, "Split amounts".
    """

    class_id: int
    amount: int
    rule: SplitRule

    def everywhere(self, forest: Forest) -> Rows:
        """All providers that meet it, ascending by entry of the column."""
        rows = OffersClass(self.class_id).everywhere(forest)
        return rows[self.among(forest, rows)]

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        column = forest.column(self.class_id)
        room, least, step, whole = column.parts(rows)
        offered = column.entries_of(rows) >= 0
        if self.rule in (SplitRule.REQUIRE, SplitRule.ISOLATE):
            met: Mask = offered & (whole >= 1)
            return met
        met = offered & (np.minimum(room, self.amount) >= -(-least // step) * step)
        return met


@dataclass(frozen=True, slots=True)
class OffersClass:
    """The provider has an inventory of the class, however much of it is free."""

    class_id: int

    def everywhere(self, forest: Forest) -> Rows:
        """All providers that meet it, ascending by entry of the column."""
        column = forest.column(self.class_id)
        return column.entries.provider[column.occupied()].astype(np.intp)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        met: Mask = forest.column(self.class_id).entries_of(rows) >= 0
        return met


@dataclass(frozen=True, slots=True)
class Carries:
    """The provider has a trait of every set in `required` and none that is `forbidden`."""

    required: tuple[Ids, ...] = ()
    forbidden: Ids = frozenset()

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        return forest.traits.satisfying(rows, self.required, self.forbidden)


@dataclass(frozen=True, slots=True)
class IsIn:
    """The provider is in an aggregate of every set in `required` and in none that is `forbidden`.

    `or_root`: its root may be so instead, as the aggregates of a root span its tree.
    """

    required: tuple[Ids, ...] = ()
    forbidden: Ids = frozenset()
    or_root: bool = False

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        met = forest.aggregates.satisfying(rows, self.required, self.forbidden)
        if self.or_root:
            met = met | forest.aggregates.satisfying(forest.roots_of(rows), self.required, self.forbidden)
        return met


@dataclass(frozen=True, slots=True)
class InTree:
    """The provider is in the tree of the named provider; an unknown one has no tree."""

    uuid: str

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Which of the rows meet it."""
        named = forest.row_of_uuid(self.uuid)
        root = forest.providers.root[named] if named >= 0 else _NO_TREE
        met: Mask = forest.providers.root[rows] == root
        return met


@dataclass(frozen=True, slots=True)
class Exists:
    """No condition at all: any provider."""

    def everywhere(self, forest: Forest) -> Rows:
        """All providers, ascending."""
        return np.flatnonzero(forest.alive())

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """All of the rows."""
        return np.ones(len(rows), bool)


Condition = Fits | GivesPart | OffersClass | Carries | IsIn | InTree | Exists


def conditions_of(group: GroupQuery, *, one_by_one: bool) -> Iterator[Condition]:
    """The conditions of a suffixed group on its provider, beside resources."""
    if group.required or group.forbidden:
        yield from split(Carries(group.required, group.forbidden), one_by_one=one_by_one)
    if group.member_of or group.forbidden_aggregates:
        yield from split(IsIn(group.member_of, group.forbidden_aggregates), one_by_one=one_by_one)
    if group.in_tree is not None:
        yield InTree(group.in_tree)


def split(condition: Carries | IsIn, *, one_by_one: bool) -> Iterator[Condition]:
    """The same condition, or all its parts."""
    if not one_by_one:
        yield condition
        return
    kind = type(condition)
    yield from (kind((any_of,)) for any_of in condition.required)
    yield from (kind((), frozenset((id_,))) for id_ in sorted(condition.forbidden))
