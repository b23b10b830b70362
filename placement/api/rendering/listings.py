"""Bodies of long lists; `next` is given as `after` to get the following page, null on the last one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from placement.api.rendering.providers import inventory_body
from placement.domain.allocation import UNKNOWN_CONSUMER_TYPE
from placement.services.placement.listings import AllocationPage, Include, ProviderPage


def allocations_body(page: AllocationPage) -> dict[str, Any]:
    """Consumers in order, each with what it holds of the providers that were asked for."""
    consumers: dict[str, dict[str, Any]] = {}
    for row in page.allocations:
        consumer = consumers.setdefault(
            row.consumer_uuid,
            {
                "consumer_uuid": row.consumer_uuid,
                "consumer_generation": row.consumer_generation,
                "consumer_type": row.consumer_type or UNKNOWN_CONSUMER_TYPE,
                "project_id": row.project_id,
                "user_id": row.user_id,
                **({} if row.dedicated_cpus is None else {"dedicated_cpus": row.dedicated_cpus}),
                "allocations": {},
            },
        )
        held = consumer["allocations"].setdefault(
            row.provider_uuid, {"name": row.provider_name, "cluster": row.cluster, "resources": {}}
        )
        held["resources"][row.class_name] = row.amount
    return {"consumers": list(consumers.values()), "next": page.next}


def providers_body(page: ProviderPage, include: Collection[Include]) -> dict[str, Any]:
    """Providers in order of creation, each with what is included."""
    listed = []
    for provider in page.providers:
        body: dict[str, Any] = {
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": provider.generation,
            "parent_provider_uuid": provider.parent_uuid,
            "root_provider_uuid": provider.root_uuid,
            "cluster": provider.cluster,
        }
        records = page.records.get(provider.id, [])
        if Include.INVENTORIES in include:
            body["inventories"] = {record.class_name: inventory_body(record.inventory) for record in records}
        if Include.USAGES in include:
            body["usages"] = {record.class_name: record.used for record in records}
        if Include.TRAITS in include:
            body["traits"] = page.traits.get(provider.id, [])
        if Include.AGGREGATES in include:
            body["aggregates"] = page.aggregates.get(provider.id, [])
        listed.append(body)
    return {"resource_providers": listed, "next": page.next}
