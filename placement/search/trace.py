"""The trace of a search, from which it is explained afterwards.

The stages of the search note what passed each condition. A note is an append; only an explanation counts, so
a search that is not explained pays next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placement.forest.arrays import Indices, Mask, Rows
from placement.forest.forest import Forest
from placement.search.conditions import Condition
from placement.search.core_trees import IsCoreTree
from placement.search.query import GroupQuery, Ids


@dataclass(frozen=True, slots=True)
class AllGroups:
    """The tree has a provider for every group up to this one."""

    suffix: str


@dataclass(frozen=True, slots=True)
class Together:
    """At least one of the providers that serve the unsuffixed group has a trait of the set."""

    any_of: Ids


@dataclass(frozen=True, slots=True)
class RootCarries:
    """The root has a trait of every required set and no forbidden one."""

    required: tuple[Ids, ...]
    forbidden: Ids

    def among(self, forest: Forest, roots: Indices) -> Mask:
        """Which of the roots meet it."""
        return forest.traits.satisfying(roots, self.required, self.forbidden)


@dataclass(frozen=True, slots=True)
class RootIsIn:
    """The root is in an aggregate of every required set and in no forbidden one."""

    required: tuple[Ids, ...]
    forbidden: Ids

    def among(self, forest: Forest, roots: Indices) -> Mask:
        """Which of the roots meet it."""
        return forest.aggregates.satisfying(roots, self.required, self.forbidden)


@dataclass(frozen=True, slots=True)
class Combines:
    """All groups can be served together: sums, group_policy and same_subtree included."""


TreeCondition = AllGroups | Together | RootCarries | RootIsIn | IsCoreTree | Combines


@dataclass(frozen=True, slots=True)
class ProvidersPassed:
    """Providers left after a condition of a group; `before` None means all there are."""

    group: GroupQuery
    condition: Condition
    before: Rows | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class TreesPassed:
    """Roots left after a condition on whole trees; `alone` are those that meet this one, if known apart.

    Either rows of roots or a mask over all rows.
    """

    condition: TreeCondition
    passed: Mask | Indices
    alone: Mask | None = None

    @property
    def roots(self) -> Indices:
        """The rows of the roots that passed."""
        rows = np.flatnonzero(self.passed) if self.passed.dtype == bool else self.passed
        return rows.astype(np.int32)


@dataclass(slots=True)
class Trace:
    """The notes of one search, in order.

    `one_by_one`: compound conditions are taken apart, so that each is noted. `candidates` are the search's
    result, `complete` unless it stopped at its limit.
    """

    one_by_one: bool = False
    providers: list[ProvidersPassed] = field(default_factory=list)
    trees: list[TreesPassed] = field(default_factory=list)
    candidates: Indices | None = None
    complete: bool = True
