"""The tables of OpenStack Placement 16, as `placement-manage db sync` of the incumbent leaves them.

Hardly a column there refers to its table, so rows may refer to nothing (storage.moving.faults).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()


def _columns(*columns: sa.Column[Any]) -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("created_at", sa.DateTime),
        sa.Column("updated_at", sa.DateTime),
        sa.Column("id", sa.Integer, primary_key=True),
        *columns,
    )


def _named(table: str, column: sa.Column[Any]) -> sa.Table:
    return sa.Table(table, metadata, *_columns(column))


projects = _named("projects", sa.Column("external_id", sa.String(255), nullable=False, unique=True))
users = _named("users", sa.Column("external_id", sa.String(255), nullable=False, unique=True))
consumer_types = _named("consumer_types", sa.Column("name", sa.String(255), nullable=False, unique=True))
resource_classes = _named("resource_classes", sa.Column("name", sa.String(255), nullable=False, unique=True))
traits = _named("traits", sa.Column("name", sa.String(255), nullable=False, unique=True))
aggregates = _named("placement_aggregates", sa.Column("uuid", sa.String(36), unique=True))

providers = sa.Table(
    "resource_providers",
    metadata,
    *_columns(
        sa.Column("uuid", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Unicode(200), unique=True),
        sa.Column("generation", sa.Integer),
        sa.Column("root_provider_id", sa.Integer, sa.ForeignKey("resource_providers.id"), index=True),
        sa.Column("parent_provider_id", sa.Integer, sa.ForeignKey("resource_providers.id"), index=True),
    ),
)
inventories = sa.Table(
    "inventories",
    metadata,
    *_columns(
        sa.Column("resource_provider_id", sa.Integer, nullable=False),
        sa.Column("resource_class_id", sa.Integer, nullable=False, index=True),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("reserved", sa.Integer, nullable=False),
        sa.Column("min_unit", sa.Integer, nullable=False),
        sa.Column("max_unit", sa.Integer, nullable=False),
        sa.Column("step_size", sa.Integer, nullable=False),
        sa.Column("allocation_ratio", sa.Float, nullable=False),
    ),
    sa.UniqueConstraint("resource_provider_id", "resource_class_id"),
)
provider_traits = sa.Table(
    "resource_provider_traits",
    metadata,
    sa.Column("created_at", sa.DateTime),
    sa.Column("updated_at", sa.DateTime),
    sa.Column("trait_id", sa.Integer, sa.ForeignKey("traits.id"), primary_key=True),
    sa.Column(
        "resource_provider_id",
        sa.Integer,
        sa.ForeignKey("resource_providers.id"),
        primary_key=True,
        index=True,
    ),
)
provider_aggregates = sa.Table(
    "resource_provider_aggregates",
    metadata,
    sa.Column("created_at", sa.DateTime),
    sa.Column("updated_at", sa.DateTime),
    sa.Column("resource_provider_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("aggregate_id", sa.Integer, primary_key=True, autoincrement=False, index=True),
)
consumers = sa.Table(
    "consumers",
    metadata,
    *_columns(
        sa.Column("uuid", sa.String(36), nullable=False, unique=True),
        sa.Column("project_id", sa.Integer, nullable=False, index=True),
        sa.Column("user_id", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False, server_default="0"),
        sa.Column("consumer_type_id", sa.Integer, sa.ForeignKey("consumer_types.id"), index=True),
    ),
)
allocations = sa.Table(
    "allocations",
    metadata,
    *_columns(
        sa.Column("resource_provider_id", sa.Integer, nullable=False),
        sa.Column("consumer_id", sa.String(36), nullable=False, index=True),
        sa.Column("resource_class_id", sa.Integer, nullable=False, index=True),
        sa.Column("used", sa.Integer, nullable=False),
    ),
    sa.Index(None, "resource_provider_id", "resource_class_id", "used"),
)
