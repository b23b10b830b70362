"""Trees of providers as they are stored, with all that is held there, to draw hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.allocations.kubernetes_resources import host_class
from placement.allocations.orders import PODS
from placement.allocations.statements import lists
from placement.allocations.statements.lists import ListedHolding
from placement.common.manifest import shown
from placement.engine.domain import request_scope
from placement.engine.numa.cpus import CpuSet, LogicalCpu, SharedPool
from placement.pods.cache import ClusterCache, ClusterFacts, NodeLoader
from placement.pods.cycle import Kept, kept_on
from placement.pods.gangs import due_on
from placement.pods.host import (
    HOST,
    Place,
    foreign_cpus,
    host_pools,
    known_cpus,
    ledger_of,
    pod_cpus,
    report_differences,
)
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.model import KubeletPod, RecordedPod, Takeover
from placement.pods.node_info import NodeInfo, beyond_offers
from placement.pods.statements import RESERVED
from placement.providers import view
from placement.providers.service import missing
from placement.providers.statements import clusters, contents
from placement.providers.statements import providers as statements_providers
from placement.providers.statements.clusters import Aggregate, HostedNode, unknown
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import NamedPlace, TreeMember
from placement.storage import tables
from placement.storage.database import Database, Executor

# The view of a node beside its providers: the owner of each CPU, pools, kubelet, quarantine.


_BLIND = (
    "kubelet's CPU manager policy is not reported; CPUs that kubelet pins could be handed out a second time"
)


@dataclass(frozen=True, slots=True)
class CpuView:
    """One logical CPU and its owner.

    `owner`: pod, kubelet (a pod that kubelet manages), reported (a pod that is known by report only), system,
    reserved, kubelet-reserved, others (consumers that are no pods hold threads of its core), reservation, or
    free. Only kubelet-reserved, reservation and free ones are in the LS pool. `pods` are its holders, the
    owner first; there are several if they were reported so.
    """

    cpu: LogicalCpu
    owner: str
    pods: tuple[RecordedPod, ...] = ()
    kubelet_pod: KubeletPod | None = None
    consumer: str | None = None
    reservation: str | None = None


class NodePod(NamedTuple):
    """A pod with the CPUs of its list that the node has, and the CPUs on which its containers run.

    The latter are None if they are not known.
    """

    pod: RecordedPod
    cpus: CpuSet
    container_cpus: CpuSet | None


class ReportedPod(NamedTuple):
    """A pod that is known by report, and the consumer under which it would hold something."""

    consumer: str
    pod: KubeletPod


@dataclass(frozen=True, slots=True)
class NodeView:
    """The CPUs, pods and pools of a node; `takeover_warning` is set if the policy of kubelet is not known.

    `reported_pods` are known by report only; the node agent names `reported_ls_pools` and
    `reported_be_pools`. `remarks` say where a report differs from what is recorded or computed.
    """

    cpus: Sequence[CpuView]
    pods: Sequence[NodePod]
    kubelet_pods: Sequence[ReportedPod]
    ls_pools: Sequence[SharedPool]
    be_pools: Sequence[SharedPool]
    reported_pods: Sequence[ReportedPod]
    reported_ls_pools: Sequence[SharedPool]
    reported_be_pools: Sequence[SharedPool]
    remarks: Sequence[str]
    takeover: Takeover
    takeover_warning: str | None
    quarantined_by: Sequence[RecordedPod]
    reservations: Sequence[Kept]


def view_of(state: NodeInfo) -> NodeView:
    """Return the view of a node. Source: koordinator.md, "Pools", "Taking a host over"."""
    imported = state.template.imported
    foreign = foreign_cpus(state.offers, state.others)
    pools = host_pools(imported, ledger_of(imported, state.pods), foreign)
    managed = {consumer for consumer, _ in state.kubelet_pods}
    return NodeView(
        cpus=tuple(_cpus(state, foreign)),
        pods=[
            NodePod(pod, known_cpus(imported, pod), pod_cpus(imported, state.pods, pod, lambda: pools))
            for pod in state.pods
        ],
        kubelet_pods=[ReportedPod(*entry) for entry in state.kubelet_pods],
        ls_pools=pools.ls,
        be_pools=pools.be,
        reported_pods=[ReportedPod(*entry) for entry in state.reported_pods if entry[0] not in managed],
        reported_ls_pools=imported.ls_pools,
        reported_be_pools=imported.be_pools,
        remarks=(
            *report_differences(imported, state.pods, pools),
            *beyond_offers(state.offers, state.holders, {**state.others, **state.beside}),
        ),
        takeover=imported.takeover,
        takeover_warning=_BLIND if imported.takeover is Takeover.BLIND else None,
        quarantined_by=[pod for pod in state.pods if pod.unreadable],
        reservations=list(kept_on(state)),
    )


def _cpus(state: NodeInfo, foreign: CpuSet) -> Iterator[CpuView]:
    imported, owners = state.template.imported, state.accounts.cpus
    by_consumer = {pod.consumer: pod for pod in state.pods}
    kubelet = {cpu: entry for entry in state.kubelet_pods for cpu in entry[1].cpus}
    reported = dict(state.reported_pods)
    reserved = {each.consumer: each for each in state.reservations}
    others = (
        ("system", imported.system),
        ("reserved", imported.withheld),
        ("kubelet-reserved", imported.reserved),
        ("others", foreign),
    )
    for cpu, row in imported.topology.by_cpu.items():
        owner = owners.get(cpu)
        holders = tuple(pod for pod in state.pods if cpu in pod.holding.cpus)
        if owner is not None and owner.consumer in by_consumer and holders:
            first = by_consumer[owner.consumer]
            sharing = (pod for pod in holders if pod is not first)
            yield CpuView(row, "pod", (first, *sharing), consumer=owner.consumer)
        elif cpu in kubelet:
            consumer, pod = kubelet[cpu]
            yield CpuView(row, "kubelet", (), pod, consumer)
        elif owner is not None and owner.consumer in reported:
            yield CpuView(row, "reported", (), reported[owner.consumer], owner.consumer)
        elif owner is not None and owner.consumer in reserved and cpu not in imported.withheld:
            name = reserved[owner.consumer].name
            yield CpuView(row, "reservation", consumer=owner.consumer, reservation=name)
        else:
            yield CpuView(row, next((name for name, cpus in others if cpu in cpus), "free"))


def without_expired(node: NodeInfo) -> NodeInfo:
    """Return a node as a reader sees it: without its reservations that have expired by now.

    Readers write nothing; the next writer of the cluster releases what the reservations hold.
    """
    expired = frozenset(each.reservation.consumer for each in due_on({node.root_id: node}))
    return node.without(expired) if expired else node


def records_after(
    members: Sequence[TreeMember],
    records: Mapping[int, Mapping[int, Stored]],
    before: NodeInfo,
    after: NodeInfo,
) -> Mapping[int, Mapping[int, Stored]]:
    """Return the inventories of a tree, by provider id and class id, less what `after` does not hold."""
    if after is before:
        return records
    freed = Counter[Place]()
    for shares in before.accounts.shares.values():
        freed.update(shares)
    for shares in after.accounts.shares.values():
        freed.subtract(shares)
    paths = {member.id: before.identity.path(member.name) for member in members}
    return {
        id_: {
            class_id: record._replace(used=max(0, record.used - freed[Place(paths[id_], record.class_name)]))
            for class_id, record in of_provider.items()
        }
        for id_, of_provider in records.items()
    }


# Nodes that refuse pods whatever is free there, and why.


class ClosedNode(NamedTuple):
    """A node that refuses some pods, or all, for another reason than room; `provider` is its host's uuid."""

    cluster: str
    node: str
    provider: str
    why: str


class Closure(StrEnum):
    """A reason why a node takes no pods, or only some."""

    CLOSED = "closed"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    UNREADABLE = "unreadable"


class NodeState(NamedTuple):
    """The state of a node: how many pods count on it, why it is closed to pods, if it is, and its uid."""

    pods: int
    closed: list[Closure]
    uid: str | None


class ClosedNodes:
    """A search for closed nodes in clusters."""

    def __init__(self, cluster_cache: ClusterCache) -> None:
        self._cluster_cache = cluster_cache

    def of(self, cluster: str) -> list[ClosedNode]:
        """Return the nodes of a cluster that refuse pods, by name. Raises NotFound, Unavailable."""
        nodes = sorted(self._cluster_cache.snapshot(cluster).nodes.values(), key=lambda node: node.name)
        return [
            ClosedNode(cluster, node.name, node.root_uuid, why) for node in nodes for _, why in closures(node)
        ]

    def states(self, cluster: str) -> dict[str, NodeState]:
        """Return the states of the nodes of a cluster by name. Raises NotFound, Unavailable."""
        nodes = self._cluster_cache.snapshot(cluster).nodes.values()
        return {
            node.name: NodeState(
                _pods_on(node), list(dict.fromkeys(by for by, _ in closures(node))), node.identity.uid
            )
            for node in nodes
        }


def _pods_on(node: NodeInfo) -> int:
    """Return how many of the pods that the node may have are taken; if it has no limit, its pods."""
    name = host_class(PODS).name
    limit = node.offers.capacities.get(Place(HOST, name))
    return len(node.pods) if limit is None else limit - node.unused.get(name, limit)


def closures(node: NodeInfo) -> Iterator[tuple[Closure, str]]:
    """Yield the reasons for which a node takes no pods, or only some."""
    if node.attributes.closed is not None:
        yield Closure.CLOSED, f"it takes no new pod: {shown(node.attributes.closed)}"
    if node.attributes.unschedulable:
        yield Closure.CORDONED, "it is cordoned (spec.unschedulable)"
    for taint in node.attributes.taints:
        if taint.effect != "PreferNoSchedule":
            yield Closure.TAINTED, f"the taint {taint} keeps pods off that do not tolerate it"
    for finding in node.template.imported.unreadable:
        yield Closure.UNREADABLE, f"no pod is bound there, as what it withholds cannot be read: {finding}"
    for pod in node.pods:
        if pod.unreadable:
            why = f"no pod is bound there while the resource-status of pod {pod.full_name} cannot be read"
            yield Closure.UNREADABLE, why


__all__ = ["Check", "HostView", "HostViews", "NamedPlace", "TreeMember"]

_MOST_KNOWN = 200
Check = Callable[[str | None], None]
"""A check that refuses a caller without access to hosts, or to hosts of a cluster if its name is given."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A tree: its members in order of ids, their inventories by provider id, and what is held of them.

    `asked_for` is the uuid by which the tree was found, that of any member. If the root is the host of a
    node, `node` is that node, `view` its CPUs and pods, and `closed` what keeps pods off it.
    """

    asked_for: str
    root: TreeMember
    members: Sequence[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    held: Sequence[ListedHolding]
    node: HostedNode | None
    view: NodeView | None
    closed: Sequence[tuple[Closure, str]] = ()


class HostViews:
    """A reader of whole trees."""

    def __init__(self, database: Database, loader: NodeLoader) -> None:
        self._database = database
        self._loader = loader
        self._known: dict[int, NodeInfo] = {}

    def show(self, uuid: str, check: Check) -> HostView:
        """Return the tree of this provider, without what has expired there. Raises NotFound."""
        with self._database.snapshot() as connection:
            root_id, node = clusters.place_of(connection, uuid) or (None, None)
            cluster = None if node is None else node.cluster
            # A bound caller must not learn from a refusal that the provider exists.
            if root_id is None or not request_scope.admits(cluster):
                raise missing(uuid)
            check(cluster)
            members = statements_providers.tree_members(connection, root_id)
            records = contents.stored(connection, [member.id for member in members])
            held = lists.on_tree(connection, root_id)
            state = None if node is None else self._states(connection, {root_id: node})[root_id]
        root = next((member for member in members if member.parent_id is None), None)
        if root is None:
            raise missing(uuid)
        if state is None:
            return HostView(uuid, root, members, records, held, node, None)
        current = without_expired(state)
        gone = state.reserving - current.reserving
        left = [each for each in held if each.consumer_uuid not in gone]
        offered = records_after(members, records, state, current)
        closed = list(closures(current))
        return HostView(uuid, root, members, offered, left, node, view_of(current), closed)

    def nodes(self, uuids: Collection[str], sees: Callable[[str], bool]) -> dict[str, NodeInfo]:
        """Return the nodes behind these hosts, by uuid, as far as a caller sees their clusters.

        What has expired there is left out.
        """
        if not uuids:
            return {}
        with self._database.snapshot() as connection:
            hosted = clusters.nodes_on(connection, uuids)
            seen = {id_: node for id_, node in hosted.items() if sees(node.cluster)}
            states = self._states(connection, seen)
        return {node.root_uuid: without_expired(node) for node in states.values()}

    def _states(self, connection: Executor, hosted: Mapping[int, HostedNode]) -> dict[int, NodeInfo]:
        """Return the nodes by the ids of their hosts."""
        # Manifests are read again only if the node was imported again since.
        of_cluster: dict[ClusterFacts, list[int]] = {}
        for id_, node in hosted.items():
            facts = ClusterFacts(node.cluster_id, node.cluster, scheduler_settings(node.settings))
            of_cluster.setdefault(facts, []).append(id_)
        found: dict[int, NodeInfo] = {}
        for facts, ids in of_cluster.items():
            found |= self._loader.load(connection, facts, ids, self._known)
        if len(self._known) + len(found) > _MOST_KNOWN:
            self._known.clear()
        self._known |= found
        return found

    def aggregates(self, ids: Collection[int]) -> dict[int, list[Aggregate]]:
        """Return the aggregates in which providers are, by provider id."""
        with self._database.read() as connection:
            return clusters.aggregates_with(connection, ids)

    def places(self, uuids: Collection[str]) -> dict[str, NamedPlace]:
        """Return the providers of these uuids that exist, by uuid, with their names and hosts."""
        if not uuids:
            return {}
        with self._database.read() as connection:
            return statements_providers.named_places(connection, uuids)

    def roots_of(self, uuids: Collection[str]) -> list[str]:
        """Return the uuids of the roots of some providers, each once, in the order of the providers' ids."""
        with self._database.read() as connection:
            return list(dict.fromkeys(statements_providers.roots_of(connection, uuids)))


# A search for hosts, other providers, consumers and pods by what callers remember of them.


_providers, _consumers, _pods, _clusters = tables.providers, tables.consumers, tables.pods, tables.clusters
_roots = _providers.alias("roots")


class FoundConsumer(NamedTuple):
    """A consumer with a uuid, project or user that matches the text."""

    uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None


class FoundPod(NamedTuple):
    """A pod with a name or a uid that matches the text; `node` is None if it has no place."""

    cluster: str
    namespace: str
    name: str
    node: str | None


def _contains(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(text.lower(), autoescape=True)


def _begins(column: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return column.startswith(text.lower(), autoescape=True)


class FoundProvider(NamedTuple):
    """A provider with a name or a uuid that matches the text, and the host that it is a part of, or is."""

    uuid: str
    name: str
    cluster: str | None
    host_uuid: str
    host_name: str

    @property
    def is_root(self) -> bool:
        """Whether it is the host itself."""
        return self.uuid == self.host_uuid


class Finder:
    """A use case that looks in names, uuids, projects and users, whatever their case."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def providers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundProvider]:
        """Return providers by a part of their names or the beginning of their uuids; roots first, by name.

        Of a root that is found its parts, which have its name in theirs, are left out.
        """
        is_root = _providers.c.parent_provider_id.is_(None)
        found, with_root = (
            sa.or_(_contains(each.c.name, text), _begins(each.c.uuid, text)) for each in (_providers, _roots)
        )
        statement = (
            sa.select(*_providers.c["uuid", "name"], _clusters.c.name, *_roots.c["uuid", "name"])
            .join(_roots, _roots.c.id == _providers.c.root_provider_id)
            .outerjoin(_clusters, _clusters.c.id == _providers.c.cluster_id)
            .where(found, sa.or_(is_root, sa.not_(with_root)))
            .order_by(is_root.desc(), _providers.c.name)
        )
        return [FoundProvider(*row) for row in self._found(statement, cluster, most)]

    def consumers(self, text: str, cluster: str | None, most: int) -> Sequence[FoundConsumer]:
        """Return consumers by the beginning of their uuids, or a part of their project or user; by uuid."""
        project, user = tables.projects.c.external_id, tables.users.c.external_id
        statement = (
            sa.select(_consumers.c.uuid, project, user, tables.consumer_types.c.name)
            .select_from(_consumers)
            .join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
            .join(tables.users, tables.users.c.id == _consumers.c.user_id)
            .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
            .where(sa.or_(_begins(_consumers.c.uuid, text), _contains(project, text), _contains(user, text)))
            .order_by(_consumers.c.uuid)
        )
        if cluster is not None:
            statement = statement.join(_clusters, _clusters.c.id == _consumers.c.cluster_id)
        return [FoundConsumer(*row) for row in self._found(statement, cluster, most)]

    def pods(self, text: str, cluster: str | None, most: int) -> Sequence[FoundPod]:
        """Return pods by a part of `namespace/name` or the beginning of their uids; by cluster and name."""
        full_name = _pods.c.namespace + "/" + _pods.c.name
        statement = (
            sa.select(_clusters.c.name, _pods.c.namespace, _pods.c.name, tables.nodes.c.name)
            .select_from(_pods)
            .join(_clusters, _clusters.c.id == _pods.c.cluster_id)
            .outerjoin(tables.nodes, tables.nodes.c.id == _pods.c.node_id)
            .where(_pods.c.namespace != RESERVED)
            .where(sa.or_(_contains(full_name, text), _begins(_pods.c.uid, text)))
            .order_by(_clusters.c.name, full_name)
        )
        return [FoundPod(*row) for row in self._found(statement, cluster, most)]

    def names_of_pods(self, uids: Collection[str]) -> Mapping[str, str]:
        """Return `namespace/name` of the pods, and of reservations, with these uids."""
        statement = sa.select(*_pods.c["uid", "namespace", "name"]).where(_pods.c.uid.in_(uids))
        with self._database.read() as connection:
            rows = connection.execute(statement).all() if uids else ()
        return {
            uid: f"{'reservation ' if namespace == RESERVED else f'{namespace}/'}{name}"
            for uid, namespace, name in rows
        }

    def _found(self, statement: Any, cluster: str | None, most: int) -> Sequence[Any]:
        """Return some rows, of one cluster if it is given and may be seen. Raises NotFound, Forbidden."""
        if cluster is None:
            view.require_everything()
        elif not request_scope.admits(cluster):
            raise unknown(cluster)
        else:
            statement = statement.where(_clusters.c.name == cluster)
        with self._database.read() as connection:
            return connection.execute(statement.limit(most)).all()
