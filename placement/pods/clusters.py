"""Use cases on Kubernetes clusters and their nodes: manifests in, provider trees out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.allocations.orders import SCORING, candidates_order
from placement.common.manifest import CLOSED, ManifestError, shown
from placement.common.texts import disturbing
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BadRequest, Conflict, PlacementError
from placement.engine.domain.identifiers import portions
from placement.pods import statements
from placement.pods.cache import NodeLoader, canonical_report, facts_of
from placement.pods.koordinator.node import (
    import_like,
    import_node,
    unreadable_withholding,
    with_admitted,
    with_former_withholding,
)
from placement.pods.koordinator.settings import SETTINGS, node_labels, scheduler_settings
from placement.pods.node_importing import (
    ImportedNode,
    Importing,
    NodeImporting,
    NodeStopped,
    predates_settings,
    withdraw,
)
from placement.pods.node_info import NodeInfo, NodeTemplate
from placement.pods.views import NodeView, records_after, view_of, without_expired
from placement.pods.writer import NodeChanged, PodAttributes, PodWriter
from placement.providers.statements import clusters, contents, providers
from placement.providers.statements import names as catalog
from placement.providers.statements.clusters import (
    NAME,
    Cluster,
    NamedNode,
    NewNode,
    Node,
    found,
    unknown,
    unknown_node,
)
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember
from placement.providers.trees import InTheWay, TreeChange
from placement.storage.database import (
    Database,
    Executor,
    Transaction,
    retry,
    retry_until_deadline,
    run_in_transaction,
)
from placement.storage.failures import TryAgain

# Importing nodes and deleting them, with what their pods hold.


_AT_ONCE = 500
# Resource classes are shared by all clusters, and every list of classes has all of them.
_MOST_CLASSES = 64
_SHOWN = 10
_GONE = "the node is gone, and what ran there has not ended yet"
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
        warnings say what is held beyond that. Raises ManifestError (a BadRequest) with everything that is
        wrong, NotFound for the cluster, InTheWay if a provider above one of another caller disappears.
        """
        (outcome,) = self.put_all(name, [NodeDocuments(node_name, node, topology)], skip_known=False)
        if isinstance(outcome, PlacementError):
            raise outcome
        return outcome

    def _admitted(self, each: NodeDocuments) -> NodeDocuments:
        """Return a node without the resources that no prefix admits, with a remark that names them."""
        if not self._prefixes:
            return each
        node, topology, left_out = with_admitted(each.node, each.topology, self._prefixes)
        if not left_out:
            return each
        named = [shown(name) for name in left_out[:_SHOWN]]
        if len(left_out) > _SHOWN:
            named.append(f"and {len(left_out) - _SHOWN} more")
        remark = (
            "Node.status.allocatable: resources without a prefix in [clusters] resource_prefixes are left "
            f"out, also of zones: {', '.join(named)}"
        )
        return NodeDocuments(each.name, node, topology, (remark,))

    def put_all(
        self, name: str, sent: Sequence[NodeDocuments], *, skip_known: bool = True
    ) -> list[ImportedNode | PlacementError]:
        """Import many nodes in one transaction; return the outcome of each, or why it was refused.

        `skip_known`: a node with the manifests that were imported last is left as it is, so manual changes of
        its providers stay, unless the settings of the cluster changed since. Otherwise this acts like `put`
        on each node: nothing of a refused node is written, and all that is written fits what is stored at
        the commit. Raises NotFound for the cluster, Unavailable.
        """
        described = [self._admitted(each) for each in sent]
        refused: dict[int, PlacementError] = {}

        def once() -> list[ImportedNode | PlacementError]:
            # Read in each attempt: the cluster may have been deleted and created again meanwhile.
            with self._database.read() as connection:
                cluster = found(connection, name)
                names = [each.name for each in described]
                known = clusters.find_nodes(connection, cluster.id, names) if skip_known else {}
            outcomes: dict[int, ImportedNode | PlacementError] = dict(refused)
            importing: dict[int, Importing] = {}
            machines: dict[str, str] = {}
            reading = _Reading(self._loader, cluster, many=len(described) > 1)
            for place, each in enumerate(described):
                row = known.get(each.name)
                given = each.node, each.topology
                is_known = row is not None and (row.manifest, row.topology_manifest) == given
                if row is not None and is_known and not predates_settings(row, cluster):
                    # What grants nothing because it cannot be read is named each time that it comes.
                    still = unreadable_withholding(*given, cluster.settings["profile"])
                    outcomes[place] = replace(UNCHANGED, warnings=still) if still else UNCHANGED
                elif place not in refused:
                    try:
                        read = reading.of(each)
                        if read.imported.withholding:
                            with self._database.read() as connection:
                                former = clusters.find_node(connection, cluster.id, each.name)
                            read = reading.of(_withholding_as_before(former, each))
                            stored = former and (former.manifest, former.topology_manifest)
                            read.completed_from = stored or ()
                        # Another node of the call may be the same machine.
                        other = machines.setdefault(read.imported.tree.root.uuid, read.name)
                        if other != read.name:
                            raise BadRequest(f"Node.metadata.uid: is that of node {other!r}, too")
                        importing[place] = read
                    except BadRequest as error:
                        outcomes[place] = error
            if importing:
                outcomes |= self._import(cluster, importing)
            return [outcomes[place] for place in range(len(described))]

        while True:
            try:
                return retry_until_deadline(once)
            except NodeStopped as stopped:
                # The transaction undid what was written of the node, so the others begin again without it.
                if len(described) == 1:
                    raise stopped.reason from None
                refused[stopped.place] = stopped.reason

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
            writing = NodeImporting(transaction, cluster, self._loader, self._writer, attributes, cuts=True)
            return writing.run(importing)

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
            state = self.state(transaction, cluster, node)
            withdraw(transaction, self._writer, cluster, state, with_reservations=with_reservations)
            host = {"resource_provider": state.root_uuid}
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
            row = NewNode(node_name, node.provider_id, manifest, node.topology_manifest)
            clusters.update_nodes(transaction, {node.id: row})
            providers.touch(transaction, (), [node.provider_id])
            after = {"closed": _GONE}
            transaction.record(Action.UPDATE, TargetKind.NODE, f"{name}/{node_name}", after=after)

    def import_again(self, transaction: Transaction, former: Cluster, attributes: PodAttributes) -> None:
        """Import all nodes of a cluster from the manifests that are stored, under its new settings.

        `former` is the cluster with the settings before. What a node offers and what its pods hold depend
        on the profile. The caller has locked the cluster and written the settings. Raises Conflict naming
        the nodes that cannot be read or refuse the change, NodeChanged, Unavailable.
        """
        cluster, before = found(transaction, former.name), facts_of(former)
        rows = sorted(statements.nodes(transaction, cluster.id), key=lambda row: row.root_id)
        for some in portions(rows, _AT_ONCE):
            statements.lock_hosts(transaction, [row.root_id for row in some])
        reading = _Reading(self._loader, cluster, many=True)
        importing = NodeImporting(
            transaction, cluster, self._loader, self._writer, attributes, cuts=False, former=before
        )
        unread: dict[str, PlacementError] = {}
        for some in portions(rows, _AT_ONCE):
            nodes: dict[int, Importing] = {}
            stored = clusters.find_nodes(transaction, cluster.id, [row.name for row in some])
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
                outcomes = {stopped.place: stopped.reason}
            refused = {
                nodes[place].name: outcome
                for place, outcome in outcomes.items()
                if isinstance(outcome, PlacementError)
            }
            if refused:
                advice = "release first what is in the way."
                raise _refusal(cluster, refused, "cannot be imported again", advice)
        if unread:
            raise _refusal(cluster, unread, "cannot be read", "import them first with manifests that can.")

    def state(self, connection: Executor, cluster: Cluster, node: Node, *, strict: bool = False) -> NodeInfo:
        """Return a node with its pods and its other consumers. Raises ManifestError if it is `strict`."""
        roots = [node.provider_id]
        return self._loader.load(connection, facts_of(cluster), roots, strict=strict)[node.provider_id]


def _withholding_as_before(former: Node | None, each: NodeDocuments) -> NodeDocuments:
    """Return a node with its stored annotations in place of ones that withhold CPUs unreadably."""
    if former is None:
        return each
    node, warnings = with_former_withholding(each.node, _mapping(former.manifest))
    topology = each.topology
    if topology is not None:
        topology, more = with_former_withholding(topology, _mapping(former.topology_manifest))
        warnings += more
    return NodeDocuments(each.name, node, topology, (*each.remarks, *warnings))


def _mapping(stored: Any) -> Mapping[str, Any]:
    """Return a stored document, or an empty one in place of what is no object."""
    return stored if isinstance(stored, Mapping) else {}


def _refusal(cluster: Cluster, errors: Mapping[str, PlacementError], what: str, advice: str) -> Conflict:
    listed = [f"{name}: {str(error)[:_LONGEST_FINDING]}" for name, error in sorted(errors.items())]
    if len(listed) > _SHOWN:
        listed[_SHOWN:] = [f"and {len(listed) - _SHOWN} more"]
    return Conflict(
        f"profile: {len(errors)} nodes of cluster {cluster.name} {what} under profile "
        f"{cluster.settings['profile']}; {advice} {'; '.join(listed)}"
    )


class _Reading:
    """A reader of the manifests of one call that reads like nodes only in part if there are many."""

    def __init__(self, loader: NodeLoader, cluster: Cluster, *, many: bool) -> None:
        self._loader = loader
        self._cluster = cluster
        self._many = many
        # Referenced here, as the loader forgets templates without a reference.
        self._templates: set[NodeTemplate] = set()

    def of(self, described: NodeDocuments) -> Importing:
        """Return what the manifests of a node say. Raises ManifestError, BadRequest."""
        node, topology = described.node, described.topology
        settings, name = self._cluster.settings, self._cluster.name
        labels, imported = node_labels(settings), None
        if self._many:
            try:
                template = self._loader.template(settings["profile"], node, canonical_report(topology))
            except (ManifestError, AttributeError, TypeError):
                pass  # The manifests are malformed; reading them as a whole finds out what is wrong.
            else:
                self._templates.add(template)
                imported = import_like(name, node, topology, template.imported, labels)
        if imported is None:
            imported = import_node(name, node, topology, settings["profile"], labels)
        if imported.name != described.name:
            raise BadRequest(
                f"Node.metadata.name: {imported.name!r} is not the node in the path, {described.name!r}"
            )
        if len(imported.resource_names) > _MOST_CLASSES:
            raise BadRequest(
                f"Node.status.allocatable: the node and its zones need {len(imported.resource_names)} "
                f"resource classes, one for each resource; a node may have {_MOST_CLASSES}"
            )
        imported = replace(imported, warnings=(*described.remarks, *imported.warnings))
        return Importing(imported, dict(node), dict(topology) if topology else None)


_NAMESPACE = uuid.UUID("5e1f2f0e-6d0a-5bb4-9a51-3f6d6f2f7c55")
_LONGEST_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A node with its providers, each with its inventories, and its CPUs and pods."""

    cluster: Cluster
    node: Node
    members: list[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    view: NodeView


class Clusters:
    """A use case that creates, shows and deletes clusters, and shows their nodes."""

    def __init__(self, database: Database, imports: NodeImports) -> None:
        self._database = database
        self._imports = imports

    def listed(self) -> list[Cluster]:
        """Return all clusters."""
        with self._database.read() as connection:
            return clusters.listed(connection)

    def get(self, name: str) -> Cluster:
        """Return one cluster. Raises NotFound."""
        with self._database.read() as connection:
            return found(connection, name)

    def put(self, name: str, settings: Mapping[str, Any]) -> tuple[bool, Cluster]:
        """Create a cluster or replace its settings; return whether it is new, and the cluster.

        Settings: `description`, and the settings of the scheduler (pods.koordinator.settings). When the
        profile changes, all nodes are imported again from their stored manifests, all of them or none. Raises
        BadRequest naming the field, Conflict naming the nodes that keep the profile from changing.
        """
        if not NAME.fullmatch(name):
            raise BadRequest(
                f"cluster: {name!r} must be at most 63 characters of a-z, 0-9, '-' and '.', "
                "beginning and ending with a letter or digit"
            )
        checked = _check_settings(settings)

        def once() -> tuple[bool, Cluster]:
            with self._database.read() as connection:
                known = clusters.find_cluster(connection, name)
            attributes = (
                self._imports.register_attributes(known) if known is not None and known.nodes else None
            )
            with self._database.write() as transaction:
                id_ = clusters.lock(transaction, name)
                if id_ is None:
                    own = str(uuid.uuid5(_NAMESPACE, name))
                    aggregate = str(uuid.uuid5(_NAMESPACE, f"{name}/aggregate"))
                    if not clusters.insert(transaction, name, own, aggregate, checked):
                        raise TryAgain("Another writer created the cluster at the same moment.")
                    transaction.record(Action.CREATE, TargetKind.CLUSTER, name, after=checked)
                    return True, found(transaction, name)
                former = found(transaction, name)
                if former.settings != checked:
                    clusters.update_settings(transaction, id_, checked)
                    before = former.settings
                    transaction.record(Action.UPDATE, TargetKind.CLUSTER, name, before=before, after=checked)
                if former.nodes and former.settings["profile"] != checked["profile"]:
                    if attributes is None or attributes.cluster_id != id_:
                        raise NodeChanged("Another writer imported nodes at the same moment.")
                    self._imports.import_again(transaction, former, attributes)
                return False, found(transaction, name)

        return retry(self._database, once)

    def delete(self, name: str) -> None:
        """Delete a cluster without nodes. Raises NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            clusters.lock(transaction, name)
            cluster = found(transaction, name)
            if cluster.nodes:
                raise Conflict(
                    f"Cluster {name} still has {cluster.nodes} nodes; delete them first.",
                    code="placement.cluster.inuse",
                )
            clusters.delete(transaction, cluster.id)
            transaction.record(Action.DELETE, TargetKind.CLUSTER, name, before=cluster.settings)

        run_in_transaction(self._database, work)

    def nodes(self, name: str) -> list[NamedNode]:
        """Return all nodes of a cluster, in order of their names. Raises NotFound."""
        with self._database.read() as connection:
            return clusters.nodes_of(connection, found(connection, name).id)

    def node(self, name: str, node_name: str) -> NodeTree:
        """Return a node with its tree, capacity and use, without what has expired there. Raises NotFound."""
        with self._database.snapshot() as connection:
            cluster = found(connection, name)
            node = clusters.find_node(connection, cluster.id, node_name)
            if node is None:
                raise unknown_node(name, node_name)
            members = providers.tree_members(connection, node.provider_id)
            records = contents.stored(connection, [member.id for member in members])
            state = self._imports.state(connection, cluster, node, strict=True)
        current = without_expired(state)
        return NodeTree(
            cluster, node, members, records_after(members, records, state, current), view_of(current)
        )


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(settings.keys() - {"description"} - SETTINGS)
    if unknown:
        raise BadRequest(f"{', '.join(unknown)}: not a setting of a cluster")
    description = settings.get("description", "")
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION:
        raise BadRequest(f"description: must be text of at most {_LONGEST_DESCRIPTION} characters")
    # It may have several lines.
    if found := disturbing(description.translate({ord("\n"): " ", ord("\t"): " "})):
        raise BadRequest(f"description: has {found}, a control or a mark of direction")
    given = {name: settings[name] for name in sorted(SETTINGS) if settings.get(name) is not None}
    profile = scheduler_settings(given).profile
    candidates_order(given)
    scoring = {SCORING: given.pop(SCORING)} if SCORING in given else {}
    return {**given, "profile": str(profile), "description": description, **scoring}
