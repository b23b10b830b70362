"""Reading allocations and usages: by consumer, by provider, by project.

Source: placement-api.md, "Allocations of a consumer", "Provider usages", "Usages by project".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

from placement.allocations.statements import consumers, lists
from placement.allocations.statements.consumers import Consumer
from placement.allocations.statements.lists import ConsumerSum, ListedAllocation, NamedHolding
from placement.engine.domain.claims import UNKNOWN_CONSUMER_TYPE, AllocationFilter
from placement.engine.domain.errors import BadRequest, NameKind, NamesOf, NotFound, parameter
from placement.engine.domain.inventories import Inventory
from placement.engine.domain.portions import portions
from placement.providers import view as providers_view
from placement.providers.statements import contents, names, providers
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import ListedProvider
from placement.storage import tables
from placement.storage.database import Database, Executor

ALL_TYPES = "all"
_AT_ONCE = 5000


TypeUse = tuple[dict[str, int], int]
"""The use of the consumers of one type: class -> amount, and the number of consumers."""


@dataclass(frozen=True, slots=True)
class ConsumerHoldings:
    """A consumer and what it holds: provider uuid -> class -> amount."""

    consumer: Consumer
    is_pod: bool
    resources: dict[str, dict[str, int]]


class NamedHoldings(NamedTuple):
    """A consumer and all its allocations by names."""

    consumer: Consumer
    holdings: list[NamedHolding]


def resources_of(connection: Executor, uuids: Collection[str]) -> dict[str, dict[str, dict[str, int]]]:
    """Return the holdings of each consumer that has some: provider uuid -> class -> amount."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for some in portions(uuids, _AT_ONCE):
        for uuid, held in lists.named(connection, some):
            found.setdefault(uuid, {}).setdefault(held.uuid, {})[held.class_name] = held.amount
    return found


class Holdings:
    """A use case that reads allocations and usages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_consumer(self, uuid: str) -> NamedHoldings | None:
        """Return a consumer and its holdings; None if it has none."""
        with self._database.read() as connection:
            held = [row for _, row in lists.named(connection, [uuid])]
            consumer = consumers.find(connection, uuid) if held else None
        return None if consumer is None else NamedHoldings(consumer, held)

    def of_consumers(self, uuids: Collection[str]) -> dict[str, ConsumerHoldings]:
        """Return the consumers that exist, by uuid, with their holdings, if any."""
        found: dict[str, ConsumerHoldings] = {}
        with self._database.read() as connection:
            for some in portions(uuids, _AT_ONCE):
                known = consumers.find_all(connection, some)
                found |= {each.uuid: ConsumerHoldings(each, is_pod, {}) for each, is_pod in known}
                for uuid, resources in resources_of(connection, [each.uuid for each, _ in known]).items():
                    found[uuid].resources.update(resources)
        return found

    def on_provider(self, uuid: str) -> tuple[int, list[NamedHolding]]:
        """Return a provider's generation and all allocations on it. Raises NotFound."""
        with self._database.read() as connection:
            found = lists.on_provider(connection, uuid)
        if found is None:
            raise NotFound(
                f"Resource provider '{uuid}' not found: No resource provider with uuid {uuid} found"
            )
        return found

    def used_by_project(self, project_id: str, user_id: str | None) -> dict[str, int]:
        """Return the usage of a project (and user), summed by class."""
        total: Counter[str] = Counter()
        with self._database.read() as connection:
            for use in lists.used_by_project(connection, project_id, user_id):
                total[use.class_name] += use.amount
        return dict(total)

    def used_by_type(
        self, project_id: str, user_id: str | None, consumer_type: str | None
    ) -> dict[str, TypeUse]:
        """Return the usage of a project (and user), by consumer type.

        `consumer_type` narrows to one type, "unknown" to consumers without type; "all" sums over all types.
        """
        with self._database.read() as connection:
            uses = lists.used_by_project(connection, project_id, user_id)
            counts = lists.consumers_of_project(connection, project_id, user_id)
        found: dict[str, TypeUse] = {}
        for type_name, count in counts.items():
            shown_type = UNKNOWN_CONSUMER_TYPE if type_name is None else type_name
            if consumer_type not in (None, ALL_TYPES, shown_type):
                continue
            shown_type = ALL_TYPES if consumer_type == ALL_TYPES else shown_type
            resources, consumers_before = found.get(shown_type, ({}, 0))
            for use in uses:
                if use.consumer_type == type_name:
                    resources[use.class_name] = resources.get(use.class_name, 0) + use.amount
            found[shown_type] = (resources, consumers_before + count)
        return found


# Long lists in pages: all allocations, and providers with their inventories, usages, traits, aggregates.


class Include(StrEnum):
    """A part of providers that may be listed with them."""

    INVENTORIES = "inventories"
    USAGES = "usages"
    TRAITS = "traits"
    AGGREGATES = "aggregates"


class ProviderParts(NamedTuple):
    """A provider and what was asked to be included, None for the rest; inventories and usages by class."""

    provider: ListedProvider
    inventories: dict[str, Inventory] | None
    usages: dict[str, int] | None
    traits: list[str] | None
    aggregates: list[str] | None


class ProviderPage(NamedTuple):
    """Providers, and the cursor of the following page."""

    providers: list[ProviderParts]
    next: int | None


OfConsumer = TypeVar("OfConsumer", ListedAllocation, ConsumerSum)


def _page_of(rows: list[OfConsumer], count: int) -> tuple[list[OfConsumer], str | None]:
    """Return the rows of at most `count` consumers, and the cursor of the following page.

    There may be rows of one consumer more, which tell that there is another page; None if there is none.
    """
    keys = list(dict.fromkeys(row.consumer_uuid for row in rows))
    if len(keys) <= count:
        return rows, None
    return [row for row in rows if row.consumer_uuid != keys[-1]], keys[-2]


def _require_class(connection: Executor, name: str | None) -> None:
    """Raise BadRequest unless the class exists, or none is named."""
    if name is not None and names.find(connection, tables.resource_classes, name) is None:
        raise BadRequest(
            f"No such resource class {name}",
            place=parameter("resource_class"),
            value=name,
            known=NamesOf(NameKind.RESOURCE_CLASS),
        )


class Listings:
    """A use case that reads pages; each shows the database as of one moment."""

    for_bound_callers = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def allocations(
        self, filter_: AllocationFilter, after: str | None, count: int
    ) -> tuple[list[ListedAllocation], str | None]:
        """Return the allocations of the next consumers, and the cursor of the following page.

        Raises BadRequest for an unknown cluster or class.
        """
        with self._database.snapshot() as connection:
            providers_view.require_cluster(connection, filter_.cluster)
            _require_class(connection, filter_.resource_class)
            return _page_of(lists.page(connection, filter_, after, count + 1), count)

    def consumers(
        self, filter_: AllocationFilter, after: str | None, count: int
    ) -> tuple[list[ConsumerSum], str | None]:
        """Return the sums of the next consumers by class, and the cursor of the following page.

        `filter_` can name neither one consumer nor a provider or class. Raises BadRequest as `allocations`.
        """
        with self._database.read() as connection:
            providers_view.require_cluster(connection, filter_.cluster)
            return _page_of(lists.sums(connection, filter_, after, count + 1), count)

    def providers(
        self, cluster: str | None, include: Collection[Include], after: int, count: int
    ) -> ProviderPage:
        """Return the next providers with their included parts, in one statement for each part.

        Raises BadRequest for an unknown cluster.
        """
        with self._database.snapshot() as connection:
            providers_view.require_cluster(connection, cluster)
            found = providers.page(connection, cluster, after, count + 1)
            ids = [provider.id for provider in found[:count]]
            offers, uses, traits, aggregates = (part in include for part in Include)
            records = contents.stored(connection, ids) if offers or uses else {}
            of_kind = contents.members_by_provider
            traits_of = of_kind(connection, contents.TRAITS, ids) if traits else {}
            aggregates_of = of_kind(connection, contents.AGGREGATES, ids) if aggregates else {}
        parts = []
        for provider in found[:count]:
            of_provider = records.get(provider.id, {}).values()
            parts.append(
                ProviderParts(
                    provider,
                    _inventories(of_provider) if offers else None,
                    _usages(of_provider) if uses else None,
                    traits_of.get(provider.id, []) if traits else None,
                    aggregates_of.get(provider.id, []) if aggregates else None,
                )
            )
        return ProviderPage(parts, ids[-1] if len(found) > count else None)


def _inventories(stored: Iterable[Stored]) -> dict[str, Inventory]:
    return {record.class_name: record.inventory for record in stored}


def _usages(stored: Iterable[Stored]) -> dict[str, int]:
    return {record.class_name: record.used for record in stored}
