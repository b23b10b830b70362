"""Request groups: the amounts and conditions that a caller of allocation candidates asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from placement.engine.domain.errors import BODY, RequestPlace, option_place, parameter

UNSUFFIXED = ""


class SplitRule(StrEnum):
    """A rule for which providers give the parts of an amount that is split.

    Source: placement-api.md, "Split amounts".
    """

    PACK = "pack"
    REQUIRE = "require"
    ISOLATE = "isolate"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One group of a candidates query; the empty suffix is the base group.

    `required` is a conjunction of any-of sets of trait names, `member_of` a conjunction of any-of sets of
    aggregate uuids. `split`: the classes that several providers, chosen by `split_rule`, may give together;
    the query strings of Placement cannot express it.
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

    `isolate`: providers of all suffixed groups differ pairwise. `same_subtree`: for each constraint the
    suffixes; one of their providers must be an ancestor of all others. `one_provider_per_tree`: candidates
    may not combine providers of one tree (the rule before microversion 1.29). `limit` None means as many as
    configured. `root_member_of`: a conjunction of any-of sets of aggregates of the root itself; Placement
    query strings cannot express it. `is_json`: errors name places in a JSON body. `on_core_trees`: the query
    that core trees get instead, if theirs differs; the limit of this query counts.
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
        """Return the values of all fields, hashable. The order of classes counts, as answers follow it."""
        groups = tuple((group.suffix, *group.resources, group.condition) for group in self.groups)
        other = None if self.on_core_trees is None else self.on_core_trees.identity
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return tuple((values | {"groups": groups, "on_core_trees": other}).values())

    def place(self, group: RequestGroup, member: str) -> RequestPlace:
        """Return where a member of a group stands in the request."""
        if self.is_json:
            return (BODY / "groups").entry(group.suffix) / member
        return parameter(f"{member}{group.suffix}")

    def place_of(self, member: str) -> RequestPlace:
        """Return where a member that is about all groups stands in the request."""
        return option_place(member, is_json=self.is_json)
