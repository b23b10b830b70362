"""Flat hosts by the thousand, written straight into PostgreSQL."""

from __future__ import annotations

from placement.storage.database import Database

EVEN = "(p.id % 9) / 10.0"
"""Hosts used to one of nine degrees, the same for every class."""
VARIED = "random() * 0.9"
"""Every class of every host used to a degree of its own."""

_FILL = """
SELECT setseed(0.5);
INSERT INTO resource_providers (uuid, name, generation, revision, created_at)
SELECT gen_random_uuid()::text, 'host-' || n, 1, pg_current_xact_id(), now()
  FROM generate_series(1, {hosts}) n;
UPDATE resource_providers SET root_provider_id = id;
INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit,
                         step_size, allocation_ratio, used, created_at)
SELECT p.id, c.id, o.total, 0, 1, o.total, 1, o.ratio, floor(o.total * o.ratio * {used})::bigint, now()
  FROM resource_providers p,
       (VALUES ('VCPU', 32, 4.0), ('MEMORY_MB', 131072, 1.0), ('DISK_GB', 2000, 1.0)) o(name, total, ratio)
  JOIN resource_classes c ON c.name = o.name;
INSERT INTO resource_provider_traits (resource_provider_id, trait_id)
SELECT p.id, t.id FROM resource_providers p, (SELECT id FROM traits ORDER BY id LIMIT 10) t;
INSERT INTO placement_aggregates (uuid, created_at)
SELECT gen_random_uuid()::text, now() FROM generate_series(1, {racks});
INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id)
SELECT id, 1 + id % {racks} FROM resource_providers;
"""


def fill(connection: str, hosts: int, used: str = EVEN) -> None:
    """Fill a fresh database; `used` is SQL for the share of each inventory that is in use."""
    database = Database(connection)
    raw = database.engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute("SET statement_timeout = 0")
    cursor.execute(_FILL.format(hosts=hosts, racks=max(1, hosts // 100), used=used))
    raw.commit()
    raw.driver_connection.autocommit = True
    cursor.execute("VACUUM ANALYZE")
    raw.close()
    database.dispose()
