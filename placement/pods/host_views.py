"""Trees of providers as they are stored, with all that is held there, to draw hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from placement.allocations.statements import lists
from placement.allocations.statements.lists import ListedHolding
from placement.engine.domain import scope
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.node_info import NodeInfo
from placement.pods.node_loading import ClusterFacts, NodeLoader
from placement.pods.node_views import NodeView, view_of
from placement.pods.reservation_ends import records_after, without_expired
from placement.providers.service import missing
from placement.providers.statements import clusters, contents, providers, trees
from placement.providers.statements import lists as providers_lists
from placement.providers.statements.clusters import HostedNode
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import NamedPlace
from placement.providers.statements.trees import TreeMember
from placement.storage.database import Database, Executor

__all__ = ["Check", "HostView", "HostViews", "NamedPlace", "TreeMember"]

_MOST_KNOWN = 50
Check = Callable[[str | None], None]
"""A check that refuses a caller without access to hosts, or to hosts of a cluster if its name is given."""


@dataclass(frozen=True, slots=True)
class HostView:
    """A tree: its members in order of ids, their inventories by provider id, and what is held of them.

    `asked_for` is the uuid by which the tree was found, that of any member. If the root is the host of a
    node, `node` is that node, and `view` its CPUs and pods.
    """

    asked_for: str
    root: TreeMember
    members: Sequence[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    held: Sequence[ListedHolding]
    node: HostedNode | None
    view: NodeView | None


class HostViews:
    """A reader of whole trees."""

    def __init__(self, database: Database, loader: NodeLoader) -> None:
        self._database = database
        self._loader = loader
        self._known: dict[int, NodeInfo] = {}

    def show(self, uuid: str, check: Check) -> HostView:
        """Return the tree of this provider, without what has expired there. Raises NotFound."""
        with self._database.snapshot() as connection:
            found = clusters.place_of(connection, uuid)
            if found is None:
                raise missing(uuid)
            root_id, node = found
            if not scope.admits(None if node is None else node.cluster):
                # A bound caller must not learn from a refusal that the provider exists.
                raise missing(uuid)
            check(None if node is None else node.cluster)
            members = trees.members(connection, root_id)
            ids = [member.id for member in members]
            records = contents.stored(connection, ids)
            held = lists.on_tree(connection, root_id)
            facts = None if node is None else _facts(node)
            state = None if facts is None else self._state(connection, facts, root_id)
        root = next((member for member in members if member.parent_id is None), None)
        if root is None:
            raise missing(uuid)
        if state is None:
            return HostView(uuid, root, members, records, held, node, None)
        current = without_expired(state)
        gone = state.reserving - current.reserving
        return HostView(
            uuid,
            root,
            members,
            records_after(members, records, state, current),
            [each for each in held if each.consumer_uuid not in gone],
            node,
            view_of(current),
        )

    def _state(self, connection: Executor, facts: ClusterFacts, root_id: int) -> NodeInfo:
        # Manifests are read again only if the node was imported again since.
        found = self._loader.load(connection, facts, [root_id], self._known)[root_id]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[root_id] = found
        return found

    def aggregates(self, ids: Collection[int]) -> dict[int, list[str]]:
        """Return the uuids of the aggregates in which providers are, by provider id."""
        with self._database.read() as connection:
            return providers_lists.aggregates_of(connection, sorted(ids))

    def places(self, uuids: Collection[str]) -> dict[str, NamedPlace]:
        """Return the providers of these uuids that exist, by uuid, with their names and hosts."""
        if not uuids:
            return {}
        with self._database.read() as connection:
            return providers.named_places(connection, uuids)

    def roots_of(self, uuids: Collection[str]) -> list[str]:
        """Return the uuids of the roots of some providers, each once, in the order of the providers' ids."""
        with self._database.read() as connection:
            found = providers.roots_of(connection, uuids)
        return list(dict.fromkeys(found))


def _facts(node: HostedNode) -> ClusterFacts:
    return ClusterFacts(node.cluster_id, node.cluster, scheduler_settings(node.settings))
