"""Claims of consumers that must be new, where the database can decide and store them in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placement.storage.database import Database, utcnow
from placement.storage.statements.consumers import Labelling


class Rise(NamedTuple):
    """What the use of one inventory rises by: see storage.fit_rule."""

    provider_uuid: str
    class_name: str
    delta: int
    least: int
    most: int
    divisor: int


class Amount(NamedTuple):
    """What one consumer gets from one inventory."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    amount: int


def claim_at_once(
    database: Database, consumers: Sequence[Labelling], rises: Sequence[Rise], amounts: Sequence[Amount]
) -> bool:
    """Create the consumers with their allocations; False, and nothing done, if any of it cannot be.

    So it is, too, where the database has no such statement. None of the sequences may be empty. Raises
    TryAgain, OutcomeUnknown, Unavailable.
    """
    columns = [list(column) for rows in (consumers, rises, amounts) for column in zip(*rows, strict=True)]
    return database.backend.claim_at_once(database.single_write, (utcnow(), *columns))
