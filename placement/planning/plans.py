"""Plans of moves: made on a copy of the state, and compared with the state; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.world import host_uuids
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, SearchTimeout
from placement.engine.forest.inventories import Draw
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.capacity.capacity import Capacity
from placement.engine.search.query import ForestQuery
from placement.engine.search.simulation import Draws, SearchedForest
from placement.flavors.nova.translation import translate_document
from placement.flavors.service import query_of
from placement.planning.board import MoveSimulation, PlacedConsumer, PlanDemand, QueryWish, Relocation, Spot
from placement.planning.capacity import RequestKind
from placement.planning.consumers import Roster
from placement.planning.goals import Bound, Defragmenting, Goals, Reached
from placement.planning.making_room import EvictionPlanner, PlanLimits
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.model import RecordedPod
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import found
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import ForestKeeper, View
from placement.storage.database import Database

FIT, EMPTY, FREE, DEFRAGMENT = "fit", "empty", "free", "defragment"
REWRITING, EVICTION = "rewriting", "eviction"
POSSIBLE, DONE, IMPOSSIBLE = "possible", "done", "impossible"
# The classes of which less shall be stranded where a goal names none.
_CORES, _SHARED_CPUS = "PCPU", "VCPU"
# What is left of the time of a request for telling what was found.
_TELLING_SECONDS = 1.0

Resources = Mapping[str, Mapping[str, int]]
"""Provider uuid -> resource class -> amount."""


@dataclass(frozen=True, slots=True)
class PodMove:
    """The pod of a move, and the CPUs it would get; the node decides anew when the pod comes."""

    cluster: str
    namespace: str
    name: str
    uid: str
    from_node: str
    to_node: str
    cpuset: str


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one consumer from what it holds to something else.

    `kind`: the request it was moved by: query, pod or guessed. `by`: rewriting allocations, or eviction.
    """

    consumer: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    kind: str
    by: str
    from_host: str
    to_host: str
    before: Resources
    after: Resources
    pod: PodMove | None = None


class ClassUse(NamedTuple):
    """The capacity of a host for a class, and what of it is in use before and after."""

    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A host that the plan concerns, and how many of the requests it would take."""

    uuid: str
    name: str | None
    consumers: tuple[int, int]
    classes: Mapping[str, ClassUse]
    requests: int = 0


class Left(NamedTuple):
    """A consumer that should have been moved and was not, and why; `pod` if it is one."""

    consumer: str
    host: str
    why: str
    pod: RecordedPod | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `wanted` and `achieved` count requests, hosts or stranded units (`wanted`: units at first).
    `complete`: the goal is reached, or proven to be out of reach within the limits. `why`: the reason it was
    not reached, empty if it was. `placements`: where requests would go. `idle`: how many hosts were empty.
    """

    goal: str
    cluster: str | None
    wanted: int
    achieved: int
    complete: bool
    moves: Sequence[Move]
    bound: Bound
    why: str
    hosts: Sequence[PlannedHost]
    placements: Sequence[Resources] = ()
    left: Sequence[Left] = ()
    emptied: Sequence[str] = ()
    stranded: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    idle: int = 0


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

    def make(self, request: PlanRequest) -> Plan:
        """Look for moves.

        Raises NotFound for a cluster, BadRequest naming the field, FlavorRefused, ManifestError,
        SearchTimeout if the caller went away, or the time was up before anything was known, Unavailable.
        """
        allowed = request.limits.clusters
        chosen = None if allowed is None else sorted(set(allowed))
        if request.cluster is not None:
            if allowed is not None and request.cluster not in allowed:
                raise BadRequest(
                    f"limits.clusters: {request.cluster}, the cluster of the plan, is not among these"
                )
            chosen = [request.cluster]
        try:
            scene = self._scene(chosen, request.seconds)
            return _Making(self._database, self._candidates, scene, request).plan()
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
            return list(_MoveCheck(scene).checked(moves))
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
        homes = {each.cluster: each.id for each in known if each.cluster is not None}
        view = self._keeper.current()
        snapshots = [self._cluster_cache.snapshot(name) for name in (homes if chosen is None else chosen)]
        ground = SearchedForest(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        roster = Roster(view, self._candidates, ground, snapshots, budget)
        inside = ground.roots.tolist()
        outside: set[int] = set()
        if chosen is not None:
            mine = frozenset(homes[name] for name in chosen)
            outside = {root for root in inside if not mine & view.forest.aggregates.of(root)}
            inside = [root for root in inside if root not in outside]
        read = inside if outside else None
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
        return Scene(view, ground, board, roster, snapshots, inside, budget)


def _timeout(ended: SearchEnded, before: str) -> SearchTimeout:
    why = "The caller went away" if ended.abandoned else f"The time was up before {before}"
    return SearchTimeout(f"{why}, so planning was ended.")


@dataclass(frozen=True, slots=True)
class Scene:
    """The state that moves are tried on; `inside` are the hosts that may take part."""

    view: View
    ground: SearchedForest
    board: MoveSimulation
    roster: Roster
    snapshots: Sequence[ClusterSnapshot]
    inside: Sequence[int]
    budget: Budget

    def uuid(self, row: int) -> str:
        """Return the uuid of a provider."""
        return self.ground.uuids([row])[0]

    def resources(self, draws: Draws) -> dict[str, dict[str, int]]:
        """Return the amounts of draws by provider uuid and class name."""
        resources: dict[str, dict[str, int]] = {}
        for uuid, draw in zip(self.ground.uuids([draw.row for draw in draws]), draws, strict=True):
            resources.setdefault(uuid, {})[self.view.names.classes[draw.class_id]] = draw.amount
        return resources


@dataclass(frozen=True, slots=True)
class _Making:
    """A plan in the making."""

    _database: Database
    _candidates: CandidateSearch
    _scene: Scene
    _request: PlanRequest

    def plan(self) -> Plan:
        scene, goal, most = self._scene, self._request.goal, self._request.limits.moves
        maker = EvictionPlanner(scene.board, self._request.limits, scene.budget)
        goals = Goals(scene.board, maker, most)
        stranded: dict[str, tuple[int, int]] = {}
        hosts = [root for root in scene.inside if root not in scene.ground.sharing_roots]
        idle = sum(not scene.board.on.get(root) for root in hosts)
        if goal.name == FIT:
            wish = self._wish(goal.kind)
            reached = goals.fit(wish, goal.count, lambda: self._may_fit(wish, goal.count))
        elif goal.name == EMPTY:
            reached = goals.empty(self._roots(goal.hosts))
        elif goal.name == FREE:
            reached = goals.free(goal.count, hosts)
        else:
            if goal.kind.pod is not None:
                raise BadRequest("goal.defragment: is for queries and flavors, not for pods")
            query = scene.roster.of_queries(self._queries(goal.kind))
            asked = [scene.view.names.classes[class_id] for class_id in query.classes]
            usual = next((name for name in (_CORES, _SHARED_CPUS) if name in asked), min(asked))
            name = goal.resource_class or usual
            if name not in asked:
                raise BadRequest(f"goal.defragment.resource_class: {name} is not asked for")
            class_id = scene.view.names.class_ids[name]
            reached = Defragmenting(scene.board, maker, query, class_id, scene.inside).run(most)
            stranded = {name: (reached.wanted, reached.wanted - reached.achieved)}
        return self._told(reached, stranded, idle)

    # -- requests -----------------------------------------------------------------------------------

    def _wish(self, kind: RequestKind) -> PlanDemand:
        if kind.pod is None:
            return self._scene.roster.of_queries(self._queries(kind))
        if self._request.cluster is None:
            raise BadRequest("goal.fit: a pod is for a cluster: cluster is missing")
        (snapshot,) = self._scene.snapshots
        return self._scene.roster.of_pod(snapshot, kind.pod, is_one=False)

    def _queries(self, kind: RequestKind) -> Sequence[ForestQuery]:
        query = kind.query or query_of(translate_document(kind.flavor))
        return self._candidates.wanted(self._scene.view, query, SearchOptions(default_order=False))

    def _may_fit(self, wish: PlanDemand, count: int) -> bool:
        """Return whether `count` requests may fit as things are; False if it is known that they do not."""
        view = self._scene.view
        if not isinstance(wish, QueryWish) or view.forest.count == 0:
            return True
        try:
            counted = [Capacity(view.forest, view.sharing, query) for query in wish.queries]
        except SearchEnded:
            return True
        open_ = set(self._scene.inside)
        return sum(host.upper for each in counted for host in each.hosts() if host.row in open_) >= count

    def _roots(self, called: Sequence[str]) -> list[int]:
        uuids = host_uuids(self._database, called)
        ground, inside, roots = self._scene.ground, set(self._scene.inside), []
        for at, name in enumerate(called):
            row = ground.row_of_uuid(uuids[name]) if name in uuids else -1
            if row not in inside:
                raise BadRequest(f"goal.empty[{at}]: there is no host {name!r} here")
            if row in ground.sharing_roots:
                raise BadRequest(f"goal.empty[{at}]: {name!r} shares what it has with hosts; it is none")
            roots.append(row)
        return list(dict.fromkeys(roots))

    # -- telling ------------------------------------------------------------------------------------

    def _told(self, reached: Reached, stranded: Mapping[str, tuple[int, int]], idle: int) -> Plan:
        scene = self._scene
        board = scene.board
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
            moves=[self._move(each) for each in board.moved],
            bound=reached.bound,
            why=reached.why,
            hosts=self._hosts(list(dict.fromkeys(roots)), called),
            placements=[scene.resources(spot.draws) for spot in board.placed],
            left=[Left(each.uuid, scene.uuid(each.root), why, each.pod) for each, why in reached.left],
            emptied=[scene.uuid(root) for root in reached.emptied],
            stranded=stranded,
            idle=idle,
        )

    def _move(self, moved: Relocation) -> Move:
        scene, consumer, pod, to = self._scene, moved.consumer, moved.consumer.pod, moved.to
        pod_move = None
        if pod is not None and to.node is not None and to.recorded is not None:
            source = scene.board.nodes[consumer.root].name
            cpus = format_cpu_list(to.recorded.holding.cpus)
            cluster = to.node.identity.cluster
            pod_move = PodMove(cluster, pod.namespace, pod.name, pod.uid, source, to.node.name, cpus)
        return Move(
            consumer=consumer.uuid,
            generation=consumer.generation,
            project_id=consumer.project_id,
            user_id=consumer.user_id,
            consumer_type=consumer.consumer_type,
            kind=consumer.kind,
            by=REWRITING if pod is None else EVICTION,
            from_host=scene.uuid(consumer.root),
            to_host=scene.uuid(to.root),
            before=scene.resources(consumer.spot.draws),
            after=scene.resources(to.draws),
            pod=pod_move,
        )

    def _hosts(self, roots: Sequence[int], called: Mapping[int, str]) -> list[PlannedHost]:
        """Return the hosts that are concerned, as they were and as they will be with the requests."""
        board, view = self._scene.board, self._scene.view
        before = SearchedForest(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])
        came = [each.to.root for each in board.moved]
        went = [each.consumer.root for each in board.moved]
        requests = Counter(spot.root for spot in board.placed)
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
            hosts.append(PlannedHost(self._scene.uuid(root), name, counts, uses, requests[root]))
        return hosts


# The check whether the moves of a plan are still possible, one after the other.


class Checked(NamedTuple):
    """The state of a move; `why` it is impossible, else empty."""

    consumer: str
    state: str
    why: str = ""


class _MoveCheck:
    """A check that makes moves on a board; a move that is impossible is left out."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._ground, self._board = scene, scene.ground, scene.board
        self._known = {uuid: each for here in self._board.on.values() for uuid, each in here.items()}

    def checked(self, moves: Sequence[Move]) -> Iterator[Checked]:
        """Yield the state of each move after the moves before it. Raises SearchEnded."""
        for move in moves:
            consumer = self._known.get(move.consumer)
            why = "holds nothing here any more"
            if consumer is not None:
                held = self._scene.resources(consumer.spot.draws)
                if move.after == held:
                    yield Checked(move.consumer, DONE)
                    continue
                why = consumer.fixed or self._refusal(move, consumer, held)
            yield Checked(move.consumer, IMPOSSIBLE if why else POSSIBLE, why)

    def _refusal(self, move: Move, consumer: PlacedConsumer, held: Resources) -> str:
        """Return why a move is impossible; empty if it was made on the board."""
        if move.before != held:
            return "holds something else by now"
        if move.generation != consumer.generation:
            return f"has generation {consumer.generation} by now, not {move.generation}"
        mark = self._board.mark()
        self._board.leave(consumer)
        spot = self._pod_spot(move, consumer) if move.pod is not None else self._spot(move, consumer)
        if isinstance(spot, str):
            self._board.back(mark)
            return spot
        self._board.arrive(consumer, spot)
        # It does not move again.
        self._known[consumer.uuid] = self._board.on[spot.root][consumer.uuid]
        return ""

    def _spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the spot of a consumer that has left its old one, or why it cannot be there."""
        ground, names, given = self._ground, self._scene.view.names, []
        for uuid, amounts in move.after.items():
            row = ground.row_of_uuid(uuid)
            if row < 0:
                return f"there is no provider {uuid} any more"
            for name, amount in amounts.items():
                if name not in names.class_ids:
                    return f"there is no resource class {name} any more"
                given.append(Draw(row, names.class_ids[name], amount))
        roots = [ground.root_of(draw.row) for draw in given if draw.row not in ground.sharers]
        if not roots:
            return "holds nothing of a host"
        spot = Spot(roots[0], tuple(sorted(given)))
        if self._board.closed[spot.root] > 0:
            return f"host {self._scene.uuid(spot.root)} does not take part"
        for draw in spot.draws:
            if not ground.admits(draw):
                name, uuid = names.classes[draw.class_id], self._scene.uuid(draw.row)
                return f"{draw.amount} {name} of provider {uuid} are not free"
        if not isinstance(consumer.wish, QueryWish) or not consumer.wish.admits(self._board, spot):
            return "is no candidate of its request there any more"
        return spot

    def _pod_spot(self, move: Move, consumer: PlacedConsumer) -> Spot | str:
        """Return the pod's spot on the plan's node, or why it has none; Kubernetes decides what it gets."""
        if consumer.wish is None:
            return consumer.fixed
        row = self._ground.row_of_uuid(move.to_host)
        if row >= 0 and self._board.closed[row] > 0:
            return f"host {move.to_host} does not take part"
        spots = consumer.wish.spots_on(self._board, row) if row >= 0 else ()
        return spots[0] if spots else "does not fit there any more"
