"""Who changes what: the words of audit records, and who acts in this thread.

Actions, and the fields that are made of all this, are those of DMTF's Cloud Auditing Data Federation (CADF).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

KEPT_DAYS = 90
"""How long records are kept, unless the configuration says otherwise."""


class Action(StrEnum):
    """What was done to a target."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Kind(StrEnum):
    """What was changed, and what its id is."""

    # The uuid of the provider, for what belongs to it, too.
    PROVIDER = "resource_provider"
    INVENTORIES = "inventories"
    TRAITS = "traits"
    AGGREGATES = "aggregates"
    # The uuid of the consumer.
    ALLOCATIONS = "allocations"
    # Names.
    RESOURCE_CLASS = "resource_class"
    TRAIT = "trait"
    CLUSTER = "cluster"
    # cluster/name, of pods cluster/namespace/name.
    NODE = "node"
    POD = "pod"
    RESERVATION = "reservation"
    # Much of it at once: what moved over, or what was completed.
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Initiator:
    """Who acts; without a user it is the service itself, or a command on its machine.

    `request_id` is ours, `global_request_id` that of the caller if there is one; `address` is where the
    request came from.
    """

    user_id: str | None = None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    request_id: str | None = None
    global_request_id: str | None = None
    address: str | None = None


NOBODY = Initiator()
_initiator: ContextVar[Initiator] = ContextVar("placement_initiator", default=NOBODY)


def act_as(initiator: Initiator) -> None:
    """Have what this thread (or context) changes from now on recorded under that name."""
    _initiator.set(initiator)


def initiator() -> Initiator:
    """Who acts at the moment."""
    return _initiator.get()


class Record(NamedTuple):
    """One change: what was done to which target, and what was there `before` and `after`.

    `consumer` is the uuid of the consumer whose allocations the change is about, if any; an update may have
    any of the two documents, a creation only the second, a deletion only the first.
    """

    action: Action
    kind: Kind
    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records are wanted: those to which all that is given applies; times are UTC without a zone.

    `request_id` is ours or the caller's; `until` itself is left out; of several `targets` any applies.
    """

    user_id: str | None = None
    project_id: str | None = None
    request_id: str | None = None
    action: str | None = None
    kind: str | None = None
    consumer_id: str | None = None
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    targets: tuple[str, ...] = ()


class StoredRecord(NamedTuple):
    """A record as it is kept; `before` and `after` are JSON."""

    id: int
    recorded_at: datetime.datetime
    action: str
    kind: str
    target: str
    consumer_id: str | None
    before: str | None
    after: str | None
    user_id: str | None
    project_id: str | None
    roles: str | None
    request_id: str | None
    global_request_id: str | None
    address: str | None


class RecordHead(NamedTuple):
    """What a list of records shows of each."""

    id: int
    recorded_at: datetime.datetime
    action: str
    kind: str
    target: str
    user_id: str | None
    project_id: str | None


class Change(NamedTuple):
    """A provider or consumer that changed; `generation` of providers that are still there.

    `kind` is Kind.DATABASE where so much changed at once that nobody listed it.
    """

    kind: str
    id: str
    action: str
    generation: int | None
