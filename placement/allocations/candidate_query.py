"""The query string of allocation candidates as a CandidateQuery.

Source: placement-api.md, "Query grammar", "Value parsing", "Refused combinations".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import orjson
import os_traits

from placement.allocations.candidate_schemas import WorldBodySchema
from placement.allocations.candidates import CandidateSearch, SearchOptions, SoftCondition
from placement.allocations.query_names import soft_with_uuids, with_uuids
from placement.allocations.world import AddedHosts, InventoryOverride, WorldRequest
from placement.common.microversions import NEWEST, Feature, Microversion
from placement.engine.domain.errors import BODY, BadRequest, SchemaViolation, option_place, parameter
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, SplitRule
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.stored_requests import query_of
from placement.http.operations import load, names_of
from placement.http.query_grammar import (
    CLOSED,
    EXTENDED,
    NUMERIC_SUFFIX,
    OF_ALL,
    OF_GROUPS,
    OWN,
    STRING_SUFFIX,
    Surroundings,
    members_of,
    placed,
)
from placement.http.query_strings import (
    LONGEST_KEPT,
    Parameters,
    every,
    read,
    refuse_unknown,
    schema_of,
    single,
    unknown,
    violated,
)
from placement.http.schemas import MOST_KEYS, shown

_MISSING = "placement.query.missing_value"
_BAD = "placement.query.bad_value"
GroupForms = Mapping[str, Mapping[str, Any]]
_NOTHING: Mapping[str, Any] = {}


@lru_cache(maxsize=256)
def parse_text(query_string: bytes, version: Microversion) -> CandidateQuery:
    """Parse a query string, and keep the result, as callers repeat their queries.

    Of longer ones than LONGEST_KEPT nothing should be kept. Raises BadRequest in the incumbent's words.
    """
    return parse(read(query_string.decode("latin-1")), version, own=False)


def parse_newest(query_string: str) -> CandidateQuery:
    """Return the query of a query string in the newest microversion. Raises BadRequest."""
    return parse(read(query_string), NEWEST)


def parse(
    parameters: Parameters, version: Microversion, splits: GroupForms = _NOTHING, *, own: bool = True
) -> CandidateQuery:
    """Return the query of parameters, and of the splits that `taken_out` found.

    Raises BadRequest in `own` words, or in the incumbent's.
    """
    given = _by_group(parameters, version, own)
    surroundings = Surroundings(version, UNSUFFIXED, parameters, own)
    document = members_of(OF_ALL, {each.name: every(parameters, each.name) for each in OF_ALL}, surroundings)
    document["groups"] = {
        suffix: {
            **members_of(OF_GROUPS, values, surroundings._replace(suffix=suffix)),
            **splits.get(suffix, _NOTHING),
        }
        for suffix, values in given.items()
    }
    query = _query(document, one_provider_per_tree=not version.offers(Feature.NESTED_CANDIDATES))
    _check_resourceless(query, given, version, own)
    if version.offers(Feature.FORBIDDEN_TRAITS):
        conflicts = []
        for group in query.groups:
            impossible = [any_of for any_of in group.required if any_of <= group.forbidden]
            if impossible:
                traits = ", ".join(sorted(frozenset().union(*impossible)))
                conflicts.append(f"required{group.suffix}: ({traits})")
        if conflicts:
            message = "Conflicting required and forbidden traits found in the following traits keys: "
            raise placed("required", BadRequest(f"{message}{', '.join(conflicts)}"), own)
    if "group_policy" not in document and len(given.keys() - {UNSUFFIXED}) > 1:
        message = 'parameter is required when specifying more than one "resources{N}" parameter.'
        raise placed("group_policy", BadRequest(f'The "group_policy" {message}'), own)
    unknown = sorted(splits.keys() - given.keys())
    if unknown:
        raise BadRequest(
            f"there is no group {unknown[0] or 'without suffix'}", place=parameter(f"split{unknown[0]}")
        )
    return checked(query) if splits else query


def _query(document: Mapping[str, Any], **known: bool) -> CandidateQuery:
    """Return the query in the JSON form."""
    groups = [{**given, "suffix": suffix} for suffix, given in document["groups"].items()]
    isolate = document.get("group_policy") == "isolate"
    return query_of({**document, "groups": groups, "isolate": isolate, **known})


@cache
def _patterns(version: Microversion) -> list[tuple[str, re.Pattern[str]]]:
    """Return the keywords of groups that a microversion knows, and the patterns of their parameters."""
    suffix = STRING_SUFFIX if version.offers(Feature.STRING_SUFFIXES) else NUMERIC_SUFFIX
    return [(name, re.compile(f"{name}{suffix}?")) for name in sorted(names_of(OF_GROUPS, version))]


def _by_group(parameters: Parameters, version: Microversion, own: bool) -> dict[str, dict[str, list[str]]]:
    """Return the values of each group by keyword, groups and keywords in order of first appearance.

    Raises BadRequest naming what is not known or, before granular groups, what is missing.
    """
    alone, patterns = list(names_of(OF_ALL, version)), _patterns(version)
    names = [name for name, _ in patterns]
    if not version.offers(Feature.GRANULAR_GROUPS):
        known = ["resources", *alone, *names]
        if not every(parameters, "resources"):
            violation = SchemaViolation("'resources' is a required property", "required")
            raise violated(violation, schema_of(known, ["resources"]), parameters, own=own)
        refuse_unknown(parameters, known, own=own)
    found: dict[str, dict[str, list[str]]] = {}
    strange: set[str] = set()
    for key, value in parameters:
        if key not in alone:
            matches = ((name, pattern.fullmatch(key)) for name, pattern in patterns)
            name, match = next(((name, match) for name, match in matches if match), ("", None))
            if match is None:
                strange.add(key)
            else:
                group = found.setdefault(match.group(1) or UNSUFFIXED, {})
                group.setdefault(name, []).append(value)
    if strange:
        if own:
            raise unknown(sorted(strange), {each.name.removesuffix("{S}") for each in EXTENDED})
        listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
        verb = "does" if len(strange) == 1 else "do"
        expressions = [f"^{pattern.pattern}$" for _, pattern in patterns]
        reason = f"{listed} {verb} not match any of the regexes: {', '.join(map(repr, expressions))}"
        schema = schema_of(alone)
        schema["patternProperties"] = {each: {"type": "string"} for each in expressions}
        refused = violated(SchemaViolation(reason, "additionalProperties"), schema, parameters, own=False)
        # In words, as an alternative to regular expressions.
        raise BadRequest(
            f"{refused}. Parameters of the Placement API: {', '.join(alone)}, and of each group, its suffix "
            f"behind them as in resources1: {', '.join(names)}"
        )
    return found


def _check_resourceless(
    query: CandidateQuery, given: Mapping[str, Mapping[str, object]], version: Microversion, own: bool
) -> None:
    """Raise BadRequest for groups that must ask for resources and do not; `given`: keywords by group."""
    lacking = [group for group in query.groups if not group.resources]
    if version.offers(Feature.SAME_SUBTREE):
        if len(lacking) == len(query.groups):
            message = "There must be at least one resources or resources[$S] parameter."
            raise placed("resources", BadRequest(message, code=_MISSING), own)
        named = frozenset().union(*query.same_subtree)
        bare = [group.suffix for group in lacking if group.suffix not in named]
        if bare:
            message = (
                "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            )
            raise placed("same_subtree", BadRequest(f"{message}bad group(s) - {bare}.", code=_BAD), own)
        suffixes = [group.suffix for group in query.groups]
        unknown = sorted(named.difference(suffixes))
        if unknown:
            message = (
                f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {suffixes}."
            )
            raise placed("same_subtree", BadRequest(message, code=_BAD), own)
    elif version.offers(Feature.GRANULAR_GROUPS):
        traits = [f"required{group.suffix}" for group in lacking if group.required]
        if traits:
            raise BadRequest(
                "All traits parameters must be associated with resources.  "
                f"Found the following orphaned traits keys: {', '.join(traits)}"
            )
        members = [f"member_of{group.suffix}" for group in lacking if "member_of" in given[group.suffix]]
        if members:
            raise BadRequest(
                "All member_of parameters must be associated with resources. "
                f"Found the following orphaned member_of keys: {', '.join(members)}"
            )
        if lacking:
            raise BadRequest("All request groups must specify resources.")
        if not query.groups:
            raise BadRequest("At least one request group (`resources` or `resources{$S}`) is required.")


# Split amounts, which may come from several providers, in query strings.
#
# Source: placement-api.md, "Split amounts".


# The longer name counts where a key could be read as both.
_KEY = re.compile("(split_rule|split)([a-zA-Z0-9_-]{1,64})?")


def taken_out(parameters: Parameters) -> tuple[Parameters, GroupForms]:
    """Return the other parameters, and by suffix the members that `split` and `split_rule` are in JSON.

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
            raise BadRequest(
                "may be given only once", place=parameter(key), code="placement.query.duplicate_key"
            )
        values[suffix][name] = value
    members: dict[str, dict[str, Any]] = {}
    for suffix, given in values.items():
        if "split" not in given:
            raise BadRequest(f"makes no sense without split{suffix}", place=parameter(f"split_rule{suffix}"))
        rule = given.get("split_rule", SplitRule.PACK)
        if rule not in list(SplitRule):
            expected = f"must be one of {', '.join(SplitRule)}. Got: {rule!r}"
            raise BadRequest(expected, place=parameter(f"split_rule{suffix}"))
        members[suffix] = {**given, "split": [name.strip() for name in given["split"].split(",")]}
    return rest, members


def checked(query: CandidateQuery) -> CandidateQuery:
    """Return the query if its splits make sense. Raises BadRequest naming the place."""
    for group in query.groups:
        if group.split and group.suffix == UNSUFFIXED:
            raise BadRequest(
                "the base group cannot split amounts, as its classes may come from several "
                "hosts; give the group a suffix",
                place=query.place(group, "split"),
            )
        strange = sorted(group.split - group.resources.keys())
        if strange:
            raise BadRequest(
                f"the group does not ask for {', '.join(strange)}", place=query.place(group, "split")
            )
    entirely = {group.suffix for group in query.groups if group.is_split}
    for at, suffixes in enumerate(query.same_subtree):
        if suffixes <= entirely:
            place = query.place_of("same_subtree")
            place = place / at if query.is_json else place
            raise BadRequest(
                f"needs a group that takes something whole from one provider, such as a group "
                f"without resources; below that provider {', '.join(sorted(suffixes))} can be split",
                place=place,
            )
    return query


# The query string of our own search: the newest grammar, split, order_by, cluster, prefer and explain.
_OWN = names_of(OWN, NEWEST)
_WORLD = BODY / "world"
_HEAVIEST = 100
_MOST_PREFERENCES = 32
_STANDARD_TRAITS = frozenset(os_traits.get_traits())
_FORM = "expected trait or aggregate, with ! in front to avoid it and :weight behind"


def parse_extended(parameters: Parameters, search: CandidateSearch) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options, which `search` knows. Raises BadRequest naming the parameter."""
    is_kept = sum(map(len, chain(*parameters))) <= LONGEST_KEPT
    query, options = (_asked if is_kept else _asked.__wrapped__)(tuple(parameters))
    return _with_uuids(query, search.options(**options), search)


def _with_uuids(
    query: CandidateQuery, options: SearchOptions, search: CandidateSearch
) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options with UUIDs for the names of aggregates and hosts.

    Raises BadValues naming the places of names that nothing has.
    """
    query = with_uuids(query, search.called, options.cluster)
    if any(each.aggregate is not None for each in options.preferences):
        preferences = soft_with_uuids(
            options.preferences, search.called, options.place_of("prefer"), options.cluster
        )
        options = replace(options, preferences=preferences)
    return query, options


# Callers repeat their queries.
@lru_cache(maxsize=256)
def _asked(given: tuple[tuple[str, str], ...]) -> tuple[CandidateQuery, dict[str, Any]]:
    """Return the query and the arguments of its options, whether or not what these name exists."""
    parameters = list(given)
    rest, splits = taken_out([pair for pair in parameters if pair[0] not in _OWN])
    query = parse(rest, NEWEST, splits)
    order_by, cluster = single(parameters, "order_by"), single(parameters, "cluster")
    preferences = parse_preferences(every(parameters, "prefer"))
    explain = single(parameters, "explain")
    if explain not in (None, "0", "1"):
        raise BadRequest(f"must be 0 or 1, not {explain!r}", place=parameter("explain"))
    named = {"order_by": order_by, "cluster": cluster, "preferences": preferences}
    return query, {**named, "explain": explain == "1", "closed": parse_closed(parameters)}


def parse_closed(parameters: Parameters) -> bool:
    """Return whether closed hosts count. Raises BadRequest naming the parameter."""
    closed = single(parameters, CLOSED.name)
    if closed not in (None, "true", "false"):
        raise BadRequest(f"must be true or false, not {closed!r}", place=parameter(CLOSED.name))
    return closed == "true"


def parse_preferences(values: Sequence[str], *, is_json: bool = False) -> tuple[SoftCondition, ...]:
    """Parse all `prefer` values. Raises BadRequest naming the parameter, or the place in a JSON body."""
    found = []
    for at, value in enumerate(values):
        place = option_place("prefer", is_json=is_json)
        place = place / at if is_json else place
        for piece in (piece.strip() for piece in value.split(",")):
            name, colon, weight = piece.partition(":")
            absent, name = name.startswith("!"), name.removeprefix("!").strip()
            if not colon:
                weight = "1"
            elif not re.fullmatch("[0-9]{1,3}", weight) or not 1 <= int(weight) <= _HEAVIEST:
                raise BadRequest(f"the weight must be 1 to {_HEAVIEST}. Got: {piece!r}", place=place)
            if not name:
                raise BadRequest(f"{_FORM}. Got: {piece!r}", place=place)
            trait = name if _is_trait(name) else None
            aggregate = None if trait else normalize_uuid(name) or name
            found.append(SoftCondition(int(weight), trait=trait, aggregate=aggregate, absent=absent))
    if len(found) > _MOST_PREFERENCES:
        place = option_place("prefer", is_json=is_json)
        raise BadRequest(f"at most {_MOST_PREFERENCES} preferences are allowed", place=place)
    return tuple(found)


def _is_trait(name: str) -> bool:
    """Return whether a name is that of a standard trait, or begins as the names of all other traits do."""
    return name.startswith(os_traits.CUSTOM_NAMESPACE) or name in _STANDARD_TRAITS


# The JSON body of our own search as a query and its options; errors name the place in the body.
#
# Source: placement-api.md, "Candidates by JSON".


def parse_json(body: Mapping[str, Any], search: CandidateSearch) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options of a body that keeps to CandidatesBodySchema. Raises BadRequest."""
    query = _read(body)
    preferences = parse_preferences(body.get("prefer", ()), is_json=True)
    options = search.options(
        body.get("order_by"),
        body.get("cluster"),
        preferences,
        explain=bool(body.get("explain")),
        closed=bool(body.get("closed")),
        is_json=True,
    )
    return _with_uuids(checked(query), options, search)


def parse_query(body: Mapping[str, Any]) -> CandidateQuery:
    """Return the query of a body that keeps to QueryBodySchema, names as they are. Raises BadRequest."""
    return checked(_read(body))


def _read(body: Mapping[str, Any]) -> CandidateQuery:
    """Return the query; refuse combinations that the query string refuses, too."""
    query = _query(body, is_json=True)
    if not any(group.resources for group in query.groups):
        raise BadRequest("at least one must ask for resources", place=BODY / "groups")
    named = frozenset().union(*query.same_subtree)
    for group in query.groups:
        if not group.resources and group.suffix not in named:
            raise BadRequest(
                "is missing, and same_subtree does not name it", place=query.place(group, "resources")
            )
        impossible = sorted(name for any_of in group.required if any_of <= group.forbidden for name in any_of)
        if impossible:
            where = query.place(group, "required")
            raise BadRequest(f"{', '.join(impossible)} is required and forbidden", place=where)
    suffixes = {group.suffix for group in query.groups} - {UNSUFFIXED}
    for at, names in enumerate(query.same_subtree):
        unknown = sorted(names - suffixes)
        if unknown:
            raise BadRequest(
                f"there is no group with the suffix {', '.join(unknown)}", place=BODY / "same_subtree" / at
            )
    both = sorted(query.root_required & query.root_forbidden)
    if both:
        raise BadRequest(f"{', '.join(both)} is required and forbidden", place=BODY / "root_required")
    if body.get("group_policy") is None and len(suffixes) > 1:
        raise BadRequest("is required where several groups have suffixes", place=BODY / "group_policy")
    for group in query.groups:
        if not group.split and "split_rule" in body["groups"][group.suffix]:
            raise BadRequest("makes no sense without split", place=query.place(group, "split_rule"))
    return query


# What-if questions: what is to be different, from a parameter or a part of a body.


def world_of_text(text: str | None) -> WorldRequest:
    """Return what is to be different according to a parameter. Raises BadRequest."""
    try:
        given = {} if text is None else orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"is not JSON: {error}", place=parameter("world")) from None
    return world_of(load(WorldBodySchema, NEWEST, given, place=_WORLD))


def world_of(given: Mapping[str, Any]) -> WorldRequest:
    """Return what is to be different according to a part of a body that keeps to its schema."""
    inventories = tuple(
        InventoryOverride(**{**each, "hosts": tuple(each["hosts"]) if "hosts" in each else None})
        for each in given.get("inventories", ())
    )
    more = tuple(AddedHosts(**each) for each in given.get("more", ()))
    return WorldRequest(tuple(given.get("without", ())), inventories, more)
