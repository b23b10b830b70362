"""Explanations, in sentences or in rows: why nothing fits, or where most is lost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.client.cells import TextCell
from placement.client.command import PROSE, Prose
from placement.client.provider_names import fold
from placement.client.terminal import GREEN, RED, paint

ExplanationBody = Mapping[str, Any]
_LACKS = " lacks "
_COLUMNS = ("#", "condition", "came", "passed", "trees", "nearest")


class Explaining(Prose):
    """A command that explains why a request, flavor or pod fits nowhere, in sentences or in rows."""

    def result(
        self, parsed_args: argparse.Namespace, explanation: ExplanationBody, mend: Sequence[str] = ()
    ) -> tuple[tuple[str, ...], Any]:
        """Return the sentences, or rows if a format is given; the command ends with 1 if nothing fits.

        `mend` are sentences about what would help, which come before the near misses.
        """
        self.exit_status = 0 if explanation["first_empty"] is None else 1
        if parsed_args.formatter == PROSE:
            colour = RED if self.exit_status else GREEN
            verdict = paint(_verdict(explanation), colour, self.app.stdout)
            return ("Explanation",), [(line,) for line in (verdict, "", *_sentences(explanation, mend))]
        rows = []
        for at, stage in enumerate(explanation["stages"]):
            passed = stage["trees"] if stage["providers"] is None else stage["providers"]
            # The near misses are beside the first condition that none meets.
            nearest = explanation["nearest"] if at == explanation["first_empty"] else []
            cell = TextCell(nearest, (sentence for miss in nearest for sentence in miss["sentences"]))
            rows.append((at + 1, stage["condition"], stage["came"], passed, stage["trees"], cell))
        return _COLUMNS, rows


def _sentences(explanation: ExplanationBody, mend: Sequence[str]) -> Iterator[str]:
    """Yield a line for each condition up to the first that none meets, and the near misses."""
    stages, empty = explanation["stages"], explanation["first_empty"]
    for at, stage in enumerate(stages if empty is None else stages[: empty + 1]):
        yield f"{at + 1:2}  {stage['sentence']}"
    near = near_misses(explanation["nearest"])
    yield from (f"      {line}" for line in (*mend, *near, *explanation["hints"]))


def near_misses(nearest: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the sentences of near misses; providers that differ in a number and lack the same are one."""
    alike: dict[str, list[str]] = {}
    for miss in nearest:
        for sentence in miss["sentences"]:
            name, verb, lack = sentence.partition(_LACKS)
            alike.setdefault(verb + lack, []).append(name)
    for lack, names in alike.items():
        for name, _, count in fold((name, {}) for name in names):
            yield f"{name}{' each' if count > 1 else ''}{lack}"


def _verdict(explanation: ExplanationBody) -> str:
    empty = explanation["first_empty"]
    if empty is not None:
        stage = explanation["stages"][empty]
        noun = "node" if stage["counted"] == "nodes" else "host"
        before = f" of {stage['trees_came']}" if empty else ""
        return f"Fits nowhere: condition {empty + 1} leaves no {noun}{before}."
    last = explanation["stages"][-1]
    at_least = "at least " if last.get("at_least") else ""
    noun = "node" if last["counted"] == "nodes" else "host"
    return f"Fits on {at_least}{last['trees']} {noun}{'' if last['trees'] == 1 else 's'}."
