"""`placement candidates`: where a request fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from placement.operations.commands import names
from placement.operations.commands.arguments import QUERY, query_of
from placement.operations.commands.columns import Lines, ResourceAmounts
from placement.operations.commands.display import Listing

COLUMNS = ("#", "Root", "Provider", "Amounts", "Groups", "UUID")
# Parameters that only our own search knows, and how those begin that have the suffix of a group.
_OWN = {"order_by", "prefer", "cluster"}
_OWN_OF_GROUPS = "split"


class ListCandidates(Listing):
    """List the candidates of a request, a row for each provider of each candidate.

    The arguments are the parameters of GET /allocation_candidates, such as resources=VCPU:2 limit=5. With
    order_by, prefer, cluster, split or split_rule they are those of GET /ext/v1/allocation_candidates, and
    scores are listed.
    """

    arguments = (QUERY,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Ask and list."""
        query = query_of(parsed_args.query)
        if not any(key in _OWN or key.startswith(_OWN_OF_GROUPS) for key, _ in query):
            return COLUMNS, rows(self, self.client.get("/allocation_candidates", query))
        body = self.client.get("/ext/v1/allocation_candidates", query)
        scores = [request.get("score") for request in body["allocation_requests"]]
        return (*COLUMNS, "Score"), [(*row, scores[row[0] - 1]) for row in rows(self, body)]


def rows(command: Listing, body: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a candidates body; the command says so if there is nothing."""
    if not body["allocation_requests"]:
        command.note("Nothing fits.")
        return []
    summaries = body["provider_summaries"]
    roots = {
        summaries[uuid]["root_provider_uuid"]
        for request in body["allocation_requests"]
        for uuid in request["allocations"]
    }
    return list(_rows(body, names.in_trees(command.client, roots)))


def _rows(body: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for number, request in enumerate(body["allocation_requests"], start=1):
        for uuid, entry in request["allocations"].items():
            root = body["provider_summaries"][uuid]["root_provider_uuid"]
            groups = [suffix or "(base)" for suffix, used in request["mappings"].items() if uuid in used]
            # A provider that was renamed or deleted since the search has no name any more.
            yield (
                number,
                known.get(root, root),
                known.get(uuid, uuid),
                ResourceAmounts(entry["resources"]),
                Lines(groups),
                uuid,
            )
