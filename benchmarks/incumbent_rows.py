"""Rows in the incumbent's tables, for sizes that take too long through its REST API."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from benchmarks.data import CUSTOM_TRAITS, DataSet, identifier
from placement.engine.domain.portions import portions
from placement.migrate import incumbent_tables as tables

_NAMESPACE = uuid.UUID("1ce00000-0000-4000-8000-000000000000")
_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_PER_PROVIDER = 10
_OWNER = "benchmark"
# What an inventory has that says nothing of it.
_SIZES = {"reserved": 0, "min_unit": 1, "max_unit": 2**31 - 1, "step_size": 1, "allocation_ratio": 1.0}
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
        _write(connection, written)
    engine.dispose()
    return f"{providers} providers, {len(consumers)} consumers, {providers * _PER_PROVIDER} allocations"


def fill_with(url: str, data: DataSet) -> None:
    """Write hosts without children, and who holds something of them, as `data.build` does through REST.

    The incumbent must have been started on the database before, as it then writes its classes and traits.
    """
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    hosts = [host[0] for host in data.hosts]
    aggregates = sorted({uuid_ for host in hosts for uuid_ in host.aggregates})
    rows = [{"uuid": identifier(host.name), "name": host.name, "generation": 4} for host in hosts]
    table = tables.providers
    with engine.begin() as connection:
        _write(connection, {table: rows})
        connection.execute(sa.update(table).values(root_provider_id=table.c.id))
        ids = {
            "providers": _named(connection, table.c.name, []),
            "traits": _named(connection, tables.traits.c.name, CUSTOM_TRAITS),
            "classes": _named(connection, tables.resource_classes.c.name, []),
            "aggregates": _named(connection, tables.aggregates.c.uuid, aggregates),
        }
        owner = {
            "project_id": _named(connection, tables.projects.c.external_id, [_OWNER])[_OWNER],
            "user_id": _named(connection, tables.users.c.external_id, [_OWNER])[_OWNER],
            "consumer_type_id": _named(connection, tables.consumer_types.c.name, ["INSTANCE"])["INSTANCE"],
        }
        _write(connection, _belongings(data, ids, owner))
    engine.dispose()


def _write(connection: sa.Connection, written: Mapping[sa.Table, Iterable[dict[str, Any]]]) -> None:
    # The incumbent fails at providers without.
    times = dict.fromkeys(
        ("created_at", "updated_at"), datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    )
    for table, rows in written.items():
        for some in portions(rows, 20_000):
            connection.execute(sa.insert(table), [{**row, **times} for row in some])


def _named(connection: sa.Connection, column: sa.Column[str], names: list[str]) -> dict[str, int]:
    """The ids of all names in a table, with these added to it."""
    query = sa.select(column, column.table.c.id)
    missing = set(names) - set(connection.execute(query).scalars())
    _write(connection, {column.table: [{column.name: name} for name in sorted(missing)]})
    return dict(map(tuple, connection.execute(query)))


def _belongings(
    data: DataSet, ids: Mapping[str, Mapping[str, int]], owner: Mapping[str, int]
) -> dict[sa.Table, Iterable[dict[str, Any]]]:
    at = [(ids["providers"][host[0].name], host[0]) for host in data.hosts]
    held = [(identifier(f"{data.name}-{at}"), held) for at, held in enumerate(data.consumers)]
    return {
        tables.inventories: (
            {"resource_provider_id": id_, "resource_class_id": ids["classes"][name], **_SIZES, **offered}
            for id_, one in at
            for name, offered in one.inventories.items()
        ),
        tables.provider_traits: (
            {"resource_provider_id": id_, "trait_id": ids["traits"][name]}
            for id_, one in at
            for name in one.traits
        ),
        tables.provider_aggregates: (
            {"resource_provider_id": id_, "aggregate_id": ids["aggregates"][uuid_]}
            for id_, one in at
            for uuid_ in one.aggregates
        ),
        tables.consumers: ({"uuid": consumer, "generation": 1, **owner} for consumer, _ in held),
        tables.allocations: (
            {
                "resource_provider_id": ids["providers"][provider],
                "consumer_id": consumer,
                "resource_class_id": ids["classes"][name],
                "used": used,
            }
            for consumer, of in held
            for provider, amounts in of.items()
            for name, used in amounts.items()
        ),
    }


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
