"""Clusters of Kubernetes: created, changed and deleted, and shown with their nodes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from placement.allocations.orders import SCORING, candidates_order
from placement.common.texts import disturbing
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BODY, BadRequest, BadValues, Conflict, Finding
from placement.pods.koordinator.settings import SETTINGS, scheduler_settings
from placement.pods.services.node_view import NodeView, records_after, view_of, without_expired
from placement.pods.services.nodes import NodeImports
from placement.pods.store.writer import NodeChanged
from placement.providers.statements import clusters, contents, providers
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember
from placement.storage.database import Database, Transaction, retry, run_in_transaction
from placement.storage.failures import TryAgain

_NAMESPACE = uuid.UUID("5e1f2f0e-6d0a-5bb4-9a51-3f6d6f2f7c55")
_LONGEST_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class NodeTree:
    """A node with its providers, each with its inventories, and its CPUs and pods."""

    cluster: clusters.Cluster
    node: clusters.Node
    members: list[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    view: NodeView


class Clusters:
    """A use case that creates, shows and deletes clusters, and shows their nodes."""

    for_bound_callers = True

    def __init__(self, database: Database, imports: NodeImports) -> None:
        self._database = database
        self._imports = imports

    def listed(self) -> list[clusters.Cluster]:
        """Return all clusters."""
        with self._database.read() as connection:
            return clusters.listed(connection)

    def get(self, name: str) -> clusters.Cluster:
        """Return one cluster. Raises NotFound."""
        with self._database.read() as connection:
            return clusters.found(connection, name)

    def put(self, name: str, settings: Mapping[str, Any]) -> tuple[bool, clusters.Cluster]:
        """Create a cluster or replace its settings; return whether it is new, and the cluster.

        Settings: `description`, and the settings of the scheduler (pods.koordinator.settings). When the
        profile changes, all nodes are imported again from their stored manifests, all of them or none. Raises
        BadRequest naming the field, Conflict naming the nodes that keep the profile from changing.
        """
        if not clusters.NAME.fullmatch(name):
            raise BadRequest(
                f"{name!r} must be at most 63 characters of a-z, 0-9, '-' and '.', "
                "beginning and ending with a letter or digit",
                place=BODY / "cluster",
            )
        return retry(self._database, partial(self._put_once, name, _checked(settings)))

    def _put_once(self, name: str, settings: dict[str, Any]) -> tuple[bool, clusters.Cluster]:
        with self._database.read() as connection:
            known = clusters.find_cluster(connection, name)
        attributes = None
        if known is not None and known.nodes:
            attributes = self._imports.register_attributes(known)
        with self._database.write() as transaction:
            id_ = clusters.lock(transaction, name)
            if id_ is None:
                return True, _created(transaction, name, settings)
            former = clusters.found(transaction, name)
            if former.settings != settings:
                clusters.update_settings(transaction, id_, settings)
                before = former.settings
                transaction.record(Action.UPDATE, TargetKind.CLUSTER, name, before=before, after=settings)
            if former.nodes and former.settings["profile"] != settings["profile"]:
                if attributes is None or attributes.cluster_id != id_:
                    raise NodeChanged("Another writer imported nodes at the same moment.")
                self._imports.import_again(transaction, former, attributes)
            return False, clusters.found(transaction, name)

    def delete(self, name: str) -> None:
        """Delete a cluster without nodes. Raises NotFound, Conflict."""

        def work(transaction: Transaction) -> None:
            clusters.lock(transaction, name)
            cluster = clusters.found(transaction, name)
            if cluster.nodes:
                raise Conflict(
                    f"Cluster {name} still has {cluster.nodes} nodes; delete them first.",
                    code="placement.cluster.inuse",
                )
            clusters.delete(transaction, cluster.id)
            transaction.record(Action.DELETE, TargetKind.CLUSTER, name, before=cluster.settings)

        run_in_transaction(self._database, work)

    def nodes(self, name: str) -> list[clusters.NamedNode]:
        """Return all nodes of a cluster, in order of their names. Raises NotFound."""
        with self._database.read() as connection:
            return clusters.nodes_of(connection, clusters.found(connection, name).id)

    def node(self, name: str, node_name: str) -> NodeTree:
        """Return a node with its tree, capacity and use, without reservations that have expired.

        Raises NotFound.
        """
        with self._database.snapshot() as connection:
            cluster = clusters.found(connection, name)
            node = clusters.find_node(connection, cluster.id, node_name)
            if node is None:
                raise clusters.unknown_node(name, node_name)
            members = providers.tree_members(connection, node.provider_id)
            records = contents.stored(connection, [member.id for member in members])
            node_info = self._imports.node_info(connection, cluster, node, strict=True)
        current = without_expired(node_info)
        return NodeTree(
            cluster, node, members, records_after(members, records, node_info, current), view_of(current)
        )


def _created(transaction: Transaction, name: str, settings: dict[str, Any]) -> clusters.Cluster:
    """Create a cluster. Raises TryAgain if another writer was faster."""
    own = str(uuid.uuid5(_NAMESPACE, name))
    aggregate = str(uuid.uuid5(_NAMESPACE, f"{name}/aggregate"))
    if not clusters.insert(transaction, name, own, aggregate, settings):
        raise TryAgain("Another writer created the cluster at the same moment.")
    transaction.record(Action.CREATE, TargetKind.CLUSTER, name, after=settings)
    return clusters.found(transaction, name)


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are stored. Raises BadRequest."""
    unknown = sorted(settings.keys() - {"description"} - SETTINGS)
    if unknown:
        raise BadValues(
            Finding("not a setting of a cluster", BODY / name, name, lambda: SETTINGS) for name in unknown
        )
    description = settings.get("description", "")
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION:
        raise BadRequest(
            f"must be text of at most {_LONGEST_DESCRIPTION} characters", place=BODY / "description"
        )
    # It may have several lines.
    if found := disturbing(description.translate({ord("\n"): " ", ord("\t"): " "})):
        raise BadRequest(f"has {found}, a control or a mark of direction", place=BODY / "description")
    given = {name: settings[name] for name in sorted(SETTINGS) if settings.get(name) is not None}
    profile = scheduler_settings(given).profile
    candidates_order(given)
    scoring = {SCORING: given.pop(SCORING)} if SCORING in given else {}
    return {**given, "profile": str(profile), "description": description, **scoring}
