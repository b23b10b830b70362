"""Reading allocations and usages: by consumer, by provider, by project.

Source: placement-api.md, "Allocations of a consumer", "Provider usages", "Usages by project".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from placement.domain.allocation import UNKNOWN_CONSUMER_TYPE
from placement.domain.errors import NotFound
from placement.domain.portions import portions
from placement.storage.database import Database, Executor
from placement.storage.statements import allocations, consumers
from placement.storage.statements.allocations import ConsumerHolding, ProviderHolding
from placement.storage.statements.consumers import Consumer

ALL_TYPES = "all"
_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class TypeUse:
    """What the consumers of one type use: class -> amount, and how many they are."""

    resources: dict[str, int]
    consumers: int


@dataclass(frozen=True, slots=True)
class ConsumerHoldings:
    """A consumer and what it holds: provider uuid -> class -> amount."""

    consumer: Consumer
    is_pod: bool
    resources: dict[str, dict[str, int]]


def held_by(connection: Executor, uuids: Collection[str]) -> dict[str, dict[str, dict[str, int]]]:
    """What each of the consumers holds that hold anything: provider uuid -> class -> amount."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for some in portions(uuids, _AT_ONCE):
        for uuid, held in allocations.named(connection, some):
            found.setdefault(uuid, {}).setdefault(held.provider_uuid, {})[held.class_name] = held.amount
    return found


class Holdings:
    """Reads allocations and usages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_consumer(self, uuid: str) -> tuple[Consumer, list[ConsumerHolding]] | None:
        """A consumer and all it holds; None if it holds nothing."""
        with self._database.read() as connection:
            held = allocations.of_consumer(connection, uuid)
            consumer = consumers.find(connection, uuid) if held else None
        return (consumer, held) if consumer is not None else None

    def of_consumers(self, uuids: Collection[str]) -> dict[str, ConsumerHoldings]:
        """Those of the consumers that exist, by uuid, with what they hold, be it nothing."""
        found: dict[str, ConsumerHoldings] = {}
        with self._database.read() as connection:
            for some in portions(uuids, _AT_ONCE):
                known = consumers.find_all(connection, some)
                found |= {each.uuid: ConsumerHoldings(each, is_pod, {}) for each, is_pod in known}
                for uuid, resources in held_by(connection, [each.uuid for each, _ in known]).items():
                    found[uuid].resources.update(resources)
        return found

    def on_provider(self, uuid: str) -> tuple[int, list[ProviderHolding]]:
        """A provider's generation and all allocations on it. Raises NotFound."""
        with self._database.read() as connection:
            found = allocations.on_provider(connection, uuid)
        if found is None:
            raise NotFound(
                f"Resource provider '{uuid}' not found: No resource provider with uuid {uuid} found"
            )
        return found

    def used_by_project(self, project_id: str, user_id: str | None) -> dict[str, int]:
        """The sum of what a project (and user) uses, by class."""
        total: dict[str, int] = defaultdict(int)
        with self._database.read() as connection:
            for use in allocations.used_by_project(connection, project_id, user_id):
                total[use.class_name] += use.amount
        return dict(total)

    def used_by_type(
        self, project_id: str, user_id: str | None, consumer_type: str | None
    ) -> dict[str, TypeUse]:
        """What a project (and user) uses, by consumer type.

        `consumer_type` narrows to one type, "unknown" to consumers without one, "all" sums over all types.
        """
        with self._database.read() as connection:
            uses = allocations.used_by_project(connection, project_id, user_id)
            counts = allocations.consumers_of_project(connection, project_id, user_id)
        found: dict[str, TypeUse] = {}
        for type_name, count in counts.items():
            shown_type = UNKNOWN_CONSUMER_TYPE if type_name is None else type_name
            if consumer_type == ALL_TYPES:
                shown_type = ALL_TYPES
            elif consumer_type is not None and shown_type != consumer_type:
                continue
            entry = found.get(shown_type, TypeUse({}, 0))
            resources = dict(entry.resources)
            for use in uses:
                if use.consumer_type == type_name:
                    resources[use.class_name] = resources.get(use.class_name, 0) + use.amount
            found[shown_type] = TypeUse(resources, entry.consumers + count)
        return found
