"""Use cases on Kubernetes clusters and their nodes: manifests in, provider trees out."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.node import import_node
from placement.dialects.koordinator.profile import Profile
from placement.domain.errors import BadRequest, Conflict, NotFound
from placement.services.ordering import SCORING, order_of
from placement.services.transactions import attempt
from placement.services.trees import TreeChange, bring_about, remove
from placement.storage import clusters, inventories, memberships, providers, trees
from placement.storage.clusters import Cluster, Node
from placement.storage.database import Database, Executor, Transaction
from placement.storage.inventories import Stored
from placement.storage.trees import TreeMember

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_NAMESPACE = uuid.UUID("5e1f2f0e-6d0a-5bb4-9a51-3f6d6f2f7c55")
_LONGEST_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class ImportedNode:
    """The outcome of an import: whether the node is new, what changed, what the manifests left doubtful."""

    created: bool
    change: TreeChange
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A node with its providers, each with its records."""

    cluster: Cluster
    node: Node
    members: list[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]


class Clusters:
    """Creates, shows and deletes clusters and nodes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(self) -> list[Cluster]:
        """All clusters."""
        with self._database.read() as connection:
            return clusters.listed(connection)

    def get(self, name: str) -> Cluster:
        """One cluster. Raises NotFound."""
        with self._database.read() as connection:
            return _found(connection, name)

    def put(self, name: str, settings: Mapping[str, Any]) -> tuple[bool, Cluster]:
        """Create a cluster or replace its settings; whether it is new.

        Settings: `profile` (design or koord-scheduler), `description`, `scoring` (the order of candidates
        for searches in the cluster). Raises BadRequest naming the field.
        """
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"cluster: {name!r} must be at most 63 characters of a-z, 0-9, '-' and '.', "
                "beginning and ending with a letter or digit"
            )
        checked = _check_settings(settings)

        def work(transaction: Transaction) -> tuple[bool, Cluster]:
            id_ = clusters.lock(transaction, name)
            if id_ is not None:
                clusters.update_settings(transaction, id_, checked)
            else:
                own = str(uuid.uuid5(_NAMESPACE, name))
                aggregate = str(uuid.uuid5(_NAMESPACE, f"{name}/aggregate"))
                clusters.insert(transaction, name, own, aggregate, checked)
            return id_ is None, _found(transaction, name)

        return attempt(self._database, work)

    def delete(self, name: str) -> None:
        """Delete a cluster without nodes. Raises NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            clusters.lock(transaction, name)
            cluster = _found(transaction, name)
            if cluster.nodes:
                raise Conflict(f"Cluster {name} still has {cluster.nodes} nodes; delete them first.")
            clusters.delete(transaction, cluster.id)

        attempt(self._database, work)

    def nodes(self, name: str) -> list[tuple[str, str]]:
        """(name, uuid of the host provider) of all nodes. Raises NotFound."""
        with self._database.read() as connection:
            return clusters.nodes_of(connection, _found(connection, name).id)

    def put_node(
        self, name: str, node_name: str, node: Mapping[str, Any], topology: Mapping[str, Any] | None
    ) -> ImportedNode:
        """Import a Node and its NodeResourceTopology; sending the same again changes nothing.

        Raises ManifestError (a BadRequest) with everything that is wrong, NotFound for the cluster, InTheWay
        when the node would shrink under live allocations.
        """
        cluster = self.get(name)
        imported = import_node(name, node, topology, cluster.settings["profile"])
        if imported.name != node_name:
            raise BadRequest(
                f"Node.metadata.name: {imported.name!r} is not the node in the path, {node_name!r}"
            )

        def work(transaction: Transaction) -> ImportedNode:
            # Holding the cluster keeps it from being deleted, and two imports of one node in order.
            cluster_id = clusters.lock(transaction, name)
            if cluster_id is None:
                raise _unknown(name)
            known = clusters.find_node(transaction, cluster_id, node_name)
            self._replace_renamed_host(transaction, known, imported.tree.root.uuid)
            root_id, change = bring_about(transaction, imported.tree, cluster_id)
            if memberships.add_aggregate(transaction, root_id, cluster.aggregate_uuid):
                providers.touch(transaction, (), [root_id])
            if known is None or (known.manifest, known.topology_manifest) != (node, topology):
                clusters.save_node(
                    transaction,
                    cluster_id,
                    node_name,
                    root_id,
                    dict(node),
                    dict(topology) if topology else None,
                )
            return ImportedNode(known is None, change, imported.warnings)

        return attempt(self._database, work)

    @staticmethod
    def _replace_renamed_host(transaction: Transaction, known: Node | None, root_uuid: str) -> None:
        """A node that came back with another uid is another machine: its old tree goes first."""
        if known is None:
            return
        old = {member.uuid for member in trees.members(transaction, known.provider_id)}
        if root_uuid not in old:
            clusters.delete_node(transaction, known.id)
            remove(transaction, known.provider_id, f"The former machine of node {known.name}")

    def node(self, name: str, node_name: str) -> NodeTree:
        """One node with its tree, capacity and use. Raises NotFound."""
        with self._database.snapshot() as connection:
            cluster = _found(connection, name)
            node = clusters.find_node(connection, cluster.id, node_name)
            if node is None:
                raise _unknown_node(name, node_name)
            members = trees.members(connection, node.provider_id)
            records = inventories.stored(connection, [member.id for member in members])
        return NodeTree(cluster, node, members, records)

    def delete_node(self, name: str, node_name: str) -> None:
        """Delete a node with its tree. Raises NotFound, InTheWay."""

        def work(transaction: Transaction) -> None:
            cluster_id = clusters.lock(transaction, name)
            if cluster_id is None:
                raise _unknown(name)
            node = clusters.find_node(transaction, cluster_id, node_name)
            if node is None:
                raise _unknown_node(name, node_name)
            clusters.delete_node(transaction, node.id)
            remove(transaction, node.provider_id, f"Node {node_name}")

        attempt(self._database, work)


def _found(connection: Executor, name: str) -> Cluster:
    # What no cluster may be called need not be looked up; a database would choke on some of it.
    cluster = clusters.find(connection, name) if _NAME.fullmatch(name) else None
    if cluster is None:
        raise _unknown(name)
    return cluster


def _unknown(name: str) -> NotFound:
    return NotFound(f"No cluster {name} found")


def _unknown_node(name: str, node_name: str) -> NotFound:
    return NotFound(f"No node {node_name} found in cluster {name}")


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    profile = settings.get("profile", Profile.DESIGN)
    if profile not in set(Profile):
        raise BadRequest(f"profile: must be one of {', '.join(Profile)}, not {profile!r}")
    description = settings.get("description", "")
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION:
        raise BadRequest(f"description: must be text of at most {_LONGEST_DESCRIPTION} characters")
    unknown = sorted(settings.keys() - {"profile", "description", SCORING})
    if unknown:
        raise BadRequest(f"{', '.join(unknown)}: not a setting of a cluster")
    checked: dict[str, Any] = {"profile": str(profile), "description": description}
    if settings.get(SCORING) is not None:
        order_of(settings[SCORING], SCORING)
        checked[SCORING] = settings[SCORING]
    return checked
