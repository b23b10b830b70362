"""Audit records and the terms that they use.

Actions and the fields of events are defined by DMTF's Cloud Auditing Data Federation (CADF).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

KEPT_DAYS = 90
"""The days for which records are kept, unless the configuration says otherwise."""


class Action(StrEnum):
    """An action on a target."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class TargetKind(StrEnum):
    """The kind of a target; comments say what its id is."""

    # The uuid of the provider, also for what belongs to it.
    PROVIDER = "resource_provider"
    INVENTORIES = "inventories"
    TRAITS = "traits"
    AGGREGATES = "aggregates"
    # The uuid of the consumer.
    ALLOCATIONS = "allocations"
    # The uuid of the aggregate.
    AGGREGATE = "aggregate"
    # Names.
    RESOURCE_CLASS = "resource_class"
    TRAIT = "trait"
    CLUSTER = "cluster"
    # cluster/name, of pods cluster/namespace/name.
    NODE = "node"
    POD = "pod"
    RESERVATION = "reservation"
    # Much of the database at once: what was migrated, completed or repaired.
    DATABASE = "database"


class AuditRecord(NamedTuple):
    """One change: the action, its target, and the documents `before` and `after`.

    `consumer` is the uuid of the consumer with the changed allocations, if any. An update may have either of
    the two documents, a creation only the second, a deletion only the first.
    """

    action: Action
    kind: TargetKind
    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter for records that match all given fields; times are UTC without a zone.

    `request_id` is either id of the request; `until` is exclusive; any of several `targets` matches.
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
    """A stored record; `before` and `after` are JSON."""

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


class DescribedRecord(NamedTuple):
    """A stored record with the names of its objects, for lists; `before` and `after` are JSON.

    `provider`: the provider that changed. `hosts_before` and `hosts_after`: the hosts of a consumer. Only
    names of providers that still exist are known.
    """

    id: int
    recorded_at: datetime.datetime
    action: str
    kind: str
    target: str
    user_id: str | None
    project_id: str | None
    before: str | None
    after: str | None
    provider: str | None = None
    hosts_before: tuple[str, ...] = ()
    hosts_after: tuple[str, ...] = ()


class Change(NamedTuple):
    """A provider or consumer that changed; only providers that still exist have a `generation`.

    `kind` is Kind.DATABASE where so much changed at once that no list was recorded.
    """

    kind: str
    id: str
    action: str
    generation: int | None
