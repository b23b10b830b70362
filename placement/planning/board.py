"""The board of moves: which consumers are on which hosts, and the spots that requests get there.

Providers are columns (engine.search.simulation). Nodes with their pods are NodeInfo beside them; what a pod
holds of providers follows from its node. Every change can be undone. A request gets spots from the search, a
pod from the pod scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from placement.engine.domain.explanation import stage_sentence
from placement.engine.domain.groups import SplitRule
from placement.engine.forest.inventories import Draw
from placement.engine.numa.host import PodRefused, Refusal
from placement.engine.search.query import ForestQuery
from placement.engine.search.simulation import Draws, SearchedForest
from placement.pods.cache import ClusterSnapshot
from placement.pods.cycle import Ranked, ShapeRanking, explain_pod
from placement.pods.host import Place
from placement.pods.model import PodSpec, RecordedPod
from placement.pods.node_info import NodeInfo, host_shares
from placement.pods.placing import placed
from placement.pods.ranking import RuledRanking
from placement.pods.reading import PodDocument
from placement.pods.rules.rule import Fit
from placement.pods.snapshot import NodeColumns

Amounts = Mapping[Any, int]
_ANYTHING = 2**62


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a request: what it takes, and for a pod also the NodeInfo with the pod on it."""

    root: int
    draws: Draws
    node: NodeInfo | None = None
    recorded: RecordedPod | None = None


@dataclass(frozen=True, eq=False)
class PlacedConsumer:
    """A consumer that holds something of a host. `kind`: where its `wish` is from; `fixed`: why it stays.

    `labels` and `pod` are set for pods only.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    spot: Spot
    kind: str
    wish: PlanDemand | None = None
    fixed: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: RecordedPod | None = None

    @property
    def root(self) -> int:
        """Return the host that it is on at first."""
        return self.spot.root


@dataclass(frozen=True, slots=True)
class Relocation:
    """A move of a consumer to a spot."""

    consumer: PlacedConsumer
    to: Spot


class Mark(NamedTuple):
    """A moment of a board to go back to, and how many moves and placed requests there were then."""

    undone: int
    moved: int
    placed: int


Done = tuple[Sequence[Relocation], Sequence[Spot]]
"""Moves in their order, and spots of requests that were placed."""


class MoveSimulation:
    """A board of consumers on the hosts of a ground; `back` undoes everything on both since a `mark`."""

    def __init__(
        self,
        ground: SearchedForest,
        nodes: Mapping[int, NodeInfo],
        consumers: Iterable[PlacedConsumer],
        class_ids: Mapping[str, int],
    ) -> None:
        """Take the first state; `class_ids` are the ids of resource classes by name."""
        self.ground = ground
        self._class_ids = class_ids
        self._class_names = {id_: name for name, id_ in class_ids.items()}
        self.nodes = dict(nodes)
        self.closed: Counter[int] = Counter()
        self.moved: list[Relocation] = []
        self.placed: list[Spot] = []
        self.changed_nodes: set[int] = set()
        self.on: dict[int, dict[str, PlacedConsumer]] = {}
        # Equal sums of hashes mean that the same consumers are on a host.
        self.who: Counter[int] = Counter()
        for consumer in consumers:
            self._comes(consumer, consumer.root)
        self._on_back = ground.on_back
        # Changes of what is held, by row and class.
        self._now: Counter[tuple[int, int]] = Counter()
        self._later: Counter[tuple[int, int]] = Counter()
        # Consumers that will have left when all moves begun are done, and consumers that no NodeInfo counts.
        self._going: set[str] = set()
        self._unpictured: set[str] = set()
        self._places: dict[int, dict[Place, int]] = {}

    def class_name(self, class_id: int) -> str:
        """Return the name of a resource class, or its id as text if it has none."""
        return self._class_names.get(class_id, str(class_id))

    # -- going back ---------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return a mark of this moment."""
        return Mark(self.ground.mark(), len(self.moved), len(self.placed))

    def back(self, mark: Mark) -> None:
        """Undo everything since a mark."""
        self.ground.back(mark.undone)

    def done_since(self, mark: Mark) -> Done:
        """Return what was done since a mark."""
        return self.moved[mark.moved :], self.placed[mark.placed :]

    def back_to(self, mark: Mark, done: Done) -> None:
        """Go back to a mark, and carry out only what was done since."""
        self.back(mark)
        moved, placed = done
        for each in moved:
            self.leave(each.consumer)
            self.arrive(each.consumer, each.to)
        for spot in placed:
            self.reserve(spot)
            self.place(spot)

    def close(self, root: int) -> None:
        """Close a host: no consumer may go to it any more."""
        self.closed[root] += 1
        self._on_back(lambda: self.closed.subtract([root]))

    def open(self, root: int) -> None:
        """Take back one closing."""
        self.closed[root] -= 1
        self._on_back(lambda: self.closed.update([root]))

    # -- coming and going ---------------------------------------------------------------------------

    def leave(self, consumer: PlacedConsumer) -> None:
        """Let a consumer, which is still where it was at first, release what it holds."""
        self._goes(consumer.uuid, consumer.root)
        self._on_back(lambda: self._comes(consumer, consumer.root))
        self._count(consumer.spot.draws, -1, 0 if consumer.uuid in self._going else -1)
        node = self.nodes.get(consumer.root)
        if node is not None and consumer.uuid not in self._unpictured:
            if consumer.pod is not None:
                self._picture(consumer.root, node.without(frozenset((consumer.uuid,))))
            else:
                self._picture_others(consumer.root, consumer.spot.draws, -1)

    def reserve(
        self, spot: Spot, evicted: Sequence[PlacedConsumer] = (), mover: PlacedConsumer | None = None
    ) -> None:
        """Keep a spot for a request, or for `mover`; mover and evicted consumers stay until they leave."""
        self._count(spot.draws, 0, 1)
        leaving = [each for each in (*evicted, *((mover,) if mover else ())) if each.uuid not in self._going]
        for each in leaving:
            self._count(each.spot.draws, 0, -1)
        self._note(self._going, {each.uuid for each in leaving})
        if spot.node is not None:
            self._picture(spot.root, spot.node)
            self._note(self._unpictured, {each.uuid for each in evicted})
        else:
            self._picture_others(spot.root, spot.draws, 1)

    def release(self, spot: Spot) -> None:
        """Give up a spot that was reserved for a query."""
        self._count(spot.draws, 0, -1)
        self._picture_others(spot.root, spot.draws, -1)

    def place(self, spot: Spot) -> None:
        """Give a request the spot that was reserved for it."""
        self.placed.append(spot)
        self._on_back(self.placed.pop)

    def arrive(self, consumer: PlacedConsumer, spot: Spot) -> None:
        """Let a consumer that left take a spot."""
        self.reserve(spot)
        self.settle(consumer, spot)

    def settle(self, consumer: PlacedConsumer, spot: Spot) -> None:
        """Let a consumer that left take a spot that was reserved for it; it does not move again."""
        self._count(spot.draws, 1, 0)
        self._comes(replace(consumer, spot=spot, fixed="was moved already", pod=spot.recorded), spot.root)
        self.moved.append(Relocation(consumer, spot))
        self._on_back(self.moved.pop)
        self._on_back(lambda: self._goes(consumer.uuid, spot.root))

    def _comes(self, consumer: PlacedConsumer, root: int) -> None:
        self.on.setdefault(root, {})[consumer.uuid] = consumer
        self.who[root] += hash(consumer.uuid)

    def _goes(self, uuid: str, root: int) -> None:
        del self.on[root][uuid]
        self.who[root] -= hash(uuid)

    def _note(self, noted: set[str], uuids: set[str]) -> None:
        fresh = uuids - noted
        noted |= fresh
        self._on_back(lambda: noted.difference_update(fresh))

    # -- providers and nodes ------------------------------------------------------------------------

    def _count(self, draws: Draws, now: int, later: int) -> None:
        """Change how many times the draws are held `now`, and `later`, when all moves begun are done.

        The ground counts as free what is free at both times: a move must not hinder a later one, nor need it.
        """

        def uncount() -> None:
            for draw in draws:
                self._now[draw.row, draw.class_id] -= now * draw.amount
                self._later[draw.row, draw.class_id] -= later * draw.amount

        changes = []
        for draw in draws:
            place = (draw.row, draw.class_id)
            before = max(self._now[place], self._later[place])
            self._now[place] += now * draw.amount
            self._later[place] += later * draw.amount
            change = max(self._now[place], self._later[place]) - before
            if change:
                changes.append(draw._replace(amount=change))
        self.ground.take(changes)
        self._on_back(uncount)

    def _picture(self, root: int, node: NodeInfo) -> None:
        """Replace the NodeInfo of a node."""
        before = self.nodes[root]
        self.nodes[root] = node
        self.changed_nodes.add(root)
        self._on_back(lambda: self.nodes.__setitem__(root, before))

    def _picture_others(self, root: int, draws: Draws, sign: int) -> None:
        """Let a consumer beside the pods of a node hold these draws more (sign 1) or less (-1)."""
        node = self.nodes.get(root)
        if node is None:
            return
        places = {(row, place.resource_class): place for place, row in self._rows_of(root, node).items()}
        share, unused = Counter[Place](), Counter(node.unused)
        for draw in draws:
            place = places.get((draw.row, self._class_names[draw.class_id]))
            if place is not None:
                share[place] += draw.amount
                if not place.path:
                    unused[place.resource_class] -= sign * draw.amount
        others, beside = (
            +Counter({place: held.get(place, 0) + sign * more.get(place, 0) for place in {**held, **more}})
            for held, more in ((node.others, share), (node.beside, host_shares(node.offers, share)))
        )
        self._picture(root, replace(node, others=others, beside=beside, unused=dict(unused), counted=None))

    def draws_of(self, root: int, node: NodeInfo, consumer: str) -> Draws:
        """Return what a pod of a node holds."""
        rows, classes = self._rows_of(root, node), self._class_ids
        shares = node.accounts.shares.get(consumer, {}).items()
        draws = (Draw(rows[place], classes[place.resource_class], amount) for place, amount in shares)
        return tuple(sorted(draw for draw in draws if draw.amount))

    def _rows_of(self, root: int, node: NodeInfo) -> dict[Place, int]:
        """Return the rows of the providers behind the inventories of a node."""
        if root not in self._places:
            paths = {place.path for place in node.offers.inventories}
            by_path = {path: self.ground.row_of_uuid(node.identity.uuid(path)) for path in paths}
            self._places[root] = {place: by_path[place.path] for place in node.offers.inventories}
        return self._places[root]


class QueryWish:
    """A wish for a query by ids, or for two if it asks something else of core trees."""

    def __init__(self, queries: Sequence[ForestQuery], key: Hashable, shared_classes: frozenset[int]) -> None:
        self.queries = queries
        self.key = key
        self.classes = frozenset(
            class_id for query in queries for group in query.groups for class_id, _ in group.resources
        )
        least, *others = (
            sum((Counter(dict(group.resources)) for group in query.groups), Counter[int]())
            for query in queries
        )
        for each in others:
            least &= each
        self.wanted: Amounts = {name: least[name] for name in least if name not in shared_classes}
        self._hosts: list[int] | None = None

    def tells_all(self, board: MoveSimulation) -> bool:
        """Return whether amounts can be split in one way only: each provider gives at most one unit."""
        split = {name for query in self.queries for group in query.groups for name in group.split}
        columns = [board.ground.column(name) for name in split]
        return all((column.entries.capacity_of[column.held] <= 1).all() for column in columns)

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
        places = {(draw.row, draw.class_id) for draw in spot.draws}
        for query in self.queries:
            splits = any(group.split for group in query.groups)
            for draws in board.ground.candidates_among(query, spot.draws):
                if draws == spot.draws or (
                    splits and all((draw.row, draw.class_id) in places for draw in draws)
                ):
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
        self._placed = cluster.placed if cluster.has_affinity or incoming.rules.say_anything else None
        self._ranking, self._incoming, self._document = ranking, incoming, document
        consumer = document.consumer if self._placed else ""
        self.key: Hashable = ("pod", cluster.facts.id, ranking.shape, consumer)
        self._hosts: list[int] | None = None
        # What a pod holds of a provider follows from the node; sums of these show nothing.
        self.wanted: Amounts = {}

    def tells_all(self, board: MoveSimulation) -> bool:
        """Return False: the pod scheduler gives only one of the ways to take CPUs of a node."""
        return False

    def spots(self, board: MoveSimulation) -> Iterator[Spot]:
        """Yield its spots, in the order of the pod scheduler."""
        columns = self._present(board)
        ruled = self._ruled(columns)
        for ranked in (self._ranking if ruled is None else ruled).best_first(columns):
            root = self._roots[ranked.node.root_id]
            if board.closed[root] <= 0:
                yield from self._spot(board, root, ranked)

    def _present(self, board: MoveSimulation) -> NodeColumns:
        """Return the nodes as they are on the board."""
        changed = [board.nodes[root] for root in sorted(board.changed_nodes) if root in board.nodes]
        return self._columns.updated([node for node in changed if node.root_id in self._roots])

    def _ruled(self, columns: NodeColumns) -> RuledRanking | None:
        """Return the ranking that heeds the pods already placed; None if there are no rules about these."""
        if self._placed is None:
            return None
        return RuledRanking(self._ranking, self._incoming.rules, self._placed, columns)

    def spots_on(self, board: MoveSimulation, root: int) -> list[Spot]:
        """Return its spots on one node."""
        node = board.nodes.get(root)
        if node is None or node.root_id not in self._roots:
            return []
        result = self._ranking.look(node)
        if not isinstance(result.answer, Fit):
            return []
        ruled = self._ruled(self._present(board)) if self._placed is not None else None
        if ruled is not None and not ruled.allows(node.name):
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
            look = self._ranking.look
            self._hosts = [
                self._roots[node.root_id]
                for node in self._columns.nodes
                if isinstance(look(node.without(frozenset(pod.consumer for pod in node.pods))).answer, Fit)
            ]
        return self._hosts

    def why_nowhere(self, board: MoveSimulation) -> str:
        """Return the first condition that no open node meets even without pods, behind a colon."""
        open_ = [each for each in self._columns.nodes if board.closed[self._roots[each.root_id]] <= 0]
        empty = [each.without(frozenset(pod.consumer for pod in each.pods)) for each in open_]
        answers = {each.name: self._ranking.look(each).answer for each in empty}
        refusals = {name: answer for name, answer in answers.items() if isinstance(answer, Refusal)}
        columns = self._columns.among(list(answers)).updated(empty)
        explanation = explain_pod(self._ranking.shape, columns, refusals)
        first = explanation.first_empty
        return "" if first is None else f": {stage_sentence(explanation.stages[first], explanation)}"

    def lacking(self, board: MoveSimulation, root: int) -> Amounts:
        """Return what is missing of the amounts that the node as a whole offers."""
        totals = board.nodes[root].totals
        return {
            name: lacking
            for name, amount in self._incoming.request.amounts.items()
            if (lacking := amount - totals.allocatable.get(name, 0) + totals.requested.get(name, 0)) > 0
        }

    def freed(self, board: MoveSimulation, consumer: PlacedConsumer) -> Amounts:
        """Return what a pod requests; a consumer that is no pod may hold anything."""
        if consumer.pod is None:
            return dict.fromkeys(self._incoming.request.amounts, _ANYTHING)
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
