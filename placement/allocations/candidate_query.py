"""The query string of allocation candidates as a CandidateQuery.

Source: placement-api.md, "Query grammar", "Value parsing", "Refused combinations".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import orjson

from placement.allocations.candidate_schemas import WorldBodySchema
from placement.allocations.candidates import SearchOptions, SoftCondition
from placement.allocations.world import AddedHosts, InventoryOverride, WorldRequest
from placement.common.microversions import NEWEST, Feature, Microversion
from placement.engine.domain.errors import BadRequest, SchemaViolation
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, SplitRule, query_of
from placement.engine.domain.identifiers import normalize_uuid
from placement.http import context
from placement.http.context import use_cases
from placement.http.operations import (
    LONGEST_KEPT,
    Parameters,
    every,
    load,
    names_of,
    read,
    refuse_unknown,
    schema_of,
    single,
    unknown,
    violated,
)
from placement.http.query_grammar import (
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
from placement.http.schemas import MOST_KEYS, shown

_MISSING = "placement.query.missing_value"
_BAD = "placement.query.bad_value"
Groups = Mapping[str, Mapping[str, Any]]
_NOTHING: Mapping[str, Any] = {}


@lru_cache(maxsize=256)
def parse_text(query_string: bytes, version: Microversion) -> CandidateQuery:
    """Parse a query string, and keep the result, as callers repeat their queries. Raises BadRequest."""
    return parse(read(query_string.decode("latin-1")), version)


def parse_newest(query_string: str) -> CandidateQuery:
    """Return the query of a query string in the newest microversion. Raises BadRequest."""
    return parse(read(query_string), NEWEST)


def parse(parameters: Parameters, version: Microversion, splits: Groups = _NOTHING) -> CandidateQuery:
    """Return the query of parameters, and of the splits that `taken_out` found. Raises BadRequest."""
    given = _by_group(parameters, version)
    around = Surroundings(version, UNSUFFIXED, parameters)
    document = members_of(OF_ALL, {each.name: every(parameters, each.name) for each in OF_ALL}, around)
    document["groups"] = {
        suffix: {
            **members_of(OF_GROUPS, values, around._replace(suffix=suffix)),
            **splits.get(suffix, _NOTHING),
        }
        for suffix, values in given.items()
    }
    query = _query(document, one_provider_per_tree=not version.offers(Feature.NESTED_CANDIDATES))
    _check_resourceless(query, given, version)
    if version.offers(Feature.FORBIDDEN_TRAITS):
        conflicts = []
        for group in query.groups:
            impossible = [any_of for any_of in group.required if any_of <= group.forbidden]
            if impossible:
                traits = ", ".join(sorted(frozenset().union(*impossible)))
                conflicts.append(f"required{group.suffix}: ({traits})")
        if conflicts:
            message = "Conflicting required and forbidden traits found in the following traits keys: "
            raise placed("required", BadRequest(f"{message}{', '.join(conflicts)}"))
    if "group_policy" not in document and len(given.keys() - {UNSUFFIXED}) > 1:
        message = 'parameter is required when specifying more than one "resources{N}" parameter.'
        raise placed("group_policy", BadRequest(f'The "group_policy" {message}'))
    unknown = sorted(splits.keys() - given.keys())
    if unknown:
        raise BadRequest(f"split{unknown[0]}: there is no group {unknown[0] or 'without suffix'}")
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


def _by_group(parameters: Parameters, version: Microversion) -> dict[str, dict[str, list[str]]]:
    """Return the values of each group by keyword, groups and keywords in order of first appearance.

    Raises BadRequest naming what is not known or, before granular groups, what is missing.
    """
    alone, patterns = list(names_of(OF_ALL, version)), _patterns(version)
    names = [name for name, _ in patterns]
    if not version.offers(Feature.GRANULAR_GROUPS):
        known = ["resources", *alone, *names]
        if not every(parameters, "resources"):
            missing = SchemaViolation("'resources' is a required property", "required")
            raise violated(missing, schema_of(known, ["resources"]), parameters)
        refuse_unknown(parameters, known)
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
        if context.is_own():
            raise unknown(sorted(strange), {each.name.removesuffix("{S}") for each in EXTENDED})
        listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
        verb = "does" if len(strange) == 1 else "do"
        expressions = [f"^{pattern.pattern}$" for _, pattern in patterns]
        reason = f"{listed} {verb} not match any of the regexes: {', '.join(map(repr, expressions))}"
        schema = schema_of(alone)
        schema["patternProperties"] = {each: {"type": "string"} for each in expressions}
        refused = violated(SchemaViolation(reason, "additionalProperties"), schema, parameters)
        # In words, as an alternative to regular expressions.
        raise BadRequest(
            f"{refused}. Parameters of the Placement API: {', '.join(alone)}, and of each group, its suffix "
            f"behind them as in resources1: {', '.join(names)}"
        )
    return found


def _check_resourceless(
    query: CandidateQuery, given: Mapping[str, Mapping[str, object]], version: Microversion
) -> None:
    """Raise BadRequest for groups that must ask for resources and do not; `given`: keywords by group."""
    lacking = [group for group in query.groups if not group.resources]
    if version.offers(Feature.SAME_SUBTREE):
        if len(lacking) == len(query.groups):
            message = "There must be at least one resources or resources[$S] parameter."
            raise placed("resources", BadRequest(message, code=_MISSING))
        named = frozenset().union(*query.same_subtree)
        bare = [group.suffix for group in lacking if group.suffix not in named]
        if bare:
            message = (
                "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            )
            raise placed("same_subtree", BadRequest(f"{message}bad group(s) - {bare}.", code=_BAD))
        suffixes = [group.suffix for group in query.groups]
        unknown = sorted(named.difference(suffixes))
        if unknown:
            message = (
                f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {suffixes}."
            )
            raise placed("same_subtree", BadRequest(message, code=_BAD))
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


def taken_out(parameters: Parameters) -> tuple[Parameters, Groups]:
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
            raise BadRequest(f"{key}: may be given only once", code="placement.query.duplicate_key")
        values[suffix][name] = value
    members: dict[str, dict[str, Any]] = {}
    for suffix, given in values.items():
        if "split" not in given:
            raise BadRequest(f"split_rule{suffix}: makes no sense without split{suffix}")
        rule = given.get("split_rule", SplitRule.PACK)
        if rule not in list(SplitRule):
            expected = f"must be one of {', '.join(SplitRule)}. Got: {rule!r}"
            raise BadRequest(f"split_rule{suffix}: {expected}")
        members[suffix] = {**given, "split": [name.strip() for name in given["split"].split(",")]}
    return rest, members


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
    query, options = (_asked if is_kept else _asked.__wrapped__)(tuple(parameters))
    return query, use_cases().candidates.options(**options)


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
        raise BadRequest(f"explain: must be 0 or 1, not {explain!r}")
    named = {"order_by": order_by, "cluster": cluster, "preferences": preferences}
    return query, {**named, "explain": explain == "1"}


def parse_preferences(values: Sequence[str], *, is_json: bool = False) -> tuple[SoftCondition, ...]:
    """Parse all `prefer` values. Raises BadRequest naming the parameter, or the place in a JSON body."""
    found = []
    for at, value in enumerate(values):
        place = f"prefer[{at}]" if is_json else "prefer"
        for piece in (piece.strip() for piece in value.split(",")):
            name, colon, weight = piece.partition(":")
            absent, name = name.startswith("!"), name.removeprefix("!").strip()
            if not colon:
                weight = "1"
            elif not re.fullmatch("[0-9]{1,3}", weight) or not 1 <= int(weight) <= _HEAVIEST:
                raise BadRequest(f"{place}: the weight must be 1 to {_HEAVIEST}. Got: {piece!r}")
            aggregate = normalize_uuid(name)
            if aggregate is None and not _TRAIT.fullmatch(name):
                raise BadRequest(f"{place}: {_FORM}. Got: {piece!r}")
            trait = name if aggregate is None else None
            found.append(SoftCondition(int(weight), trait=trait, aggregate=aggregate, absent=absent))
    if len(found) > _MOST_PREFERENCES:
        raise BadRequest(f"prefer: at most {_MOST_PREFERENCES} preferences are understood")
    return tuple(found)


# The JSON body of our own search as a query and its options; errors name the place in the body.
#
# Source: placement-api.md, "Candidates by JSON".


def parse_json(body: Mapping[str, Any]) -> tuple[CandidateQuery, SearchOptions]:
    """Return the query and the options of a body that keeps to CandidatesBody. Raises BadRequest."""
    query = _read(body)
    preferences = parse_preferences(body.get("prefer", ()), is_json=True)
    options = use_cases().candidates.options(
        body.get("order_by"), body.get("cluster"), preferences, explain=bool(body.get("explain"))
    )
    return checked(query), options


def parse_query(body: Mapping[str, Any]) -> CandidateQuery:
    """Return the query of a body that keeps to QueryBody. Raises BadRequest."""
    return checked(_read(body))


def _read(body: Mapping[str, Any]) -> CandidateQuery:
    """Return the query; refuse combinations that the query string refuses, too."""
    query = _query(body, is_json=True)
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
    suffixes = {group.suffix for group in query.groups} - {UNSUFFIXED}
    for at, names in enumerate(query.same_subtree):
        unknown = sorted(names - suffixes)
        if unknown:
            raise BadRequest(f"same_subtree[{at}]: there is no group with the suffix {', '.join(unknown)}")
    both = sorted(query.root_required & query.root_forbidden)
    if both:
        raise BadRequest(f"root_required: {', '.join(both)} is required and forbidden")
    if body.get("group_policy") is None and len(suffixes) > 1:
        raise BadRequest("group_policy: is required where several groups have suffixes")
    for group in query.groups:
        if not group.split and "split_rule" in body["groups"][group.suffix]:
            raise BadRequest(f"{query.place(group, 'split_rule')}: makes no sense without split")
    return query


# What-if questions: what is to be different, from a parameter or a part of a body.


def world_of_text(text: str | None) -> WorldRequest:
    """Return what is to be different according to a parameter. Raises BadRequest."""
    try:
        given = {} if text is None else orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"world: is no JSON: {error}") from None
    return world_of(load(WorldBodySchema, NEWEST, given, place="world"))


def world_of(given: Mapping[str, Any]) -> WorldRequest:
    """Return what is to be different according to a part of a body that keeps to its schema."""
    inventories = tuple(
        InventoryOverride(**{**each, "hosts": tuple(each["hosts"]) if "hosts" in each else None})
        for each in given.get("inventories", ())
    )
    more = tuple(AddedHosts(**each) for each in given.get("more", ()))
    return WorldRequest(tuple(given.get("without", ())), inventories, more)
