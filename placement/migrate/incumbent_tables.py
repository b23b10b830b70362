"""The tables of OpenStack Placement 16, as `placement-manage db sync` of the incumbent leaves them.

They have their columns with types, which is all that moving needs. Hardly a column there refers to its table,
so rows may refer to nothing (unmovable_rows).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()
_NAME, _UUID = sa.String(255), sa.String(36)


def _table(table: str, /, *integers: str, **others: sa.types.TypeEngine[Any]) -> sa.Table:
    types: dict[str, sa.types.TypeEngine[Any]] = {"created_at": sa.DateTime(), "updated_at": sa.DateTime()}
    types |= {**dict.fromkeys(integers, sa.Integer()), **others}
    return sa.Table(table, metadata, *(sa.Column(column, kind) for column, kind in types.items()))


projects = _table("projects", "id", external_id=_NAME)
users = _table("users", "id", external_id=_NAME)
consumer_types = _table("consumer_types", "id", name=_NAME)
resource_classes = _table("resource_classes", "id", name=_NAME)
traits = _table("traits", "id", name=_NAME)
aggregates = _table("placement_aggregates", "id", uuid=_UUID)
providers = _table(
    "resource_providers",
    *("id", "generation", "root_provider_id", "parent_provider_id"),
    uuid=_UUID,
    name=sa.Unicode(200),
)
inventories = _table(
    "inventories",
    *("id", "resource_provider_id", "resource_class_id"),
    *("total", "reserved", "min_unit", "max_unit", "step_size"),
    allocation_ratio=sa.Float(),
)
provider_traits = _table("resource_provider_traits", "trait_id", "resource_provider_id")
provider_aggregates = _table("resource_provider_aggregates", "resource_provider_id", "aggregate_id")
consumers = _table("consumers", "id", "project_id", "user_id", "generation", "consumer_type_id", uuid=_UUID)
allocations = _table(
    "allocations", "id", "resource_provider_id", "resource_class_id", "used", consumer_id=_UUID
)
