"""The parts of nodes, manifests apart: of all nodes of a cluster, or of nodes with certain hosts."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.records import capacity_and_ratio, revision_number
from placement.storage.tables import IsSelected
from placement.storage.union_query import UnionQuery

_nodes, _pods, _providers = tables.nodes, tables.pods, tables.providers
_allocations, _consumers, _classes = tables.allocations, tables.consumers, tables.resource_classes


class NodeRow(NamedTuple):
    """A node without its manifests; `revision` is the stamp of its host provider."""

    id: int
    name: str
    root_id: int
    root_uuid: str
    revision: int
    imported_at: datetime.datetime


class PodRow(NamedTuple):
    """A pod on a node, with its stored status."""

    root_id: int
    id: int
    namespace: str
    name: str
    uid: str
    status: dict[str, Any]


class HostRecord(NamedTuple):
    """An inventory of a host provider: how much there is of it, and how much of that is used."""

    root_id: int
    class_name: str
    capacity: int
    used: int


class OtherUse(NamedTuple):
    """The amount that a consumer other than a pod of the cluster holds of one inventory in a node's tree."""

    root_id: int
    provider_name: str
    class_name: str
    amount: int
    consumer: str


class NodeParts(NamedTuple):
    """The rows of some nodes but their manifests; pods are in the order in which they were recorded."""

    nodes: list[NodeRow]
    pods: list[PodRow]
    records: list[HostRecord]
    others: list[OtherUse]


_SOME_NODES = (
    sa.select(
        _nodes.c.id,
        _nodes.c.name,
        _providers.c.id,
        _providers.c.uuid,
        revision_number(),
        sa.func.coalesce(_nodes.c.updated_at, _nodes.c.created_at),
    )
    .select_from(_nodes)
    .join(_providers, _providers.c.id == _nodes.c.resource_provider_id)
)
_SOME_PODS = (
    sa.select(
        _nodes.c.resource_provider_id,
        _pods.c.id,
        _pods.c.namespace,
        _pods.c.name,
        _pods.c.uid,
        _pods.c.status,
    )
    .select_from(_pods)
    .join(_nodes, _nodes.c.id == _pods.c.node_id)
)
_record = tables.inventories.c
_SOME_HOST_RECORDS = (
    sa.select(
        _record.resource_provider_id,
        _classes.c.name,
        _record.total,
        _record.reserved,
        _record.allocation_ratio,
        _record.used,
    )
    .select_from(tables.inventories)
    .join(_classes, _classes.c.id == _record.resource_class_id)
    .join(_nodes, _nodes.c.resource_provider_id == _record.resource_provider_id)
)
_SOME_USES = (
    sa.select(
        _providers.c.root_provider_id,
        _providers.c.name,
        _classes.c.name,
        _allocations.c.used,
        _allocations.c.consumer_id,
    )
    .select_from(_allocations)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    # Only the providers that the import of nodes made.
    .where(_providers.c.cluster_id.is_not(None))
)

_cluster = sa.bindparam("cluster", type_=sa.Integer)
NODES = _SOME_NODES.where(_nodes.c.cluster_id == _cluster)
PODS = _SOME_PODS.where(_nodes.c.cluster_id == _cluster)
HOST_RECORDS = _SOME_HOST_RECORDS.where(_nodes.c.cluster_id == _cluster)
OTHER_USES = _SOME_USES.join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id).where(
    _providers.c.cluster_id == _cluster, _consumers.c.cluster_id.is_distinct_from(_cluster)
)
"""The parts of all nodes of a cluster, in the order of NodeParts."""


def together(
    is_given: Callable[[sa.ColumnElement[int]], sa.ColumnElement[bool]], cluster: sa.ColumnElement[int]
) -> UnionQuery:
    """Return the queries for the parts of some nodes of a cluster, in the order of NodeParts.

    `is_given` is the condition that an id is one of their host providers.
    """
    node, member = _nodes.alias(), _providers.alias()
    nodes = sa.select(node.c.id).where(is_given(node.c.resource_provider_id))
    members = sa.select(member.c.id).where(is_given(member.c.root_provider_id))
    # Asked for each allocation of these trees: nearly all consumers are pods, and a plan that begins with the
    # other consumers walks through all consumers to find them.
    its_cluster = (
        sa.select(_consumers.c.cluster_id)
        .where(_consumers.c.uuid == _allocations.c.consumer_id)
        .scalar_subquery()
    )
    return UnionQuery(
        _SOME_NODES.where(is_given(_nodes.c.resource_provider_id)),
        _SOME_PODS.where(IsSelected(_pods.c.node_id, nodes)),
        _SOME_HOST_RECORDS.where(is_given(_record.resource_provider_id)),
        _SOME_USES.where(
            IsSelected(_allocations.c.resource_provider_id, members), its_cluster.is_distinct_from(cluster)
        ),
    )


def nodes_by_name(rows: Iterable[Sequence[Any]]) -> list[NodeRow]:
    """Return nodes sorted by name."""
    return sorted(starmap(NodeRow, rows), key=attrgetter("name"))


def read_nodes(rows: Sequence[Iterable[Sequence[Any]]]) -> NodeParts:
    """Return the parts of nodes from the rows of each."""
    found_nodes, found_pods, records, others = rows
    return NodeParts(
        nodes_by_name(found_nodes),
        sorted(starmap(PodRow, found_pods), key=attrgetter("id")),
        [
            HostRecord(root_id, class_name, capacity_and_ratio(total, reserved, ratio)[0], used)
            for root_id, class_name, total, reserved, ratio, used in records
        ],
        list(starmap(OtherUse, others)),
    )
