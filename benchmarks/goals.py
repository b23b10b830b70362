"""What is asked of the service: work, what is wanted of it, and the part of the benchmarks that measures it.

A document may have a table of the goals; `refreshed` brings in what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Figures = dict[str, str]
"""What a part has measured, by the keys of its goals."""


class Goal(NamedTuple):
    """A row: the part of the benchmarks that measures it, and what it is called there."""

    part: str
    key: str
    work: str
    wanted: str


class Measured(NamedTuple):
    """A figure, the load of the machine before and after that part, and the commit."""

    figure: str
    load: str
    commit: str


NOT_MEASURED = Measured("not measured", "", "")
GOALS = (
    Goal("pods", "known", "PUT a pod of a known shape, 5,000 nodes of 128 CPUs, p50", "3 ms"),
    Goal("pods", "new", "PUT a pod of a new shape, p50", "6 ms"),
    Goal("pods", "preview", "preview of all 5,000 nodes, ten best, p50", "4 ms"),
    Goal("pods", "first", "first pod on a process that knows no node", "0.4 s"),
    Goal("pods", "together", "pods placed per second, 8 clients, 2 workers", "400"),
    Goal("memory", "memory", "5,000 nodes, 50,000 pods: resident memory of a worker", "below 600 MB"),
    Goal(
        "kubernetes",
        "extender",
        "extender at 500 nodes, nodeCacheCapable: filter / prioritize / bind, p50",
        "3 / 3 / 15 ms",
    ),
    Goal(
        "kubernetes",
        "scheduler",
        "pods per second through a real kube-scheduler, 500 nodes, with the extender against without",
        "half of it",
    ),
    Goal(
        "synchronization", "sync", "`placement sync kubernetes`, 1,000 nodes: first list, restart", "4 s, 2 s"
    ),
    Goal(
        "answers", "thousand", "candidates flat 10,000, limit=1000, against the same bytes ready-made", "2.5x"
    ),
    Goal(
        "answers",
        "searches",
        "searches per second, limit=10, flat 10,000, 16 clients, against the same bytes ready-made",
        "half of it",
    ),
    Goal("answers", "one call", "candidates and claim in one call per second, 8 clients", "700"),
    Goal("answers", "bulk", "consumers that claim per second, 1,000 in a call", "5,000"),
    Goal("incumbent", "claims", "PUT /allocations, flat 10,000, 8 clients, against the incumbent", "10x"),
    Goal(
        "ordered", "ordered", "ordered by two strategies / amounts never asked for, against no order", "1.3x"
    ),
    Goal("changed", "changed", "next search after 10,000 of 100,000 providers changed at once", "150 ms"),
)
_HEADER = ("work", "wanted", "measured", "load before, after", "commit", "`python -m benchmarks`")


def scaled(count: int, scale: float) -> int:
    """So many on that scale, at least one."""
    return max(1, round(count * scale))


def table(measured: Mapping[str, Measured]) -> list[str]:
    """The lines of the table in Markdown; what was measured is by the work of the goals."""
    lines = [_line(_HEADER), _line(["---"] * len(_HEADER))]
    for goal in GOALS:
        found = measured.get(goal.work, NOT_MEASURED)
        lines.append(_line([goal.work, goal.wanted, *found, f"`{goal.part}`"]))
    return lines


def refreshed(document: str, measured: Mapping[str, Measured]) -> str:
    """The document with what was measured in its table; other rows say what they said before.

    Raises ValueError if the document has no such table.
    """
    lines = document.splitlines()
    if _line(_HEADER) not in lines:
        raise ValueError(f"there is no table of the goals, which begins with: {_line(_HEADER)}")
    start = end = lines.index(_line(_HEADER))
    former = {}
    while end < len(lines) and lines[end].startswith("|"):
        work, _, *found, _ = (cell.strip() for cell in lines[end].strip("|").split("|"))
        former[work] = Measured(*found)
        end += 1
    return "\n".join([*lines[:start], *table({**former, **measured}), *lines[end:]]) + "\n"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
