"""Claims of consumers that must be new, decided and committed by PostgreSQL in one round trip.

The statement does what the steps of a claim do one after another, under the same locks in the same order:
consumers, then providers, both ascending. Either all of it takes place or it fails as a whole; the caller
then finds out why, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.storage.database import Database, SingleWrite, utcnow
from placement.storage.statements.consumers import Labelling

_NAME = "placement_fresh_claim"
# Prepared once per connection: planning it would cost more than running it.
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
       AND wanted.least >= min_unit AND wanted.most <= max_unit AND mod(wanted.divisor, step_size) = 0
       AND used + wanted.delta <= (total - reserved) * allocation_ratio
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
_EXECUTE = f"EXECUTE {_NAME}({', '.join(['%s'] * 16)})"
_NOT_A_NUMBER = "22P02"


class Rise(NamedTuple):
    """What the use of one inventory rises by; `least`, `most`, `divisor` (gcd) of its amounts."""

    provider_uuid: str
    class_name: str
    delta: int
    least: int
    most: int
    divisor: int


class Amount(NamedTuple):
    """What one consumer gets from one inventory."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    amount: int


def claim_at_once(
    database: Database, consumers: Sequence[Labelling], rises: Sequence[Rise], amounts: Sequence[Amount]
) -> bool:
    """Create the consumers with their allocations; False, and nothing done, if any of it cannot be.

    PostgreSQL only; none of the sequences may be empty. Raises TryAgain, OutcomeUnknown, Unavailable.
    """
    columns = [list(column) for rows in (consumers, rises, amounts) for column in zip(*rows, strict=True)]
    with database.single_write() as write:
        connection = write.connection
        if _NAME in connection.info:
            return _claim(write, columns)
        # A pooler may have given this session to somebody before.
        connection.exec_driver_sql(f"DEALLOCATE ALL; {_PREPARE}")
        # The plan is made now and kept, so the size that tables happen to have must not decide.
        connection.exec_driver_sql("SET enable_seqscan = off")
        try:
            done = _claim(write, columns)
            connection.exec_driver_sql("RESET enable_seqscan")
        except sa.exc.DBAPIError:
            connection.invalidate()
            raise
        connection.info[_NAME] = True
        return done


def _claim(write: SingleWrite, columns: Sequence[object]) -> bool:
    try:
        write.send(_EXECUTE, (utcnow(), *columns))
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "pgcode", None) == _NOT_A_NUMBER:
            return False
        raise
    return True
