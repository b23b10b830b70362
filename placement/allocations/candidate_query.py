"""The query string of allocation candidates as a CandidateQuery.

Source: placement-api.md, "Query grammar", "Value parsing", "Refused combinations".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import orjson

from placement.allocations.candidate_schemas import WorldBodySchema
from placement.allocations.candidates import SearchOptions, SoftCondition
from placement.allocations.world import AddedHosts, InventoryOverride, WorldRequest
from placement.engine.domain import groups as grammar
from placement.engine.domain.errors import BadRequest, SchemaViolation
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, Grammar, RequestGroup, SplitRule
from placement.engine.domain.identifiers import normalize_uuid
from placement.http.context import use_cases
from placement.http.fields import MOST_KEYS, shown
from placement.http.microversions import NEWEST, Feature, Microversion
from placement.http.operations import (
    LONGEST_KEPT,
    POLICIES,
    Parameters,
    every,
    names_of,
    read,
    refuse_unknown,
    refuse_value,
    schema_of,
    single,
    violated,
)
from placement.http.query_grammar import NUMERIC_SUFFIX, OF_ALL, OF_GROUPS, OWN, STRING_SUFFIX, grammar_of
from placement.http.schemas import load

_MISSING = "placement.query.missing_value"
_BAD = "placement.query.bad_value"


@lru_cache(maxsize=256)
def parse_text(query_string: bytes, version: Microversion) -> CandidateQuery:
    """Parse a query string, and keep the result, as callers repeat their queries. Raises BadRequest."""
    return parse(read(query_string.decode("latin-1")), version)


def parse(parameters: Parameters, version: Microversion) -> CandidateQuery:
    """Return the query of parameters. Raises BadRequest."""
    keys = _keys(version)
    keys.check(parameters)
    limit = _limit(parameters)
    policy = _policy(parameters)
    root_required, root_forbidden = _root_required(every(parameters, "root_required"))
    subtrees = tuple(grammar.parse_same_subtree(value) for value in every(parameters, "same_subtree"))
    drafts = keys.drafts(parameters)
    groups = tuple(draft.group(version) for draft in drafts)
    if version.offers(Feature.SAME_SUBTREE):
        _check_resourceless(groups, subtrees)
    elif version.offers(Feature.GRANULAR_GROUPS):
        _check_orphans(drafts, groups)
    if version.offers(Feature.FORBIDDEN_TRAITS):
        _check_conflicts(groups)
    if policy is None and sum(1 for group in groups if group.suffix != UNSUFFIXED) > 1:
        raise BadRequest(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidateQuery(
        groups=groups,
        isolate=policy == "isolate",
        same_subtree=subtrees,
        root_required=root_required,
        root_forbidden=root_forbidden,
        limit=limit,
        one_provider_per_tree=not version.offers(Feature.NESTED_CANDIDATES),
    )


@cache
def _keys(version: Microversion) -> _Keys:
    return _Keys(version)


class _Keys:
    """The parameters that a microversion knows."""

    def __init__(self, version: Microversion) -> None:
        self._granular = version.offers(Feature.GRANULAR_GROUPS)
        self._single = list(names_of(OF_ALL, version))
        names = sorted(names_of(OF_GROUPS, version))
        suffix = STRING_SUFFIX if version.offers(Feature.STRING_SUFFIXES) else NUMERIC_SUFFIX
        self._patterns = [f"^{name}{suffix}?$" if self._granular else f"^{name}$" for name in names]
        self._compiled = [(name, re.compile(f"{name}{suffix}?")) for name in names]
        self._plain = names

    def check(self, parameters: Parameters) -> None:
        """Raise BadRequest naming what is not known or, before granular groups, what is missing."""
        if not self._granular:
            known = ["resources", *self._single, *self._plain]
            if not every(parameters, "resources"):
                missing = SchemaViolation("'resources' is a required property", "required")
                raise violated(missing, schema_of(known, ["resources"]), parameters)
            refuse_unknown(parameters, known)
            return
        strange = {key for key, _ in parameters if key not in self._single and self._split(key) is None}
        if strange:
            listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
            verb = "does" if len(strange) == 1 else "do"
            patterns = ", ".join(repr(pattern) for pattern in self._patterns)
            reason = f"{listed} {verb} not match any of the regexes: {patterns}"
            schema = schema_of(self._single)
            schema["patternProperties"] = {pattern: {"type": "string"} for pattern in self._patterns}
            refused = violated(SchemaViolation(reason, "additionalProperties"), schema, parameters)
            raise BadRequest(f"{refused}. Parameters of the Placement API: {self._in_words()}")

    def _in_words(self) -> str:
        """Return the parameters in words, as an alternative to regular expressions."""
        groups, single = ", ".join(self._plain), ", ".join(self._single)
        return f"{single}, and of each group, its suffix behind them as in resources1: {groups}"

    def _split(self, key: str) -> tuple[str, str] | None:
        """Return the keyword and the suffix of a group's parameter."""
        for name, pattern in self._compiled:
            found = pattern.fullmatch(key)
            if found:
                return name, found.group(1) or UNSUFFIXED
        return None

    def drafts(self, parameters: Parameters) -> list[_Draft]:
        """Return the parameters of each group, groups in order of first appearance."""
        found: dict[str, _Draft] = {}
        for key, value in parameters:
            if key in self._single:
                continue
            split = self._split(key)
            assert split is not None
            name, suffix = split
            found.setdefault(suffix, _Draft(suffix)).values.setdefault(name, []).append(value)
        return list(found.values())


@dataclass(slots=True)
class _Draft:
    """The raw values of one group by keyword."""

    suffix: str
    values: dict[str, list[str]] = field(default_factory=dict)

    def group(self, version: Microversion) -> RequestGroup:
        """Return the group. Its values are parsed in the order they came; of some only the last counts."""
        forms = grammar_of(version)
        resources: dict[str, int] = {}
        traits = grammar.TraitExpression()
        aggregates = grammar.AggregateExpression()
        in_tree = None
        for name, values in self.values.items():
            if name == "resources":
                resources = [grammar.parse_resources(value) for value in values][-1]
            elif name == "required":
                traits = grammar.parse_required(values, forms)
            elif name == "member_of":
                aggregates = grammar.parse_member_of(values, forms, self.suffix)
            else:
                in_tree = [grammar.parse_in_tree(value) for value in values][-1]
        return RequestGroup(
            suffix=self.suffix,
            resources=resources,
            required=traits.required,
            forbidden=traits.forbidden,
            member_of=aggregates.required,
            forbidden_aggregates=aggregates.forbidden,
            in_tree=in_tree,
        )


def _limit(parameters: Parameters) -> int | None:
    numbers = []
    for value in every(parameters, "limit"):
        number = grammar.parse_positive(value)
        if number is None:
            reason = f"{shown(value)} does not match '^[1-9][0-9]*$'"
            raise refuse_value(parameters, "limit", value, reason, "pattern")
        numbers.append(number)
    return numbers[0] if numbers else None


def _policy(parameters: Parameters) -> str | None:
    values = every(parameters, "group_policy")
    for value in values:
        if value not in POLICIES:
            reason = f"{shown(value)} is not one of {list(POLICIES)}"
            raise refuse_value(parameters, "group_policy", value, reason, "enum")
    return values[0] if values else None


def _root_required(values: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    if len(values) > 1:
        raise BadRequest(
            "Query parameter 'root_required' may be specified only once.",
            code="placement.query.duplicate_key",
        )
    if not values:
        return frozenset(), frozenset()
    expression = grammar.parse_required([values[0]], Grammar(any_of_traits=False))
    required = frozenset(trait for any_of in expression.required for trait in any_of)
    both = sorted(required & expression.forbidden)
    if both:
        raise BadRequest(
            f"Conflicting required and forbidden traits found in root_required: {', '.join(both)}", code=_BAD
        )
    return required, expression.forbidden


def _check_resourceless(groups: Sequence[RequestGroup], subtrees: Iterable[frozenset[str]]) -> None:
    if not any(group.resources for group in groups):
        raise BadRequest("There must be at least one resources or resources[$S] parameter.", code=_MISSING)
    named = frozenset(suffix for subtree in subtrees for suffix in subtree)
    bare = [group.suffix for group in groups if not group.resources and group.suffix not in named]
    if bare:
        raise BadRequest(
            "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            f"bad group(s) - {bare}.",
            code=_BAD,
        )
    suffixes = [group.suffix for group in groups]
    unknown = sorted(named.difference(suffixes))
    if unknown:
        raise BadRequest(
            f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {suffixes}.",
            code=_BAD,
        )


def _check_orphans(drafts: Sequence[_Draft], groups: Sequence[RequestGroup]) -> None:
    lacking = [draft for draft, group in zip(drafts, groups, strict=True) if not group.resources]
    traits = [
        f"required{draft.suffix}"
        for draft, group in zip(drafts, groups, strict=True)
        if not group.resources and group.required
    ]
    if traits:
        raise BadRequest(
            "All traits parameters must be associated with resources.  "
            f"Found the following orphaned traits keys: {', '.join(traits)}"
        )
    members = [f"member_of{draft.suffix}" for draft in lacking if "member_of" in draft.values]
    if members:
        raise BadRequest(
            "All member_of parameters must be associated with resources. "
            f"Found the following orphaned member_of keys: {', '.join(members)}"
        )
    if lacking:
        raise BadRequest("All request groups must specify resources.")
    if not drafts:
        raise BadRequest("At least one request group (`resources` or `resources{$S}`) is required.")


def _check_conflicts(groups: Sequence[RequestGroup]) -> None:
    conflicts = []
    for group in groups:
        impossible = [any_of for any_of in group.required if any_of <= group.forbidden]
        if impossible:
            traits = ", ".join(sorted(frozenset().union(*impossible)))
            conflicts.append(f"required{group.suffix}: ({traits})")
    if conflicts:
        raise BadRequest(
            "Conflicting required and forbidden traits found in the following traits keys: "
            f"{', '.join(conflicts)}"
        )


# Split amounts, which may come from several providers, in query strings.
#
# Source: placement-api.md, "Split amounts".


# The longer name counts where a key could be read as both.
_KEY = re.compile("(split_rule|split)([a-zA-Z0-9_-]{1,64})?")
_NO_CLASSES = frozenset[str]()


def taken_out(parameters: Parameters) -> tuple[Parameters, dict[str, RequestGroup]]:
    """Return the other parameters, and by suffix groups that have only `split` and `split_rule`.

    Raises BadRequest naming the parameter.
    """
    rest: Parameters = []
    values: dict[str, dict[str, str]] = {}
    for key, value in parameters:
        found = _KEY.fullmatch(key)
        if found is None:
            rest.append((key, value))
            continue
        name, suffix = found.group(1), found.group(2) or UNSUFFIXED
        if name in values.setdefault(suffix, {}):
            raise BadRequest(f"{key}: may be given only once", code="placement.query.duplicate_key")
        values[suffix][name] = value
    return rest, {suffix: _group(suffix, given) for suffix, given in values.items()}


def _group(suffix: str, given: Mapping[str, str]) -> RequestGroup:
    names = frozenset(name.strip() for name in given["split"].split(",")) if "split" in given else _NO_CLASSES
    if "split_rule" not in given:
        return RequestGroup(suffix, split=names)
    if not names:
        raise BadRequest(f"split_rule{suffix}: makes no sense without split{suffix}")
    return RequestGroup(suffix, split=names, split_rule=_rule(given["split_rule"], f"split_rule{suffix}"))


def _rule(text: str, where: str) -> SplitRule:
    if text not in list(SplitRule):
        raise BadRequest(f"{where}: must be one of {', '.join(SplitRule)}. Got: {text!r}")
    return SplitRule(text)


def with_splits(query: CandidateQuery, splits: Mapping[str, RequestGroup]) -> CandidateQuery:
    """Return the query with what `taken_out` found. Raises BadRequest naming the parameter."""
    unknown = sorted(splits.keys() - {group.suffix for group in query.groups})
    if unknown:
        raise BadRequest(f"split{unknown[0]}: there is no group {unknown[0] or 'without suffix'}")
    groups = (
        replace(group, split=splits[group.suffix].split, split_rule=splits[group.suffix].split_rule)
        if group.suffix in splits
        else group
        for group in query.groups
    )
    return checked(replace(query, groups=tuple(groups)))


def checked(query: CandidateQuery) -> CandidateQuery:
    """Return the query if its splits make sense. Raises BadRequest naming the place."""
    for group in query.groups:
        where = query.place(group, "split")
        if group.split and group.suffix == UNSUFFIXED:
            raise BadRequest(
                f"{where}: the unsuffixed group cannot split amounts, as its classes may come from several "
                "trees; give the group a suffix"
            )
        strange = sorted(group.split - group.resources.keys())
        if strange:
            raise BadRequest(f"{where}: the group does not ask for {', '.join(strange)}")
    entirely = {group.suffix for group in query.groups if group.is_split}
    for at, suffixes in enumerate(query.same_subtree):
        if suffixes <= entirely:
            place = f"same_subtree[{at}]" if query.is_json else "same_subtree"
            raise BadRequest(
                f"{place}: needs a group that takes something whole from one provider, such as a group "
                f"without resources; below that provider {', '.join(sorted(suffixes))} can be split"
            )
    return query


# The query string of our own search: the newest grammar, split, order_by, cluster, prefer and explain.


_OWN = names_of(OWN, NEWEST)
_HEAVIEST = 100
_MOST_PREFERENCES = 32
_TRAIT = re.compile("[A-Z0-9_]{1,255}")
_FORM = "expected trait or aggregate, with ! in front to avoid it and :weight behind"


def parse_extended(parameters: Parameters) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options. Raises BadRequest naming the parameter."""
    is_kept = sum(map(len, chain(*parameters))) <= LONGEST_KEPT
    asked = (_asked if is_kept else _asked.__wrapped__)(tuple(parameters))
    options = use_cases().candidates.options(
        asked.order_by, asked.cluster, asked.preferences, explain=asked.explain
    )
    return asked.query, options


class _AskedParameters(NamedTuple):
    """The content of the parameters, whether or not what they name exists."""

    query: CandidateQuery
    order_by: str | None
    cluster: str | None
    preferences: tuple[SoftCondition, ...]
    explain: bool


# Callers repeat their queries.
@lru_cache(maxsize=256)
def _asked(given: tuple[tuple[str, str], ...]) -> _AskedParameters:
    parameters = list(given)
    rest, splits = taken_out([pair for pair in parameters if pair[0] not in _OWN])
    query = parse(rest, NEWEST)
    return _AskedParameters(
        with_splits(query, splits) if splits else query,
        single(parameters, "order_by"),
        single(parameters, "cluster"),
        parse_preferences(every(parameters, "prefer")),
        _flag(single(parameters, "explain")),
    )


def _flag(value: str | None) -> bool:
    if value not in (None, "0", "1"):
        raise BadRequest(f"explain: must be 0 or 1, not {value!r}")
    return value == "1"


def parse_preferences(values: Sequence[str], *, is_json: bool = False) -> tuple[SoftCondition, ...]:
    """Parse all `prefer` values. Raises BadRequest naming the parameter, or the place in a JSON body."""
    places = (f"prefer[{at}]" if is_json else "prefer" for at in range(len(values)))
    found = tuple(soft for place, value in zip(places, values, strict=True) for soft in _parsed(value, place))
    if len(found) > _MOST_PREFERENCES:
        raise BadRequest(f"prefer: at most {_MOST_PREFERENCES} preferences are understood")
    return found


def _parsed(value: str, place: str) -> Iterator[SoftCondition]:
    for piece in (piece.strip() for piece in value.split(",")):
        name, colon, weight_text = piece.partition(":")
        absent = name.startswith("!")
        name = name.removeprefix("!").strip()
        weight = _weight(weight_text, piece, place) if colon else 1
        aggregate = normalize_uuid(name)
        if aggregate is not None:
            yield SoftCondition(weight, aggregate=aggregate, absent=absent)
        elif _TRAIT.fullmatch(name):
            yield SoftCondition(weight, trait=name, absent=absent)
        else:
            raise BadRequest(f"{place}: {_FORM}. Got: {piece!r}")


def _weight(text: str, piece: str, place: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or not 1 <= int(text) <= _HEAVIEST:
        raise BadRequest(f"{place}: the weight must be 1 to {_HEAVIEST}. Got: {piece!r}")
    return int(text)


# The JSON body of our own search as a query and its options; errors name the place in the body.
#
# Source: placement-api.md, "Candidates by JSON".


_NOTHING: Mapping[str, Any] = {}


def parse_json(body: Mapping[str, Any]) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options of a body that keeps to CandidatesBody. Raises BadRequest."""
    query = _read(body)
    options = use_cases().candidates.options(
        order_by=body.get("order_by"),
        cluster=body.get("cluster"),
        preferences=parse_preferences(body.get("prefer", ()), is_json=True),
        explain=body.get("explain", False),
    )
    return checked(query), options


def parse_query(body: Mapping[str, Any]) -> CandidateQuery:
    """Return the query of a body that keeps to QueryBody. Raises BadRequest."""
    return checked(_read(body))


def _read(body: Mapping[str, Any]) -> CandidateQuery:
    query = CandidateQuery(
        groups=tuple(_extended_query_group(suffix, given) for suffix, given in body["groups"].items()),
        isolate=body.get("group_policy") == "isolate",
        same_subtree=tuple(map(frozenset, body.get("same_subtree", ()))),
        root_required=frozenset(body.get("root_required", ())),
        root_forbidden=frozenset(body.get("root_forbidden", ())),
        limit=body.get("limit"),
        is_json=True,
    )
    _check(query, policy=body.get("group_policy"))
    for group in query.groups:
        if not group.split and "split_rule" in body["groups"][group.suffix]:
            raise BadRequest(f"{query.place(group, 'split_rule')}: makes no sense without split")
    return query


def _extended_query_group(suffix: str, given: Mapping[str, Any]) -> RequestGroup:
    return RequestGroup(
        suffix=suffix,
        resources=given.get("resources", _NOTHING),
        required=_sets(given.get("required", ())),
        forbidden=frozenset(given.get("forbidden", ())),
        member_of=_sets(given.get("member_of", ())),
        forbidden_aggregates=frozenset(given.get("forbidden_aggregates", ())),
        in_tree=given.get("in_tree"),
        split=frozenset(given.get("split", ())),
        split_rule=SplitRule(given.get("split_rule", SplitRule.PACK)),
    )


def _sets(lists: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    return tuple(dict.fromkeys(map(frozenset, lists)))


def _check(query: CandidateQuery, policy: str | None) -> None:
    """Raise BadRequest for combinations that the query string refuses, too."""
    if not any(group.resources for group in query.groups):
        raise BadRequest("groups: at least one must ask for resources")
    named = frozenset().union(*query.same_subtree)
    for group in query.groups:
        if not group.resources and group.suffix not in named:
            raise BadRequest(
                f"{query.place(group, 'resources')}: is missing, and same_subtree does not name it"
            )
        impossible = sorted(name for any_of in group.required if any_of <= group.forbidden for name in any_of)
        if impossible:
            where = query.place(group, "required")
            raise BadRequest(f"{where}: {', '.join(impossible)} is required and forbidden")
    _check_whole(query, policy)


def _check_whole(query: CandidateQuery, policy: str | None) -> None:
    suffixes = {group.suffix for group in query.groups} - {UNSUFFIXED}
    for at, names in enumerate(query.same_subtree):
        unknown = sorted(names - suffixes)
        if unknown:
            raise BadRequest(f"same_subtree[{at}]: there is no group with the suffix {', '.join(unknown)}")
    both = sorted(query.root_required & query.root_forbidden)
    if both:
        raise BadRequest(f"root_required: {', '.join(both)} is required and forbidden")
    if policy is None and len(suffixes) > 1:
        raise BadRequest("group_policy: is required where several groups have suffixes")


# What-if questions: what is to be different, from a parameter or a part of a body.


def world_of_text(text: str | None) -> WorldRequest:
    """Return what is to be different according to a parameter. Raises BadRequest."""
    try:
        given = {} if text is None else orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"world: is no JSON: {error}") from None
    return world_of(load(WorldBodySchema, NEWEST, given, "world: "))


def world_of(given: Mapping[str, Any]) -> WorldRequest:
    """Return what is to be different according to a part of a body that keeps to its schema."""
    inventories = tuple(
        InventoryOverride(
            each["resource_class"],
            each.get("allocation_ratio"),
            each.get("reserved"),
            tuple(each["hosts"]) if "hosts" in each else None,
        )
        for each in given.get("inventories", ())
    )
    more = tuple(AddedHosts(each["like"], each["count"]) for each in given.get("more", ()))
    return WorldRequest(tuple(given.get("without", ())), inventories, more)
