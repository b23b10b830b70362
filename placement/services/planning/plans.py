"""Plans of moves: made on a copy of the state, and compared with the state; nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from placement.domain import deadline
from placement.domain.errors import BadRequest, SearchTimeout
from placement.numa.cpuset import format_cpu_list
from placement.search.budget import Budget, SearchEnded
from placement.search.capacity.capacity import Capacity
from placement.search.ground import Draws, Ground
from placement.search.query import ForestQuery
from placement.services.clusters.cluster_lookup import found
from placement.services.flavors import Flavors, ParseQuery, query_of
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.services.following.forest_keeper import ForestKeeper, View
from placement.services.placement.candidates import Candidates
from placement.services.placement.search_options import SearchOptions
from placement.services.planning.moves.board import Board, Relocation
from placement.services.planning.moves.checking import Checked, Checking, resources_of
from placement.services.planning.moves.consumers import Roster, Wishes
from placement.services.planning.moves.defragmenting import Defragmenting
from placement.services.planning.moves.goals import Goals, Reached
from placement.services.planning.moves.limits import Limits
from placement.services.planning.moves.making_room import RoomMaker
from placement.services.planning.moves.plan import (
    EVICTION,
    REWRITING,
    Left,
    Move,
    Plan,
    PlannedHost,
    PodMove,
    Resources,
    Use,
)
from placement.services.planning.moves.wishes import QueryWish, Wish
from placement.services.planning.planning import Kind
from placement.services.planning.world import host_uuids
from placement.storage.database import Database
from placement.storage.statements import clusters, provider_rows
from placement.storage.statements.names import SHARING_TRAIT

FIT, EMPTY, FREE, DEFRAGMENT = "fit", "empty", "free", "defragment"
_CORES, _SHARED_CPUS = "PCPU", "VCPU"
# What is left of the time of a request for telling what was found.
_TELLING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """What a plan is for: `count` requests of a `kind`, no one on `hosts`, `count` hosts free, or less of
    `resource_class` stranded for a `kind` (PCPU if not said, or what the kind asks for).
    """

    name: str
    kind: Kind = field(default_factory=Kind)
    count: int = 1
    hosts: Sequence[str] = ()
    resource_class: str | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A goal, in one cluster or everywhere, within limits; `seconds` None for the time of a search."""

    goal: Goal
    limits: Limits
    cluster: str | None = None
    seconds: float | None = None


class Plans:
    """Makes plans, and tells whether their moves are still possible."""

    def __init__(
        self,
        database: Database,
        keeper: ForestKeeper,
        cluster_cache: ClusterCache,
        candidates: Candidates,
        seconds: float,
    ) -> None:
        self._database = database
        self._keeper = keeper
        self._cluster_cache = cluster_cache
        self._candidates = candidates
        self._seconds = seconds

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
        """What the state of each move is, made after those before it.

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
        """The state of the chosen clusters, or everywhere, to be looked at for so long.

        With `hosts`, by uuid, only those who hold something of these are on the board.
        """
        seconds = self._seconds if seconds is None else seconds
        budget = Budget(min(seconds, deadline.remaining() - _TELLING_SECONDS), deadline.caller_is_gone)
        with self._database.read() as connection:
            for name in chosen or ():
                found(connection, name)
            known = clusters.aggregates_called(connection)
        homes = {name: id_ for id_, _, name in known if name is not None}
        view = self._keeper.current()
        snapshots = [self._cluster_cache.view(name) for name in (homes if chosen is None else chosen)]
        ground = Ground(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
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
            rows = {ground.row_of(uuid) for uuid in hosts}
            read = [root for root in inside if root in rows]
        ids = view.forest.providers.id
        root_ids = None if read is None else [int(ids[root]) for root in read]
        consumers = roster.read(self._database, root_ids)
        nodes = {roster.rows[node.root_id]: node for each in snapshots for node in each.columns.nodes}
        here = [each for each in consumers if each.root not in outside]
        board = Board(ground, nodes, here, view.names.class_ids)
        for root in outside:
            board.close(root)
        return Scene(view, ground, board, wishes, roster, snapshots, inside, budget)


@dataclass(frozen=True, slots=True)
class Scene:
    """The state that moves are tried on; `inside` are the hosts that may take part."""

    view: View
    ground: Ground
    board: Board
    wishes: Wishes
    roster: Roster
    snapshots: Sequence[ClusterSnapshot]
    inside: Sequence[int]
    budget: Budget


def _timeout(ended: SearchEnded, before: str) -> SearchTimeout:
    why = "The caller went away" if ended.abandoned else f"The time was up before {before}"
    return SearchTimeout(f"{why}, so planning was ended.")


def _scope(request: PlanRequest) -> list[str] | None:
    """The clusters that may take part, None for all hosts."""
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
        candidates: Candidates,
        scene: Scene,
        request: PlanRequest,
        parse: ParseQuery,
    ) -> None:
        self._database, self._candidates = database, candidates
        self._scene, self._request, self._parse = scene, request, parse
        self._maker = RoomMaker(scene.board, request.limits, scene.budget)

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

    def _wish(self, kind: Kind) -> Wish:
        if kind.pod is None:
            return self._scene.wishes.of_queries(self._queries(kind))
        if self._request.cluster is None:
            raise BadRequest("goal.fit: a pod is for a cluster: cluster is missing")
        (snapshot,) = self._scene.snapshots
        roots = self._scene.roster.roots[snapshot.facts.id]
        return self._scene.wishes.of_pod(snapshot, kind.pod, roots, is_one=False)

    def _queries(self, kind: Kind) -> Sequence[ForestQuery]:
        query = kind.query or query_of(Flavors.translate(kind.flavor), self._parse)
        options = SearchOptions(default_order=False)
        return self._candidates.wanted(self._scene.view, query, options)

    def _may_fit(self, wish: Wish, count: int) -> bool:
        """Whether so many requests may fit as things are: as far as it is known that they do not, False."""
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
            row = self._scene.ground.row_of(uuids[name]) if name in uuids else -1
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
            called = provider_rows.root_names(connection)
        return Plan(
            goal=self._request.goal.name,
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
        """The hosts that are concerned, as they were and as they will be with the requests."""
        board, view = self._scene.board, self._scene.view
        before = Ground(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        came = [each.to.root for each in board.moved]
        went = [each.consumer.root for each in board.moved]
        hosts = []
        for root in roots:
            first = before.amounts(root)
            uses = {
                view.names.classes[class_id]: Use(capacity, first[class_id][1], after)
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
