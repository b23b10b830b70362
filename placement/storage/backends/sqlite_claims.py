"""Claims of consumers that must be new, written to SQLite by texts that the driver keeps prepared.

The writer is alone, so each text finds what the one before left, and the number of rows that it writes shows
whether all could be written. Its rows are one JSON array of objects of `placement.storage.claim_rows`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from placement.storage import json_text
from placement.storage.backends.backend import SingleWrite
from placement.storage.claim_rows import NewClaims
from placement.storage.tables import CONTENT, RISE_FITS


def _of(*fields: str) -> str:
    """Return members of the present object, in order."""
    return ", ".join(f"json_extract(given.value, '$.{field}')" for field in fields)


NEXT_STAMP = "UPDATE change_counter SET value = value + 1 RETURNING value"
# CROSS JOIN keeps the order: each row looks names up in their indexes.
_INVENTORY = f"""
    json_each(:rows) AS given
    CROSS JOIN resource_providers AS provider ON provider.uuid = {_of("provider_uuid")}
    CROSS JOIN resource_classes AS class ON class.name = {_of("class_name")}
"""
_CONSUMERS = f"""
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, request, generation,
                           created_at)
    SELECT {_of("uuid")} AS uuid, project.id, person.id, type.id, {_of("cluster_id", "request")}, 1, :now
      FROM json_each(:rows) AS given
     CROSS JOIN projects AS project ON project.external_id = {_of("project_id")}
     CROSS JOIN users AS person ON person.external_id = {_of("user_id")}
      LEFT JOIN consumer_types AS type ON type.name = {_of("consumer_type")}
     WHERE {_of("consumer_type")} IS NULL OR type.id IS NOT NULL
     ORDER BY uuid
    ON CONFLICT DO NOTHING
"""
# Its rows are pairs of a provider and the step of its generation.
_PROVIDERS = f"""
    UPDATE resource_providers
       SET generation = generation + json_extract(given.value, '$[1]'), revision = :stamp, updated_at = :now,
           content_revision = {CONTENT}, usage_revision = :stamp
      FROM json_each(:rows) AS given
     WHERE resource_providers.uuid = json_extract(given.value, '$[0]')
"""
# Found first: SQLite would begin with all inventories there are.
_RISES = f"""
    UPDATE inventories SET used = used + wanted.delta
      FROM (WITH found AS MATERIALIZED (
                SELECT provider.id AS provider_id, class.id AS class_id, {_of("delta")} AS delta,
                       {_of("least")} AS least, {_of("most")} AS most, {_of("divisor")} AS divisor
                  FROM {_INVENTORY})
            SELECT * FROM found) AS wanted
     WHERE inventories.resource_provider_id = wanted.provider_id
       AND inventories.resource_class_id = wanted.class_id
       AND {RISE_FITS}
"""
_AMOUNTS = f"""
    INSERT INTO allocations (consumer_id, resource_provider_id, resource_class_id, used, created_at)
    SELECT {_of("consumer_uuid")} AS consumer, provider.id, class.id, {_of("amount")}, :now
      FROM {_INVENTORY}
     ORDER BY consumer, provider.id, class.id
"""
_RECORDS = f"""
    INSERT INTO audit_records (recorded_at, action, revision, kind, target, consumer_id, after, user_id,
                               project_id, roles, request_id, global_request_id, address)
    SELECT :now, 'create', :stamp, {_of("kind", "target", "consumer_uuid", "after", "user_id")},
           {_of("project_id", "roles", "request_id", "global_request_id", "address")}
      FROM json_each(:rows) AS given
"""


def claim(write: SingleWrite, claims: NewClaims) -> bool:
    """Claim for new consumers (allocations.new_claims) in the transaction that was begun, and commit it.

    Returns False, with nothing done, where not all rows could be written. Raises errors of the driver.
    """
    try:
        is_written = _is_written(write.connection, claims)
        if is_written:
            write.send("COMMIT")
        return is_written
    finally:
        # After the commit there is nothing to roll back.
        write.connection.rollback()


def _is_written(driver: sqlite3.Connection, claims: NewClaims) -> bool:
    given = {
        # As SQLAlchemy writes times.
        "now": claims.now.isoformat(" ", "microseconds"),
        "stamp": driver.execute(NEXT_STAMP).fetchone()[0],
    }
    steps: Sequence[tuple[str, int]] = list(zip(claims.providers, claims.steps, strict=True))
    written: Sequence[tuple[str, Sequence[Any]]] = (
        (_CONSUMERS, claims.consumers),
        (_PROVIDERS, steps),
        (_RISES, claims.rises),
        (_AMOUNTS, claims.amounts),
        (_RECORDS, claims.records),
    )
    return all(
        driver.execute(text, {**given, "rows": json_text.written(rows)}).rowcount == len(rows)
        for text, rows in written
        if rows
    )
