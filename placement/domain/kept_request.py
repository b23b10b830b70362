"""The request that a consumer was claimed with, as a text that is kept with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from placement.domain.groups import CandidateQuery, RequestGroup, SplitRule

_FORM = 1


class KeptRequest(NamedTuple):
    """A query; `cluster` is the uuid of the aggregate of the only cluster it is for, if any."""

    query: CandidateQuery
    cluster: str | None


def written(query: CandidateQuery, cluster: str | None, *, under_rules: bool = False) -> str:
    """The text of a request; `under_rules`: rules between consumers, which are not kept, were met, too."""
    document = {"form": _FORM, "cluster": cluster, "query": _query(query)}
    if under_rules:
        document["rules"] = True
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def is_under_rules(text: str) -> bool:
    """Whether it was claimed with rules between consumers."""
    return "rules" in json.loads(text)


def read(text: str) -> KeptRequest | None:
    """The request of a text; None for one in a form that is not known here."""
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
