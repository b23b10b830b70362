"""Nodes of clusters: imported from their manifests as trees of providers, closed and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from placement.common.manifest import CLOSED, ManifestError, shown
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BODY, BadRequest, Conflict, PlacementError, RequestPlace
from placement.engine.domain.portions import portions
from placement.pods.koordinator.node import (
    import_like,
    import_node,
    unreadable_withholding,
    with_admitted,
    with_former_withholding,
)
from placement.pods.koordinator.settings import node_labels
from placement.pods.services.node_importing import (
    ImportedNode,
    Importing,
    NodeImporting,
    NodeStopped,
    predates_settings,
    withdraw,
)
from placement.pods.state.node_info import NodeInfo, NodeTemplate
from placement.pods.store import statements
from placement.pods.store.loader import NodeLoader, facts_of
from placement.pods.store.topologies import canonical_report
from placement.pods.store.writer import NodeChanged, PodAttributes, PodWriter
from placement.providers.statements import clusters, providers
from placement.providers.statements import names as catalog
from placement.providers.statements.clusters import Cluster, NewNode, Node, found, unknown, unknown_node
from placement.providers.trees import InTheWay, TreeChange
from placement.storage.database import Database, Executor, Transaction, retry_until_deadline

_AT_ONCE = 500
# Resource classes are shared by all clusters, and every list of classes has all of them.
_MOST_CLASSES = 64
_SHOWN = 10
_GONE = "the node is gone, and its pods have not ended yet"
_LONGEST_FINDING = 200

UNCHANGED = ImportedNode(False, TreeChange(), ())
"""The outcome for a node with manifests that are known."""


@dataclass(frozen=True, slots=True)
class NodeDocuments:
    """A node to import: the name that it must have, its Node and its NodeResourceTopology."""

    name: str
    node: Mapping[str, Any]
    topology: Mapping[str, Any] | None
    remarks: tuple[str, ...] = ()


class NodeImports:
    """A use case that imports nodes from manifests and deletes them; `loader` reads stored nodes."""

    for_bound_callers = True

    def __init__(
        self, database: Database, loader: NodeLoader, writer: PodWriter, prefixes: Sequence[str] = ()
    ) -> None:
        """Take the prefixes of the resources that nodes may have; without prefixes they may have any."""
        self._prefixes = prefixes
        self._database = database
        self._loader = loader
        self._writer = writer

    def put(
        self, name: str, node_name: str, node: Mapping[str, Any], topology: Mapping[str, Any] | None
    ) -> ImportedNode:
        """Import a Node and its NodeResourceTopology; sending equal manifests again changes nothing.

        A node that offers less than is held of it is imported as it is, since manifests report facts. The
        warnings name allocations beyond that. Raises ManifestError (a BadRequest) with everything that is
        wrong, NotFound for the cluster, InTheWay if a provider above one of another caller disappears.
        """
        (outcome,) = self.put_all(name, [NodeDocuments(node_name, node, topology)], skip_known=False)
        if isinstance(outcome, PlacementError):
            raise outcome
        return outcome

    def _admitted(self, documents: NodeDocuments) -> NodeDocuments:
        """Return a node without the resources that no prefix admits, with a remark that names them."""
        if not self._prefixes:
            return documents
        node, topology, left_out = with_admitted(documents.node, documents.topology, self._prefixes)
        if not left_out:
            return documents
        named = [shown(name) for name in left_out[:_SHOWN]]
        if len(left_out) > _SHOWN:
            named.append(f"and {len(left_out) - _SHOWN} more")
        remark = (
            "Node.status.allocatable: resources without a prefix in [clusters] resource_prefixes are left "
            f"out, also of zones: {', '.join(named)}"
        )
        return NodeDocuments(documents.name, node, topology, (remark,))

    def put_all(
        self, name: str, documents: Sequence[NodeDocuments], *, skip_known: bool = True
    ) -> list[ImportedNode | PlacementError]:
        """Import many nodes in one transaction; return the outcome of each, or why it was refused.

        `skip_known`: a node with the manifests that were imported last is left as it is, so manual changes of
        its providers stay, unless the settings of the cluster changed since. Otherwise this acts like `put`
        on each node: nothing of a refused node is written, and all that is written fits what is stored at
        the commit. Raises NotFound for the cluster, Unavailable.
        """
        admitted = [self._admitted(each) for each in documents]
        refused: dict[int, PlacementError] = {}
        once = partial(self._put_once, name, admitted, refused, skip_known=skip_known)
        while True:
            try:
                return retry_until_deadline(once)
            except NodeStopped as stopped:
                # The transaction undid what was written of the node, so the others begin again without it.
                if len(admitted) == 1:
                    raise stopped.error from None
                refused[stopped.place] = stopped.error

    def _put_once(
        self,
        name: str,
        documents: Sequence[NodeDocuments],
        refused: Mapping[int, PlacementError],
        *,
        skip_known: bool,
    ) -> list[ImportedNode | PlacementError]:
        """Import nodes without the refused ones, by place. Raises NodeStopped, NodeChanged."""
        # 1. Stored nodes. The cluster may have been deleted and created again since the attempt before.
        with self._database.read() as connection:
            cluster = found(connection, name)
            names = [each.name for each in documents]
            known_nodes = clusters.find_nodes(connection, cluster.id, names) if skip_known else {}
        # 2. Manifests that changed.
        outcomes: dict[int, ImportedNode | PlacementError] = dict(refused)
        importing: dict[int, Importing] = {}
        machines: dict[str, str] = {}
        reading = _Reading(self._loader, cluster, many=len(documents) > 1)
        for place, each in enumerate(documents):
            unchanged = _unchanged(known_nodes.get(each.name), each, cluster)
            if unchanged is not None:
                outcomes[place] = unchanged
            elif place not in refused:
                try:
                    read = self._read(reading, cluster, each)
                    # Another node of the call may be the same machine.
                    other = machines.setdefault(read.node_import.tree.root.uuid, read.name)
                    if other != read.name:
                        raise BadRequest(
                            f"already belongs to node {other!r}",
                            place=RequestPlace("Node") / "metadata" / "uid",
                        )
                    importing[place] = read
                except BadRequest as error:
                    outcomes[place] = error
        # 3. One transaction.
        if importing:
            outcomes |= self._import(cluster, importing)
        return [outcomes[place] for place in range(len(documents))]

    def _read(self, reading: _Reading, cluster: Cluster, documents: NodeDocuments) -> Importing:
        """Read the manifests of a node. Raises ManifestError, BadRequest.

        Annotations that withhold CPUs and cannot be read keep their stored values.
        """
        importing = reading.of(documents)
        if importing.node_import.withholding:
            with self._database.read() as connection:
                former_node = clusters.find_node(connection, cluster.id, documents.name)
            importing = reading.of(_withholding_as_before(former_node, documents))
            importing.completed_from = ()
            if former_node is not None:
                importing.completed_from = (former_node.manifest, former_node.topology_manifest)
        return importing

    def _import(
        self, cluster: Cluster, importing: Mapping[int, Importing]
    ) -> dict[int, ImportedNode | PlacementError]:
        attributes = self._writer.register_attributes(cluster)
        with self._database.write() as transaction:
            # The lock keeps the cluster as it is, and makes two imports of one node follow each other.
            if clusters.lock(transaction, cluster.name) is None:
                raise unknown(cluster.name)
            if found(transaction, cluster.name).settings != cluster.settings:
                raise NodeChanged("The settings of the cluster changed while the node was read.")
            node_importing = NodeImporting(
                transaction, cluster, self._loader, self._writer, attributes, cuts=True
            )
            return node_importing.run(importing)

    def register_attributes(self, cluster: Cluster) -> PodAttributes:
        """Return the attributes of consumers of a cluster; callers ask before their transaction begins."""
        return self._writer.register_attributes(cluster)

    def delete(
        self, name: str, node_name: str, *, closes: bool = False, with_reservations: bool = False
    ) -> None:
        """Delete a node with its tree. Raises NotFound, InTheWay while pods or others use it.

        `closes`: a node in use takes no new pod from then on, until it is imported again.
        `with_reservations`: reservations do not keep the node, and are deleted with it, or stay with it.
        """

        def once() -> None:
            try:
                self._delete(name, node_name, with_reservations=with_reservations)
            except InTheWay:
                if closes:
                    self._close(name, node_name)
                raise

        retry_until_deadline(once)

    def _locked(self, transaction: Transaction, name: str, node_name: str) -> tuple[Cluster, Node]:
        """Lock a node, and return it with its cluster. Raises NotFound."""
        if clusters.lock(transaction, name) is None:
            raise unknown(name)
        cluster = found(transaction, name)
        node = clusters.find_node(transaction, cluster.id, node_name)
        if node is None:
            raise unknown_node(name, node_name)
        statements.lock_hosts(transaction, [node.provider_id])
        return cluster, node

    def _delete(self, name: str, node_name: str, *, with_reservations: bool) -> None:
        with self._database.write() as transaction:
            cluster, node = self._locked(transaction, name, node_name)
            node_info = self.node_info(transaction, cluster, node)
            withdraw(transaction, self._writer, cluster, node_info, with_reservations=with_reservations)
            host = {"resource_provider": node_info.root_uuid}
            transaction.record(Action.DELETE, TargetKind.NODE, f"{name}/{node_name}", before=host)
            catalog.remove_unused(transaction)

    def _close(self, name: str, node_name: str) -> None:
        with self._database.write() as transaction:
            _, node = self._locked(transaction, name, node_name)
            # A manifest that was damaged may be anything.
            stored = _mapping(node.manifest)
            metadata = _mapping(stored.get("metadata"))
            annotations = _mapping(metadata.get("annotations"))
            if CLOSED in annotations:
                return
            manifest = {
                **stored,
                "metadata": {**metadata, "annotations": {**annotations, CLOSED: _GONE}},
            }
            new_node = NewNode(node_name, node.provider_id, manifest, node.topology_manifest)
            clusters.update_nodes(transaction, {node.id: new_node})
            providers.touch(transaction, (), [node.provider_id])
            after = {"closed": _GONE}
            transaction.record(Action.UPDATE, TargetKind.NODE, f"{name}/{node_name}", after=after)

    def import_again(
        self, transaction: Transaction, former_cluster: Cluster, attributes: PodAttributes
    ) -> None:
        """Import all nodes of a cluster from the manifests that are stored, under its new settings.

        `former_cluster` has the settings before. Offers of nodes and allocations of pods depend on the
        profile. The caller has locked the cluster and written the settings. Raises Conflict naming the nodes
        that cannot be read or refuse the change, NodeChanged, Unavailable.
        """
        cluster, before = found(transaction, former_cluster.name), facts_of(former_cluster)
        rows = sorted(statements.nodes(transaction, cluster.id), key=lambda row: row.root_id)
        for portion in portions(rows, _AT_ONCE):
            statements.lock_hosts(transaction, [row.root_id for row in portion])
        reading = _Reading(self._loader, cluster, many=True)
        importing = NodeImporting(
            transaction, cluster, self._loader, self._writer, attributes, cuts=False, former_facts=before
        )
        unread: dict[str, PlacementError] = {}
        for portion in portions(rows, _AT_ONCE):
            nodes: dict[int, Importing] = {}
            stored = clusters.find_nodes(transaction, cluster.id, [row.name for row in portion])
            for place, node in enumerate(stored.values()):
                try:
                    nodes[place] = reading.of(NodeDocuments(node.name, node.manifest, node.topology_manifest))
                except BadRequest as error:
                    unread[node.name] = error
            if unread:
                continue
            try:
                outcomes = importing.run(nodes)
            except NodeStopped as stopped:
                outcomes = {stopped.place: stopped.error}
            refused = {
                nodes[place].name: outcome
                for place, outcome in outcomes.items()
                if isinstance(outcome, PlacementError)
            }
            if refused:
                advice = "release these first:"
                raise _refusal(cluster, refused, "cannot be imported again", advice)
        if unread:
            raise _refusal(cluster, unread, "cannot be read", "import them first with manifests that can.")

    def node_info(
        self, connection: Executor, cluster: Cluster, node: Node, *, strict: bool = False
    ) -> NodeInfo:
        """Return a node with its pods and its other consumers. Raises ManifestError if it is `strict`."""
        roots = [node.provider_id]
        return self._loader.load(connection, facts_of(cluster), roots, strict=strict)[node.provider_id]


def _unchanged(known_node: Node | None, documents: NodeDocuments, cluster: Cluster) -> ImportedNode | None:
    """Return the outcome for a node with manifests that are known; None if they have to be imported."""
    given = documents.node, documents.topology
    if known_node is None or (known_node.manifest, known_node.topology_manifest) != given:
        return None
    if predates_settings(known_node, cluster):
        return None
    # What grants nothing because it cannot be read is named each time that it comes.
    still = unreadable_withholding(*given, cluster.settings["profile"])
    return replace(UNCHANGED, warnings=still) if still else UNCHANGED


def _withholding_as_before(former_node: Node | None, documents: NodeDocuments) -> NodeDocuments:
    """Return a node with its stored annotations in place of unreadable ones that withhold CPUs."""
    if former_node is None:
        return documents
    node, warnings = with_former_withholding(documents.node, _mapping(former_node.manifest))
    topology = documents.topology
    if topology is not None:
        topology, more = with_former_withholding(topology, _mapping(former_node.topology_manifest))
        warnings += more
    return NodeDocuments(documents.name, node, topology, (*documents.remarks, *warnings))


def _mapping(stored: Any) -> Mapping[str, Any]:
    """Return a stored document, or an empty one in place of any other value."""
    return stored if isinstance(stored, Mapping) else {}


def _refusal(cluster: Cluster, errors: Mapping[str, PlacementError], what: str, advice: str) -> Conflict:
    listed = [f"{name}: {str(error)[:_LONGEST_FINDING]}" for name, error in sorted(errors.items())]
    if len(listed) > _SHOWN:
        listed[_SHOWN:] = [f"and {len(listed) - _SHOWN} more"]
    return Conflict(
        f"{len(errors)} nodes of cluster {cluster.name} {what} under profile "
        f"{cluster.settings['profile']}; {advice} {'; '.join(listed)}",
        place=BODY / "profile",
    )


class _Reading:
    """The manifests of one call, read; of many like nodes, one is read in full."""

    def __init__(self, loader: NodeLoader, cluster: Cluster, *, many: bool) -> None:
        self._loader = loader
        self._cluster = cluster
        self._many = many
        # Referenced here, as the loader forgets templates without a reference.
        self._templates: set[NodeTemplate] = set()

    def of(self, documents: NodeDocuments) -> Importing:
        """Return the node that the manifests describe. Raises ManifestError, BadRequest."""
        node, topology = documents.node, documents.topology
        settings, name = self._cluster.settings, self._cluster.name
        labels, node_import = node_labels(settings), None
        if self._many:
            try:
                template = self._loader.template(settings["profile"], node, canonical_report(topology))
            except (ManifestError, AttributeError, TypeError):
                pass  # The manifests are malformed; reading them as a whole finds out what is wrong.
            else:
                self._templates.add(template)
                node_import = import_like(name, node, topology, template.node_import, labels)
        if node_import is None:
            node_import = import_node(name, node, topology, settings["profile"], labels)
        if node_import.name != documents.name:
            raise BadRequest(
                f"{node_import.name!r} is not the node in the path, {documents.name!r}",
                place=RequestPlace("Node") / "metadata" / "name",
            )
        if len(node_import.resource_names) > _MOST_CLASSES:
            raise BadRequest(
                f"the node and its zones need {len(node_import.resource_names)} "
                f"resource classes, one for each resource; a node may have {_MOST_CLASSES}",
                place=RequestPlace("Node") / "status" / "allocatable",
            )
        node_import = replace(node_import, warnings=(*documents.remarks, *node_import.warnings))
        return Importing(node_import, dict(node), dict(topology) if topology else None)
