"""Long lists in pages: all allocations, and providers with their inventories, usages, traits, aggregates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from placement.domain.allocation import AllocationFilter
from placement.domain.errors import BadRequest
from placement.services import scoping
from placement.services.clusters import cluster_lookup
from placement.storage.database import Database, Executor
from placement.storage.statements import allocation_lists, provider_lists
from placement.storage.statements.allocation_lists import ConsumerSum, ListedAllocation
from placement.storage.statements.provider_lists import ListedProvider, Record

__all__ = ["AllocationPage", "ConsumerSum", "Include", "Listings", "ProviderPage"]


class Include(StrEnum):
    """What may be listed with providers."""

    INVENTORIES = "inventories"
    USAGES = "usages"
    TRAITS = "traits"
    AGGREGATES = "aggregates"


@dataclass(frozen=True, slots=True)
class AllocationPage:
    """Allocations of whole consumers; `next` is the cursor of the following page, None on the last one."""

    allocations: list[ListedAllocation]
    next: str | None


@dataclass(frozen=True, slots=True)
class ProviderPage:
    """Providers, by provider id what was asked to be included, and the cursor of the following page."""

    providers: list[ListedProvider]
    next: int | None
    records: Mapping[int, list[Record]] = field(default_factory=dict)
    traits: Mapping[int, list[str]] = field(default_factory=dict)
    aggregates: Mapping[int, list[str]] = field(default_factory=dict)


class Listings:
    """Reads pages; each shows the database as of one moment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def allocations(self, wanted: AllocationFilter, after: str | None, consumers: int) -> AllocationPage:
        """The allocations of the next consumers. Raises BadRequest for an unknown cluster."""
        with self._database.snapshot() as connection:
            _check_cluster(connection, wanted.cluster)
            # One consumer more tells whether there is another page.
            found = allocation_lists.page(connection, wanted, after, consumers + 1)
        keys = list(dict.fromkeys(row.consumer_uuid for row in found))
        if len(keys) <= consumers:
            return AllocationPage(found, None)
        return AllocationPage([row for row in found if row.consumer_uuid != keys[-1]], keys[-2])

    def consumers(
        self, wanted: AllocationFilter, after: str | None, count: int
    ) -> tuple[list[ConsumerSum], str | None]:
        """What the next consumers hold by class, and what the page after that begins behind.

        Neither one consumer nor one provider can be wanted. Raises BadRequest as `allocations`.
        """
        with self._database.read() as connection:
            _check_cluster(connection, wanted.cluster)
            found = allocation_lists.sums(connection, wanted, after, count + 1)
        keys = list(dict.fromkeys(row.consumer_uuid for row in found))
        if len(keys) <= count:
            return found, None
        return [row for row in found if row.consumer_uuid != keys[-1]], keys[-2]

    def providers(
        self, cluster: str | None, include: Collection[Include], after: int, count: int
    ) -> ProviderPage:
        """The next providers with what is included: one statement each, however many they are.

        Raises BadRequest for an unknown cluster.
        """
        with self._database.snapshot() as connection:
            _check_cluster(connection, cluster)
            found = provider_lists.page(connection, cluster, after, count + 1)
            shown = found[:count]
            ids = [provider.id for provider in shown]
            with_records = {Include.INVENTORIES, Include.USAGES} & set(include)
            return ProviderPage(
                providers=shown,
                next=shown[-1].id if len(found) > count else None,
                records=provider_lists.records_of(connection, ids) if with_records else {},
                traits=provider_lists.traits_of(connection, ids) if Include.TRAITS in include else {},
                aggregates=(
                    provider_lists.aggregates_of(connection, ids) if Include.AGGREGATES in include else {}
                ),
            )


def _check_cluster(connection: Executor, name: str | None) -> None:
    if name is None:
        scoping.require_everything()
    elif cluster_lookup.find(connection, name) is None:
        raise BadRequest(f"cluster: No cluster {name} found")
