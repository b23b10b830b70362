"""The target of policy rules: the cluster that a request is about.

A request that cannot be understood names no cluster: callers that are bound to clusters are refused, and
others learn from the handler what is wrong.
"""

from __future__ import annotations

from typing import Any

from flask import request

from placement.engine.domain.errors import BadRequest
from placement.http.bodies import peeked
from placement.http.query_strings import every, read

Target = dict[str, str]


def cluster_of_query() -> Target:
    """Return the cluster in the query string."""
    return _of_query(request.query_string.decode("latin-1"))


def cluster_of_body() -> Target:
    """Return the cluster that is a member of the body."""
    body = peeked()
    return _named(body.get("cluster")) if isinstance(body, dict) else {}


def cluster_of_claim() -> Target:
    """Return the cluster that all members of the body name, else that of its query, else its own."""
    body = peeked()
    if not isinstance(body, dict):
        return {}
    if not isinstance(body.get("members"), list):
        query = body.get("query")
        return _named(body.get("cluster")) if query is None else _of_query(query)
    members = [member for member in body["members"] if isinstance(member, dict)]
    by_query = [each for each in members if "query" in each or "flavor" not in {*each, *body}]
    queries = [member.get("query", body.get("query")) for member in by_query]
    texts = {query for query in queries if isinstance(query, str)}
    wanted = [*texts, *(query for query in queries if not isinstance(query, str))]
    found = {_of_query(query).get("cluster") for query in wanted}
    if len(by_query) < len(members):
        found |= {_named(each.get("cluster", body.get("cluster"))).get("cluster") for each in members}
    # Which of several counts would be a guess.
    return _named(found.pop()) if len(found) == 1 else {}


def _of_query(query: Any) -> Target:
    """Return the cluster in a query, a text or JSON, if exactly one is named."""
    if isinstance(query, dict):
        return _named(query.get("cluster"))
    try:
        found = every(read(query), "cluster") if isinstance(query, str) else []
    except BadRequest:
        return {}
    return {"cluster": found[0]} if len(found) == 1 else {}


def _named(cluster: Any) -> Target:
    return {"cluster": cluster} if isinstance(cluster, str) else {}
