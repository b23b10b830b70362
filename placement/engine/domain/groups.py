"""Request groups: what a caller of allocation candidates asks for, in whatever syntax it was written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

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
    """One group of a candidates query; the empty suffix is the unsuffixed group.

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

    def place(self, group: RequestGroup, member: str) -> str:
        """Return the spelling of a member of a group in the request, for error messages."""
        return f"groups[{group.suffix!r}].{member}" if self.is_json else f"{member}{group.suffix}"


# Requests as JSON: as bodies have them, and as the text that is stored with the consumer of a claim.
#
# Fields are walked, so a new one is read and stored like the others. The type of its default tells how.


_FORM = 1
# Fields that are about the answer to a query, not about what it asks for.
_OF_THE_ANSWER = ("limit", "is_json")


class KeptRequest(NamedTuple):
    """A stored query; `cluster` is the uuid of the aggregate of the one cluster that it is for, if any."""

    query: CandidateQuery
    cluster: str | None


def written(query: CandidateQuery, cluster: str | None, *, under_rules: bool = False) -> str:
    """Return a request as text; `under_rules`: it also met rules between consumers, which are not kept."""
    document = {"form": _FORM, "cluster": cluster, "query": _plain(query)}
    if under_rules:
        document["rules"] = True
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def is_under_rules(text: str) -> bool:
    """Return whether the request was claimed with rules between consumers."""
    return "rules" in json.loads(text)


def read(text: str) -> KeptRequest | None:
    """Return the request of a text; None if its form is not known here."""
    document = json.loads(text)
    if document.get("form") != _FORM:
        return None
    return KeptRequest(query_of(document["query"]), document["cluster"])


def _plain(value: object) -> Any:
    if isinstance(value, RequestGroup):
        members = {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
        if not value.split:
            del members["split_rule"]
        return {name: member for name, member in members.items() if member or name == "suffix"}
    if isinstance(value, CandidateQuery):
        names = [part.name for part in fields(value) if part.name not in _OF_THE_ANSWER]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value


def query_of(document: Mapping[str, Any]) -> CandidateQuery:
    """Return the query with the members of a document that are its fields; others are passed over."""
    values = _values(CandidateQuery, document)
    values["groups"] = tuple(RequestGroup(**_values(RequestGroup, group)) for group in document["groups"])
    if document.get("on_core_trees") is not None:
        values["on_core_trees"] = query_of(document["on_core_trees"])
    return CandidateQuery(**values)


def _values(kind: type[CandidateQuery | RequestGroup], document: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for part in fields(kind):
        if part.name in document:
            given = document[part.name]
            if isinstance(part.default, tuple):
                given = tuple(map(frozenset, given))
            elif isinstance(part.default, (frozenset, SplitRule)):
                given = type(part.default)(given)
            values[part.name] = given
    return values


# Rules between the members of a claim: how many of them may or must be in the same place.


class RuleKind(StrEnum):
    """The kind of a rule: what it asks for."""

    AT_MOST = "at_most"
    TOGETHER = "together"
    SPREAD = "spread"


class Per(StrEnum):
    """The unit that counts as a place: hosts, aggregates of hosts, or providers inside of hosts."""

    HOST = "host"
    AGGREGATE = "aggregate"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class MemberRule:
    """One rule, by names.

    `at_most`: at most `count` members in a place; `together`: all in one place; `spread`: a place that gets a
    member has at most `max_skew` more than the emptiest place. `aggregates`: the places of `per` aggregate
    (empty: all aggregates). Places of `per` provider: from each provider that a member takes from, the
    nearest one upwards that offers `resource_class`, has `trait` or stands at `depth` (0 is the root).
    `members`: the names of the members that the rule is about, None for all. `consumers` and `groups` count
    beside these. `weight`: None if the rule must hold, else how much a breach counts against breaches of
    other rules. `place`: where the rule is in the request body.
    """

    kind: RuleKind
    per: Per
    count: int = 1
    max_skew: int = 1
    aggregates: tuple[str, ...] = ()
    resource_class: str | None = None
    trait: str | None = None
    depth: int | None = None
    members: frozenset[str] | None = None
    consumers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    weight: float | None = None
    place: str = "rules"

    @property
    def text(self) -> str:
        """The rule in words."""
        if self.kind is RuleKind.AT_MOST:
            return f"at most {self.count} per {self.per}"
        if self.kind is RuleKind.TOGETHER:
            return f"all on the same {self.per}"
        return f"spread over {len(self.aggregates)} aggregates, at most {self.max_skew} apart"
