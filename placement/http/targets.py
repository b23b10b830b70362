"""The target of policy rules: the cluster that a request is about.

A request that cannot be understood names no cluster: callers that are bound to clusters are refused, and
others learn from the handler what is wrong.
"""

from __future__ import annotations

from typing import Any

from placement.engine.domain.errors import BadRequest
from placement.http.operations import Parameters, every, parameters, peeked, read

Target = dict[str, str]


def cluster_of_query() -> Target:
    """Return the cluster in the query string."""
    try:
        return _only(parameters())
    except BadRequest:
        return {}


def cluster_of_claim() -> Target:
    """Return the cluster that all members of the body name, else that of its query, else its own."""
    body = peeked()
    if isinstance(body, dict) and isinstance(body.get("members"), list):
        return _common_cluster(body)
    query = body.get("query") if isinstance(body, dict) else None
    return _named(_part(body, "cluster")) if query is None else _of_query(query)


def _common_cluster(body: dict[str, Any]) -> Target:
    """Return the cluster that the queries of all members name; which of several counts would be a guess."""
    members = [member for member in body["members"] if isinstance(member, dict)]
    by_query = [each for each in members if "query" in each or "flavor" not in {*each, *body}]
    queries = [member.get("query", body.get("query")) for member in by_query]
    texts = {query for query in queries if isinstance(query, str)}
    found = {_of_query(query).get("cluster") for query in texts}
    found |= {_of_query(query).get("cluster") for query in queries if not isinstance(query, str)}
    if len(by_query) < len(members):
        found |= {_named(each.get("cluster", body.get("cluster"))).get("cluster") for each in members}
    return _named(found.pop()) if len(found) == 1 else {}


def _of_query(query: Any) -> Target:
    """Return the cluster in a query, a text or JSON."""
    if isinstance(query, dict):
        return _named(query.get("cluster"))
    try:
        return _only(read(query)) if isinstance(query, str) else {}
    except BadRequest:
        return {}


def cluster_of_body() -> Target:
    """Return the cluster that is a member of the body."""
    return _named(_part(peeked(), "cluster"))


def _named(cluster: Any) -> Target:
    return {"cluster": cluster} if isinstance(cluster, str) else {}


def _part(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _only(given: Parameters) -> Target:
    """Return the cluster if exactly one is named; which of several counts would be a guess."""
    found = every(given, "cluster")
    return {"cluster": found[0]} if len(found) == 1 else {}
