"""`placement candidates`: where a request fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.client import display
from placement.client.display import ENOUGH, PROSE, QUERY, Listing, Pairs, Prose
from placement.client.formats import GREEN, RED, Lines, Misses, ResourceAmounts, painted

SHOWN = 10
"""How many candidates are shown to people unless they ask for a number."""
COLUMNS = ("#", "Root", "Provider", "Amounts", "Groups", "UUID")
# Parameters that only our own search knows, and the beginning of the ones with the suffix of a group.
_OWN = {"order_by", "prefer", "cluster"}
_OWN_OF_GROUPS = "split"


class CandidateListing(Listing):
    """A command that lists candidates, a row for each provider of each candidate."""

    left_out_first = ("UUID", "Root", "Groups")

    def rows(
        self, parsed_args: argparse.Namespace, body: Mapping[str, Any], *, limited: bool
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a candidates body; all of them if the caller `limited` their number.

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
        return list(_rows(requests, summaries, display.in_trees(self.client, roots)))


class ListCandidates(CandidateListing):
    """List the candidates of a request, a row for each provider of each candidate.

    The arguments are the parameters of GET /allocation_candidates, such as resources=VCPU:2 limit=5. With
    order_by, prefer, cluster, split or split_rule, GET /ext/v1/allocation_candidates is asked, and scores are
    listed.
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


# `placement explain`, and how all explanations are shown: why nothing fits, or where most is lost.


_COLUMNS = ("#", "Condition", "Came", "Passed", "Trees", "Nearest")

Explanation = Mapping[str, Any]


class Explaining(Prose):
    """A command that explains why a request, flavor or pod fits nowhere, in sentences or in rows."""

    def told(self, parsed_args: argparse.Namespace, explanation: Explanation) -> tuple[tuple[str, ...], Any]:
        """Return the sentences, or rows if a format is given; the command ends with 1 if nothing fits."""
        self.exit_status = 0 if explanation["first_empty"] is None else 1
        if parsed_args.formatter == PROSE:
            verdict, *others = _told(explanation)
            shown = painted(verdict, RED if self.exit_status else GREEN, self.app.stdout)
            return ("Explanation",), [(line,) for line in (shown, *others)]
        return _COLUMNS, list(_explain_rows(explanation))


class ExplainRequest(Explaining):
    """Explain where a request fits, or which of its conditions no provider meets and which come closest.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2.
    """

    arguments = (QUERY,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Ask and tell."""
        query = _explaining(parsed_args.query)
        return self.told(parsed_args, self.client.get("/ext/v1/allocation_candidates", query)["explanation"])


def _explaining(query: Pairs) -> Pairs:
    given = [(key, value) for key, value in query if key != "explain"]
    limit = [] if any(key == "limit" for key, _ in given) else [("limit", str(ENOUGH))]
    return [*given, *limit, ("explain", "1")]


def _told(explanation: Explanation) -> Iterator[str]:
    """Yield the result, a line for each condition up to the first that none meets, and the near misses."""
    stages, empty = explanation["stages"], explanation["first_empty"]
    yield _verdict(explanation)
    yield ""
    for at, stage in enumerate(stages if empty is None else stages[: empty + 1]):
        yield f"{at + 1:2}  {stage['sentence']}"
    for miss in explanation["nearest"]:
        yield from (f"      {line}" for line in miss["sentences"])


def _verdict(explanation: Explanation) -> str:
    empty = explanation["first_empty"]
    if empty is not None:
        return f"Fits nowhere: nothing meets condition {empty + 1}."
    last = explanation["stages"][-1]
    at_least = "" if explanation["complete"] else "at least "
    where, noun = ("on", "node") if last["counted"] == "nodes" else ("in", "tree")
    return f"Fits {where} {at_least}{last['trees']} {noun}{'' if last['trees'] == 1 else 's'}."


def _explain_rows(explanation: Explanation) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each condition; the near misses are beside the first that none meets."""
    for at, stage in enumerate(explanation["stages"]):
        passed = stage["trees"] if stage["providers"] is None else stage["providers"]
        nearest = explanation["nearest"] if at == explanation["first_empty"] else []
        yield at + 1, stage["condition"], stage["came"], passed, stage["trees"], Misses(nearest)
