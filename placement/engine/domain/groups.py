"""Request groups: what a caller of allocation candidates asks for, and the providers that serve them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
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


# The mapping of request groups to providers, also rebuilt from stored amounts.
#
# Stored allocations do not record groups. Groups that ask for the same thing may swap their providers, so
# such groups get them in order of suffixes and uuids, in the first answer and in every later one.


Mappings = Mapping[str, list[str]]
Held = Mapping[str, Mapping[str, int]]
# Amounts can be split over groups in very many ways, and a long search would keep other requests waiting.
_MOST_STEPS = 10_000


def settled(query: CandidateQuery, mappings: Mappings) -> Mappings:
    """Return the mappings of a candidate, with the providers of like groups in order of uuids."""
    found = dict(mappings)
    for group in query.groups:
        if group.split:
            found[group.suffix] = sorted(found[group.suffix])
    for block in _blocks(query):
        providers = sorted(found[group.suffix] for group in block)
        found.update(zip((group.suffix for group in block), providers, strict=True))
    return found


def rebuilt(query: CandidateQuery, held: Held) -> Mappings | None:
    """Return the mappings of a consumer that holds what the query asks for, as `settled` gave them.

    `held`: amounts by provider uuid and class, in sum the amounts of the query. Return None if they
    fit the groups in several ways, if a group asks for no resources, or if two groups ask for a class that is
    split: the amounts are ambiguous then.
    """
    if not all(group.resources for group in query.groups):
        return None
    if any(group.split for group in query.groups):
        return _rebuilt_splits(query, held)
    ways = _Fitting(query, held).walk()
    try:
        first = next(ways, None)
        ambiguous = any(way != first for way in ways)
    except _TooManySteps:
        return None
    return None if ambiguous else first


def _rebuilt_splits(query: CandidateQuery, held: Held) -> Mappings | None:
    """Return the mappings in which all of a split class serves the one group that asks for it."""
    asked = Counter(name for group in query.groups for name in group.resources)
    split = {name: group.suffix for group in query.groups for name in group.split}
    if any(asked[name] > 1 for name in split):
        return None
    rest = [
        replace(group, resources=whole, split=frozenset())
        for group in query.groups
        if (whole := {name: amount for name, amount in group.resources.items() if name not in split})
    ]
    left = {
        uuid: kept
        for uuid, amounts in held.items()
        if (kept := {name: amount for name, amount in amounts.items() if name not in split})
    }
    found = rebuilt(replace(query, groups=tuple(rest)), left) if rest else {}
    if found is None:
        return None
    providers = {group.suffix: set(found.get(group.suffix, ())) for group in query.groups}
    for uuid, amounts in held.items():
        for name in amounts.keys() & split.keys():
            providers[split[name]].add(uuid)
    return {
        group.suffix: sorted(providers[group.suffix]) if group.split else found[group.suffix]
        for group in query.groups
    }


def _blocks(query: CandidateQuery) -> list[list[RequestGroup]]:
    """Return the suffixed groups in order of suffixes, in blocks that may swap their providers."""
    blocks: dict[object, list[RequestGroup]] = {}
    for group in sorted(query.groups, key=lambda group: group.suffix):
        if group.suffix != UNSUFFIXED:
            roles = tuple(group.suffix in names for names in query.same_subtree)
            blocks.setdefault((group.condition, roles), []).append(group)
    return list(blocks.values())


@dataclass(frozen=True, slots=True)
class _Slot:
    """Amounts that one provider gives; `follows`: the slot before belongs to a like group."""

    suffix: str
    amounts: Mapping[str, int]
    follows: bool = False


class _TooManySteps(Exception):
    pass


class _Fitting:
    """A search for the ways to split the held amounts over the groups.

    The slots are one per suffixed group, like groups in a row, and one per class of the unsuffixed group.
    """

    def __init__(self, query: CandidateQuery, held: Held) -> None:
        self._isolate = query.isolate
        self._left = {uuid: dict(amounts) for uuid, amounts in sorted(held.items())}
        self._slots = [
            _Slot(group.suffix, group.resources, follows=at > 0)
            for block in _blocks(query)
            for at, group in enumerate(block)
        ]
        self._slots += [
            _Slot(UNSUFFIXED, {name: amount})
            for group in query.groups
            if group.suffix == UNSUFFIXED
            for name, amount in group.resources.items()
        ]
        self._suffixes = [group.suffix for group in query.groups]
        self._chosen: list[str] = []
        self._steps = 0

    def walk(self) -> Iterator[Mappings]:
        """Yield all mappings, some more than once. Raises _TooManySteps."""
        if len(self._chosen) == len(self._slots):
            found: dict[str, list[str]] = {suffix: [] for suffix in self._suffixes}
            for slot, uuid in zip(self._slots, self._chosen, strict=True):
                if uuid not in found[slot.suffix]:
                    found[slot.suffix].append(uuid)
            yield found
            return
        slot = self._slots[len(self._chosen)]
        for uuid, left in self._left.items():
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise _TooManySteps
            if self._may_serve(slot, uuid, left):
                self._chosen.append(uuid)
                _add(left, slot.amounts, -1)
                yield from self.walk()
                _add(left, slot.amounts, 1)
                self._chosen.pop()

    def _may_serve(self, slot: _Slot, uuid: str, left: Mapping[str, int]) -> bool:
        if slot.follows and uuid < self._chosen[-1]:
            return False
        if self._isolate and slot.suffix != UNSUFFIXED:
            taken = zip(self._slots, self._chosen, strict=False)
            if any(other.suffix != UNSUFFIXED and uuid == chosen for other, chosen in taken):
                return False
        return all(left.get(name, 0) >= amount for name, amount in slot.amounts.items())


def _add(amounts: dict[str, int], others: Mapping[str, int], sign: int) -> None:
    for name, amount in others.items():
        amounts[name] += sign * amount
