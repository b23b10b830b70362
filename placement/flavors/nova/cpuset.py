"""CPU set text such as `0-3,^2,7`, and the set of guest CPU ids that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Range = tuple[int, int]
_PIECE = re.compile(r"(?P<out>\^?)\s*(?P<first>[0-9]{1,18})(?:\s*-\s*(?P<last>[0-9]{1,18}))?")


class CpusetTextError(ValueError):
    """The text is no CPU set; the message quotes the piece at fault."""


@dataclass(frozen=True, slots=True)
class CpuSpec:
    """CPU ids as (first, last) pairs: ascending, disjoint and never adjacent.

    A text of ten characters can name a billion CPUs, so a set is compared with the CPUs of the guest before
    anything is expanded.
    """

    ranges: tuple[Range, ...] = ()

    @property
    def highest(self) -> int:
        """Return the highest CPU id, or -1 for the empty set."""
        return self.ranges[-1][1] if self.ranges else -1

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    def __and__(self, other_cpus: CpuSpec) -> CpuSpec:
        return self.without(self.without(other_cpus))

    def without(self, other_cpus: CpuSpec) -> CpuSpec:
        """Return the CPU ids of this set that are not in the other one."""
        return CpuSpec(tuple(_difference(self.ranges, other_cpus.ranges)))


def parse_cpuset(text: str) -> CpuSpec:
    """Return all CPUs the text takes minus all it takes out with `^`, whatever the order of its pieces.

    Raises CpusetTextError. Source: nova-flavors.md, "CPU set text".
    """
    taken: list[Range] = []
    out: list[Range] = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PIECE.fullmatch(piece)
        if match is None:
            raise CpusetTextError(f"{piece[:40]!r} is neither a CPU number nor a range of them")
        first = int(match["first"])
        last = int(match["last"] or first)
        if last < first:
            raise CpusetTextError(f"{piece[:40]!r} goes down")
        (out if match["out"] else taken).append((first, last))
    return CpuSpec(tuple(_merged(taken))).without(CpuSpec(tuple(_merged(out))))


def _merged(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _difference(taken: Iterable[Range], holes: tuple[Range, ...]) -> Iterator[Range]:
    start = 0
    for first, last in taken:
        while start < len(holes) and holes[start][1] < first:
            start += 1
        # The last hole may reach into the next range, so `start` stays on it.
        hole = start
        while hole < len(holes) and holes[hole][0] <= last:
            if first < holes[hole][0]:
                yield first, holes[hole][0] - 1
            first = max(first, holes[hole][1] + 1)
            hole += 1
        start = max(start, hole - 1)
        if first <= last:
            yield first, last
