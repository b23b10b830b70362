"""Importing nodes and deleting them, with what their pods hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.dialects.koordinator.node.node import NodeImport, import_node
from placement.dialects.koordinator.node.tree import HostIdentity
from placement.dialects.koordinator.settings.settings import node_labels
from placement.domain.errors import BadRequest, Conflict
from placement.kubernetes.errors import ManifestError
from placement.kubernetes.pod_identity import consumer_of
from placement.scheduling.node_allocations import NodeAllocations, accounts_with, counted, shrunk
from placement.scheduling.node_info import NodeInfo, reported_pods
from placement.scheduling.node_offers import NodeOffers
from placement.scheduling.reserved import holders
from placement.services.clusters.cluster_lookup import found, unknown, unknown_node
from placement.services.clusters.node_loading import (
    ClusterFacts,
    NodeDescription,
    NodeLoader,
    facts_of,
    identity_of,
    stored_accounts,
)
from placement.services.clusters.node_writing import (
    NodeChanged,
    NodePlace,
    NodeWriter,
    PodAttributes,
)
from placement.services.clusters.trees import (
    InTheWay,
    TreeChange,
    bring_about,
    remove,
)
from placement.services.transactions import patiently
from placement.storage.database import Database, Executor, Transaction
from placement.storage.statements import (
    clusters,
    memberships,
    node_rows,
    providers,
)
from placement.storage.statements.clusters import Cluster, Node

_NOBODY = NodeAllocations()
_SHOWN = 10
_LONGEST_FINDING = 200


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """The outcome of an import: whether the node is new, what changed, warnings about its manifests."""

    created: bool
    change: TreeChange
    warnings: tuple[str, ...]


class NodeImports:
    """Imports nodes from manifests and deletes them; `loader` reads nodes as they are stored."""

    def __init__(self, database: Database, loader: NodeLoader, writer: NodeWriter) -> None:
        self._database = database
        self._loader = loader
        self._writer = writer

    def put(
        self, name: str, node_name: str, node: Mapping[str, Any], topology: Mapping[str, Any] | None
    ) -> ImportedNode:
        """Import a Node and its NodeResourceTopology; sending the same again changes nothing.

        Raises ManifestError (a BadRequest) with everything that is wrong, NotFound for the cluster, InTheWay
        when the node would shrink under live allocations.
        """

        def once() -> ImportedNode:
            # Each attempt reads it: the cluster may have been deleted and created again meanwhile.
            with self._database.read() as connection:
                cluster = found(connection, name)
            settings = cluster.settings
            imported = import_node(name, node, topology, settings["profile"], node_labels(settings))
            if imported.name != node_name:
                raise BadRequest(
                    f"Node.metadata.name: {imported.name!r} is not the node in the path, {node_name!r}"
                )
            attributes = self._writer.attributes(name, cluster.id)
            with self._database.write() as transaction:
                # The lock keeps the cluster as it is, and two imports of one node in order.
                if clusters.lock(transaction, name) is None:
                    raise unknown(name)
                if found(transaction, name).settings != settings:
                    raise NodeChanged("The settings of the cluster changed while the node was read.")
                importing = _Importing(transaction, cluster, self._loader, self._writer, attributes, imported)
                return importing.run(dict(node), dict(topology) if topology else None)

        return patiently(once)

    def delete(self, name: str, node_name: str) -> None:
        """Delete a node with its tree. Raises NotFound, InTheWay while pods or others use it."""

        def once() -> None:
            with self._database.write() as transaction:
                if clusters.lock(transaction, name) is None:
                    raise unknown(name)
                cluster = found(transaction, name)
                node = clusters.find_node(transaction, cluster.id, node_name)
                if node is None:
                    raise unknown_node(name, node_name)
                node_rows.lock(transaction, [node.provider_id])
                state = self.state(transaction, cluster, node)
                withdraw(transaction, self._writer, state, f"Node {node_name}")

        patiently(once)

    def check_readable(self, transaction: Transaction, cluster: Cluster) -> None:
        """Raises Conflict naming the nodes whose manifests cannot be read with these settings of the cluster.

        The caller has locked the cluster.
        """
        facts = facts_of(cluster)
        errors = self._loader.unreadable(transaction, facts)
        if errors:
            shown = [f"{name}: {str(error)[:_LONGEST_FINDING]}" for name, error in sorted(errors.items())]
            if len(shown) > _SHOWN:
                shown[_SHOWN:] = [f"and {len(shown) - _SHOWN} more"]
            raise Conflict(
                f"profile: {len(errors)} nodes of cluster {cluster.name} cannot be read under profile "
                f"{facts.settings.profile}; import them first with manifests that can. {'; '.join(shown)}"
            )

    def state(self, connection: Executor, cluster: Cluster, node: Node) -> NodeInfo:
        """A node with its pods and its other consumers."""
        return self._loader.load(connection, facts_of(cluster), [node.provider_id])[node.provider_id]


def withdraw(transaction: Transaction, writer: NodeWriter, state: NodeInfo, what: str) -> None:
    """Delete a node whose row is locked, and its tree, with the CPUs that kubelet gave to pods there.

    Raises InTheWay if pods are recorded there, or others hold something of it.
    """
    if state.pods:
        raise InTheWay(f"{what} still has pods.", {f"pod {pod.full_name}" for pod in state.pods})
    if state.reservations:
        kept = {f"reservation {each.name}" for each in state.reservations}
        raise InTheWay(f"{what} still has reservations.", kept)
    place = NodePlace(state.id, state.cluster_id, state.identity)
    writer.write(transaction, place, stored_accounts(transaction, state), _NOBODY, {})
    clusters.delete_node(transaction, state.id)
    remove(transaction, state.root_id, what)


@dataclass(slots=True)
class _Importing:
    transaction: Transaction
    cluster: Cluster
    loader: NodeLoader
    writer: NodeWriter
    attributes: PodAttributes
    imported: NodeImport

    def run(self, node: dict[str, Any], topology: dict[str, Any] | None) -> ImportedNode:
        transaction, cluster, name = self.transaction, self.cluster, self.imported.name
        facts = facts_of(cluster)
        known = clusters.find_node(transaction, cluster.id, name)
        description = self.loader.description(facts, name, node, topology)
        state = self._locked(facts, known, description)
        if state is not None and state.root_uuid != self.imported.tree.root.uuid:
            # A node that came back with another uid is another machine: its old tree goes first.
            withdraw(transaction, self.writer, state, f"The former machine of node {name}")
            known = state = None
        before = _NOBODY if state is None else stored_accounts(transaction, state)
        after = self._settled(description, state)
        if state is not None:
            _check_cpus(state, description.template.offers)
            recorded = {holder.consumer for holder in state.holders}
            less = shrunk(before, after, (state.offers, description.template.offers), recorded)
            self._write(state.id, state.identity, before, less)
            before = less
        root_id, change = bring_about(transaction, self.imported.tree, cluster.id)
        node_id = self._save(known, root_id, node, topology)
        self._write(node_id, description.identity, before, after)
        return ImportedNode(known is None, change, self.imported.warnings)

    def _locked(
        self, facts: ClusterFacts, known: Node | None, description: NodeDescription
    ) -> NodeInfo | None:
        if known is None:
            return None
        root_id = known.provider_id
        node_rows.lock(self.transaction, [root_id])
        try:
            return self.loader.load(self.transaction, facts, [root_id])[root_id]
        except ManifestError:
            # The manifests sent now replace stored ones that cannot be read.
            former = replace(description, identity=identity_of(facts, known.name, known.manifest))
            return self.loader.load(self.transaction, facts, [root_id], given={root_id: former})[root_id]

    def _settled(self, description: NodeDescription, state: NodeInfo | None) -> NodeAllocations:
        template = description.template
        recorded = () if state is None else state.pods
        kept = () if state is None else state.reservations
        others = {} if state is None else state.others
        reported = reported_pods(self.cluster.name, template.imported, recorded)
        everybody = holders(template.imported, template.offers, recorded, kept)
        return accounts_with(counted(template.offers, everybody, others), reported)

    def _write(
        self, node_id: int, identity: HostIdentity, before: NodeAllocations, after: NodeAllocations
    ) -> None:
        imported = self.imported
        pods = (*imported.kubelet_pods, *imported.reported_pods)
        reported = {consumer_of(self.cluster.name, pod.uid) for pod in pods}
        fresh = (after.shares.keys() - before.shares.keys()) & reported
        bearers = {consumer: self.attributes.kubelet_pod(consumer) for consumer in sorted(fresh)}
        place = NodePlace(node_id, self.cluster.id, identity)
        self.writer.write(self.transaction, place, before, after, bearers)

    def _save(
        self, known: Node | None, root_id: int, node: dict[str, Any], topology: dict[str, Any] | None
    ) -> int:
        transaction, cluster = self.transaction, self.cluster
        joined = memberships.add_aggregate(transaction, root_id, cluster.aggregate_uuid)
        same = known is not None and (known.manifest, known.topology_manifest) == (node, topology)
        if joined or not same:
            # Caches of the node learn of new manifests by the stamp of the host.
            providers.touch(transaction, (), [root_id])
        if known is not None and same:
            return known.id
        return clusters.save_node(transaction, cluster.id, self.imported.name, root_id, node, topology)


def _check_cpus(state: NodeInfo, offers: NodeOffers) -> None:
    """Raises InTheWay if CPUs would disappear that pods hold."""
    gone = state.offers.cores.keys() - offers.cores.keys()
    held = {f"CPU {cpu} of pod {pod.full_name}" for pod in state.pods for cpu in pod.holding.cpus & gone}
    held |= {
        f"CPU {cpu} of reservation {each.name}"
        for each in state.reservations_left
        for cpu in each.holding.cpus & gone
    }
    if held:
        raise InTheWay(f"{state.identity.name()} would lose CPUs that pods hold.", held)
