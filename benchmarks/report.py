"""Tables of results, as Markdown that can be read on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from benchmarks.measure import Throughput, Timing

_HEADER = (
    "work",
    "ours p50",
    "p99",
    "incumbent p50",
    "p99",
    "ratio",
    "candidates",
    "body",
    "only sending it",
)
_OURS, _THEIRS, _READY_MADE = "ours", "incumbent", "ready-made"


class LeftOut(Exception):
    """Something cannot be measured here; the text says why."""


class Table:
    """Rows of one data set."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, ...]] = []

    def timing(self, name: str, by_server: Mapping[str, Timing]) -> None:
        """Milliseconds of a query on each server."""
        ours, theirs, bytes_alone = (by_server.get(name) for name in (_OURS, _THEIRS, _READY_MADE))
        if ours is None:
            raise ValueError(f"{name}: ours was not measured")
        counts = f"{ours.candidates}"
        if theirs is not None and theirs.candidates != ours.candidates:
            counts += f" / {theirs.candidates}"
        self._rows.append(
            (
                name,
                f"{ours.percentile(0.5):.2f} ms",
                f"{ours.percentile(0.99):.2f}",
                f"{theirs.percentile(0.5):.1f} ms" if theirs else "-",
                f"{theirs.percentile(0.99):.1f}" if theirs else "-",
                f"{theirs.percentile(0.5) / ours.percentile(0.5):.0f}x" if theirs else "-",
                counts,
                f"{ours.size / 1000:.0f} kB",
                _beside(ours, bytes_alone) if bytes_alone else "-",
            )
        )

    def throughput(self, name: str, by_server: Mapping[str, Throughput]) -> None:
        """Successes per second on each server."""
        ours, theirs, alone = by_server[_OURS], by_server.get(_THEIRS), by_server.get(_READY_MADE)
        failures = "/".join(str(found.failed) for found in by_server.values())
        self._rows.append(
            (
                name,
                f"{ours.per_second:.0f}/s",
                "",
                f"{theirs.per_second:.1f}/s" if theirs else "-",
                "",
                f"{ours.per_second / theirs.per_second:.0f}x" if theirs and theirs.per_second else "-",
                f"failed {failures}",
                "",
                f"{alone.per_second:.0f}/s, ours {ours.per_second / alone.per_second:.2f}" if alone else "-",
            )
        )

    def memory(self, megabytes: Mapping[str, float]) -> None:
        """Peak resident memory of all processes."""
        theirs = megabytes.get(_THEIRS)
        self._rows.append(
            (
                "peak resident memory, master and 2 workers",
                f"{megabytes[_OURS]:.0f} MB",
                "",
                f"{theirs:.0f} MB" if theirs else "-",
                "",
                f"{theirs / megabytes[_OURS]:.1f}x" if theirs else "-",
                "",
                "",
                "",
            )
        )

    def print(self) -> None:
        """Write the table to standard output."""
        print_table(self._title, _HEADER, self._rows)


def _beside(ours: Timing, bytes_alone: Timing) -> str:
    median = bytes_alone.percentile(0.5)
    return f"{median:.2f} ms, ours {ours.percentile(0.5) / median:.1f}x"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a Markdown table that can be read on a terminal, too, and how busy the machine is."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n### {title}, load {os.getloadavg()[0]:.1f}\n")
    for number, line in enumerate(lines):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(flush=True)
