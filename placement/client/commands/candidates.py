"""`placement candidates`: where a request fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from placement.client.arguments import (
    CLOSED,
    IN_AGGREGATES,
    IN_CLUSTER,
    QUERY,
    QueryPairs,
    given,
    limit,
    query_of,
)
from placement.client.cells import amounts, lines
from placement.client.command import ENOUGH, PROSE, Listing
from placement.client.explanations import Explaining, ExplanationBody
from placement.client.provider_names import names_in_trees

if TYPE_CHECKING:
    from placement.client.client import Client

SHOWN = 10
"""How many candidates are shown to people unless they ask for a number."""
COLUMNS = ("#", "root", "provider", "amounts", "groups", "uuid")
# Parameters that only our own search knows, and the beginning of the ones with the suffix of a group.
_OWN = {"order_by", "prefer", "cluster"}
_OWN_OF_GROUPS = "split"
_OF_PLACES = ("member_of", "in_tree", "root_")
LIMIT = limit("candidates at most; limit=N says the same")


class CandidateListing(Listing):
    """A command that lists candidates, a row for each provider of each candidate."""

    left_out_first = ("uuid", "root", "groups")
    kept = ("provider", "amounts", "score")
    only_wide = ("uuid",)
    explained_by: ClassVar[str] = "explain"
    """The command that takes the same words, and says why nothing fits."""

    def rows(
        self, parsed_args: argparse.Namespace, body: Mapping[str, Any], *, limited: bool
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a candidates body; all of them if the caller `limited` their number.

        If there is none, a note says so and the command ends with 1.
        """
        requests, summaries = body["allocation_requests"], body["provider_summaries"]
        if not requests:
            self.note(f"Nothing fits; `placement {self.explained_by}` with the same words says why.")
            self.exit_status = 1
            return []
        if not limited:
            requests = list(self.first(parsed_args, requests, SHOWN))
        roots = {
            summaries[uuid]["root_provider_uuid"] for request in requests for uuid in request["allocations"]
        }
        known = names_in_trees(self.client, roots)
        rows = []
        for number, request in enumerate(requests, start=1):
            for uuid, entry in request["allocations"].items():
                root = summaries[uuid]["root_provider_uuid"]
                groups = [suffix or "(base)" for suffix, used in request["mappings"].items() if uuid in used]
                # A provider that was renamed or deleted since the search has no name any more.
                names = known.get(root, root), known.get(uuid, uuid)
                rows.append((number, *names, amounts(entry["resources"]), lines(groups), uuid))
        return rows


class ListCandidates(CandidateListing):
    """List the candidates of a request, a row for each provider of each candidate.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2. With
    order_by, prefer, cluster, split or split_rule, scores are listed.
    """

    arguments = (QUERY, IN_CLUSTER, IN_AGGREGATES, LIMIT, CLOSED)
    explains_queries = True

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        query = query_of(parsed_args)
        limited = any(key == "limit" for key, _ in query)
        if self.for_people(parsed_args) and not limited:
            query.append(("limit", str(SHOWN + ENOUGH)))
        body = self.client.get("/ext/v1/allocation_candidates", query)
        if not any(key in _OWN or key.startswith(_OWN_OF_GROUPS) for key, _ in query):
            return COLUMNS, self.rows(parsed_args, body, limited=limited)
        scores = [request.get("score") for request in body["allocation_requests"]]
        rows = self.rows(parsed_args, body, limited=limited)
        if all(score is None for score in scores) and self.for_people(parsed_args):
            return COLUMNS, rows
        return (*COLUMNS, "score"), [(*row, scores[row[0] - 1]) for row in rows]


class ExplainRequest(Explaining):
    """Explain where a request fits, or which condition no host meets and which hosts come closest.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2.
    """

    arguments = (QUERY, IN_CLUSTER, IN_AGGREGATES, LIMIT, CLOSED)
    explains_queries = True

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        client = self.client
        query = [pair for pair in query_of(parsed_args) if pair[0] != "explain"]
        if all(key != "limit" for key, _ in query):
            query.append(("limit", str(ENOUGH)))
        asked = [*query, ("explain", "1")]
        explanation = client.get("/ext/v1/allocation_candidates", asked)["explanation"]
        mend = _mend(client, query, explanation) if parsed_args.formatter == PROSE else ()
        return self.result(parsed_args, explanation, list(mend))


def _mend(client: Client, query: QueryPairs, explanation: ExplanationBody) -> Iterator[str]:
    """Yield what splitting an amount over providers of a host would give, if no provider has enough of it."""
    empty = explanation["first_empty"]
    stage = {} if empty is None else explanation["stages"][empty]
    parameters = dict(query)
    if stage.get("kind") != "amount" or _is_split(stage, parameters):
        return
    name, cluster = stage["resource_class"], parameters.get("cluster")
    room = _room(client, name, cluster)
    if room is None:
        return
    most = max((miss["free"] for miss in explanation["nearest"] if "free" in miss), default=0)
    free = {host["name"]: host["classes"][name]["free"] for host in room["hosts"]}
    best = max(free, key=lambda host: free[host], default=None)
    if best is None or free[best] <= most:
        return
    short = free[best] < stage["wanted"]
    instead = "" if short else f"; {_way_to_split(stage)} takes it from several providers of a host"
    yield f"No single provider has more than {most} {name} free{instead}."
    if any(key.startswith(_OF_PLACES) for key in parameters):
        # What is free outside of the place does not help.
        return
    where, total = parameters.get("cluster", "all hosts"), room["total"]["classes"][name]["free"]
    less = f", less than {stage['wanted']}" if short else ""
    yield f"In {where} {total} are free; the most on one host is {free[best]} ({best}){less}."


def _is_split(stage: Mapping[str, Any], parameters: Mapping[str, str]) -> bool:
    return stage["resource_class"] in parameters.get(f"split{stage['group']}", "").split(",")


def _room(client: Client, resource_class: str, cluster: str | None) -> Mapping[str, Any] | None:
    """Return what is free of a class, by host; None for a caller that may not ask for capacity."""
    from placement.client.client import ServiceError

    kinds = {resource_class: {"querystring": f"resources={resource_class}:1"}}
    try:
        question = {"kinds": kinds, "by": ["host"], **given(cluster=cluster)}
        room: Mapping[str, Any] = client.post("/ext/v1/capacity", question)["kinds"][resource_class]
    except ServiceError:
        return None
    return room


def _way_to_split(stage: Mapping[str, Any]) -> str:
    """Return the parameters that split the amount of a stage; without a suffix a group cannot split it."""
    name = stage["resource_class"]
    if stage["group"]:
        return f"split{stage['group']}={name}"
    return f"resources_several={name}:{stage['wanted']} split_several={name}"
