"""`placement candidates`: where a request fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from placement.client import display
from placement.client.commands.aggregate import resolved
from placement.client.display import (
    ENOUGH,
    IN_CLUSTER,
    PROSE,
    QUERY,
    Listing,
    Pairs,
    Prose,
    limit,
    query_of,
)
from placement.client.formats import GREEN, RED, TextCell, amounts, lines, painted

if TYPE_CHECKING:
    from placement.client.client import Client

SHOWN = 10
"""How many candidates are shown to people unless they ask for a number."""
COLUMNS = ("#", "root", "provider", "amounts", "groups", "uuid")
# Parameters that only our own search knows, and the beginning of the ones with the suffix of a group.
_OWN = {"order_by", "prefer", "cluster"}
_OWN_OF_GROUPS = "split"
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
        known = display.in_trees(self.client, roots)
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

    The arguments are the parameters of GET /allocation_candidates, such as resources=VCPU:2. With order_by,
    prefer, cluster, split or split_rule, GET /ext/v1/allocation_candidates is asked, and scores are listed.
    """

    arguments = (QUERY, IN_CLUSTER, LIMIT)
    explains_queries = True

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        query = resolved(self.client, query_of(parsed_args))
        limited = any(key == "limit" for key, _ in query)
        if self.for_people(parsed_args) and not limited:
            query.append(("limit", str(SHOWN + ENOUGH)))
        if not any(key in _OWN or key.startswith(_OWN_OF_GROUPS) for key, _ in query):
            body = self.client.get("/allocation_candidates", query)
            return COLUMNS, self.rows(parsed_args, body, limited=limited)
        body = self.client.get("/ext/v1/allocation_candidates", query)
        scores = [request.get("score") for request in body["allocation_requests"]]
        rows = self.rows(parsed_args, body, limited=limited)
        if all(score is None for score in scores) and self.for_people(parsed_args):
            return COLUMNS, rows
        return (*COLUMNS, "score"), [(*row, scores[row[0] - 1]) for row in rows]


# `placement explain`, and how all explanations are shown: why nothing fits, or where most is lost.


_LACKS = " lacks "
_COLUMNS = ("#", "condition", "came", "passed", "trees", "nearest")

Explanation = Mapping[str, Any]


class Explaining(Prose):
    """A command that explains why a request, flavor or pod fits nowhere, in sentences or in rows."""

    def result(
        self, parsed_args: argparse.Namespace, explanation: Explanation, mend: Sequence[str] = ()
    ) -> tuple[tuple[str, ...], Any]:
        """Return the sentences, or rows if a format is given; the command ends with 1 if nothing fits.

        `mend` are sentences about what would help, which come before the near misses.
        """
        self.exit_status = 0 if explanation["first_empty"] is None else 1
        if parsed_args.formatter == PROSE:
            colour = RED if self.exit_status else GREEN
            verdict = painted(_verdict(explanation), colour, self.app.stdout)
            return ("Explanation",), [(line,) for line in (verdict, "", *_sentences(explanation, mend))]
        rows = []
        for at, stage in enumerate(explanation["stages"]):
            passed = stage["trees"] if stage["providers"] is None else stage["providers"]
            # The near misses are beside the first condition that none meets.
            nearest = explanation["nearest"] if at == explanation["first_empty"] else []
            misses = TextCell(nearest, (sentence for miss in nearest for sentence in miss["sentences"]))
            rows.append((at + 1, stage["condition"], stage["came"], passed, stage["trees"], misses))
        return _COLUMNS, rows


class ExplainRequest(Explaining):
    """Explain where a request fits, or which of its conditions no provider meets and which come closest.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2.
    """

    arguments = (QUERY, IN_CLUSTER, LIMIT)
    explains_queries = True

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        client = self.client
        query = [pair for pair in resolved(client, query_of(parsed_args)) if pair[0] != "explain"]
        if all(key != "limit" for key, _ in query):
            query.append(("limit", str(ENOUGH)))
        asked = [*query, ("explain", "1")]
        explanation = client.get("/ext/v1/allocation_candidates", asked)["explanation"]
        mend = _mend(client, query, explanation) if parsed_args.formatter == PROSE else ()
        return self.result(parsed_args, explanation, list(mend))


def _mend(client: Client, query: Pairs, explanation: Explanation) -> Iterator[str]:
    """Yield what splitting an amount over providers of a host would give, if no provider has enough of it."""
    from placement.client.client import ServiceError

    empty = explanation["first_empty"]
    stage = {} if empty is None else explanation["stages"][empty]
    if stage.get("kind") != "amount":
        return
    given, name, split = dict(query), stage["resource_class"], f"split{stage['group']}"
    most = max((miss["free"] for miss in explanation["nearest"] if "free" in miss), default=0)
    if name in given.get(split, "").split(","):
        return
    cluster = {"cluster": given["cluster"]} if "cluster" in given else {}
    question = {"kinds": {name: {"querystring": f"resources={name}:1"}}, "by": ["host"], **cluster}
    try:
        room = client.post("/ext/v1/capacity", question)["kinds"][name]
    except ServiceError:
        # Not every caller may ask for capacity.
        return
    free = {host["name"]: host["classes"][name]["free"] for host in room["hosts"]}
    best = max(free, key=lambda host: free[host], default=None)
    if best is None or free[best] <= most:
        return
    short = free[best] < stage["wanted"]
    # Without a suffix a group cannot split amounts.
    way = (
        f"{split}={name}"
        if stage["group"]
        else f"resources_several={name}:{stage['wanted']} split_several={name}"
    )
    instead = "" if short else f"; {way} takes it from several of a host"
    yield f"A provider of {name} has {most} free at most{instead}."
    where, total = given.get("cluster", "all hosts"), room["total"]["classes"][name]["free"]
    less = f", less than {stage['wanted']}" if short else ""
    yield f"In {where} {total} are free, on one host {free[best]} at most ({best}){less}."


def _sentences(explanation: Explanation, mend: Sequence[str]) -> Iterator[str]:
    """Yield a line for each condition up to the first that none meets, and the near misses."""
    stages, empty = explanation["stages"], explanation["first_empty"]
    for at, stage in enumerate(stages if empty is None else stages[: empty + 1]):
        yield f"{at + 1:2}  {stage['sentence']}"
    yield from (f"      {line}" for line in (*mend, *near_misses(explanation["nearest"])))


def near_misses(nearest: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the sentences of near misses; providers that differ in a number and lack the same are one."""
    alike: dict[str, list[str]] = {}
    for miss in nearest:
        for sentence in miss["sentences"]:
            name, verb, lack = sentence.partition(_LACKS)
            alike.setdefault(verb + lack, []).append(name)
    for lack, names in alike.items():
        for name, _, count in display.folded((name, {}) for name in names):
            yield f"{name}{' each' if count > 1 else ''}{lack}"


def _verdict(explanation: Explanation) -> str:
    empty = explanation["first_empty"]
    if empty is not None:
        return f"Fits nowhere: nothing meets condition {empty + 1}."
    last = explanation["stages"][-1]
    at_least = "" if explanation["complete"] else "at least "
    where, noun = ("on", "node") if last["counted"] == "nodes" else ("in", "tree")
    return f"Fits {where} {at_least}{last['trees']} {noun}{'' if last['trees'] == 1 else 's'}."
