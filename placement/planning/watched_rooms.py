"""The room of watched kinds before and after a plan: what the plan costs beside its moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.engine.domain.errors import PlacementError
from placement.engine.search.budget import SearchEnded
from placement.planning.capacity import Question, RequestKind
from placement.planning.counts import CapacityCount
from placement.planning.planning_state import PlanningState
from placement.planning.pod_capacity import PodCapacity
from placement.planning.query_capacity import QueryCapacity
from placement.pods.store.cache import ClusterSnapshot
from placement.providers.statements.clusters import found
from placement.providers.view import View
from placement.storage.database import Database


class WatchedRoom(NamedTuple):
    """How many more of a watched kind fit before a plan and after it; `cluster` None for all hosts."""

    kind: str
    cluster: str | None
    before: CapacityCount
    after: CapacityCount


@dataclass(frozen=True, slots=True)
class WatchedRooms:
    """The count of watched kinds on the hosts of a plan."""

    database: Database
    candidates: CandidateSearch
    state: PlanningState

    def counted(self, questions: Sequence[Question]) -> Iterator[WatchedRoom]:
        """Yield the room for each kind of the questions; kinds that cannot be counted in time are left out.

        Raises SearchEnded if the caller went away.
        """
        for question in questions:
            for name, kind in question.kinds.items():
                try:
                    # A class or cluster that is not there any more is no reason against the plan.
                    with suppress(PlacementError):
                        before, after = self._rooms(question.cluster, kind)
                        yield WatchedRoom(name, question.cluster, before, after)
                except SearchEnded as ended:
                    if ended.abandoned:
                        raise

    def _rooms(self, cluster: str | None, kind: RequestKind) -> tuple[CapacityCount, CapacityCount]:
        simulation, view = self.state.simulation, self.state.hosts.view
        is_changed = simulation.relocations or simulation.placed_spots
        if kind.pod is not None:
            snapshot = self._snapshot(cluster)
            nodes = [simulation.nodes[root] for root in sorted(simulation.changed_nodes)]
            roots = {node.root_id for node in snapshot.columns.nodes}
            columns = snapshot.columns.updated([node for node in nodes if node.root_id in roots])
            room, budget = kind.pod, self.state.hosts.budget
            before = PodCapacity((snapshot, {}), room, budget).total()
            changed = replace(snapshot, columns=columns)
            return before, PodCapacity((changed, {}), room, budget).total() if is_changed else before
        before = self._of_query(view, cluster, kind)
        later = replace(view, forest=simulation.forest)
        return before, self._of_query(later, cluster, kind) if is_changed else before

    def _snapshot(self, cluster: str | None) -> ClusterSnapshot:
        """Return the nodes of a cluster. Raises PlacementError for one that has no part in the plan."""
        for snapshot in self.state.hosts.snapshots:
            if snapshot.facts.name == cluster:
                return snapshot
        raise PlacementError(f"{cluster} takes no part")

    def _of_query(self, view: View, cluster: str | None, kind: RequestKind) -> CapacityCount:
        aggregate = None
        if cluster is not None:
            with self.database.read() as connection:
                aggregate = found(connection, cluster).aggregate_uuid
        options = SearchOptions(
            default_order=False, cluster=cluster, cluster_aggregate=aggregate, open_only=True
        )
        query = kind.query_with_uuids(self.candidates.called, cluster)
        wanted = self.candidates.wanted(view, query, options)
        budget = self.state.hosts.budget
        return QueryCapacity(view, [replace(each, budget=budget) for each in wanted], lambda _: 0).total()
