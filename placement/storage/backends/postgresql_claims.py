"""Claims of consumers that must be new, decided and committed by PostgreSQL in one round trip.

A statement does what the steps of a claim do one after another, under the same locks in the same order:
consumers, then providers, both ascending; the statement for a pod locks the host first. It takes place as a
whole or fails as a whole; the caller then finds out why, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from placement.storage.backends.backend import HISTORY_KEY, SingleWrite, Stamped
from placement.storage.tables import CONTENT, RISE_FITS

# The new consumers, where their projects, users and types are in the database.
_CONSUMERS = """
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, generation,
                           created_at{column})
    SELECT given.uuid, projects.id, users.id, consumer_types.id, given.cluster_id, 1, $1{value}
      FROM unnest($2, $3, $4, $5, $6{requests}) AS given(uuid, project, person, type, cluster_id{column})
      JOIN projects ON projects.external_id = given.project
      JOIN users ON users.external_id = given.person
      LEFT JOIN consumer_types ON consumer_types.name = given.type
     WHERE (given.type IS NULL OR consumer_types.id IS NOT NULL) AND {condition}
     ORDER BY given.uuid
    ON CONFLICT DO NOTHING RETURNING uuid
"""
# The request, which is kept with consumers; with pods their manifests are kept instead.
_WITH_REQUESTS = {"column": ", request", "value": ", given.request", "requests": ", $24"}
_BARE = dict.fromkeys(_WITH_REQUESTS, "")
# What the consumers get, if all of them were new; `providers` are the uuids of providers to lock and stamp.
_AMOUNTS = f"""
locked AS (
    SELECT id, uuid, revision FROM resource_providers
     WHERE uuid = ANY({{providers}}) AND (SELECT count(*) FROM consumer) = cardinality($2)
     ORDER BY id FOR UPDATE
), stamped AS (
    UPDATE resource_providers
       SET generation = generation + {{step}}, revision = pg_current_xact_id(), updated_at = $1,
           content_revision = {CONTENT}, usage_revision = pg_current_xact_id()
      FROM {{steps}} WHERE resource_providers.id = locked.id
), applied AS (
    UPDATE inventories SET used = used + wanted.delta
      FROM unnest($7, $8, $9, $10, $11, $12) AS wanted(provider, class, delta, least, most, divisor)
      JOIN locked ON locked.uuid = wanted.provider
      JOIN resource_classes ON resource_classes.name = wanted.class
     WHERE inventories.resource_provider_id = locked.id
       AND inventories.resource_class_id = resource_classes.id
       AND {RISE_FITS}
    RETURNING 1
), allocated AS (
    INSERT INTO allocations (consumer_id, resource_provider_id, resource_class_id, used, created_at)
    SELECT given.consumer, locked.id, resource_classes.id, given.amount, $1
      FROM unnest($13, $14, $15, $16) AS given(consumer, provider, class, amount)
      JOIN locked ON locked.uuid = given.provider
      JOIN resource_classes ON resource_classes.name = given.class
    RETURNING 1
), counted AS (
    SELECT (SELECT count(*) FROM applied) AS applied, (SELECT count(*) FROM allocated) AS allocated
)
"""
# By how much generations rise. A statement may hold the claims of several requests, and each counts.
_BY_ONE = {"step": "1", "steps": "locked"}
_BY_STEPS = {
    "step": "given.step",
    "steps": "locked JOIN unnest($25, $26) AS given(provider, step) ON given.provider = locked.uuid",
}
# The types of the columns about the initiator, in the order of storage.audit.
_WHO_TYPES = "text, text, text, varchar, varchar, text"
# The records of what was changed (storage.audit); an empty array of texts keeps none.
_RECORDED = """
recorded AS (
    INSERT INTO audit_records (recorded_at, action, kind, target, consumer_id, revision, after,
                               user_id, project_id, roles, request_id, global_request_id, address)
    SELECT $1, 'create', {kind}, {target}, given.consumer, pg_current_xact_id(), given.after, {who}
      FROM unnest($2, {texts}{by}) AS given(consumer, after{of}) WHERE cardinality({texts}) > 0
)
"""
# Each of the consumers may have been claimed by another initiator.
_BY_MANY = {
    "who": "person, project, roles, request, global_request, address",
    "by": ", $18, $19, $20, $21, $22, $23",
    "of": ", person, project, roles, request, global_request, address",
}
# $1 is the time. $2 to $6 are consumers: uuid, project, user, type, cluster. $7 to $12 are rises of use:
# provider, class, delta, least, most, divisor. $13 to $16 are amounts: consumer, provider, class, amount.
_CLAIM_TYPES = (
    "timestamp, varchar[], varchar[], varchar[], varchar[], integer[], "
    "varchar[], varchar[], bigint[], bigint[], bigint[], bigint[], varchar[], varchar[], varchar[], bigint[]"
)
_IS_WHOLE = "applied = cardinality($7) AND allocated = cardinality($13)"
# Casting this text to a number fails, which undoes everything; the log of the database shows it.
_OUTCOME = """
SELECT CASE WHEN {is_whole} THEN pg_current_xact_id()::text::bigint
            ELSE CAST('claim refused, ' || applied || ' of ' || cardinality($7) || ' fit' AS bigint)
       END{besides}
  FROM counted
"""
_NOT_A_NUMBER = "22P02"

# -- consumers that are not pods ------------------------------------------------------------------------

_FRESH_CLAIM = f"""
WITH consumer AS ({_CONSUMERS.format(condition="true", **_WITH_REQUESTS)}),
{_AMOUNTS.format(providers="$25", **_BY_STEPS)}, {
    _RECORDED.format(kind="'allocations'", target="given.consumer", texts="$17", **_BY_MANY)
}
{_OUTCOME.format(is_whole=_IS_WHOLE, besides="")}
"""

# -- a pod on a node ------------------------------------------------------------------------------------

# Behind _CLAIM_TYPES: $17 providers to stamp; $18 to $20 id and stamp of the host, units in use below it;
# $21, $22 logical CPUs and their exclusive levels; $23 to $30 the row of the pod; $31 to $39 kind, name,
# texts and initiator of the record; $40 the generation of the rules.
_POD_TYPES = (
    f"{_CLAIM_TYPES}, varchar[], integer, varchar, bigint, integer[], varchar[], "
    "integer, varchar, varchar, varchar, json, json, integer, integer, "
    f"varchar, text, text[], {_WHO_TYPES}, integer"
)
_POD_IS_WHOLE = f"""
    {_IS_WHOLE} AND (SELECT count(*) FROM owned) = cardinality($21) AND (SELECT count(*) FROM pod) = 1
"""
# The stamps at the time of locking, which is later than the beginning of the statement.
_FORMER_STAMPS = ", (SELECT array_agg(ARRAY[id, revision::text::bigint]) FROM locked)"
_POD_ARRIVAL = f"""
WITH cluster AS (
    SELECT id FROM clusters WHERE id = $23 AND rules_generation = $40 FOR KEY SHARE
), host AS (
    SELECT id FROM resource_providers
     WHERE id = $18 AND revision = CAST(CAST($19 AS text) AS xid8) AND EXISTS (SELECT FROM cluster) FOR UPDATE
), below AS (
    SELECT COALESCE(sum(inventories.used), 0) AS used FROM inventories
      JOIN resource_providers AS member ON member.id = inventories.resource_provider_id
     WHERE member.root_provider_id = $18 AND member.cluster_id IS NOT NULL
), consumer AS (
    {_CONSUMERS.format(condition="EXISTS (SELECT FROM host) AND (SELECT used FROM below) = $20", **_BARE)}
), owned AS (
    INSERT INTO logical_cpus (node_id, cpu, consumer_id, exclusive_level)
    SELECT $30, given.cpu, consumer.uuid, given.level FROM consumer, unnest($21, $22) AS given(cpu, level)
    ON CONFLICT DO NOTHING RETURNING 1
), pod AS (
    INSERT INTO pods (cluster_id, namespace, name, uid, manifest, status, format, node_id, created_at)
    SELECT $23, $24, $25, $26, $27, $28, $29, $30, $1 FROM consumer
    ON CONFLICT DO NOTHING RETURNING 1
), {_AMOUNTS.format(providers="$17", **_BY_ONE)}, {
    _RECORDED.format(kind="$31", target="$32", texts="$33", who="$34, $35, $36, $37, $38, $39", by="", of="")
}
{_OUTCOME.format(is_whole=_POD_IS_WHOLE, besides=_FORMER_STAMPS)}
"""

_STATEMENTS = {
    "placement_fresh_claim": (
        f"{_CLAIM_TYPES}, text[], {_WHO_TYPES.replace(',', '[],')}[], text[], varchar[], integer[]",
        _FRESH_CLAIM,
    ),
    "placement_pod_arrival": (_POD_TYPES, _POD_ARRIVAL),
}
# Prepared once per connection: planning them would cost more than running them. A pooler may have given the
# session to another client before. The driver takes % for the start of a parameter.
_PREPARE = "; ".join(
    ["DEALLOCATE ALL"] + [f"PREPARE {name}({types}) AS {body}" for name, (types, body) in _STATEMENTS.items()]
).replace("%", "%%")
_EXECUTE = {
    name: f"EXECUTE {name}({', '.join(['%s'] * (types.count(',') + 1))})"
    for name, (types, _) in _STATEMENTS.items()
}


def claim(write: SingleWrite, values: Sequence[Any], limits: str) -> bool:
    """Claim for new consumers (allocations.claims); return False if it does nothing.

    `limits` are statements that bound its time, empty for the usual bounds. Raises errors of SQLAlchemy.
    """
    return _run("placement_fresh_claim", write, values, limits) is not None


def place(write: SingleWrite, values: Sequence[Any], limits: str) -> Stamped | None:
    """Place a new pod on a node (pods.statements); return what was written, None if that cannot be.

    `limits` as for `claim`. Raises errors of SQLAlchemy.
    """
    row = _run("placement_pod_arrival", write, values, limits)
    if row is None:
        return None
    server = str(write.connection.info[HISTORY_KEY])
    return Stamped(row[0], server, frozenset((id_, stamp) for id_, stamp in row[1]))


def _run(name: str, write: SingleWrite, values: Sequence[Any], limits: str) -> Any:
    connection = write.connection
    if name in connection.info:
        return _sent(name, write, values, limits)
    try:
        if _PREPARE not in connection.info:
            connection.exec_driver_sql(_PREPARE)
            connection.info[_PREPARE] = True
        # The plan is made now and kept, so it must not depend on the present size of the tables.
        connection.exec_driver_sql("SET enable_seqscan = off")
        row = _sent(name, write, values, limits)
        connection.exec_driver_sql("RESET enable_seqscan")
    except sa.exc.DBAPIError:
        connection.invalidate()
        raise
    connection.info[name] = True
    return row


def _sent(name: str, write: SingleWrite, values: Sequence[Any], limits: str) -> Any:
    """Return the row that the statement selects, None if it refuses: then its cast to a number fails."""
    # Statements of one message are one transaction, so the limits hold for the claim and for nothing else.
    statement = f"{limits}; {_EXECUTE[name]}" if limits else _EXECUTE[name]
    try:
        return write.send(statement, tuple(values)).one()
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "pgcode", None) == _NOT_A_NUMBER:
            return None
        raise
