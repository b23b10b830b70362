"""Requests as JSON: in bodies, and as the text that is stored with the consumer of a claim.

Each field is read and stored by the type of its default, so a new field needs no code here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule

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
