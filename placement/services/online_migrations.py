"""Completing rows of older versions while the service runs, and telling whether there are any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from placement.domain.audit import Action, Kind
from placement.services.transactions import attempt
from placement.storage.database import Database, Transaction
from placement.storage.statements import online_migrations


@dataclass(frozen=True, slots=True)
class Owner:
    """The project and the user that consumers get which have none."""

    project_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What one migration found in one go, and completed."""

    name: str
    found: int
    completed: int


class OnlineMigrations:
    """Each of them completes rows in batches, and finds nothing once all are complete."""

    def __init__(self, database: Database, owner: Owner) -> None:
        self._database = database
        self._owner = owner

    def run(self, most: int) -> list[Batch]:
        """One batch of `most` rows at most, over all migrations together. Raises Unavailable."""
        batches: list[Batch] = []
        for name, count, complete in self._migrations():
            left = most - sum(batch.completed for batch in batches)
            with self._database.read() as connection:
                found = min(count(connection), left)
            completed = self._completed(name, partial(complete, most=found)) if found else 0
            batches.append(Batch(name, found, completed))
        return batches

    def _completed(self, name: str, complete: Callable[[Transaction], int]) -> int:
        """How many rows a batch completed; one record tells of all of them."""

        def work(transaction: Transaction) -> int:
            completed = complete(transaction)
            if completed:
                transaction.record(Action.UPDATE, Kind.DATABASE, name, after={"completed": completed})
            return completed

        return attempt(self._database, work)

    def _migrations(self) -> list[tuple[str, Callable[..., int], Callable[..., int]]]:
        owner = self._owner
        return [
            ("set_root_provider_ids", online_migrations.count_rootless, online_migrations.set_roots),
            (
                "create_incomplete_consumers",
                online_migrations.count_orphans,
                partial(online_migrations.create_consumers, project=owner.project_id, user=owner.user_id),
            ),
        ]

    def rootless_providers(self) -> int:
        """How many providers lack the id of their root."""
        with self._database.read() as connection:
            return online_migrations.count_rootless(connection)

    def incomplete_consumers(self) -> int:
        """How many consumers have allocations but no record."""
        with self._database.read() as connection:
            return online_migrations.count_orphans(connection)
