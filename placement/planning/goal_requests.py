"""What the goal of a plan asks for, looked up before any consumer is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.world import host_uuids
from placement.engine.domain.errors import BODY, BadRequest, NameKind, NamesOf
from placement.engine.search.query import ForestQuery
from placement.planning import plans
from placement.planning.capacity import RequestKind
from placement.planning.demands import PodPlanDemand, QueryPlanDemand
from placement.planning.planning_state import PlannedHosts
from placement.storage.database import Database

# The classes of which less shall be stranded where a goal names none.
_CORES, _SHARED_CPUS = "PCPU", "VCPU"


class WantedGoal(NamedTuple):
    """A goal by rows and ids: a demand of `fit` or `defragment` with its class, or `roots` of hosts."""

    demand: QueryPlanDemand | PodPlanDemand | None = None
    resource_class: str = ""
    roots: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class GoalRequests:
    """The look-up of what goals name: hosts, classes, traits and manifests."""

    database: Database
    candidates: CandidateSearch
    hosts: PlannedHosts
    cluster: str | None

    def wanted(self, goal: plans.Goal) -> WantedGoal:
        """Return a goal by rows and ids.

        Raises BadRequest naming the field, FlavorRefused, ManifestError.
        """
        if goal.name == plans.FIT:
            return WantedGoal(self._demand(goal))
        if goal.name == plans.EMPTY:
            return WantedGoal(roots=self._roots(goal.hosts))
        if goal.name == plans.FREE:
            return WantedGoal(roots=self.hosts.open)
        return self._stranding(goal)

    def _stranding(self, goal: plans.Goal) -> WantedGoal:
        """Return the demand of a defragmentation, and the class that it is about."""
        if goal.kind.pod is not None:
            raise BadRequest("is for queries and flavors, not for pods", place=BODY / "goal" / "defragment")
        names = self.hosts.view.names
        demand = self.hosts.consumers.query_demand(self._queries(goal))
        asked = [names.classes[class_id] for class_id in demand.classes]
        usual = next((name for name in (_CORES, _SHARED_CPUS) if name in asked), min(asked))
        name = goal.resource_class or usual
        if name not in asked:
            raise BadRequest(
                f"{name} is not asked for", place=BODY / "goal" / "defragment" / "resource_class"
            )
        return WantedGoal(demand, name)

    def _demand(self, goal: plans.Goal) -> QueryPlanDemand | PodPlanDemand:
        kind = goal.kind
        if kind.pod is None:
            return self.hosts.consumers.query_demand(self._queries(goal))
        if self.cluster is None:
            raise BadRequest("a pod is for a cluster: cluster is missing", place=BODY / "goal" / "fit")
        (snapshot,) = self.hosts.snapshots
        try:
            return self.hosts.consumers.pod_demand(snapshot, kind.pod, is_one=False)
        except BadRequest as error:
            raise _placed(goal, error) from None

    def _queries(self, goal: plans.Goal) -> Sequence[ForestQuery]:
        kind: RequestKind = goal.kind
        try:
            query = kind.query_with_uuids(self.candidates.called, self.cluster)
            return self.candidates.wanted(self.hosts.view, query, SearchOptions(default_order=False))
        except BadRequest as error:
            raise _placed(goal, error) from None

    def _roots(self, called: Sequence[str]) -> list[int]:
        uuids = host_uuids(self.database, called)
        forest, inside, roots = self.hosts.forest, set(self.hosts.inside), []
        for at, name in enumerate(called):
            row = forest.row_of_uuid(uuids[name]) if name in uuids else -1
            if row not in inside:
                raise BadRequest(
                    f"there is no host {name!r} here",
                    place=BODY / "goal" / "empty" / at,
                    value=name,
                    known=NamesOf(NameKind.HOST),
                )
            if row in forest.sharing_roots:
                raise BadRequest(f"{name!r} is a shared pool, not a host", place=BODY / "goal" / "empty" / at)
            roots.append(row)
        return list(dict.fromkeys(roots))


def _placed(goal: plans.Goal, bad_request: BadRequest) -> BadRequest:
    return goal.kind.within(bad_request, BODY / "goal" / goal.name)
