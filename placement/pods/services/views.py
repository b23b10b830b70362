"""Trees of providers as they are stored, with all that is held there, to draw hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement.allocations.statements import lists
from placement.allocations.statements.lists import ListedHolding
from placement.engine.domain import request_scope
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.services.closed_nodes import Closure, closures
from placement.pods.services.node_view import NodeView, records_after, view_of, without_expired
from placement.pods.state.node_info import NodeInfo
from placement.pods.store.loader import ClusterFacts, NodeLoader
from placement.providers.service import missing
from placement.providers.statements import clusters, contents
from placement.providers.statements import providers as statements_providers
from placement.providers.statements.clusters import Aggregate, HostedNode
from placement.providers.statements.contents import Stored
from placement.providers.statements.names import CLOSING_TRAIT
from placement.providers.statements.providers import NamedPlace, TreeMember
from placement.storage.database import Database, Executor

__all__ = ["HostCheck", "HostView", "HostViews", "NamedPlace", "TreeMember"]

_MOST_KNOWN = 200
HostCheck = Callable[[str | None], None]
"""A check that refuses a caller without access to hosts, or to hosts of a cluster if its name is given."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A tree: its members in order of ids, their inventories by provider id, and the allocations of them.

    `asked_for` is the uuid by which the tree was found, that of any member. If the root is the host of a
    node, `node` is that node, and `view` its CPUs and pods. `closed` are the reasons that keep consumers off.
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
    """Whole trees of providers, with the nodes that run on them."""

    for_bound_callers = True

    def __init__(self, database: Database, loader: NodeLoader) -> None:
        self._database = database
        self._loader = loader
        self._known: dict[int, NodeInfo] = {}

    def show(self, uuid: str, check: HostCheck) -> HostView:
        """Return the tree of this provider, without reservations that have expired. Raises NotFound."""
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
            node_info = None if node is None else self._nodes(connection, {root_id: node})[root_id]
        root = next((member for member in members if member.parent_id is None), None)
        if root is None:
            raise missing(uuid)
        if node_info is None:
            return HostView(uuid, root, members, records, held, node, None, list(_disabled(root)))
        current = without_expired(node_info)
        gone = node_info.reserving - current.reserving
        left = [each for each in held if each.consumer_uuid not in gone]
        offered = records_after(members, records, node_info, current)
        closed = [*_disabled(root), *closures(current)]
        return HostView(uuid, root, members, offered, left, node, view_of(current), closed)

    def nodes(self, uuids: Collection[str], sees: Callable[[str], bool]) -> dict[str, NodeInfo]:
        """Return the nodes behind these hosts, by uuid, if the caller sees their clusters.

        Reservations that have expired are left out.
        """
        if not uuids:
            return {}
        with self._database.snapshot() as connection:
            hosted = clusters.nodes_on(connection, uuids)
            seen = {id_: node for id_, node in hosted.items() if sees(node.cluster)}
            nodes = self._nodes(connection, seen)
        return {node.root_uuid: without_expired(node) for node in nodes.values()}

    def _nodes(self, connection: Executor, hosted: Mapping[int, HostedNode]) -> dict[int, NodeInfo]:
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
        """Return the aggregates of providers, by provider id."""
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


def _disabled(root: TreeMember) -> Iterator[tuple[Closure, str]]:
    """Yield why nova sends no servers to a host, if it does not."""
    if CLOSING_TRAIT in root.traits:
        yield Closure.CLOSED, f"it takes no new server: nova disabled it ({CLOSING_TRAIT})"
