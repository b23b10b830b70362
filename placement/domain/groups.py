"""Request groups: what a caller of allocation candidates asks for, free of any spelling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

UNSUFFIXED = ""


class SplitRule(StrEnum):
    """Which providers give the parts of an amount that is split.

    Source: placement-api.md, "Split amounts".
    """

    PACK = "pack"
    REQUIRE = "require"
    ISOLATE = "isolate"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One group of a candidates query; the empty suffix is the unsuffixed group.

    `required` is a conjunction of any-of sets of trait names, `member_of` a conjunction of any-of sets of
    aggregate uuids. `split`: the classes whose amounts may come from several providers, chosen by
    `split_rule`; the query strings of Placement cannot say it.
    Source: placement-api.md, "Allocation candidates", "Split amounts".
    """

    suffix: str = UNSUFFIXED
    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    split: frozenset[str] = frozenset()
    split_rule: SplitRule = SplitRule.PACK

    @property
    def is_split(self) -> bool:
        """Whether all that the group asks for may come from several providers."""
        return bool(self.split) and self.split >= self.resources.keys()

    @property
    def condition(self) -> tuple[object, ...]:
        """All but the suffix: groups with equal conditions ask for the same thing."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "suffix"}
        return tuple((values | {"resources": frozenset(self.resources.items())}).values())


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """A whole candidates query.

    `isolate`: providers of all suffixed groups differ pairwise. `same_subtree`: per constraint the suffixes
    whose providers must share one of them as ancestor. `one_provider_per_tree`: candidates may not combine
    providers of one tree (the rule before microversion 1.29). `limit` None means as many as configured.
    `root_member_of` is a conjunction of any-of sets of aggregate uuids that the root itself is in; the query
    strings of Placement cannot say it. `is_json`: errors name places in a JSON body. `on_core_trees`: what is
    asked of core trees instead, if they are asked something else; the limit is that of this query.
    """

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    root_member_of: tuple[frozenset[str], ...] = ()
    limit: int | None = None
    one_provider_per_tree: bool = False
    is_json: bool = False
    on_core_trees: CandidateQuery | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what all fields say, hashable. The order of classes counts, as answers follow it."""
        groups = tuple((group.suffix, *group.resources, group.condition) for group in self.groups)
        other = None if self.on_core_trees is None else self.on_core_trees.identity
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return tuple((values | {"groups": groups, "on_core_trees": other}).values())

    def place(self, group: RequestGroup, member: str) -> str:
        """How the caller wrote what the group says."""
        return f"groups[{group.suffix!r}].{member}" if self.is_json else f"{member}{group.suffix}"
