"""Questions how many more there is room for, from a query string or a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from placement.api import candidate_query, json_query, split_parameters
from placement.api.microversions import NEWEST
from placement.api.queries import Parameters, read, single
from placement.api.schemas.base import load
from placement.api.schemas.capacity import CapacityBody
from placement.api.worlds import world_of
from placement.domain.errors import BadRequest
from placement.domain.groups import CandidateQuery
from placement.services.manifests import pod_manifest
from placement.services.planning.planning import BY, BY_CLUSTER, Kind, Question

ONLY = "query"
"""The name of the only kind of a query string."""
_OWN = ("by", "cluster")
_KINDS = {"query", "querystring", "flavor", "pod"}


def of_parameters(parameters: Parameters) -> Question:
    """One query, everywhere or in a cluster. Raises BadRequest naming the parameter."""
    query = _query([pair for pair in parameters if pair[0] not in _OWN])
    given = single(parameters, "by")
    by = [BY_CLUSTER] if given is None else given.split(",")
    unknown = sorted(set(by) - set(BY))
    if unknown:
        raise BadRequest(f"by: must be some of {', '.join(BY)}, by commas, not {', '.join(unknown)!r}")
    return Question({ONLY: Kind(query=query)}, single(parameters, "cluster"), by, place=lambda _: "")


def _query(parameters: Parameters) -> CandidateQuery:
    rest, splits = split_parameters.taken_out(parameters)
    if any(key == "limit" for key, _ in rest):
        raise BadRequest("limit: makes no sense where everything is counted")
    query = candidate_query.parse(rest, NEWEST)
    return split_parameters.with_splits(query, splits) if splits else query


def of_body(body: Mapping[str, Any]) -> Question:
    """Several kinds. Raises BadRequest naming the place in the body, which keeps to its schema."""
    kinds = {}
    for name, given in body["kinds"].items():
        kinds[name] = kind_of(given, f"kinds[{name!r}]")
    by = tuple(body.get("by", (BY_CLUSTER,)))
    return Question(kinds, body.get("cluster"), by, world_of(body.get("world", {})))


def kind_of(given: Mapping[str, Any], place: str) -> Kind:
    """What is asked for at a place in a body that keeps to its schema. Raises BadRequest naming the place."""
    if len(given.keys() & _KINDS) != 1:
        raise BadRequest(f"{place}: must have one of query, querystring, flavor and pod")
    beside = sorted(given.keys() - _KINDS)
    if beside and "flavor" not in given:
        raise BadRequest(f"{place}.{beside[0]}: is for flavors")
    try:
        return _kind(given)
    except BadRequest as error:
        raise BadRequest(f"{place}.{error}") from None


def of_setting(text: str) -> Question:
    """What a line of `[capacity] watch` asks for: NAME QUERY, or NAME and a kind as JSON with its `cluster`.

    Raises BadRequest.
    """
    name, _, rest = text.strip().partition(" ")
    kind: Any = {"querystring": rest.strip()}
    cluster = None
    if rest.lstrip().startswith("{"):
        try:
            kind = orjson.loads(rest)
        except ValueError as error:
            raise BadRequest(f"{name}: is no JSON: {error}") from None
        cluster = kind.pop("cluster", None)
    body = {"kinds": {name: kind}} | ({} if cluster is None else {"cluster": cluster})
    return of_body(load(CapacityBody, NEWEST, body, ""))


def _kind(given: Mapping[str, Any]) -> Kind:
    if "pod" in given:
        try:
            return Kind(pod=pod_manifest([given["pod"]]))
        except BadRequest as error:
            raise BadRequest(f"pod: {error}") from None
    if "querystring" in given:
        try:
            return Kind(query=_query(read(given["querystring"])))
        except BadRequest as error:
            raise BadRequest(f"querystring: {error}") from None
    if "flavor" in given:
        return Kind(flavor=given)
    try:
        return Kind(query=json_query.parse_query(given["query"]))
    except BadRequest as error:
        raise BadRequest(f"query.{error}") from None
