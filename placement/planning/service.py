"""Plans: made on a copy of the state, and compared with the state; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from placement.allocations.candidates import CandidateSearch
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BODY, BadRequest, SearchTimeout
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.capacity.capacity import Capacity
from placement.planning import plans
from placement.planning.defragmentation import Defragmentation
from placement.planning.demands import PodPlanDemand, QueryPlanDemand
from placement.planning.evictions import EvictionPlanner
from placement.planning.goal_requests import GoalRequests, WantedGoal
from placement.planning.goal_results import GoalResult
from placement.planning.goals import Goals
from placement.planning.imagined_clusters import with_all_open
from placement.planning.move_checks import CheckedMove, MoveCheck
from placement.planning.planning_state import PlannedHosts, PlanningState
from placement.planning.simulation import Relocation
from placement.planning.watched_rooms import WatchedRooms
from placement.pods.store.cache import ClusterCache
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import found
from placement.providers.view import ForestKeeper
from placement.storage.database import Database

# The part of the time of a request that is kept for its answer.
_ANSWER_SECONDS = 1.0
# All watched kinds together are counted in that time.
_WATCHED_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Plans:
    """The service that makes plans, and checks whether their moves are still possible."""

    for_bound_callers = True

    _database: Database
    _keeper: ForestKeeper
    _cluster_cache: ClusterCache
    _candidates: CandidateSearch
    _seconds: float

    def make(
        self, request: plans.PlanRequest, settings: plans.PlanSettings = plans.NO_SETTINGS
    ) -> plans.Plan:
        """Look for moves.

        Raises NotFound for a cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout if the caller went away, or the time was up before anything was known, Unavailable.
        """
        allowed = request.limits.clusters
        chosen = None if allowed is None else sorted(set(allowed))
        if request.cluster is not None:
            if allowed is not None and request.cluster not in allowed:
                raise BadRequest(
                    f"{request.cluster}, the cluster of the plan, is not among these",
                    place=BODY / "limits" / "clusters",
                )
            chosen = [request.cluster]
        try:
            hosts = self._hosts(chosen, closed=request.closed)
            requests = GoalRequests(self._database, self._candidates, hosts, request.cluster)
            # What is unknown is refused before all that is held is read.
            wanted = requests.wanted(request.goal)
            names = hosts.view.names.trait_ids
            purpose = [names[name] for name in settings.purpose if name in names]
            state = PlanningState.read(self._database, hosts, purpose=purpose)
            seconds = self._seconds if request.seconds is None else request.seconds
            plan = _PlanMaking(self._database, state, request, wanted, seconds).plan()
            hosts.budget.renew(min(_WATCHED_SECONDS, _seconds_left()))
            rooms = WatchedRooms(self._database, self._candidates, state)
            return replace(plan, watched=list(rooms.counted(settings.watched_questions)))
        except SearchEnded as ended:
            raise _timeout(ended, "there was a plan") from ended

    def check(
        self, moves: Sequence[plans.Move], cluster: str | None, *, closed: bool = False
    ) -> list[CheckedMove]:
        """Return the state of each move when it is made after the moves before it.

        `closed`: moves to closed hosts are possible. Raises NotFound, SearchTimeout, Unavailable.
        """
        try:
            among = {host for each in moves for host in (each.from_host, each.to_host)}
            hosts = self._hosts(None if cluster is None else [cluster], closed=closed)
            state = PlanningState.read(self._database, hosts, among)
            return list(MoveCheck(state).checked(moves))
        except SearchEnded as ended:
            raise _timeout(ended, "all moves were checked") from ended

    def _hosts(self, chosen: Sequence[str] | None, *, closed: bool) -> PlannedHosts:
        """Return the hosts of the chosen clusters, or all hosts. Raises NotFound, Unavailable."""
        budget = Budget(_seconds_left(), request_scope.caller_is_gone)
        aggregates = self._aggregates_of_clusters(chosen)
        view = self._keeper.current()
        open_hosts = None if closed else self._keeper.open_hosts(view)
        snapshots = [
            self._cluster_cache.snapshot(name) for name in (aggregates if chosen is None else chosen)
        ]
        if closed:
            snapshots = [with_all_open(snapshot) for snapshot in snapshots]
        inside = None if chosen is None else frozenset(aggregates[name] for name in chosen)
        return PlannedHosts.of(self._candidates, view, snapshots, inside, open_hosts, budget)

    def _aggregates_of_clusters(self, chosen: Sequence[str] | None) -> dict[str, int]:
        """Return the aggregate of each cluster. Raises NotFound for a chosen one."""
        with self._database.read() as connection:
            for name in chosen or ():
                found(connection, name)
            aggregates = clusters.aggregates_called(connection)
        return {each.cluster: each.id for each in aggregates if each.cluster is not None}


def _seconds_left() -> float:
    return request_scope.remaining() - _ANSWER_SECONDS


def _timeout(ended: SearchEnded, before: str) -> SearchTimeout:
    why = "The caller went away" if ended.abandoned else f"The time was up before {before}"
    return SearchTimeout(f"{why}, so planning was ended.")


@dataclass(frozen=True, slots=True)
class _PlanMaking:
    """The making of one plan."""

    _database: Database
    _state: PlanningState
    _request: plans.PlanRequest
    _wanted: WantedGoal
    _seconds: float

    def plan(self) -> plans.Plan:
        state, goal, wanted = self._state, self._request.goal, self._wanted
        simulation, most = state.simulation, self._request.limits.moves
        planner = EvictionPlanner(simulation, self._request.limits, state.hosts.budget)
        goals = Goals(simulation, planner, most)
        stranded: dict[str, tuple[int, int]] = {}
        idle = sum(not simulation.on.get(root) for root in state.hosts.open)
        demand = wanted.demand
        if goal.name != plans.DEFRAGMENT:
            self._begin_search()
        if goal.name == plans.EMPTY:
            result = goals.empty(wanted.roots)
        elif demand is None:
            result = goals.free(goal.count, wanted.roots)
        elif goal.name == plans.FIT:
            result = goals.fit(demand, goal.count, lambda: self._may_fit(demand, goal.count))
        else:
            assert isinstance(demand, QueryPlanDemand)
            result = self._defragmented(planner, demand)
            stranded = {wanted.resource_class: (result.wanted, result.wanted - result.achieved)}
        return self._plan_of(result, stranded, idle)

    def _defragmented(self, planner: EvictionPlanner, demand: QueryPlanDemand) -> GoalResult:
        state = self._state
        class_id = state.hosts.view.names.class_ids[self._wanted.resource_class]
        defragmentation = Defragmentation(state.simulation, planner, demand, class_id, state.hosts.open)
        self._begin_search()
        return defragmentation.run(self._request.limits.moves)

    def _begin_search(self) -> None:
        """Start the time of the search: what comes before is bounded by what there is, not by that time."""
        self._state.hosts.budget.renew(min(self._seconds, _seconds_left()))

    def _may_fit(self, demand: QueryPlanDemand | PodPlanDemand, count: int) -> bool:
        """Return whether `count` requests may fit without moves; False if it is known that they do not."""
        view = self._state.hosts.view
        if not isinstance(demand, QueryPlanDemand) or view.forest.count == 0:
            return True
        try:
            capacities = [Capacity(view.forest, view.sharing, query) for query in demand.queries]
        except SearchEnded:
            return True
        inside = set(self._state.hosts.open)
        return sum(host.upper for each in capacities for host in each.hosts() if host.row in inside) >= count

    # -- the plan -----------------------------------------------------------------------------------

    def _plan_of(self, result: GoalResult, stranded: Mapping[str, tuple[int, int]], idle: int) -> plans.Plan:
        state = self._state
        simulation = state.simulation
        roots = [root for each in simulation.relocations for root in (each.consumer.root, each.spot.root)]
        roots += [spot.root for spot in simulation.placed_spots]
        with self._database.read() as connection:
            called = providers.root_names(connection)
        return plans.Plan(
            goal=self._request.goal.name,
            cluster=self._request.cluster,
            wanted=result.wanted,
            achieved=result.achieved,
            complete=result.complete,
            moves=[self._move(each) for each in simulation.relocations],
            bound=result.bound,
            why=result.why,
            hosts=self._hosts(list(dict.fromkeys(roots)), called),
            placements=[state.resources(spot.draws) for spot in simulation.placed_spots],
            left=[plans.Left(each.uuid, state.uuid(each.root), why, each.pod) for each, why in result.left],
            emptied=[state.uuid(root) for root in result.emptied],
            stranded=stranded,
            idle=idle,
            closed=self._request.closed,
        )

    def _move(self, relocation: Relocation) -> plans.Move:
        state, consumer, spot = self._state, relocation.consumer, relocation.spot
        return plans.Move(
            consumer=consumer.uuid,
            generation=consumer.generation,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
            consumer_type=consumer.consumer_type,
            kind=consumer.kind,
            by=plans.REWRITING if consumer.pod is None else plans.EVICTION,
            from_host=state.uuid(consumer.root),
            to_host=state.uuid(spot.root),
            before=state.resources(consumer.spot.draws),
            after=state.resources(spot.draws),
            pod=self._pod_move(relocation),
        )

    def _pod_move(self, relocation: Relocation) -> plans.PodMove | None:
        consumer, pod, spot = relocation.consumer, relocation.consumer.pod, relocation.spot
        if pod is None or spot.node is None or spot.recorded is None:
            return None
        from_node = self._state.simulation.nodes[consumer.root].name
        cpus = format_cpu_list(spot.recorded.holding.cpus)
        cluster = spot.node.identity.cluster
        return plans.PodMove(cluster, pod.namespace, pod.name, pod.uid, from_node, spot.node.name, cpus)

    def _hosts(self, roots: Sequence[int], called: Mapping[int, str]) -> list[plans.PlannedHost]:
        """Return the hosts that are concerned, as they were and as they will be with the requests."""
        simulation, view = self._state.simulation, self._state.hosts.view
        original_forest = self._state.original_forest()
        came = [each.spot.root for each in simulation.relocations]
        went = [each.consumer.root for each in simulation.relocations]
        requests = Counter(spot.root for spot in simulation.placed_spots)
        hosts = []
        for root in roots:
            before = original_forest.amounts(root)
            uses = {
                view.names.classes[class_id]: plans.ClassUse(capacity, before[class_id][1], after)
                for class_id, (capacity, after) in simulation.forest.amounts(root).items()
            }
            count = len(simulation.on.get(root, ()))
            counts = (count - came.count(root) + went.count(root), count)
            name = called.get(int(view.forest.providers.id[root]))
            hosts.append(plans.PlannedHost(self._state.uuid(root), name, counts, uses, requests[root]))
        return hosts
