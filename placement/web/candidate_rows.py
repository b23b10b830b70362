"""Candidates as the rows of a table, with all texts escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from placement.web import units
from placement.web.templating import escaped


def candidate_rows(document: Mapping[str, Any]) -> list[Sequence[str]]:
    """The rows of an answer, the best first: host uuid and name, what it gives, score, its parts, claim.

    Of a pod: uuid and name of the node, score, CPUs, remarks. What several lines say is apart by line ends.
    """
    if document.get("kind") == "pod":
        return [*escaped(_node(each) for each in document["nodes"])]
    return [*escaped(_candidate(each) for each in document.get("candidates", ()))]


def _node(place: Mapping[str, Any]) -> Sequence[str]:
    return (
        place["resource_provider"],
        place["name"],
        str(place["score"]),
        place["cpuset"] or "shared",
        "; ".join(place["remarks"]),
    )


def _candidate(each: Mapping[str, Any]) -> Sequence[str]:
    return (
        each["host"]["uuid"],
        each["host"]["name"],
        "\n".join(_gives(each["allocations"])),
        "–" if each["score"] is None else str(each["score"]),
        "\n".join(_made_of(each["score_parts"])) or "–",
        _claim(each["allocations"]),
    )


def _gives(allocations: Mapping[str, Any]) -> Iterator[str]:
    for given in allocations.values():
        amounts = [
            f"{units.amount(amount, name)} {units.plain(name)}" for name, amount in given["resources"].items()
        ]
        yield f"{given['name']}: {', '.join(amounts)}"


def _made_of(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if "type" not in part:
            yield f"prefers {part['prefer']}: {'met' if part['met'] else 'not met'}"
            continue
        weight = "" if part["weight"] == 1 else f" × {part['weight']}"
        classes = [
            f"{units.plain(name)} {figures.get('score', figures.get('skipped'))}"
            for name, figures in part["resources"].items()
        ]
        yield f"{part['type']} {part['score']}/{part['max_score']}{weight}: {', '.join(classes)}"


def _claim(allocations: Mapping[str, Any]) -> str:
    """What a form says of a candidate to have it claimed."""
    return orjson.dumps({uuid: given["resources"] for uuid, given in allocations.items()}).decode()
