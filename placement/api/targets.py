"""The target of policy rules: the cluster that a request is about.

A request that cannot be understood names no cluster: callers who are bound to clusters are refused, and
others learn from the handler what is wrong.
"""

from __future__ import annotations

from typing import Any

from placement.api.bodies import peeked
from placement.api.queries import (
    Parameters,
    every,
    parameters,
    read,
)
from placement.domain.errors import BadRequest

Target = dict[str, str]


def cluster_of_query() -> Target:
    """The cluster in the query string."""
    try:
        return _only(parameters())
    except BadRequest:
        return {}


def cluster_of_claim() -> Target:
    """The cluster in the query that is a member of the body, a text or JSON; without that, the body's own."""
    query = _member("query")
    if query is None:
        return cluster_of_body()
    if isinstance(query, dict):
        return _named(query.get("cluster"))
    try:
        return _only(read(query)) if isinstance(query, str) else {}
    except BadRequest:
        return {}


def cluster_of_body() -> Target:
    """The cluster that is a member of the body."""
    return _named(_member("cluster"))


def _named(cluster: Any) -> Target:
    return {"cluster": cluster} if isinstance(cluster, str) else {}


def _member(name: str) -> Any:
    body = peeked()
    return body.get(name) if isinstance(body, dict) else None


def _only(given: Parameters) -> Target:
    """The cluster if exactly one is named; with several it would be a guess which of them counts."""
    found = every(given, "cluster")
    return {"cluster": found[0]} if len(found) == 1 else {}
