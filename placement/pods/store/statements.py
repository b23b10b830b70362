"""Statements on nodes, on pods, and on the logical CPUs that consumers own."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.allocations.statements.consumers import ConsumerAttributes
from placement.engine.domain.audit import AuditRecord
from placement.engine.domain.portions import portions
from placement.engine.domain.request_scope import initiator
from placement.pods.store.answers import PodAnswer
from placement.storage import node_parts, tables
from placement.storage.audit import claim_record
from placement.storage.backends.backend import Stamped
from placement.storage.claim_rows import InventoryAmount, NewConsumer, NewPod, UsageRise
from placement.storage.database import Database, Executor, RowStatement, Transaction
from placement.storage.json_text import written
from placement.storage.node_parts import NodeParts, NodeRow
from placement.storage.records import revision_number
from placement.storage.tables import TextMember

_pods = tables.pods
_nodes = tables.nodes
_cpus = tables.logical_cpus
_providers = tables.providers
_inventories = tables.inventories
_allocations = tables.allocations
_consumers = tables.consumers
_classes = tables.resource_classes
_AT_ONCE = 500

# A transaction that places pods locks their cluster first, as one may do so alone (clusters.lock_alone).
_cluster = (
    sa.select(tables.clusters.c.id)
    .where(tables.clusters.c.id == sa.bindparam("cluster"))
    .with_for_update(read=True, key_share=True)
)
_in_cluster = sa.exists(sa.select(_cluster.cte("cluster")))
_unchanged_cluster = _cluster.where(tables.clusters.c.rules_generation == sa.bindparam("generation"))
_in_unchanged_cluster = sa.exists(sa.select(_unchanged_cluster.cte("cluster")))


def lock_hosts(
    transaction: Transaction, roots: Collection[int], cluster_id: int | None = None
) -> dict[int, int]:
    """Lock host providers in ascending order of ids; return the stamps of the existing ones.

    `cluster_id`: the cluster of pods that may come to them.
    """
    statement = (
        sa.select(_providers.c.id, revision_number())
        .where(_providers.c.id.in_(sorted(roots)))
        .order_by(_providers.c.id)
        .with_for_update()
    )
    given = {}
    if cluster_id is not None:
        statement, given = statement.where(_in_cluster), {"cluster": cluster_id}
    return {row[0]: row[1] for row in transaction.execute(statement, given)}


_hosts_of = (
    sa.select(_providers.c.id)
    .where(
        _providers.c.id.in_(
            sa.select(_nodes.c.resource_provider_id).where(
                _nodes.c.cluster_id == sa.bindparam("cluster"),
                _nodes.c.name.in_(sa.bindparam("names", expanding=True)),
            )
        )
    )
    .order_by(_providers.c.id)
    .with_for_update()
)


def lock_hosts_of(transaction: Transaction, cluster_id: int, names: Collection[str]) -> set[int]:
    """Lock the host providers of the nodes with these names as `lock_hosts` does; return their ids."""
    given = {"cluster": cluster_id, "names": sorted(names)}
    return set(transaction.execute(_hosts_of, given).scalars())


class LockedHost(NamedTuple):
    """The stamp of a host with a locked row, and how much is used of the providers that its import made.

    `used` adds units of all classes.
    """

    revision: int
    used: int


_member = _providers.alias()
_used_in_tree = (
    sa.select(sa.func.sum(_inventories.c.used))
    .join(_member, _member.c.id == _inventories.c.resource_provider_id)
    .where(_member.c.root_provider_id == _providers.c.id, _member.c.cluster_id.is_not(None))
    .correlate(_providers)
    .scalar_subquery()
)
_trees = (
    sa.select(_providers.c.id, revision_number(), _used_in_tree)
    .where(_providers.c.id.in_(sa.bindparam("roots", expanding=True)))
    .order_by(_providers.c.id)
    .with_for_update()
)


_trees_for_pods = _trees.where(_in_unchanged_cluster)


def lock_with_use(
    transaction: Transaction, roots: Collection[int], cluster_id: int, generation: int | None
) -> dict[int, LockedHost]:
    """Lock host providers as `lock_hosts` does; return their stamps, with the sum of the units in use.

    None is locked unless the cluster has this generation of rules, if one is given.
    """
    given = {"roots": sorted(roots)}
    if generation is None:
        rows = transaction.execute(_trees, given)
    else:
        of_cluster = {"cluster": cluster_id, "generation": generation}
        rows = transaction.execute(_trees_for_pods, {**given, **of_cluster})
    return {row[0]: LockedHost(row[1], int(row[2] or 0)) for row in rows}


def nodes(connection: Executor, cluster_id: int) -> list[NodeRow]:
    """Return the nodes of a cluster by name."""
    return node_parts.nodes_by_name(connection.execute(node_parts.NODES, {"cluster": cluster_id}))


def all_parts(connection: Executor, cluster_id: int) -> NodeParts:
    """Return the rows of all nodes of a cluster; the connection should see one state of the database."""
    queries = (node_parts.NODES, node_parts.PODS, node_parts.HOST_RECORDS, node_parts.OTHER_USES)
    return node_parts.read_nodes([connection.execute(query, {"cluster": cluster_id}) for query in queries])


_ROOTS: Any = sa.bindparam("roots", expanding=True, type_=sa.Integer)
_PARTS = node_parts.together(lambda column: column.in_(_ROOTS), sa.bindparam("cluster", type_=sa.Integer))


def parts(connection: Executor, cluster_id: int, roots: Collection[int]) -> NodeParts:
    """Return the rows of the nodes of a cluster that have these host providers, by one statement."""
    found = connection.execute(_PARTS.statement, {"cluster": cluster_id, "roots": sorted(roots)})
    return node_parts.read_nodes(_PARTS.parted(found))


def node_manifests(
    connection: Executor, node_ids: Collection[int]
) -> dict[int, tuple[dict[str, Any], str | None]]:
    """Return the Node of nodes by their ids, and the text of the NodeResourceTopology."""
    topology = sa.cast(_nodes.c.topology_manifest, sa.Text)
    statement = sa.select(_nodes.c.id, _nodes.c.manifest, topology)
    rows = connection.execute(statement.where(_nodes.c.id.in_(sorted(node_ids))))
    return {row[0]: (row[1], row[2]) for row in rows}


class OwnUse(NamedTuple):
    """The amount that a pod of the cluster holds of one inventory in a node's tree."""

    root_id: int
    consumer_uuid: str
    provider_name: str
    class_name: str
    amount: int


def own_uses(connection: Executor, cluster_id: int, roots: Collection[int]) -> list[OwnUse]:
    """Return the amounts that pods of the cluster hold in some trees."""
    statement = (
        sa.select(
            _providers.c.root_provider_id,
            _allocations.c.consumer_id,
            _providers.c.name,
            _classes.c.name,
            _allocations.c.used,
        )
        .select_from(_allocations)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .where(_providers.c.root_provider_id.in_(sorted(roots)), _consumers.c.cluster_id == cluster_id)
    )
    return [OwnUse(*row) for row in connection.execute(statement)]


def tree_uuids(connection: Executor, roots: Collection[int]) -> dict[int, dict[str, str]]:
    """Return the uuids of the providers of some trees, by the id of the root and the name of the provider."""
    statement = sa.select(_providers.c.root_provider_id, _providers.c.name, _providers.c.uuid)
    found: dict[int, dict[str, str]] = {root_id: {} for root_id in roots}
    for root_id, name, uuid in connection.execute(
        statement.where(_providers.c.root_provider_id.in_(sorted(roots)))
    ):
        found[root_id][name] = uuid
    return found


# Rows of pods, and the logical CPUs that consumers own.


RESERVED = ""
"""The namespace of rows that are reservations: these have none, and are no pods."""


class StoredPod(NamedTuple):
    """A row of a pod; without node the pod occupies nothing. `status` has the answer and the record.

    Services define what `status` contains; another release may have written it.
    """

    id: int
    namespace: str
    name: str
    uid: str
    manifest: dict[str, Any]
    status: dict[str, Any]
    node_id: int | None
    node: str | None
    root_id: int | None
    root_uuid: str | None
    changed_at: datetime.datetime

    def values(self, status: Mapping[str, Any], form: int, node_id: int | None) -> PodValues:
        """Return the values of the row with this status, in that form, and the pod on that node."""
        return PodValues(self.namespace, self.name, self.uid, self.manifest, status, form, node_id)


_REPLACE = RowStatement(
    "UPDATE pods SET status = given.status, updated_at = :now FROM {rows} WHERE pods.id = given.id",
    "given",
    {"id": "integer", "status": "json"},
    sa.bindparam("now", type_=sa.DateTime),
)

_UPDATE = RowStatement(
    """
    UPDATE pods SET manifest = given.manifest, status = given.status, format = given.format,
                    node_id = given.node_id, updated_at = :now
      FROM {rows} WHERE pods.id = given.id
    """,
    "given",
    {"id": "integer", "manifest": "json", "status": "json", "format": "integer", "node_id": "integer"},
    sa.bindparam("now", type_=sa.DateTime),
)

_stored = (
    sa.select(
        *_pods.c["id", "namespace", "name", "uid", "manifest", "status", "node_id"],
        _nodes.c.name,
        _nodes.c.resource_provider_id,
        _providers.c.uuid,
        sa.func.coalesce(_pods.c.updated_at, _pods.c.created_at),
    )
    .select_from(_pods)
    .outerjoin(_nodes, _nodes.c.id == _pods.c.node_id)
    .outerjoin(_providers, _providers.c.id == _nodes.c.resource_provider_id)
)


NodeCpu = tuple[int, int]
"""The id of a node and one of its logical CPUs."""


def any_namesakes(
    connection: Executor, cluster_id: int, names: Collection[tuple[str, str]], uids: Collection[str]
) -> list[StoredPod]:
    """Return pods with any of these names, each with its namespace, or of these uids."""
    full = sa.tuple_(_pods.c.namespace, _pods.c.name).in_(sorted(names))
    statement = _stored.where(_pods.c.cluster_id == cluster_id, sa.or_(full, _pods.c.uid.in_(sorted(uids))))
    return [StoredPod(*row) for row in connection.execute(statement.order_by(_pods.c.id))]


# Made once: every request that places a pod or asks about one sends these.
_is_there = _pods.c.cluster_id == sa.bindparam("cluster")
_is_named = sa.and_(_pods.c.namespace == sa.bindparam("namespace"), _pods.c.name == sa.bindparam("name"))
_named = _stored.where(_is_there, _is_named)
_is_namesake = sa.or_(_pods.c.uid == sa.bindparam("uid"), _is_named)
_namesakes = _stored.where(_is_there, _is_namesake).order_by(_pods.c.id)
_place = (
    sa.select(_pods.c.uid, _nodes.c.name, sa.func.coalesce(_pods.c.updated_at, _pods.c.created_at))
    .join(_nodes, _nodes.c.id == _pods.c.node_id)
    .join(tables.clusters, tables.clusters.c.id == _pods.c.cluster_id)
    .where(tables.clusters.c.name == sa.bindparam("cluster"), _is_named)
)


def namesakes(
    connection: Executor, cluster_id: int, namespace: str, name: str, uid: str | None = None
) -> list[StoredPod]:
    """Return pods with this name or this uid."""
    statement, given = _named, {"cluster": cluster_id, "namespace": namespace, "name": name}
    if uid is not None:
        statement, given = _namesakes, {**given, "uid": uid}
    return list(starmap(StoredPod, connection.execute(statement, given)))


class PodPlace(NamedTuple):
    """The pod of a name that is on a node: its uid, the node, and when its row was written last."""

    uid: str
    node: str
    changed_at: datetime.datetime


def place_of(connection: Executor, cluster: str, namespace: str, name: str) -> PodPlace | None:
    """Return where the pod of this name is in the cluster of that name; None if it is on no node."""
    given = {"cluster": cluster, "namespace": namespace, "name": name}
    row = connection.execute(_place, given).first()
    return None if row is None else PodPlace(*row)


def reservations(connection: Executor, cluster_id: int, uids: Collection[str]) -> list[StoredPod]:
    """Return the reservations with these uids."""
    statement = _stored.where(
        _pods.c.cluster_id == cluster_id, _pods.c.namespace == RESERVED, _pods.c.uid.in_(sorted(uids))
    )
    return [StoredPod(*row) for row in connection.execute(statement.order_by(_pods.c.id))]


class PodValues(NamedTuple):
    """The columns of a pod's row besides cluster and name; `format` is the form of `status`."""

    namespace: str
    name: str
    uid: str
    manifest: Mapping[str, Any]
    status: Mapping[str, Any]
    format: int
    node_id: int | None


def insert(transaction: Transaction, cluster_id: int, values: Sequence[PodValues]) -> None:
    """Insert new pods; no statement runs for none."""
    if values:
        common = {"cluster_id": cluster_id, "created_at": transaction.now}
        transaction.execute(sa.insert(_pods), [{**each._asdict(), **common} for each in values])


def update(transaction: Transaction, values: Mapping[int, PodValues]) -> None:
    """Replace the values of rows, by id, of pods that keep their names and uids."""
    if values:
        rows = [
            (id_, written(each.manifest), written(each.status), each.format, each.node_id)
            for id_, each in values.items()
        ]
        _UPDATE.run(transaction, rows, now=transaction.now)


def replace_statuses(transaction: Transaction, statuses: Mapping[int, Mapping[str, Any]]) -> None:
    """Let rows, by id, have these statuses."""
    rows = [(id_, written(status)) for id_, status in statuses.items()]
    _REPLACE.run(transaction, rows, now=transaction.now)


def take_off(transaction: Transaction, node_id: int) -> list[int]:
    """Take all pods and reservations off a node, and return the ids of their rows, otherwise unchanged."""
    off = sa.update(_pods).where(_pods.c.node_id == node_id).values(node_id=None)
    return sorted(transaction.execute(off.returning(_pods.c.id)).scalars())


def put_on(transaction: Transaction, node_id: int, ids: Collection[int]) -> None:
    """Put pods and reservations that were taken off a node on this one; nothing else of them changes."""
    for some in portions(sorted(ids), _AT_ONCE):
        transaction.execute(sa.update(_pods).where(_pods.c.id.in_(some)).values(node_id=node_id))


def lock_rows(transaction: Transaction, ids: Collection[int]) -> None:
    """Lock rows by id: rows of pods on no node, which no lock of a host protects."""
    statement = sa.select(_pods.c.id).where(_pods.c.id.in_(sorted(ids))).order_by(_pods.c.id)
    transaction.execute(statement.with_for_update()).all()


def touch(transaction: Transaction, id_: int) -> None:
    """Mark a pod's row as changed now."""
    transaction.execute(sa.update(_pods).where(_pods.c.id == id_).values(updated_at=transaction.now))


def delete(transaction: Transaction, ids: Collection[int]) -> None:
    """Remove pods by the ids of their rows, at least one."""
    transaction.execute(sa.delete(_pods).where(_pods.c.id.in_(sorted(ids))))


@dataclass(frozen=True, slots=True)
class PodFilter:
    """A filter of pods by all that is given; `scheduled`: placed here and not reported since."""

    namespace: str | None = None
    node: str | None = None
    qos: str | None = None
    scheduled: bool = False


def page(
    connection: Executor,
    cluster_id: int,
    pod_filter: PodFilter,
    after: int,
    count: int,
    *,
    reservations: bool = False,
) -> list[StoredPod]:
    """Return the next pods of a cluster, or reservations, in the order in which they were recorded."""
    kind = _pods.c.namespace == RESERVED if reservations else _pods.c.namespace != RESERVED
    statement = _narrowed(_stored.where(kind), cluster_id, pod_filter, after)
    return [StoredPod(*row) for row in connection.execute(statement.limit(count))]


_head = (
    sa.select(*_pods.c["id", "namespace", "name", "uid"], _nodes.c.name, _pods.c.status)
    .select_from(_pods)
    .outerjoin(_nodes, _nodes.c.id == _pods.c.node_id)
    .where(_pods.c.namespace != RESERVED)
)


def heads(
    connection: Executor, cluster_id: int, pod_filter: PodFilter, after: int, count: int
) -> list[tuple[int, PodAnswer]]:
    """Return the next pods of a cluster as a list shows them, each with the id of its row."""
    statement = _narrowed(_head, cluster_id, pod_filter, after)
    return [
        (id_, _head_of(namespace, name, uid, node, status))
        for id_, namespace, name, uid, node, status in connection.execute(statement.limit(count))
    ]


def _head_of(namespace: str, name: str, uid: str, node: str | None, status: Any) -> PodAnswer:
    """Return class, phase and CPUs of a pod, empty where its status cannot be read."""
    members = status if isinstance(status, dict) else {}
    stored_answer = members.get("told")
    answer = stored_answer if isinstance(stored_answer, dict) else {}
    values = (members.get("consumer"), members.get("qos"), answer.get("phase"), answer.get("cpuset"))
    consumer, qos, phase, cpuset = (value if isinstance(value, str) else "" for value in values)
    return PodAnswer(namespace, name, uid, consumer, node, qos=qos, phase=phase, cpuset=cpuset)


def _narrowed(
    statement: sa.Select[Any], cluster_id: int, pod_filter: PodFilter, after: int
) -> sa.Select[Any]:
    statement = statement.where(_pods.c.cluster_id == cluster_id, _pods.c.id > after)
    for column, value in (
        (_pods.c.namespace, pod_filter.namespace),
        (_nodes.c.name, pod_filter.node),
        (TextMember(_pods.c.status, "qos"), pod_filter.qos),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if pod_filter.scheduled:
        statement = statement.where(TextMember(_pods.c.status, "told", "scheduled").in_(("true", "1")))
    return statement.order_by(_pods.c.id)


class PodPriority(NamedTuple):
    """A pod on a node, and how important it is."""

    namespace: str
    name: str
    uid: str
    consumer: str
    priority: int


def priorities(connection: Executor, node_ids: Collection[int]) -> dict[int, list[PodPriority]]:
    """Return the pods on each node, most important first; of equals, the ones that have been there longer."""
    statement = sa.select(
        *_pods.c["node_id", "namespace", "name", "uid"],
        TextMember(_pods.c.status, "consumer"),
        TextMember(_pods.c.manifest, "spec", "priority"),
    ).where(_pods.c.node_id.in_(sorted(node_ids)), _pods.c.namespace != RESERVED)
    found: dict[int, list[PodPriority]] = {node_id: [] for node_id in node_ids}
    for node_id, namespace, name, uid, consumer, priority in connection.execute(
        statement.order_by(_pods.c.id)
    ):
        found[node_id].append(PodPriority(namespace, name, uid, consumer or "", _whole(priority)))
    for pods in found.values():
        pods.sort(key=lambda pod: -pod.priority)
    return found


def _whole(number: str | None) -> int:
    """Return a number that is stored as text; 0 for a text that is no number, such as one written by hand."""
    try:
        return int(number or 0)
    except ValueError:
        return 0


def pod_manifests(connection: Executor, cluster_id: int, uids: Collection[str]) -> list[dict[str, Any]]:
    """Return the manifests of the pods with these uids."""
    statement = sa.select(_pods.c.manifest).where(_pods.c.cluster_id == cluster_id, _pods.c.uid.in_(uids))
    return list(connection.execute(statement).scalars())


def manifest_parts(connection: Executor, ids: Collection[int]) -> dict[int, tuple[Any, Any, Any]]:
    """Return labels, affinity and annotations in the manifests of pods by id; no statement runs for none."""
    found: dict[int, tuple[Any, Any, Any]] = {}
    if not ids:
        return found
    asked = sa.select(_pods.c.id, _pods.c.manifest)
    for some in portions(sorted(ids), _AT_ONCE):
        for id_, manifest in connection.execute(asked.where(_pods.c.id.in_(some))):
            parts = (
                manifest.get(name) if isinstance(manifest, dict) else None for name in ("metadata", "spec")
            )
            metadata, spec = (part if isinstance(part, dict) else {} for part in parts)
            found[id_] = metadata.get("labels"), spec.get("affinity"), metadata.get("annotations")
    return found


def specs_with_ports(connection: Executor, ids: Collection[int]) -> dict[int, Any]:
    """Return the spec in the manifests of pods that may have host ports, by id; no statement for none."""
    found: dict[int, Any] = {}
    if not ids:
        return found
    # Most pods have none, and the database leaves out their manifests.
    text = sa.cast(_pods.c.manifest, sa.Text)
    may_have = sa.or_(*(text.contains(f'"{name}"') for name in ("hostPort", "hostNetwork")))
    asked = sa.select(_pods.c.id, _pods.c.manifest).where(may_have)
    for some in portions(sorted(ids), _AT_ONCE):
        for id_, manifest in connection.execute(asked.where(_pods.c.id.in_(some))):
            if isinstance(manifest, dict):
                found[id_] = manifest.get("spec")
    return found


def owners(connection: Executor, node_ids: Collection[int]) -> dict[int, dict[int, tuple[str, str]]]:
    """Return (consumer, exclusive level) of the logical CPUs that have an owner, by node and CPU."""
    statement = sa.select(*_cpus.c["node_id", "cpu", "consumer_id", "exclusive_level"])
    wanted = statement.where(_cpus.c.node_id.in_(sorted(node_ids))).order_by(_cpus.c.cpu)
    found: dict[int, dict[int, tuple[str, str]]] = {}
    for row in connection.execute(wanted):
        found.setdefault(row[0], {})[row[1]] = (row[2], row[3] or "")
    return found


def cpus_of(connection: Executor, consumer: str) -> frozenset[int]:
    """Return the logical CPUs that a consumer owns; they are all of one node."""
    statement = sa.select(_cpus.c.cpu).where(_cpus.c.consumer_id == consumer)
    return frozenset(connection.execute(statement).scalars())


def disown(transaction: Transaction, cpus: Collection[NodeCpu]) -> None:
    """Take logical CPUs of nodes, at least one, from their owners."""
    place = sa.tuple_(_cpus.c.node_id, _cpus.c.cpu)
    transaction.execute(sa.delete(_cpus).where(place.in_(sorted(cpus))))


def own(transaction: Transaction, owners: Mapping[NodeCpu, tuple[str, str]]) -> None:
    """Give logical CPUs of nodes to their owners: (consumer, exclusive level).

    The key of the table refuses CPUs that have an owner already.
    """
    if owners:
        rows = [
            {"node_id": node_id, "cpu": cpu, "consumer_id": consumer, "exclusive_level": level or None}
            for (node_id, cpu), (consumer, level) in sorted(owners.items())
        ]
        transaction.execute(sa.insert(_cpus), rows)


# New pods on nodes, where the database can decide and store them in one round trip.


def place_at_once(
    database: Database,
    now: datetime.datetime,
    *,
    cluster_id: int,
    values: PodValues,
    consumer: ConsumerAttributes,
    host_id: int,
    host_revision: int,
    used_in_tree: int,
    providers: Sequence[str],
    amounts: Sequence[InventoryAmount],
    levels: Mapping[int, str],
    record: AuditRecord,
    rules_generation: int,
) -> Stamped | None:
    """Write a pod and all it gets; return None, with nothing done, if any of it cannot be.

    Consumer, name and uid must be new. The host must still have the stamp `host_revision`, and `used_in_tree`
    units must be in use of the inventories that its import made, all classes added. `providers` are the uuids
    of all providers to stamp. `levels` are the exclusive levels of the logical CPUs that the pod gets, by
    CPU. The cluster must still have that `rules_generation`.

    Returns None as well where the database has no such statement. Raises TryAgain, OutcomeUnknown,
    Unavailable.
    """
    # One consumer changes each inventory at most once.
    rises = [
        UsageRise(each.provider_uuid, each.class_name, *[each.amount] * len(_OF_AMOUNT)) for each in amounts
    ]
    described = (record.kind, record.target, consumer.uuid, record.after)
    pod = NewPod(
        now=now,
        consumers=[NewConsumer(*consumer)],
        rises=rises,
        amounts=amounts,
        providers=providers,
        steps=[1] * len(providers),
        records=[claim_record(*described, initiator())] if database.audits else [],
        cluster_id=cluster_id,
        rules_generation=rules_generation,
        host_id=host_id,
        host_revision=host_revision,
        used_in_tree=used_in_tree,
        cpus=list(levels),
        levels=[level or None for level in levels.values()],
        node_id=values.node_id,
        namespace=values.namespace,
        name=values.name,
        uid=values.uid,
        manifest=written(values.manifest),
        status=written(values.status),
        format=values.format,
    )
    return database.backend.place_at_once(database.single_write, pod)


_OF_AMOUNT = ("delta", "least", "most", "divisor")
