"""A plan: moves in their order, what they are for, and how far from the best it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.engine.domain.groups import SplitRule
from placement.engine.numa.demand import PodRefused
from placement.engine.search.query import ForestQuery
from placement.engine.search.simulation import Draws
from placement.planning.board import MoveSimulation, PlacedConsumer, Relocation, Spot
from placement.pods.cache import ClusterSnapshot
from placement.pods.cycle import Ranked, ShapeRanking
from placement.pods.documents import PodDocument
from placement.pods.model import PodSpec
from placement.pods.node_info import NodeInfo
from placement.pods.placing import placed
from placement.pods.ranking import RuledRanking
from placement.pods.rules.between_pods import PlacedPods
from placement.pods.rules.rule import Fit
from placement.pods.snapshot import NodeColumns

Resources = Mapping[str, Mapping[str, int]]
"""Provider uuid -> resource class -> amount."""

REWRITING, EVICTION = "rewriting", "eviction"


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


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound: no plan has fewer `moves`. `by`: sums, a search of all with fewer, or no plan is possible."""

    moves: int
    by: str


@dataclass(frozen=True, slots=True)
class ClassUse:
    """The capacity of a host for a class, and what of it is in use before and after."""

    capacity: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A host that the plan concerns."""

    uuid: str
    name: str | None
    consumers: tuple[int, int]
    classes: Mapping[str, ClassUse]


@dataclass(frozen=True, slots=True)
class Left:
    """A consumer that should have been moved and was not, and why."""

    consumer: str
    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `wanted` and `achieved` count requests, hosts or stranded units (`wanted`: units at first).
    `complete`: the goal is reached, or proven to be out of reach within the limits. `why`: the reason it was
    not reached, empty if it was. `placements`: where requests would go.
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


# The limits of a plan: how many moves, of which consumers, and where.


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit on the moves of consumers that match all given fields; `label` is one of pods, KEY=VALUE."""

    moves: int
    project_id: str | None = None
    consumer_type: str | None = None
    label: str | None = None

    def means(self, consumer: PlacedConsumer) -> bool:
        """Return whether the limit applies to a consumer."""
        if self.project_id not in (None, consumer.project_id):
            return False
        if self.consumer_type not in (None, consumer.consumer_type):
            return False
        if self.label is None:
            return True
        key, _, value = self.label.partition("=")
        return consumer.labels.get(key) == value


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits of a plan. `never`: uuids of consumers that stay; `clusters`: only their hosts take part."""

    moves: int
    never: frozenset[str] = frozenset()
    clusters: tuple[str, ...] | None = None
    at_most: Sequence[AtMost] = ()

    def why_not(self, consumer: PlacedConsumer, moved: Sequence[Relocation]) -> str:
        """Return why a consumer may not be moved after these moves; empty if it may."""
        if consumer.fixed:
            return consumer.fixed
        if consumer.uuid in self.never:
            return "is never moved"
        for bound in self.at_most:
            if bound.means(consumer):
                made = sum(bound.means(each.consumer) for each in moved)
                if made >= bound.moves:
                    return f"at most {bound.moves} moves of its kind are allowed"
        return ""

    def tags(self, consumer: PlacedConsumer) -> Mapping[int, bool]:
        """Return for each bound of `at_most`, by its place, whether it applies to a consumer."""
        return {at: bound.means(consumer) for at, bound in enumerate(self.at_most)}


# Requests and the spots they get: a query from the search, a pod from the pod scheduler.


Amounts = Mapping[Any, int]
_ANYTHING = 2**62


class QueryWish:
    """A wish for a query by ids, or for two if it asks something else of core trees."""

    def __init__(self, queries: Sequence[ForestQuery], key: Hashable, shared_classes: frozenset[int]) -> None:
        self.queries = queries
        self.key = key
        self.classes = frozenset(
            class_id for query in queries for group in query.groups for class_id, _ in group.resources
        )
        self.wanted: Amounts = _least_wanted(queries, shared_classes)
        self._hosts: list[int] | None = None

    def tells_all(self, board: MoveSimulation) -> bool:
        """Return whether amounts can be split in one way only: each provider gives at most one unit."""
        split = {name for query in self.queries for group in query.groups for name in group.split}
        return all(board.ground.most_of_one(name) <= 1 for name in split)

    def spots(self, board: MoveSimulation) -> Iterator[Spot]:
        """Yield its spots on the board as it is, on hosts that are open."""
        for number, query in enumerate(self.queries):
            for root in board.ground.taking((self.key, number), query):
                if board.closed[root] <= 0:
                    for draws in board.ground.candidates((self.key, number), query, root):
                        yield Spot(root, draws)

    def spots_on(self, board: MoveSimulation, root: int) -> list[Spot]:
        """Return its spots on one host."""
        return [
            Spot(root, draws)
            for number, query in enumerate(self.queries)
            for draws in board.ground.candidates((self.key, number), query, root)
        ]

    def admits(self, board: MoveSimulation, spot: Spot) -> bool:
        """Return whether a spot is a candidate now, however amounts are split. Raises SearchEnded."""
        if not self.is_met_by(sums_of(spot.draws)):
            return False
        for query in self.queries:
            splits = any(group.split for group in query.groups)
            for draws in board.ground.candidates_among(query, spot.draws):
                if draws == spot.draws or (splits and _places(draws) <= _places(spot.draws)):
                    return True
        return False

    def is_met_by(self, held: Mapping[int, int]) -> bool:
        """Return whether it asks for these amounts; under `isolate` more may be held than asked for."""
        for query in self.queries:
            wanted: Counter[int] = Counter()
            isolated: set[int] = set()
            for group in query.groups:
                wanted.update(dict(group.resources))
                if group.split and group.split_rule is SplitRule.ISOLATE:
                    isolated |= group.split
            if held.keys() == wanted.keys() and all(
                amount == wanted[name] or (name in isolated and amount > wanted[name])
                for name, amount in held.items()
            ):
                return True
        return False

    def hosts(self, board: MoveSimulation) -> Sequence[int]:
        """Return the hosts that could take it if no consumer held anything."""
        if self._hosts is None:
            self._hosts = board.ground.ever_taking(self.queries)
        return self._hosts

    def lacking(self, board: MoveSimulation, root: int) -> Amounts:
        """Return what the host as a whole lacks of each class; what is enough is left out."""
        free = board.ground.sums(root, self.wanted)
        return {name: amount - free[name] for name, amount in self.wanted.items() if amount > free[name]}

    def freed(self, board: MoveSimulation, consumer: PlacedConsumer) -> Amounts:
        """Return what a consumer holds of each class."""
        return sums_of(consumer.spot.draws)


class PodWish:
    """A wish for a pod of a cluster, as the cluster was at first, or for pods like it."""

    def __init__(
        self,
        cluster: ClusterSnapshot,
        roots: Mapping[int, int],
        ranking: ShapeRanking,
        incoming: PodSpec,
        document: PodDocument,
        *,
        is_one: bool,
    ) -> None:
        self._is_one = is_one
        self._columns, self._roots = cluster.columns, roots
        self._placed = cluster.placed if cluster.has_affinity or incoming.rules else None
        self._ranking, self._incoming, self._document = ranking, incoming, document
        self.key: Hashable = (
            "pod",
            cluster.facts.id,
            ranking.shape,
            document.consumer if self._placed else "",
        )
        self._hosts: list[int] | None = None
        # What a pod holds of a provider follows from the node; sums of these show nothing.
        self.wanted: Amounts = {}

    def tells_all(self, board: MoveSimulation) -> bool:
        """Return False: the pod scheduler gives only one of the ways to take CPUs of a node."""
        return False

    def spots(self, board: MoveSimulation) -> Iterator[Spot]:
        """Yield its spots, in the order of the pod scheduler."""
        columns = self._present(board)
        ranking = self._ranking if self._placed is None else self._ruled(self._placed, columns)
        for ranked in ranking.best_first(columns):
            root = self._roots[ranked.node.root_id]
            if board.closed[root] <= 0:
                yield from self._spot(board, root, ranked)

    def _present(self, board: MoveSimulation) -> NodeColumns:
        """Return the nodes as they are on the board."""
        changed = [board.nodes[root] for root in sorted(board.changed_nodes) if root in board.nodes]
        return self._columns.updated([node for node in changed if node.root_id in self._roots])

    def _ruled(self, placed_pods: PlacedPods, columns: NodeColumns) -> RuledRanking:
        """Return the ranking that heeds the pods already placed."""
        return RuledRanking(self._ranking, self._incoming.rules, placed_pods, columns)

    def spots_on(self, board: MoveSimulation, root: int) -> list[Spot]:
        """Return its spots on one node."""
        node = board.nodes.get(root)
        if node is None or node.root_id not in self._roots:
            return []
        result = self._ranking.look(node)
        if not isinstance(result.answer, Fit):
            return []
        if self._placed is not None:
            ruled = self._ruled(self._placed, self._present(board))
            if not ruled.allows(node.name):
                return []
        return list(self._spot(board, root, Ranked(node, result.missed, result.score, result.answer)))

    def _spot(self, board: MoveSimulation, root: int, ranked: Ranked) -> Iterator[Spot]:
        try:
            recorded = placed(ranked, self._incoming, self._document).recorded
        except PodRefused:
            return
        if not self._is_one:
            # Each request that is placed is a pod of its own.
            recorded = replace(recorded, consumer=f"{recorded.consumer}-{len(board.placed)}")
        node = ranked.node.with_pod(recorded)
        yield Spot(root, board.draws_of(root, node, recorded.consumer), node, recorded)

    def hosts(self, board: MoveSimulation) -> Sequence[int]:
        """Return the nodes that could take it without any of their pods."""
        if self._hosts is None:
            nodes = self._columns.nodes
            self._hosts = [self._roots[node.root_id] for node in nodes if self._takes(_bare(node))]
        return self._hosts

    def _takes(self, node: NodeInfo) -> bool:
        return isinstance(self._ranking.look(node).answer, Fit)

    def lacking(self, board: MoveSimulation, root: int) -> Amounts:
        """Return what is missing of the amounts that the node as a whole offers."""
        totals = board.nodes[root].totals
        return {
            name: lacking
            for name, amount in self._incoming.amounts.items()
            if (lacking := amount - totals.allocatable.get(name, 0) + totals.requested.get(name, 0)) > 0
        }

    def freed(self, board: MoveSimulation, consumer: PlacedConsumer) -> Amounts:
        """Return what a pod requests; a consumer that is no pod may hold anything."""
        if consumer.pod is None:
            return dict.fromkeys(self._incoming.amounts, _ANYTHING)
        return dict(consumer.pod.requests)


PlanDemand = QueryWish | PodWish
"""A request that gets spots on a board. Equal keys ask for the same, and get the same spots.

`wanted`: what it takes at least, wherever it goes, of classes that only hosts offer.
"""


def sums_of(draws: Draws) -> Counter[int]:
    """Return how much is drawn of each class."""
    found: Counter[int] = Counter()
    for draw in draws:
        found[draw.class_id] += draw.amount
    return found


def _places(draws: Draws) -> set[tuple[int, int]]:
    return {(draw.row, draw.class_id) for draw in draws}


def _least_wanted(queries: Sequence[ForestQuery], shared_classes: frozenset[int]) -> dict[int, int]:
    """Return what every query asks for at least, by class, without classes that are shared."""
    sums = []
    for query in queries:
        sums.append(Counter[int]())
        for group in query.groups:
            sums[-1].update(dict(group.resources))
    least = sums[0]
    for each in sums[1:]:
        least &= each
    return {class_id: amount for class_id, amount in least.items() if class_id not in shared_classes}


def _bare(node: NodeInfo) -> NodeInfo:
    return node.without(frozenset(pod.consumer for pod in node.pods))
