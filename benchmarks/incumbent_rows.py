"""Rows in the incumbent's tables, for sizes that take too long through its REST API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement.domain.portions import portions
from placement.storage.moving import incumbent_tables as tables

_NAMESPACE = uuid.UUID("1ce00000-0000-4000-8000-000000000000")
_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_PER_PROVIDER = 10
_SMALL = {"reserved": 0, "min_unit": 1, "max_unit": 1000, "step_size": 1, "allocation_ratio": 16.0}


def fill(url: str, providers: int) -> str:
    """Fill empty tables with hosts of three classes and ten allocations each; how much it is, in words."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    consumers = [_uuid(f"consumer-{number}") for number in range(providers * _PER_PROVIDER // 3 + 1)]
    written = {
        tables.resource_classes: [{"id": id_, "name": name} for id_, name in enumerate(_CLASSES, 1)],
        tables.traits: [{"id": id_, "name": f"CUSTOM_T{id_}"} for id_ in range(1, 6)],
        tables.aggregates: [
            {"id": id_ + 1, "uuid": _uuid(f"rack-{id_}")} for id_ in range(providers // 100 + 1)
        ],
        tables.projects: [{"id": id_, "external_id": f"project-{id_}"} for id_ in range(1, 101)],
        tables.users: [{"id": id_, "external_id": f"user-{id_}"} for id_ in range(1, 101)],
        tables.consumer_types: [{"id": 1, "name": "INSTANCE"}],
        tables.providers: _providers(providers),
        tables.inventories: _inventories(providers),
        tables.provider_traits: (
            {"resource_provider_id": id_ + 1, "trait_id": trait}
            for id_ in range(providers)
            for trait in (1, 2, 3)
        ),
        tables.provider_aggregates: (
            {"resource_provider_id": id_ + 1, "aggregate_id": id_ // 100 + 1} for id_ in range(providers)
        ),
        tables.consumers: _consumers(consumers),
        tables.allocations: _allocations(providers, consumers),
    }
    with engine.begin() as connection:
        for table, rows in written.items():
            for some in portions(rows, 20_000):
                connection.execute(sa.insert(table), some)
    engine.dispose()
    return f"{providers} providers, {len(consumers)} consumers, {providers * _PER_PROVIDER} allocations"


def _uuid(name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, name))


def _providers(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        own = {"id": number + 1, "uuid": _uuid(f"host-{number}"), "name": f"host-{number}", "generation": 12}
        yield {**own, "root_provider_id": number + 1, "parent_provider_id": None}


def _inventories(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        for class_id in range(1, len(_CLASSES) + 1):
            yield {"resource_provider_id": number + 1, "resource_class_id": class_id, "total": 1000, **_SMALL}


def _consumers(uuids: list[str]) -> Iterator[dict[str, Any]]:
    for number, own in enumerate(uuids):
        owner = number % 100 + 1
        yield {"uuid": own, "project_id": owner, "user_id": owner, "generation": 1, "consumer_type_id": 1}


def _allocations(providers: int, consumers: list[str]) -> Iterator[dict[str, Any]]:
    """Each consumer holds the three classes of one host, the last ones fewer."""
    for number in range(providers * _PER_PROVIDER):
        consumer = number // 3
        yield {
            "resource_provider_id": consumer % providers + 1,
            "consumer_id": consumers[consumer],
            "resource_class_id": number % 3 + 1,
            "used": consumer % 4 + 1,
        }
