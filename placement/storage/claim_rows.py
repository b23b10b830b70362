"""The rows that a claim of new consumers writes; a statement reads them by the names of their fields.

`placement.storage.backends.postgresql_claims` has the statement. It gets an object of this module as one JSON
document, so that no value is found by its position.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewConsumer:
    """A consumer that must not exist yet; its project, user and type are registered.

    Pods have a cluster. `request` is the request that is kept with other consumers.
    """

    uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    cluster_id: int | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class UsageRise:
    """A rise of the use of one inventory: see storage.tables."""

    provider_uuid: str
    class_name: str
    delta: int
    least: int
    most: int
    divisor: int


@dataclass(frozen=True, slots=True)
class InventoryAmount:
    """The amount that one consumer gets from one inventory."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    amount: int


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """The audit record of one consumer that was claimed for, with its initiator as it is stored."""

    kind: str
    target: str
    consumer_uuid: str
    after: str | None
    user_id: str | None
    project_id: str | None
    roles: str | None
    request_id: str | None
    global_request_id: str | None
    address: str | None


@dataclass(frozen=True, slots=True)
class NewClaims:
    """The claims of new consumers at one time, all or nothing.

    `providers` are the uuids of the providers to lock and stamp, and `steps` say by how much the generation
    of each rises. `rises` and `amounts` are of these providers. `records` are empty where none are kept.
    """

    now: datetime.datetime
    consumers: Sequence[NewConsumer]
    rises: Sequence[UsageRise]
    amounts: Sequence[InventoryAmount]
    providers: Sequence[str]
    steps: Sequence[int]
    records: Sequence[ClaimRecord]


@dataclass(frozen=True, slots=True)
class NewPod(NewClaims):
    """The claim of a pod on a node, and its row; a pod of its name or uid must not exist yet.

    The cluster must still have that `rules_generation` and the host that `host_revision`. `used_in_tree`
    units must be in use of what the import of the node made, all classes added. `cpus` are the logical CPUs
    that become its own, with their exclusive `levels`. `manifest` and `status` are JSON.
    """

    cluster_id: int
    rules_generation: int
    host_id: int
    host_revision: int
    used_in_tree: int
    cpus: Sequence[int]
    levels: Sequence[str | None]
    node_id: int | None
    namespace: str
    name: str
    uid: str
    manifest: str
    status: str
    format: int
