"""`placement candidates`: where a request fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.operations.commands import names
from placement.operations.commands.arguments import QUERY
from placement.operations.commands.columns import Lines, ResourceAmounts
from placement.operations.commands.display import ENOUGH, Listing

SHOWN = 10
"""So many candidates are shown to people who ask for no number."""
COLUMNS = ("#", "Root", "Provider", "Amounts", "Groups", "UUID")
# Parameters that only our own search knows, and how those begin that have the suffix of a group.
_OWN = {"order_by", "prefer", "cluster"}
_OWN_OF_GROUPS = "split"


class CandidateListing(Listing):
    """A command that lists candidates, a row for each provider of each candidate."""

    left_out_first = ("UUID", "Root", "Groups")

    def rows(
        self, parsed_args: argparse.Namespace, body: Mapping[str, Any], *, limited: bool
    ) -> list[tuple[Any, ...]]:
        """The rows of a candidates body, all of them if their number was `limited` by the caller.

        If there is none, a note says so and the command ends with 1.
        """
        requests, summaries = body["allocation_requests"], body["provider_summaries"]
        if not requests:
            self.note("Nothing fits.")
            self.exit_status = 1
            return []
        if not limited:
            requests = list(self.first(parsed_args, requests, SHOWN))
        roots = {
            summaries[uuid]["root_provider_uuid"] for request in requests for uuid in request["allocations"]
        }
        return list(_rows(requests, summaries, names.in_trees(self.client, roots)))


class ListCandidates(CandidateListing):
    """List the candidates of a request, a row for each provider of each candidate.

    The arguments are the parameters of GET /allocation_candidates, such as resources=VCPU:2 limit=5. With
    order_by, prefer, cluster, split or split_rule they are those of GET /ext/v1/allocation_candidates, and
    scores are listed.
    """

    arguments = (QUERY,)
    says_how_many = "limit=N"

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Ask and list."""
        query = list(parsed_args.query)
        limited = any(key == "limit" for key, _ in query)
        if self.for_people(parsed_args) and not limited:
            query.append(("limit", str(SHOWN + ENOUGH)))
        if not any(key in _OWN or key.startswith(_OWN_OF_GROUPS) for key, _ in query):
            body = self.client.get("/allocation_candidates", query)
            return COLUMNS, self.rows(parsed_args, body, limited=limited)
        body = self.client.get("/ext/v1/allocation_candidates", query)
        scores = [request.get("score") for request in body["allocation_requests"]]
        rows = self.rows(parsed_args, body, limited=limited)
        return (*COLUMNS, "Score"), [(*row, scores[row[0] - 1]) for row in rows]


def _rows(
    requests: Sequence[Mapping[str, Any]], summaries: Mapping[str, Any], known: Mapping[str, str]
) -> Iterator[tuple[Any, ...]]:
    for number, request in enumerate(requests, start=1):
        for uuid, entry in request["allocations"].items():
            root = summaries[uuid]["root_provider_uuid"]
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
