"""Claims of consumers that must be new, decided and committed by PostgreSQL in one round trip.

The statement does what the steps of a claim do one after another, under the same locks in the same order:
consumers, then providers, both ascending. Either all of it takes place or it fails as a whole; the caller
then finds out why, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from placement.storage.backends.backend import SingleWrite
from placement.storage.fit_rule import RISE_FITS

_NAME = "placement_fresh_claim"
# Prepared once per connection: planning it would cost more than running it. The parameters are the time, and
# the columns of the three kinds of rows in storage.statements.allocations.
_PREPARE = f"""
PREPARE {_NAME}(timestamp, varchar[], varchar[], varchar[], varchar[], integer[],
                varchar[], varchar[], bigint[], bigint[], bigint[], bigint[],
                varchar[], varchar[], varchar[], bigint[]) AS
WITH consumer AS (
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, generation, created_at)
    SELECT given.uuid, projects.id, users.id, consumer_types.id, given.cluster_id, 1, $1
      FROM unnest($2, $3, $4, $5, $6) AS given(uuid, project, person, type, cluster_id)
      JOIN projects ON projects.external_id = given.project
      JOIN users ON users.external_id = given.person
      LEFT JOIN consumer_types ON consumer_types.name = given.type
     WHERE given.type IS NULL OR consumer_types.id IS NOT NULL
     ORDER BY given.uuid
    ON CONFLICT DO NOTHING RETURNING uuid
), held AS (
    SELECT id, uuid FROM resource_providers
     WHERE uuid = ANY($7) AND (SELECT count(*) FROM consumer) = cardinality($2)
     ORDER BY id FOR UPDATE
), stamped AS (
    UPDATE resource_providers
       SET generation = generation + 1, revision = pg_current_xact_id(), updated_at = $1
      FROM held WHERE resource_providers.id = held.id
), applied AS (
    UPDATE inventories SET used = used + wanted.delta
      FROM unnest($7, $8, $9, $10, $11, $12) AS wanted(provider, class, delta, least, most, divisor)
      JOIN held ON held.uuid = wanted.provider
      JOIN resource_classes ON resource_classes.name = wanted.class
     WHERE inventories.resource_provider_id = held.id
       AND inventories.resource_class_id = resource_classes.id
       AND {RISE_FITS}
    RETURNING 1
), allocated AS (
    INSERT INTO allocations (consumer_id, resource_provider_id, resource_class_id, used, created_at)
    SELECT given.consumer, held.id, resource_classes.id, given.amount, $1
      FROM unnest($13, $14, $15, $16) AS given(consumer, provider, class, amount)
      JOIN held ON held.uuid = given.provider
      JOIN resource_classes ON resource_classes.name = given.class
    RETURNING 1
), counted AS (
    SELECT (SELECT count(*) FROM applied) AS applied, (SELECT count(*) FROM allocated) AS allocated
)
SELECT CASE WHEN applied = cardinality($7) AND allocated = cardinality($13) THEN 0
            -- No number, so this undoes everything; the log of the database shows the text.
            ELSE CAST('claim refused, ' || applied || ' of ' || cardinality($7) || ' fit' AS integer) END
  FROM counted
"""
# A pooler may have given this session to somebody before. The driver takes % for the start of a parameter.
_RENEW = f"DEALLOCATE ALL; {_PREPARE}".replace("%", "%%")
_EXECUTE = f"EXECUTE {_NAME}({', '.join(['%s'] * 16)})"
_NOT_A_NUMBER = "22P02"


def claim(write: SingleWrite, values: Sequence[Any]) -> bool:
    """Run the statement with these parameters; False, and nothing done, if any of it cannot be.

    Raises errors of SQLAlchemy.
    """
    connection = write.connection
    if _NAME in connection.info:
        return _took_place(write, values)
    connection.exec_driver_sql(_RENEW)
    # The plan is made now and kept, so the size that tables happen to have must not decide.
    connection.exec_driver_sql("SET enable_seqscan = off")
    try:
        done = _took_place(write, values)
        connection.exec_driver_sql("RESET enable_seqscan")
    except sa.exc.DBAPIError:
        connection.invalidate()
        raise
    connection.info[_NAME] = True
    return done


def _took_place(write: SingleWrite, values: Sequence[Any]) -> bool:
    try:
        write.send(_EXECUTE, tuple(values))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "pgcode", None) == _NOT_A_NUMBER:
            return False
        raise
    return True
