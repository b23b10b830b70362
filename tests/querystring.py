"""Candidate queries as the parameters of a query string, in the grammar of microversion 1.39, and back.

Those of our own search as its JSON body, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from placement.common.microversions import NEWEST, Feature
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup
from placement.http.query_grammar import (
    parse_in_tree,
    parse_member_of,
    parse_required,
    parse_resources,
    parse_same_subtree,
)

Pairs = list[tuple[str, str]]

_GROUP_KEY = re.compile(r"(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{0,64})")


def rendered(query: CandidateQuery) -> Pairs:
    """The parameters that ask for the query.

    All single traits of a group are one `required` value, so a query without any-of sets can also be sent at
    versions that know no repeated `required`. `group_policy` is left out where nothing depends on it.
    """
    pairs = [pair for group in query.groups for pair in _rendered_group(group)]
    suffixed = [group for group in query.groups if group.suffix != UNSUFFIXED]
    if query.isolate:
        pairs.append(("group_policy", "isolate"))
    elif len(suffixed) > 1:
        pairs.append(("group_policy", "none"))
    if query.root_required or query.root_forbidden:
        pairs.append(("root_required", _traits(query.root_required, query.root_forbidden)))
    pairs.extend(("same_subtree", ",".join(sorted(suffixes))) for suffixes in query.same_subtree)
    if query.limit is not None:
        pairs.append(("limit", str(query.limit)))
    return pairs


def _rendered_group(group: RequestGroup) -> Pairs:
    pairs = []
    if group.resources:
        pairs.append(("resources", ",".join(f"{name}:{amount}" for name, amount in group.resources.items())))
    single = [next(iter(wanted)) for wanted in group.required if len(wanted) == 1]
    if single or group.forbidden:
        pairs.append(("required", _traits(single, group.forbidden)))
    pairs.extend(("required", _any_of(wanted)) for wanted in group.required if len(wanted) > 1)
    pairs.extend(("member_of", _any_of(wanted)) for wanted in group.member_of)
    if group.forbidden_aggregates:
        pairs.append(("member_of", "!" + _any_of(group.forbidden_aggregates)))
    if group.in_tree is not None:
        pairs.append(("in_tree", group.in_tree))
    if group.split:
        pairs += [("split", ",".join(sorted(group.split))), ("split_rule", str(group.split_rule))]
    return [(keyword + group.suffix, value) for keyword, value in pairs]


def _traits(required: Iterable[str], forbidden: Iterable[str]) -> str:
    return ",".join([*required, *(f"!{name}" for name in sorted(forbidden))])


def _any_of(names: frozenset[str]) -> str:
    return ("in:" if len(names) > 1 else "") + ",".join(sorted(names))


def as_json(query: CandidateQuery) -> dict[str, Any]:
    """The body that asks for the query; as in `rendered`, what has no effect is left out."""
    body = {
        "groups": {group.suffix: _group_as_json(group) for group in query.groups},
        "group_policy": "isolate" if query.isolate else "none",
        "same_subtree": [sorted(suffixes) for suffixes in query.same_subtree],
        "root_required": sorted(query.root_required),
        "root_forbidden": sorted(query.root_forbidden),
        "limit": query.limit,
    }
    return {name: value for name, value in body.items() if value}


def _group_as_json(group: RequestGroup) -> dict[str, Any]:
    body = {
        "resources": dict(group.resources),
        "required": [sorted(wanted) for wanted in group.required],
        "forbidden": sorted(group.forbidden),
        "member_of": [sorted(wanted) for wanted in group.member_of],
        "forbidden_aggregates": sorted(group.forbidden_aggregates),
        "in_tree": group.in_tree,
        "split": sorted(group.split),
        "split_rule": str(group.split_rule) if group.split else None,
    }
    return {name: value for name, value in body.items() if value}


def parsed(pairs: Iterable[tuple[str, str]], *, one_provider_per_tree: bool = False) -> CandidateQuery:
    """The query that valid parameters ask for; groups in the order their suffixes first appear.

    `one_provider_per_tree` says that they are sent at a microversion before 1.29.
    """
    values: dict[str, dict[str, list[str]]] = {}
    general: dict[str, list[str]] = {}
    for key, value in pairs:
        if match := _GROUP_KEY.fullmatch(key):
            keyword, suffix = match.groups()
            values.setdefault(suffix, {}).setdefault(keyword, []).append(value)
        else:
            general.setdefault(key, []).append(value)
    root = parse_required(general.get("root_required", []), Feature.ROOT_REQUIRED.value)
    return CandidateQuery(
        groups=tuple(_parsed_group(suffix, of_group) for suffix, of_group in values.items()),
        isolate=general.get("group_policy", ["none"])[0] == "isolate",
        same_subtree=tuple(parse_same_subtree(value) for value in general.get("same_subtree", [])),
        root_required=frozenset().union(*root.required),
        root_forbidden=root.forbidden,
        limit=int(general["limit"][0]) if "limit" in general else None,
        one_provider_per_tree=one_provider_per_tree,
    )


def _parsed_group(suffix: str, values: dict[str, list[str]]) -> RequestGroup:
    traits = parse_required(values.get("required", []), NEWEST)
    aggregates = parse_member_of(values.get("member_of", []), NEWEST, suffix)
    return RequestGroup(
        suffix=suffix,
        resources=parse_resources(values["resources"][-1]) if "resources" in values else {},
        required=traits.required,
        forbidden=traits.forbidden,
        member_of=aggregates.required,
        forbidden_aggregates=aggregates.forbidden,
        in_tree=parse_in_tree(values["in_tree"][-1]) if "in_tree" in values else None,
    )
