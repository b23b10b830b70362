"""New pods on nodes, where the database can decide and store them in one round trip."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.domain.audit import Record, initiator
from placement.storage.audit.writing import described, document
from placement.storage.backends.backend import Stamped
from placement.storage.database import Database
from placement.storage.statements.allocations import Amount, Rise
from placement.storage.statements.consumers import ConsumerAttributes
from placement.storage.statements.pods import PodValues


@dataclass(frozen=True, slots=True)
class PodArrival:
    """A pod whose consumer, name and uid must be new, and what it gets.

    `providers` are the uuids of all providers to stamp. The host must still carry the stamp `host_revision`,
    and `used_below` units must be in use of what its import made, all classes added. `levels` are the
    exclusive levels of the logical CPUs that become its own, by CPU. `record` is what its record shows. The
    cluster must still have that `rules_generation`.
    """

    cluster_id: int
    values: PodValues
    consumer: ConsumerAttributes
    host_id: int
    host_revision: int
    used_below: int
    providers: Sequence[str]
    amounts: Sequence[Amount]
    levels: Mapping[int, str]
    record: Record
    rules_generation: int


def place_at_once(database: Database, arrival: PodArrival, now: datetime.datetime) -> Stamped | None:
    """Write the pod and all it gets; None, and nothing done, if any of it cannot be.

    So it is, too, where the database has no such statement. Raises TryAgain, OutcomeUnknown, Unavailable.
    """
    values = arrival.values
    # One consumer changes each inventory at most once.
    rises = [
        Rise(each.provider_uuid, each.class_name, *[each.amount] * len(_OF_AMOUNT))
        for each in arrival.amounts
    ]
    columns = [
        *([value] for value in arrival.consumer),
        *_columns(rises, len(Rise._fields)),
        *_columns(arrival.amounts, len(Amount._fields)),
    ]
    row = (
        arrival.cluster_id,
        values.namespace,
        values.name,
        values.uid,
        _json(values.manifest),
        _json(values.status),
        values.format,
        values.node_id,
    )
    host = (arrival.host_id, str(arrival.host_revision), arrival.used_below)
    cpus = (list(arrival.levels), [level or None for level in arrival.levels.values()])
    record = arrival.record
    texts = [document(record.after)] if database.audits else []
    recorded = (record.kind, record.target, texts, *described(initiator()))
    wanted = (*host, *cpus, *row, *recorded, arrival.rules_generation)
    return database.backend.place_at_once(
        database.single_write, (now, *columns, list(arrival.providers), *wanted)
    )


_OF_AMOUNT = ("delta", "least", "most", "divisor")


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document)
