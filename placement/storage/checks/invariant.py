"""An invariant: a query for the rows that break it, a sentence about each, perhaps a way to mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.storage.database import Executor, Transaction

_MENDED_AT_ONCE = 1000


class Violation(NamedTuple):
    """One row, or group of rows, that breaks an invariant: which one, said of whom, and what would mend it.

    A warning may come about in ordinary use. `remedy` is empty where a person has to decide.
    """

    invariant: str
    is_warning: bool
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """What mends the rows of an invariant's query, and the sentence that says so of one of them.

    `mend` locks what it changes as other writers do, and looks again what is wrong before it changes it.
    """

    sentence: str
    mend: Callable[[Transaction, Sequence[Any]], None]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A name, a query with one row for each violation, and a sentence that takes its columns by name."""

    name: str
    query: sa.Select[Any]
    sentence: str
    is_warning: bool = False
    repair: Repair | None = None

    def violations(self, connection: Executor) -> Iterator[Violation]:
        """Every violation, in the order of the query."""
        for row in connection.execute(self.query):
            said = row._asdict()
            remedy = self.repair.sentence.format_map(said) if self.repair else ""
            yield Violation(self.name, self.is_warning, self.sentence.format_map(said), remedy)

    def mend(self, transaction: Transaction) -> int:
        """Mend what can be mended; how many rows were looked at for that."""
        if self.repair is None:
            return 0
        rows = transaction.execute(self.query).all()
        for start in range(0, len(rows), _MENDED_AT_ONCE):
            self.repair.mend(transaction, rows[start : start + _MENDED_AT_ONCE])
        return len(rows)
