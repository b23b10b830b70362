"""What must hold in a database: a query with a row for each violation, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.storage.database import Transaction


@dataclass(frozen=True, slots=True)
class Invariant:
    """A name, a query with one row for each violation, and a sentence that takes its columns by name.

    `mend` mends rows of the query, as the sentence `remedy` says: it locks what it changes as other writers
    do, and checks again what is wrong before it changes it.
    """

    name: str
    query: sa.Select[Any] | sa.TextClause
    sentence: str
    is_warning: bool = False
    remedy: str = ""
    mend: Callable[[Transaction, Sequence[Any]], None] | None = None


class InvariantViolation(NamedTuple):
    """A row or group of rows that breaks an invariant: which one, a sentence on it, and what would mend it.

    A warning may come about in ordinary use. `remedy` is empty where an operator has to decide.
    """

    invariant: str
    is_warning: bool
    sentence: str
    remedy: str = ""
