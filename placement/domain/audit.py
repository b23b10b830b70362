"""Who changes what: the words of audit records, and who acts in this thread.

Actions, and the fields that are made of all this, are those of DMTF's Cloud Auditing Data Federation (CADF).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


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
