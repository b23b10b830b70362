"""Online data migrations: they bring old rows up to date while the service runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from placement.services.transactions import attempt
from placement.storage.database import Database
from placement.storage.statements import online_migrations


@dataclass(frozen=True, slots=True)
class Labels:
    """The project and the user that consumers get which have none."""

    project_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Healed:
    """What one migration found and completed."""

    name: str
    found: int
    completed: int


class Healing:
    """Online data migrations: each heals rows in batches and finds nothing once all are whole."""

    def __init__(self, database: Database, labels: Labels) -> None:
        self._database = database
        self._labels = labels

    def run(self, most: int) -> list[Healed]:
        """One batch of `most` rows at most, over all migrations together. Raises Unavailable."""
        healed: list[Healed] = []
        for name, count, heal in self._migrations():
            left = most - sum(done.completed for done in healed)
            with self._database.read() as connection:
                found = min(count(connection), left)
            completed = attempt(self._database, partial(heal, most=found)) if found else 0
            healed.append(Healed(name, found, completed))
        return healed

    def _migrations(self) -> list[tuple[str, Callable[..., int], Callable[..., int]]]:
        labels = self._labels
        return [
            ("set_root_provider_ids", online_migrations.count_rootless, online_migrations.set_roots),
            (
                "create_incomplete_consumers",
                online_migrations.count_orphans,
                partial(online_migrations.create_consumers, project=labels.project_id, user=labels.user_id),
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
