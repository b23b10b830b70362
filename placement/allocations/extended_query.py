"""The query string of our own search: the newest grammar, split, order_by, cluster, prefer and explain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import orjson

from placement.allocations import candidate_query
from placement.allocations.candidate_query import checked
from placement.allocations.candidate_schemas import WorldBodySchema
from placement.allocations.search_options import SearchOptions, SoftCondition
from placement.allocations.world import AddedHosts, InventoryOverride, WorldRequest
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.identifiers import normalize_uuid
from placement.http.bodies import LONGEST_KEPT, Parameters, every, single
from placement.http.context import use_cases
from placement.http.described import names_of
from placement.http.microversions import NEWEST
from placement.http.query_grammar import OWN
from placement.http.schemas import load

_OWN = names_of(OWN, NEWEST)
_HEAVIEST = 100
_MOST_PREFERENCES = 32
_TRAIT = re.compile("[A-Z0-9_]{1,255}")
_FORM = "expected trait or aggregate, with ! in front to avoid it and :weight behind"


def parse(parameters: Parameters) -> tuple[CandidateQuery, SearchOptions]:
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
    rest, splits = candidate_query.taken_out([pair for pair in parameters if pair[0] not in _OWN])
    query = candidate_query.parse(rest, NEWEST)
    return _AskedParameters(
        candidate_query.with_splits(query, splits) if splits else query,
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
        groups=tuple(_group(suffix, given) for suffix, given in body["groups"].items()),
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


def _group(suffix: str, given: Mapping[str, Any]) -> RequestGroup:
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
