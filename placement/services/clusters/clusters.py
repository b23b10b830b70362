"""Use cases on Kubernetes clusters and their nodes: manifests in, provider trees out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.dialects.koordinator.settings.scoring import SCORING, candidates_order
from placement.dialects.koordinator.settings.settings import SETTINGS, scheduler_settings
from placement.domain.audit import Action, Kind
from placement.domain.errors import BadRequest, Conflict
from placement.scheduling.node_info import NodeInfo
from placement.services.clusters.cluster_lookup import NAME, found, unknown_node
from placement.services.clusters.node_imports import NodeImports
from placement.services.clusters.node_views import NodeView, view_of
from placement.services.clusters.node_writing import NodeChanged, PodAttributes
from placement.services.clusters.reservation_ends import records_after, without_expired
from placement.services.transactions import attempt, ensure
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain
from placement.storage.statements import clusters, inventories, trees
from placement.storage.statements.clusters import Cluster, Node
from placement.storage.statements.inventories import Stored
from placement.storage.statements.trees import TreeMember

_NAMESPACE = uuid.UUID("5e1f2f0e-6d0a-5bb4-9a51-3f6d6f2f7c55")
_LONGEST_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A node with its providers, each with its inventories, and what is known of it."""

    cluster: Cluster
    node: Node
    members: list[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    state: NodeInfo

    @property
    def view(self) -> NodeView:
        """Its CPUs and pods."""
        return view_of(self.state)


class Clusters:
    """Creates, shows and deletes clusters, and shows their nodes."""

    def __init__(self, database: Database, imports: NodeImports) -> None:
        self._database = database
        self._imports = imports

    def listed(self) -> list[Cluster]:
        """All clusters."""
        with self._database.read() as connection:
            return clusters.listed(connection)

    def get(self, name: str) -> Cluster:
        """One cluster. Raises NotFound."""
        with self._database.read() as connection:
            return found(connection, name)

    def put(self, name: str, settings: Mapping[str, Any]) -> tuple[bool, Cluster]:
        """Create a cluster or replace its settings; whether it is new.

        Settings: `description`, and those of the scheduler (dialects.koordinator.settings). When the profile
        changes, all nodes are imported again from their stored manifests, all of them or none. Raises
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
                known = clusters.find(connection, name)
            attributes = self._imports.attributes(known) if known is not None and known.nodes else None
            with self._database.write() as transaction:
                return work(transaction, attributes)

        def work(transaction: Transaction, attributes: PodAttributes | None) -> tuple[bool, Cluster]:
            id_ = clusters.lock(transaction, name)
            if id_ is not None:
                former = found(transaction, name)
                if former.settings != checked:
                    clusters.update_settings(transaction, id_, checked)
                    transaction.record(
                        Action.UPDATE, Kind.CLUSTER, name, before=former.settings, after=checked
                    )
                if former.nodes and former.settings["profile"] != checked["profile"]:
                    if attributes is None or attributes.cluster_id != id_:
                        raise NodeChanged("Another writer imported nodes at the same moment.")
                    self._imports.import_again(transaction, former, attributes)
            else:
                own = str(uuid.uuid5(_NAMESPACE, name))
                aggregate = str(uuid.uuid5(_NAMESPACE, f"{name}/aggregate"))
                if not clusters.insert(transaction, name, own, aggregate, checked):
                    raise TryAgain("Another writer created the cluster at the same moment.")
                transaction.record(Action.CREATE, Kind.CLUSTER, name, after=checked)
            return id_ is None, found(transaction, name)

        return ensure(self._database, once)

    def delete(self, name: str) -> None:
        """Delete a cluster without nodes. Raises NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            clusters.lock(transaction, name)
            cluster = found(transaction, name)
            if cluster.nodes:
                raise Conflict(f"Cluster {name} still has {cluster.nodes} nodes; delete them first.")
            clusters.delete(transaction, cluster.id)
            transaction.record(Action.DELETE, Kind.CLUSTER, name, before=cluster.settings)

        attempt(self._database, work)

    def nodes(self, name: str) -> list[tuple[str, str]]:
        """(name, uuid of the host provider) of all nodes. Raises NotFound."""
        with self._database.read() as connection:
            return clusters.nodes_of(connection, found(connection, name).id)

    def node(self, name: str, node_name: str) -> NodeTree:
        """One node with its tree, capacity and use, without what has expired there. Raises NotFound."""
        with self._database.snapshot() as connection:
            cluster = found(connection, name)
            node = clusters.find_node(connection, cluster.id, node_name)
            if node is None:
                raise unknown_node(name, node_name)
            members = trees.members(connection, node.provider_id)
            records = inventories.stored(connection, [member.id for member in members])
            state = self._imports.state(connection, cluster, node)
        current = without_expired(state)
        return NodeTree(cluster, node, members, records_after(members, records, state, current), current)


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(settings.keys() - {"description"} - SETTINGS)
    if unknown:
        raise BadRequest(f"{', '.join(unknown)}: not a setting of a cluster")
    description = settings.get("description", "")
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION:
        raise BadRequest(f"description: must be text of at most {_LONGEST_DESCRIPTION} characters")
    given = {name: settings[name] for name in sorted(SETTINGS) if settings.get(name) is not None}
    profile = scheduler_settings(given).profile
    candidates_order(given)
    scoring = {SCORING: given.pop(SCORING)} if SCORING in given else {}
    return {**given, "profile": str(profile), "description": description, **scoring}
