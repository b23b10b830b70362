"""Statements on clusters and their nodes."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.errors import NameKind, NamesOf, NotFound
from placement.engine.domain.portions import portions
from placement.storage import tables
from placement.storage.changes import CLUSTER_CHANGED, record_change
from placement.storage.database import Executor, Transaction

_clusters = tables.clusters
_nodes = tables.nodes
_aggregates = tables.aggregates
_AT_ONCE = 500


class Cluster(NamedTuple):
    """A cluster; `aggregate_uuid` is the aggregate its hosts are in.

    `changed_at`: when its settings were changed last, None if never. `rules_generation` counts the pods with
    required anti-affinity that have come.
    """

    id: int
    name: str
    uuid: str
    aggregate_uuid: str
    settings: dict[str, Any]
    nodes: int
    changed_at: datetime.datetime | None = None
    rules_generation: int = 0


_counted = (
    sa.select(
        *_clusters.c["id", "name", "uuid"],
        _aggregates.c.uuid,
        _clusters.c.settings,
        sa.select(sa.func.count(_nodes.c.id)).where(_nodes.c.cluster_id == _clusters.c.id).scalar_subquery(),
        _clusters.c.updated_at,
        _clusters.c.rules_generation,
    )
    .select_from(_clusters)
    .join(_aggregates, _aggregates.c.id == _clusters.c.aggregate_id)
    .order_by(_clusters.c.name)
)


def listed(connection: Executor) -> list[Cluster]:
    """Return all clusters, in order of their names."""
    return [Cluster(*row) for row in connection.execute(_counted)]


class Aggregate(NamedTuple):
    """An aggregate; `cluster` has its hosts in it, and gives it its name."""

    id: int
    uuid: str
    name: str | None
    cluster: str | None


_aggregate = sa.select(
    *_aggregates.c["id", "uuid"], sa.func.coalesce(_clusters.c.name, _aggregates.c.name), _clusters.c.name
).select_from(_aggregates.outerjoin(_clusters, _clusters.c.aggregate_id == _aggregates.c.id))


def aggregates_called(connection: Executor) -> list[Aggregate]:
    """Return all aggregates."""
    return [Aggregate(*row) for row in connection.execute(_aggregate)]


def aggregates_named(connection: Executor, names: Collection[str]) -> list[Aggregate]:
    """Return the aggregates that have one of the names, in order of their UUIDs."""
    name = sa.func.coalesce(_clusters.c.name, _aggregates.c.name)
    aggregates: list[Aggregate] = []
    for some in portions(sorted(names), _AT_ONCE):
        rows = connection.execute(_aggregate.where(name.in_(some)).order_by(_aggregates.c.uuid))
        aggregates += (Aggregate(*row) for row in rows)
    return aggregates


def aggregates_with(connection: Executor, ids: Collection[int]) -> dict[int, list[Aggregate]]:
    """Return the aggregates that providers are in, by provider id."""
    pairs = tables.provider_aggregates
    owner = pairs.c.resource_provider_id
    statement = _aggregate.join(pairs, pairs.c.aggregate_id == _aggregates.c.id).add_columns(owner)
    found: dict[int, list[Aggregate]] = defaultdict(list)
    for row in connection.execute(statement.where(owner.in_(sorted(ids))).order_by(_aggregates.c.uuid)):
        found[row[-1]].append(Aggregate(*row[:-1]))
    return found


def aggregates_by_id(connection: Executor, ids: Collection[int]) -> dict[int, Aggregate]:
    """Return some aggregates by their ids, as far as they may be seen."""
    statement = _aggregate.where(_aggregates.c.id.in_(sorted(ids)))
    rows = connection.execute(statement.where(_may_be_seen()))
    return {row[0]: Aggregate(*row) for row in rows}


def _may_be_seen() -> sa.ColumnElement[bool]:
    """Return the condition that an aggregate is not that of a cluster which is hidden from the caller."""
    visible = request_scope.visible_clusters()
    if visible is None:
        return sa.true()
    return _clusters.c.name.is_(None) | _clusters.c.name.in_(sorted(visible))


def lock_aggregate(transaction: Transaction, uuid: str) -> Aggregate | None:
    """Lock an aggregate against other names; return it as it is."""
    locked = _aggregate.with_for_update(of=_aggregates, key_share=True)
    row = transaction.execute(locked.where(_aggregates.c.uuid == uuid)).first()
    return Aggregate(*row) if row else None


def name_aggregate(transaction: Transaction, id_: int, name: str | None) -> None:
    """Give an aggregate a name, or none."""
    changed = {"name": name, "updated_at": transaction.now}
    transaction.execute(sa.update(_aggregates).where(_aggregates.c.id == id_).values(changed))


class ListedAggregate(NamedTuple):
    """An aggregate, and how many providers are in it."""

    id: int
    uuid: str
    name: str | None
    cluster: str | None
    providers: int


def aggregates_after(
    connection: Executor, cluster: str | None, after: int, count: int, among: Collection[str] | None = None
) -> list[ListedAggregate]:
    """Return the next aggregates by id that may be seen; `among` these uuids, None for all.

    With a `cluster` only providers of its trees count, and aggregates without any are left out.
    """
    pairs, homes, home = tables.provider_aggregates, sa.alias(tables.provider_aggregates), sa.alias(_clusters)
    members = sa.select(sa.func.count()).where(pairs.c.aggregate_id == _aggregates.c.id)
    if cluster is not None:
        roots = sa.select(homes.c.resource_provider_id).join(
            home, home.c.aggregate_id == homes.c.aggregate_id
        )
        members = members.join_from(pairs, _providers, _providers.c.id == pairs.c.resource_provider_id)
        members = members.where(_root_id.in_(roots.where(home.c.name == cluster)))
    number = members.correlate(_aggregates).scalar_subquery()
    statement = _aggregate.add_columns(number).where(_aggregates.c.id > after)
    if cluster is not None:
        statement = statement.where(number > 0)
    if among is not None:
        statement = statement.where(_aggregates.c.uuid.in_(sorted(among)))
    statement = statement.where(_may_be_seen())
    rows = connection.execute(statement.order_by(_aggregates.c.id).limit(count))
    return [ListedAggregate(*row) for row in rows]


def aggregates_of(connection: Executor, names: Collection[str]) -> frozenset[int]:
    """Return the ids of the aggregates of clusters, by their names."""
    statement = sa.select(_clusters.c.aggregate_id).where(_clusters.c.name.in_(sorted(names)))
    return frozenset(row[0] for row in connection.execute(statement))


def find_cluster(connection: Executor, name: str) -> Cluster | None:
    """Return the cluster of this name."""
    row = connection.execute(_counted.where(_clusters.c.name == name)).first()
    return Cluster(*row) if row else None


def lock(transaction: Transaction, name: str) -> int | None:
    """Lock the cluster's row against other calls of this function and against deletion; return its id.

    Pods of the cluster may still be recorded meanwhile: their rows only refer to it.
    """
    statement = sa.select(_clusters.c.id).where(_clusters.c.name == name).with_for_update(key_share=True)
    found: int | None = transaction.execute(statement).scalar_one_or_none()
    return found


def lock_alone(transaction: Transaction, id_: int) -> None:
    """Lock a cluster so that only this transaction adds pods, and wait for pods that are being added.

    Callers lock the cluster before any node.
    """
    transaction.execute(sa.select(_clusters.c.id).where(_clusters.c.id == id_).with_for_update())


def raise_rules_generation(transaction: Transaction, id_: int) -> None:
    """Count a pod with required anti-affinity that comes to a cluster that is locked alone."""
    raised = {_clusters.c.rules_generation: _clusters.c.rules_generation + 1}
    transaction.execute(sa.update(_clusters).where(_clusters.c.id == id_).values(raised))


def insert(
    transaction: Transaction, name: str, uuid: str, aggregate_uuid: str, settings: dict[str, Any]
) -> bool:
    """Insert a cluster with an aggregate of its own; return False if the name is taken."""
    now = transaction.now
    aggregate = transaction.insert_or_ignore(_aggregates).values(uuid=aggregate_uuid, created_at=now)
    transaction.execute(aggregate)
    of_uuid = sa.select(_aggregates.c.id).where(_aggregates.c.uuid == aggregate_uuid)
    aggregate_id = transaction.execute(of_uuid).scalar_one()
    statement = transaction.insert_or_ignore(_clusters).values(
        name=name, uuid=uuid, aggregate_id=aggregate_id, settings=settings, created_at=now
    )
    id_ = transaction.execute(statement.returning(_clusters.c.id)).scalar_one_or_none()
    if id_ is not None:
        record_change(transaction, CLUSTER_CHANGED, [id_])
    return id_ is not None


def update_settings(transaction: Transaction, id_: int, settings: dict[str, Any]) -> None:
    """Replace the settings."""
    changed = {"settings": settings, "updated_at": transaction.now}
    transaction.execute(sa.update(_clusters).where(_clusters.c.id == id_).values(changed))
    record_change(transaction, CLUSTER_CHANGED, [id_])


def delete(transaction: Transaction, id_: int) -> None:
    """Remove a cluster without nodes, with its marks on other rows, and with pods that have no node."""
    transaction.execute(sa.delete(tables.pods).where(tables.pods.c.cluster_id == id_))
    for table in (tables.providers, tables.consumers):
        transaction.execute(sa.update(table).where(table.c.cluster_id == id_).values(cluster_id=None))
    transaction.execute(sa.delete(_clusters).where(_clusters.c.id == id_))
    record_change(transaction, CLUSTER_CHANGED, [id_])


class Node(NamedTuple):
    """A node with the manifests it was last imported from; `provider_id` is its host provider."""

    id: int
    name: str
    provider_id: int
    manifest: dict[str, Any]
    topology_manifest: dict[str, Any] | None
    imported_at: datetime.datetime


_node = sa.select(
    *_nodes.c["id", "name", "resource_provider_id", "manifest", "topology_manifest"],
    sa.func.coalesce(_nodes.c.updated_at, _nodes.c.created_at),
)


def find_node(connection: Executor, cluster_id: int, name: str) -> Node | None:
    """Return the node of this name."""
    return find_nodes(connection, cluster_id, [name]).get(name)


def find_nodes(connection: Executor, cluster_id: int, names: Collection[str]) -> dict[str, Node]:
    """Return the nodes that exist, by name."""
    statement = _node.where(_nodes.c.cluster_id == cluster_id, _nodes.c.name.in_(sorted(names)))
    return {row[1]: Node(*row) for row in connection.execute(statement)}


class NamedNode(NamedTuple):
    """A node by name, with the uuid of its host provider and when it was imported first."""

    name: str
    root_uuid: str
    created_at: datetime.datetime


def nodes_of(connection: Executor, cluster_id: int) -> list[NamedNode]:
    """Return all nodes of a cluster, in order of their names."""
    statement = (
        sa.select(_nodes.c.name, tables.providers.c.uuid, _nodes.c.created_at)
        .join(tables.providers, tables.providers.c.id == _nodes.c.resource_provider_id)
        .where(_nodes.c.cluster_id == cluster_id)
        .order_by(_nodes.c.name)
    )
    return [NamedNode(*row) for row in connection.execute(statement)]


def node_on(connection: Executor, provider_id: int) -> str | None:
    """Return `cluster/node` of the node that has this provider as its host."""
    statement = (
        sa.select(_clusters.c.name, _nodes.c.name)
        .join(_nodes, _nodes.c.cluster_id == _clusters.c.id)
        .where(_nodes.c.resource_provider_id == provider_id)
    )
    row = connection.execute(statement).first()
    return f"{row[0]}/{row[1]}" if row else None


class HostedNode(NamedTuple):
    """A node that has a given provider as its host, without manifests, with the facts of its cluster."""

    cluster_id: int
    cluster: str
    settings: dict[str, Any]
    name: str
    imported_at: datetime.datetime


def place_of(connection: Executor, uuid: str) -> tuple[int, HostedNode | None] | None:
    """Return the id of the root above the provider with this uuid, and the node it hosts, if any."""
    row = connection.execute(_place_of, {"uuid": uuid}).first()
    if row is None:
        return None
    return row[0], None if row[1] is None else HostedNode(*row[1:])


def nodes_on(connection: Executor, uuids: Collection[str]) -> dict[int, HostedNode]:
    """Return the nodes that these hosts (uuids) are of, by the ids of the hosts."""
    rows = connection.execute(_hosted.where(_providers.c.uuid.in_(uuids), _nodes.c.name.is_not(None)))
    return {row[0]: HostedNode(*row[1:]) for row in rows}


_providers = tables.providers
_root_id = sa.func.coalesce(_providers.c.root_provider_id, _providers.c.id)
_hosted = (
    sa.select(
        _root_id,
        *_clusters.c["id", "name", "settings"],
        _nodes.c.name,
        sa.func.coalesce(_nodes.c.updated_at, _nodes.c.created_at),
    )
    .select_from(_providers)
    .outerjoin(_nodes, _nodes.c.resource_provider_id == _root_id)
    .outerjoin(_clusters, _clusters.c.id == _nodes.c.cluster_id)
)
_place_of = _hosted.where(_providers.c.uuid == sa.bindparam("uuid"))


class NewNode(NamedTuple):
    """A node to be written: its name, its host provider, its manifests."""

    name: str
    resource_provider_id: int
    manifest: dict[str, Any]
    topology_manifest: dict[str, Any] | None


def insert_nodes(transaction: Transaction, cluster_id: int, new_nodes: Sequence[NewNode]) -> dict[str, int]:
    """Insert nodes; return their ids by name."""
    if not new_nodes:
        return {}
    common = {"cluster_id": cluster_id, "created_at": transaction.now}
    rows = [{**node._asdict(), **common} for node in new_nodes]
    inserted = transaction.execute(sa.insert(_nodes).returning(_nodes.c.name, _nodes.c.id), rows)
    return {row[0]: row[1] for row in inserted}


def update_nodes(transaction: Transaction, changed: Mapping[int, NewNode]) -> None:
    """Replace the manifests of nodes by their ids."""
    columns = NewNode._fields[1:]
    for some in portions(sorted(changed.items()), _AT_ONCE):
        asked = (
            sa.values(
                sa.column("id", sa.Integer),
                *(sa.column(name, _nodes.c[name].type) for name in columns),
                name="wanted",
            )
            .data([(id_, *node[1:]) for id_, node in some])
            .cte("wanted")
        )
        values = {"updated_at": transaction.now, **{name: asked.c[name] for name in columns}}
        transaction.execute(sa.update(_nodes).where(_nodes.c.id == asked.c.id).values(values))


def note_import(transaction: Transaction, node_ids: Collection[int]) -> None:
    """Note that nodes were imported again now, from the manifests that are stored."""
    for some in portions(sorted(node_ids), _AT_ONCE):
        transaction.execute(sa.update(_nodes).where(_nodes.c.id.in_(some)).values(updated_at=transaction.now))


def delete_node(transaction: Transaction, node_id: int) -> None:
    """Remove a node's row and what is recorded of its CPUs; its providers are deleted separately."""
    cpus = tables.logical_cpus
    transaction.execute(sa.delete(cpus).where(cpus.c.node_id == node_id))
    transaction.execute(sa.delete(_nodes).where(_nodes.c.id == node_id))


# Finding clusters by name, and the errors for what does not exist.


NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


def found(connection: Executor, name: str) -> Cluster:
    """Return the cluster of this name. Raises NotFound."""
    cluster = find(connection, name)
    if cluster is None:
        raise unknown(name, none_found(connection, name))
    return cluster


def find(connection: Executor, name: str) -> Cluster | None:
    """Return the cluster of this name, None if there is none that may be seen."""
    # Names that no cluster can have are not looked up; a database would fail on some of them.
    return find_cluster(connection, name) if NAME.fullmatch(name) and request_scope.admits(name) else None


def none_found(connection: Executor, name: str) -> str:
    """Return in words that there is no cluster of this name; an aggregate of the name is spoken of."""
    words = f"No cluster {name} found"
    # Bound callers learn of nothing outside their clusters.
    is_looked_up = request_scope.visible_clusters() is None and name.isprintable() and len(name) <= 255
    if is_looked_up and aggregates_named(connection, [name]):
        return f"{words}; {name} is an aggregate: --aggregate or member_of asks for it"
    return words


def unknown(name: str, words: str | None = None) -> NotFound:
    """Return the error for a cluster that does not exist, in `words` if there is more to say."""
    return NotFound(
        words or f"No cluster {name} found",
        code="placement.cluster.not_found",
        value=name,
        known=NamesOf(NameKind.CLUSTER),
    )


def unknown_node(name: str, node_name: str) -> NotFound:
    """Return the error for a node that does not exist."""
    return NotFound(
        f"No node {node_name} found in cluster {name}",
        code="placement.node.not_found",
        value=node_name,
        known=NamesOf(NameKind.NODE, name),
    )


def unknown_pod(name: str, namespace: str, pod: str) -> NotFound:
    """Return the error for a pod that does not exist, or for a reservation, which has no namespace."""
    if not namespace:
        return NotFound(
            f"No reservation {pod} found in cluster {name}",
            code="placement.reservation.not_found",
            value=pod,
            known=NamesOf(NameKind.RESERVATION, name),
        )
    return NotFound(
        f"No pod {namespace}/{pod} found in cluster {name}",
        code="placement.pod.not_found",
        value=f"{namespace}/{pod}",
        known=NamesOf(NameKind.POD, name),
    )
