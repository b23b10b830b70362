"""A move of rows from one database to the other, and the report of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from placement.engine.domain.portions import portions
from placement.migrate.endpoint import AT_ONCE, Endpoint

ProgressCallback = Callable[[str, int, int], None]
"""A function that takes a kind of rows, how many are done, and of how many."""


@dataclass
class Changes:
    """The numbers of rows of a table that were added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


@dataclass
class MigrationReport:
    """The result of moving: changes by kind of rows, and the numbers of rows that were compared.

    `respelled`: how many uuids of each kind were brought into canonical spelling. `merged_aggregates` are two
    spellings of one uuid. `idle_consumers` were left out as they hold nothing, `skipped_rows` as they refer
    to nothing.
    """

    changes: dict[str, Changes] = field(default_factory=dict)
    completed_consumers: int = 0
    idle_consumers: int = 0
    skipped_rows: int = 0
    respelled: dict[str, int] = field(default_factory=dict)
    merged_aggregates: int = 0
    compared: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str) -> Changes:
        """Return the changes of one kind of rows."""
        return self.changes.setdefault(kind, Changes())


@dataclass(frozen=True)
class Migration:
    """A move of rows from one database to the other, and its report."""

    source: Endpoint
    target: Endpoint
    progress: ProgressCallback
    report: MigrationReport = field(default_factory=MigrationReport)


def with_progress(
    progress: ProgressCallback, what: str, rows: Sequence[Any], size: int = AT_ONCE
) -> Iterator[Any]:
    """Yield the rows in lists of at most `size`, and report the progress."""
    done = 0
    for some in portions(rows, size):
        yield some
        done += len(some)
        progress(what, done, len(rows))


def rounded(ratio: float, digits: int) -> float:
    """Return an allocation ratio as a database with that many digits keeps it."""
    return ratio if digits >= 17 or not math.isfinite(ratio) else float(f"{ratio:.{digits}g}")
