"""A tree of providers as it is stored, with all that is held there: what is drawn of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.domain.errors import NotFound
from placement.services.clusters.clusters import Clusters, NodeTree
from placement.services.clusters.node_views import NodeView
from placement.services.placement.providers import missing
from placement.storage.database import Database
from placement.storage.statements import (
    allocation_lists,
    clusters,
    inventories,
    provider_lists,
    provider_rows,
    trees,
)
from placement.storage.statements.allocation_lists import ListedAllocation
from placement.storage.statements.inventories import Stored
from placement.storage.statements.provider_rows import Provider
from placement.storage.statements.trees import TreeMember

__all__ = ["HostPlace", "HostView", "HostViews", "TreeMember"]


@dataclass(frozen=True, slots=True)
class HostPlace:
    """Where a provider is: itself, and the node whose host its root is, as (cluster, node)."""

    provider: Provider
    node: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class HostView:
    """A tree: its members in order of ids, their inventories and aggregates by provider id, allocations.

    `node` is what is known of the root as a node of a cluster, if it is one, and `view` its CPUs and pods.
    """

    root: TreeMember
    members: Sequence[TreeMember]
    records: Mapping[int, Mapping[int, Stored]]
    aggregates: Mapping[int, Sequence[str]]
    allocations: Sequence[ListedAllocation]
    node: NodeTree | None
    view: NodeView | None


class HostViews:
    """Reads whole trees."""

    def __init__(self, database: Database, clusters: Clusters) -> None:
        self._database = database
        self._clusters = clusters

    def place(self, uuid: str) -> HostPlace:
        """Where a provider is. Raises NotFound."""
        with self._database.read() as connection:
            found = provider_rows.find(connection, uuid)
            if found is None:
                raise missing(uuid)
            text = clusters.node_on(connection, found.root_id)
        # Neither name has a slash in it.
        return HostPlace(found, None if text is None else (text.split("/")[0], text.split("/")[1]))

    def show(self, place: HostPlace) -> HostView:
        """The tree in which the provider is. Raises NotFound if it is gone meanwhile."""
        node = None if place.node is None else self._clusters.node(*place.node)
        root_id = place.provider.root_id
        with self._database.snapshot() as connection:
            members = trees.members(connection, root_id) if node is None else node.members
            ids = [member.id for member in members]
            records = inventories.stored(connection, ids) if node is None else node.records
            aggregates = provider_lists.aggregates_of(connection, ids)
            held = allocation_lists.on_tree(connection, root_id)
        root = next((member for member in members if member.parent_id is None), None)
        if root is None:
            raise NotFound(f"No resource provider with uuid {place.provider.root_uuid} found")
        view = None if node is None else node.view
        return HostView(root, members, records, aggregates, held, node, view)
