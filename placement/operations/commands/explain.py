"""`placement explain`, and how all explanations are told: why nothing fits, or where most is lost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from placement.operations.commands.arguments import QUERY, Pairs
from placement.operations.commands.colour import GREEN, RED, painted
from placement.operations.commands.columns import Misses
from placement.operations.commands.display import ENOUGH, PROSE, Prose

_COLUMNS = ("#", "Condition", "Came", "Passed", "Trees", "Nearest")

Explanation = Mapping[str, Any]


class Explaining(Prose):
    """A command that tells why something fits nowhere, in the same sentences or rows whatever that is."""

    def told(self, parsed_args: argparse.Namespace, explanation: Explanation) -> tuple[tuple[str, ...], Any]:
        """The sentences, or the rows if a format is given; the command ends with 1 if nothing fits."""
        self.exit_status = 0 if explanation["first_empty"] is None else 1
        if parsed_args.formatter == PROSE:
            verdict, *others = _told(explanation)
            shown = painted(verdict, RED if self.exit_status else GREEN, self.app.stdout)
            return ("Explanation",), [(line,) for line in (shown, *others)]
        return _COLUMNS, list(_rows(explanation))


class ExplainRequest(Explaining):
    """Explain where a request fits, or which of its conditions nobody meets and who comes closest.

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
    """The result, then a line for each condition up to the first that none meets, with the near misses."""
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
        return f"Fits nowhere: nobody meets condition {empty + 1}."
    last = explanation["stages"][-1]
    at_least = "" if explanation["complete"] else "at least "
    where, noun = ("on", "node") if last["counted"] == "nodes" else ("in", "tree")
    return f"Fits {where} {at_least}{last['trees']} {noun}{'' if last['trees'] == 1 else 's'}."


def _rows(explanation: Explanation) -> Iterator[tuple[Any, ...]]:
    """A row for each condition; the near misses beside the first that none meets."""
    for at, stage in enumerate(explanation["stages"]):
        passed = stage["trees"] if stage["providers"] is None else stage["providers"]
        nearest = explanation["nearest"] if at == explanation["first_empty"] else []
        yield at + 1, stage["condition"], stage["came"], passed, stage["trees"], Misses(nearest)
