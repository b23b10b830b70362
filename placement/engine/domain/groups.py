"""Request groups: what a caller of allocation candidates asks for, in whatever syntax it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import normalize_uuid

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


# The grammar of query values: resources, required, member_of, in_tree, suffixes, same_subtree.
#
# One `Grammar` value says which forms are understood; the API chooses it by microversion.
# Source: placement-api.md, "Query grammar", "Value parsing".


_POSITIVE = re.compile(r"[0-9]+")
_RESOURCES_FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: "
)
_INTEGER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 1000
_ANY_OF = "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'"
_PREFIX = "Invalid query string parameters: "


@dataclass(frozen=True, slots=True)
class Grammar:
    """A microversion's choice of forms of values that are understood."""

    forbidden_traits: bool = True
    any_of_traits: bool = True
    repeated_required: bool = True
    repeated_member_of: bool = True
    forbidden_aggregates: bool = True


@dataclass(frozen=True, slots=True)
class TraitExpression:
    """Parsed `required` values: any-of sets that must all be met, and traits that must be absent."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """Parsed `member_of` values: any-of sets that must all be met, and aggregates that must be absent."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def parse_resources(value: str) -> dict[str, int]:
    """Read `VCPU:2,MEMORY_MB:1024` as amounts by class; of a repeated class the last amount wins.

    Raises BadRequest naming the offending piece.
    """
    if not value.strip():
        raise BadRequest(f"{_RESOURCES_FORM}empty string.")
    resources = {}
    for piece in value.split(","):
        name, colon, amount_text = piece.partition(":")
        if not colon or ":" in amount_text:
            raise BadRequest(f"{_RESOURCES_FORM}{piece}.")
        resources[name] = _parse_amount(name, amount_text)
    return resources


def _parse_amount(name: str, text: str) -> int:
    # Clients fold long query strings, which leaves blanks around amounts.
    trimmed = text.strip()
    if not (trimmed.isascii() and _INTEGER.fullmatch(trimmed)):
        raise BadRequest(f"Requested resource {name} expected positive integer amount. Got: {text}.")
    # No amount is above 64 bits; not converting longer digits keeps hostile input cheap.
    amount = int(trimmed) if len(trimmed) <= _MOST_DIGITS else int(trimmed[:20])
    if amount < 1:
        raise BadRequest(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
    return amount


def parse_required(values: list[str], grammar: Grammar) -> TraitExpression:
    """Read all `required` values of one group; only the last counts where repeating is not understood.

    Raises BadRequest.
    """
    if not grammar.repeated_required:
        values = values[-1:]
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        if value.startswith("in:"):
            required.append(_parse_any_of(value, grammar))
        else:
            plain, excluded = _parse_traits(value, grammar)
            required.extend(frozenset((name,)) for name in plain)
            forbidden |= excluded
    return TraitExpression(tuple(dict.fromkeys(required)), frozenset(forbidden))


def _parse_any_of(value: str, grammar: Grammar) -> frozenset[str]:
    if not grammar.any_of_traits:
        raise BadRequest(f"{_PREFIX}{_ANY_OF} only supported since microversion 1.39. Got: {value}")
    names = [name.strip() for name in value.removeprefix("in:").split(",")]
    if any(name.startswith("!") for name in names):
        raise BadRequest(f"{_PREFIX}{_ANY_OF} does not support forbidden traits. Got: {value}")
    if not all(names):
        raise BadRequest(
            f"{_PREFIX}Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. "
            f"Got an empty trait in: {value}"
        )
    return frozenset(names)


def _parse_traits(value: str, grammar: Grammar) -> tuple[list[str], set[str]]:
    sample = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if grammar.forbidden_traits else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    form = f"{_PREFIX}Expected 'required' parameter value of the form: {sample}. "
    plain: list[str] = []
    excluded: set[str] = set()
    for name in (piece.strip() for piece in value.split(",")):
        bare = name.lstrip("!").strip()
        if not bare:
            raise BadRequest(f"{form}Got an empty trait in: {value}")
        if name.startswith("!"):
            if not grammar.forbidden_traits:
                raise BadRequest(f"{form}Got: {value}")
            excluded.add(bare)
        else:
            plain.append(bare)
    return plain, excluded


def parse_member_of(values: list[str], grammar: Grammar, suffix: str = "") -> AggregateExpression:
    """Read all `member_of` values of one group, uuids normalised. Raises BadRequest."""
    if len(values) > 1 and not grammar.repeated_member_of:
        raise BadRequest(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        negative = value.startswith("!")
        if negative and not grammar.forbidden_aggregates:
            raise BadRequest(
                f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            )
        uuids = _parse_aggregates(value[1:] if negative else value, value)
        if negative:
            forbidden |= uuids
        else:
            required.append(uuids)
    return AggregateExpression(tuple(required), frozenset(forbidden))


def _parse_aggregates(value: str, given: str) -> frozenset[str]:
    if value.startswith("in:"):
        pieces = value.removeprefix("in:").split(",")
    elif "," in value:
        raise BadRequest(
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the "
            f"valid microversion. Got: {given}"
        )
    else:
        pieces = [value]
    uuids = set()
    for piece in pieces:
        normal = normalize_uuid(piece)
        if normal is None:
            raise BadRequest(
                f"{_PREFIX}Expected 'member_of' parameter to contain valid UUID(s). Got: {piece}"
            )
        uuids.add(normal)
    return frozenset(uuids)


def parse_in_tree(value: str) -> str:
    """Return the provider uuid of a group's `in_tree`, normalised. Raises BadRequest."""
    normal = normalize_uuid(value.strip())
    if normal is None:
        raise BadRequest(f"{_PREFIX}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return normal


def parse_same_subtree(value: str) -> frozenset[str]:
    """Return the suffixes of one `same_subtree` value, blanks around them trimmed. Raises BadRequest."""
    suffixes = [piece.strip() for piece in value.split(",")]
    if not all(suffixes):
        raise BadRequest(
            "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
            code="placement.query.bad_value",
        )
    return frozenset(suffixes)


def parse_positive(value: str) -> int | None:
    """Return a positive decimal number, or None if the text is not one; leading zeros are refused."""
    if not value.isascii() or not _POSITIVE.fullmatch(value) or value.startswith("0"):
        return None
    return int(value) if len(value) <= 18 else 10**18


# The request of a consumer's claim, as a text that is stored with the consumer.


_FORM = 1


class KeptRequest(NamedTuple):
    """A stored query; `cluster` is the uuid of the aggregate of the one cluster that it is for, if any."""

    query: CandidateQuery
    cluster: str | None


def written(query: CandidateQuery, cluster: str | None, *, under_rules: bool = False) -> str:
    """Return a request as text; `under_rules`: it also met rules between consumers, which are not kept."""
    document = {"form": _FORM, "cluster": cluster, "query": _query(query)}
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
    return KeptRequest(_read_query(document["query"]), document["cluster"])


def _query(query: CandidateQuery) -> dict[str, Any]:
    return {
        "groups": [_group(group) for group in query.groups],
        "isolate": query.isolate,
        "same_subtree": [sorted(names) for names in query.same_subtree],
        "root_required": sorted(query.root_required),
        "root_forbidden": sorted(query.root_forbidden),
        "root_member_of": _lists(query.root_member_of),
        "one_provider_per_tree": query.one_provider_per_tree,
        "on_core_trees": None if query.on_core_trees is None else _query(query.on_core_trees),
    }


def _group(group: RequestGroup) -> dict[str, Any]:
    document = {
        "suffix": group.suffix,
        "resources": dict(group.resources),
        "required": _lists(group.required),
        "forbidden": sorted(group.forbidden),
        "member_of": _lists(group.member_of),
        "forbidden_aggregates": sorted(group.forbidden_aggregates),
        "in_tree": group.in_tree,
        "split": sorted(group.split),
        "split_rule": str(group.split_rule) if group.split else None,
    }
    return {name: value for name, value in document.items() if value or name == "suffix"}


def _lists(sets: tuple[frozenset[str], ...]) -> list[list[str]]:
    return [sorted(any_of) for any_of in sets]


def _sets(lists: list[list[str]]) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, lists))


def _read_query(document: Mapping[str, Any]) -> CandidateQuery:
    on_core_trees = document["on_core_trees"]
    query = CandidateQuery(
        groups=tuple(map(_read_group, document["groups"])),
        isolate=document["isolate"],
        same_subtree=_sets(document["same_subtree"]),
        root_required=frozenset(document["root_required"]),
        root_forbidden=frozenset(document["root_forbidden"]),
        root_member_of=_sets(document["root_member_of"]),
        one_provider_per_tree=document["one_provider_per_tree"],
    )
    if on_core_trees is None:
        return query
    return replace(query, on_core_trees=_read_query(on_core_trees))


def _read_group(document: Mapping[str, Any]) -> RequestGroup:
    return RequestGroup(
        suffix=document["suffix"],
        resources=document.get("resources", {}),
        required=_sets(document.get("required", [])),
        forbidden=frozenset(document.get("forbidden", ())),
        member_of=_sets(document.get("member_of", [])),
        forbidden_aggregates=frozenset(document.get("forbidden_aggregates", ())),
        in_tree=document.get("in_tree"),
        split=frozenset(document.get("split", ())),
        split_rule=SplitRule(document.get("split_rule") or SplitRule.PACK),
    )


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
