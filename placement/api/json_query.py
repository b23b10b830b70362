"""The JSON body of our own search as a query and its options; errors name the place in the body.

Source: placement-api.md, "Candidates by JSON".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placement.api.context import use_cases
from placement.api.extended_query import parse_preferences
from placement.api.split_parameters import checked
from placement.domain.errors import BadRequest
from placement.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup, SplitRule
from placement.services.placement.search_options import SearchOptions

_NOTHING: Mapping[str, Any] = {}


def parse(body: Mapping[str, Any]) -> tuple[CandidateQuery, SearchOptions]:
    """The query and the options of a body that keeps to its schema (CandidatesBody). Raises BadRequest."""
    query = _read(body)
    options = use_cases().candidates.options(
        order_by=body.get("order_by"),
        cluster=body.get("cluster"),
        preferences=parse_preferences(body.get("prefer", ()), is_json=True),
        explain=body.get("explain", False),
    )
    return checked(query), options


def parse_query(body: Mapping[str, Any]) -> CandidateQuery:
    """The query of a body that keeps to its schema (QueryBody). Raises BadRequest."""
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
    """The combinations that the query string refuses, too."""
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
