"""Plans of moves: made on a copy of the state, and compared with the state; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.world import host_uuids
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, SearchTimeout
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.query import ForestQuery
from placement.engine.search.simulation import Draws, SearchedForest
from placement.flavors.service import Flavors, ParseQuery, query_of
from placement.planning.board import MoveSimulation, Relocation, Spot
from placement.planning.capacity import RequestKind
from placement.planning.checking import Checked, Checking, resources_of
from placement.planning.consumers import Roster, Wishes
from placement.planning.goals import SUMS, TIME_UP, Goals, Reached, fewest_hosts
from placement.planning.making_room import EvictionPlanner
from placement.planning.plan import (
    EVICTION,
    REWRITING,
    Bound,
    ClassUse,
    Left,
    Move,
    Plan,
    PlanDemand,
    PlanLimits,
    PlannedHost,
    PodMove,
    QueryWish,
    Resources,
)
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import found
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import ForestKeeper, View
from placement.storage.database import Database

# Moves after which more of what is free can be used; the moves that regain most come first.


# Bounds of a step: consumers that leave a host together, the best spots of each, ways, and sets tried.
_MOST_TOGETHER, _MOST_SPOTS, _MOST_WAYS, _MOST_SETS = 4, 4, 4, 6


class Defragmenting:
    """A planner that reduces what is stranded of a class for a request: free where no more of it fits."""

    def __init__(
        self,
        board: MoveSimulation,
        maker: EvictionPlanner,
        wish: QueryWish,
        class_id: int,
        roots: Collection[int],
    ) -> None:
        """Look at the hosts with these roots. Raises SearchEnded."""
        self._board, self._maker, self._wish = board, maker, wish
        self._queries, self._class_id = wish.queries, class_id
        self._roots = frozenset(roots)
        everywhere = board.ground.stranded(wish.queries, class_id)
        self._stranded = {root: everywhere[root] for root in roots if root in everywhere}
        self._at_first = dict(self._stranded)
        self._offers: dict[int, bool] = {}
        maker.choose = self._chosen

    @property
    def total(self) -> int:
        """Return how much is stranded now."""
        return sum(self._stranded.values())

    def run(self, most: int) -> Reached:
        """Make at most `most` moves."""
        reached = Reached(self.total)
        try:
            worth = max(self._stranded.values(), default=0)
            while worth:
                if not self._pass(worth, most):
                    worth //= 2
        except SearchEnded as ended:
            if ended.abandoned:
                raise
            self._maker.forget()
            reached.why = TIME_UP
        reached.achieved = reached.wanted - self.total
        if self.total:
            reached.complete = False
            reached.why = reached.why or "the moves that regain most were made first, not all ways were tried"
        least = fewest_hosts(list(self._at_first.values()), reached.achieved)
        reached.bound = Bound(least, SUMS)
        return reached

    def _pass(self, worth: int, most: int) -> bool:
        """Make moves that regain at least `worth` each; return whether there were any."""
        found = False
        hosts = sorted(self._stranded, key=lambda root: (-self._stranded[root], root))
        for root in hosts:
            for size in range(1, _MOST_TOGETHER + 1):
                here = self._stranded.get(root, 0)
                if here < size * worth or len(self._board.moved) + size > most:
                    break
                if self._improved(root, size, worth):
                    found = True
                    break
        return found

    def _improved(self, root: int, size: int, worth: int) -> bool:
        """Let `size` consumers leave a host if that is worth it; return whether they left."""
        board = self._board
        sets = list(islice(self._maker.in_the_way(self._wish, root, size), _MOST_SETS))
        for some, spot in sets:
            mark = board.mark()
            try:
                for _ in islice(self._maker.replacing(some, spot, size), _MOST_WAYS):
                    if self._accepted(spot, size * worth):
                        return True
            except SearchEnded:
                board.back(mark)
                raise
            board.back(mark)
        return False

    def _accepted(self, spot: Spot, worth: int) -> bool:
        """Keep the moves made for a spot if they regain at least `worth`; return whether they do."""
        board = self._board
        mark = board.mark()
        board.release(spot)
        touched = self._touched(spot, board.moved[-_MOST_TOGETHER:])
        now = board.ground.stranded(self._queries, self._class_id, touched)
        gain = sum(self._stranded.get(each, 0) - now.get(each, 0) for each in touched)
        if gain < worth:
            board.back(mark)
            return False
        for each in touched:
            self._stranded.pop(each, None)
        self._stranded.update(now)
        return True

    def _touched(self, spot: Spot, moved: Sequence[Relocation]) -> set[int]:
        """Return the hosts where another amount may be stranded after these moves for a spot."""
        touched, left = {spot.root}, Counter[tuple[int, int]]()
        for each in moved:
            touched |= {each.consumer.root, each.to.root}
            left.update({(row, name): amount for row, name, amount in each.consumer.spot.draws})
            left.subtract({(row, name): amount for row, name, amount in each.to.draws})
        if any(amount and self._board.ground.is_shared(row) for (row, _), amount in left.items()):
            # What a sharing provider has left also affects hosts that nothing came to or left.
            touched |= self._roots
        return touched

    def _chosen(self, spots: Iterable[Spot]) -> list[Spot]:
        """Return the spots that harm least: on hosts without the class, then where it is stranded anyway."""
        return sorted(spots, key=self._harm)[:_MOST_SPOTS]

    def _harm(self, spot: Spot) -> tuple[int, int]:
        if not self._has_class(spot.root):
            return 0, 0
        return (1, -self._stranded[spot.root]) if spot.root in self._stranded else (2, 0)

    def _has_class(self, root: int) -> bool:
        if root not in self._offers:
            self._offers[root] = self._board.ground.offers(root, self._class_id)
        return self._offers[root]


FIT, EMPTY, FREE, DEFRAGMENT = "fit", "empty", "free", "defragment"
_CORES, _SHARED_CPUS = "PCPU", "VCPU"
# What is left of the time of a request for telling what was found.
_TELLING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: room for `count` requests of a `kind`, `hosts` empty, `count` hosts free, or less of a
    `resource_class` stranded for a `kind` (if not given: PCPU, VCPU or the first class that it asks for).
    """

    name: str
    kind: RequestKind = field(default_factory=RequestKind)
    count: int = 1
    hosts: Sequence[str] = ()
    resource_class: str | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A goal, in one cluster or everywhere, within limits; `seconds` None for the time of a search."""

    goal: Goal
    limits: PlanLimits
    cluster: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Plans:
    """A service that makes plans, and checks whether their moves are still possible."""

    _database: Database
    _keeper: ForestKeeper
    _cluster_cache: ClusterCache
    _candidates: CandidateSearch
    _seconds: float

    def make(self, request: PlanRequest, parse: ParseQuery) -> Plan:
        """Look for moves; `parse` reads the query string of a flavor.

        Raises NotFound for a cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout if the caller went away, or the time was up before anything was known, Unavailable.
        """
        try:
            scene = self._scene(_scope(request), request.seconds)
            return _Making(self._database, self._candidates, scene, request, parse).plan()
        except SearchEnded as ended:
            raise _timeout(ended, "there was a plan") from ended

    def check(self, moves: Sequence[Move], cluster: str | None) -> list[Checked]:
        """Return the state of each move when it is made after the moves before it.

        Raises NotFound, SearchTimeout, Unavailable.
        """
        chosen = None if cluster is None else [cluster]
        try:
            hosts = {host for each in moves for host in (each.from_host, each.to_host)}
            scene = self._scene(chosen, None, hosts)
            return Checking(scene.view, scene.ground, scene.board).checked(moves)
        except SearchEnded as ended:
            raise _timeout(ended, "all moves were checked") from ended

    def _scene(
        self, chosen: Sequence[str] | None, seconds: float | None, hosts: Collection[str] | None = None
    ) -> Scene:
        """Return the state of the chosen clusters, or of all hosts, for a search of so many seconds.

        With `hosts` (uuids), only consumers that hold something of these hosts are on the board.
        """
        seconds = self._seconds if seconds is None else seconds
        budget = Budget(
            min(seconds, request_scope.remaining() - _TELLING_SECONDS), request_scope.caller_is_gone
        )
        with self._database.read() as connection:
            for name in chosen or ():
                found(connection, name)
            known = clusters.aggregates_called(connection)
        homes = {name: id_ for id_, _, name in known if name is not None}
        view = self._keeper.current()
        snapshots = [self._cluster_cache.view(name) for name in (homes if chosen is None else chosen)]
        ground = SearchedForest(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        wishes = Wishes(view, self._candidates, ground, budget)
        roster = Roster(view, ground, wishes, snapshots, frozenset(homes.values()), budget)
        outside: set[int] = set()
        if chosen is not None:
            mine = frozenset(homes[name] for name in chosen)
            aggregates = view.forest.aggregates
            outside = {root for root in ground.roots_in_order() if not mine & aggregates.of(root)}
        inside = [root for root in ground.roots_in_order() if root not in outside]
        read = None if hosts is None and not outside else inside
        if hosts is not None:
            rows = {ground.row_of_uuid(uuid) for uuid in hosts}
            read = [root for root in inside if root in rows]
        ids = view.forest.providers.id
        root_ids = None if read is None else [int(ids[root]) for root in read]
        consumers = roster.read(self._database, root_ids)
        nodes = {roster.rows[node.root_id]: node for each in snapshots for node in each.columns.nodes}
        here = [each for each in consumers if each.root not in outside]
        board = MoveSimulation(ground, nodes, here, view.names.class_ids)
        for root in outside:
            board.close(root)
        return Scene(view, ground, board, wishes, roster, snapshots, inside, budget)


@dataclass(frozen=True, slots=True)
class Scene:
    """The state that moves are tried on; `inside` are the hosts that may take part."""

    view: View
    ground: SearchedForest
    board: MoveSimulation
    wishes: Wishes
    roster: Roster
    snapshots: Sequence[ClusterSnapshot]
    inside: Sequence[int]
    budget: Budget


def _timeout(ended: SearchEnded, before: str) -> SearchTimeout:
    why = "The caller went away" if ended.abandoned else f"The time was up before {before}"
    return SearchTimeout(f"{why}, so planning was ended.")


def _scope(request: PlanRequest) -> list[str] | None:
    """Return the clusters that may take part, or None for all hosts."""
    allowed = request.limits.clusters
    if request.cluster is None:
        return None if allowed is None else sorted(set(allowed))
    if allowed is not None and request.cluster not in allowed:
        raise BadRequest(f"limits.clusters: {request.cluster}, the cluster of the plan, is not among these")
    return [request.cluster]


class _Making:
    def __init__(
        self,
        database: Database,
        candidates: CandidateSearch,
        scene: Scene,
        request: PlanRequest,
        parse: ParseQuery,
    ) -> None:
        self._database, self._candidates = database, candidates
        self._scene, self._request, self._parse = scene, request, parse
        self._maker = EvictionPlanner(scene.board, request.limits, scene.budget)

    def plan(self) -> Plan:
        scene, goal = self._scene, self._request.goal
        goals = Goals(scene.board, self._maker, self._request.limits.moves)
        stranded: dict[str, tuple[int, int]] = {}
        if goal.name == FIT:
            wish = self._wish(goal.kind)
            reached = goals.fit(wish, goal.count, lambda: self._may_fit(wish, goal.count))
        elif goal.name == EMPTY:
            reached = goals.empty(self._roots(goal.hosts))
        elif goal.name == FREE:
            hosts = [root for root in scene.inside if not scene.ground.shares(root)]
            reached = goals.free(goal.count, hosts)
        else:
            reached, stranded = self._defragmented(goal)
        return self._told(reached, stranded)

    # -- requests -----------------------------------------------------------------------------------

    def _wish(self, kind: RequestKind) -> PlanDemand:
        if kind.pod is None:
            return self._scene.wishes.of_queries(self._queries(kind))
        if self._request.cluster is None:
            raise BadRequest("goal.fit: a pod is for a cluster: cluster is missing")
        (snapshot,) = self._scene.snapshots
        roots = self._scene.roster.roots[snapshot.facts.id]
        return self._scene.wishes.of_pod(snapshot, kind.pod, roots, is_one=False)

    def _queries(self, kind: RequestKind) -> Sequence[ForestQuery]:
        query = kind.query or query_of(Flavors.translate(kind.flavor), self._parse)
        options = SearchOptions(default_order=False)
        return self._candidates.wanted(self._scene.view, query, options)

    def _may_fit(self, wish: PlanDemand, count: int) -> bool:
        """Return whether `count` requests may fit as things are; False if it is known that they do not."""
        if not isinstance(wish, QueryWish) or self._scene.view.forest.count == 0:
            return True
        view = self._scene.view
        try:
            counted = [Capacity(view.forest, view.sharing, query) for query in wish.queries]
        except SearchEnded:
            return True
        open_ = set(self._scene.inside)
        most = sum(host.upper for each in counted for host in each.hosts() if host.row in open_)
        return most >= count

    def _roots(self, called: Sequence[str]) -> list[int]:
        uuids = host_uuids(self._database, called)
        inside, roots = set(self._scene.inside), []
        for at, name in enumerate(called):
            row = self._scene.ground.row_of_uuid(uuids[name]) if name in uuids else -1
            if row not in inside:
                raise BadRequest(f"goal.empty[{at}]: there is no host {name!r} here")
            if self._scene.ground.shares(row):
                raise BadRequest(f"goal.empty[{at}]: {name!r} shares what it has with hosts; it is none")
            roots.append(row)
        return list(dict.fromkeys(roots))

    def _defragmented(self, goal: Goal) -> tuple[Reached, dict[str, tuple[int, int]]]:
        if goal.kind.pod is not None:
            raise BadRequest("goal.defragment: is for queries and flavors, not for pods")
        wish = self._scene.wishes.of_queries(self._queries(goal.kind))
        name = goal.resource_class or self._cores_of(wish)
        class_id = self._scene.view.names.class_ids.get(name)
        if class_id is None or class_id not in wish.classes:
            raise BadRequest(f"goal.defragment.resource_class: {name} is not asked for")
        work = Defragmenting(self._scene.board, self._maker, wish, class_id, self._scene.inside)
        reached = work.run(self._request.limits.moves)
        return reached, {name: (reached.wanted, reached.wanted - reached.achieved)}

    def _cores_of(self, wish: QueryWish) -> str:
        names = self._scene.view.names.classes
        asked = [names[class_id] for class_id in wish.classes]
        return next((name for name in (_CORES, _SHARED_CPUS) if name in asked), min(asked))

    # -- telling ------------------------------------------------------------------------------------

    def _told(self, reached: Reached, stranded: Mapping[str, tuple[int, int]]) -> Plan:
        board = self._scene.board
        moves = [self._move(each) for each in board.moved]
        roots = [root for each in board.moved for root in (each.consumer.root, each.to.root)]
        roots += [spot.root for spot in board.placed]
        with self._database.read() as connection:
            called = providers.root_names(connection)
        return Plan(
            goal=self._request.goal.name,
            cluster=self._request.cluster,
            wanted=reached.wanted,
            achieved=reached.achieved,
            complete=reached.complete,
            moves=moves,
            bound=reached.bound,
            why=reached.why,
            hosts=self._hosts(list(dict.fromkeys(roots)), called),
            placements=[self._resources(spot.draws) for spot in board.placed],
            left=[Left(each.uuid, self._uuid(each.root), why) for each, why in reached.left],
            emptied=[self._uuid(root) for root in reached.emptied],
            stranded=stranded,
        )

    def _move(self, moved: Relocation) -> Move:
        consumer = moved.consumer
        return Move(
            consumer=consumer.uuid,
            generation=consumer.generation,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
            consumer_type=consumer.consumer_type,
            kind=consumer.kind,
            by=REWRITING if consumer.pod is None else EVICTION,
            from_host=self._uuid(consumer.root),
            to_host=self._uuid(moved.to.root),
            before=self._resources(consumer.spot.draws),
            after=self._resources(moved.to.draws),
            pod=self._pod(moved),
        )

    def _pod(self, moved: Relocation) -> PodMove | None:
        pod, to = moved.consumer.pod, moved.to
        if pod is None or to.node is None or to.recorded is None:
            return None
        source = self._scene.board.nodes[moved.consumer.root]
        cpus = format_cpu_list(to.recorded.holding.cpus)
        cluster = to.node.identity.cluster
        return PodMove(cluster, pod.namespace, pod.name, pod.uid, source.name, to.node.name, cpus)

    def _hosts(self, roots: Sequence[int], called: Mapping[int, str]) -> list[PlannedHost]:
        """Return the hosts that are concerned, as they were and as they will be with the requests."""
        board, view = self._scene.board, self._scene.view
        before = SearchedForest(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        came = [each.to.root for each in board.moved]
        went = [each.consumer.root for each in board.moved]
        hosts = []
        for root in roots:
            first = before.amounts(root)
            uses = {
                view.names.classes[class_id]: ClassUse(capacity, first[class_id][1], after)
                for class_id, (capacity, after) in board.ground.amounts(root).items()
            }
            count = len(board.on.get(root, ()))
            counts = (count - came.count(root) + went.count(root), count)
            name = called.get(int(view.forest.providers.id[root]))
            hosts.append(PlannedHost(self._uuid(root), name, counts, uses))
        return hosts

    def _uuid(self, row: int) -> str:
        return self._scene.ground.uuids([row])[0]

    def _resources(self, draws: Draws) -> Resources:
        return resources_of(self._scene.view, self._scene.ground, draws)
