"""The board: which consumers are on which hosts, as moves change it; every change can be undone.

Providers are columns (engine.search.simulation). Nodes with their pods are NodeInfo beside them; what a pod
holds of providers follows from its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from placement.engine.forest.inventories import Draw
from placement.engine.search.simulation import Draws, SearchedForest
from placement.pods.host import Place
from placement.pods.model import RecordedPod
from placement.pods.node_info import NodeInfo

if TYPE_CHECKING:
    from placement.planning.plan import PlanDemand


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
            self.on.setdefault(consumer.root, {})[consumer.uuid] = consumer
            self.who[consumer.root] += hash(consumer.uuid)
        self.mark, self.back, self._on_back = ground.mark, ground.back, ground.on_back
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

    def carry_out(self, moved: Sequence[Relocation], placed: Sequence[Spot]) -> None:
        """Make moves that were found on the board as it is now, and place requests."""
        for each in moved:
            self.leave(each.consumer)
            self.arrive(each.consumer, each.to)
        for spot in placed:
            self.reserve(spot)
            self.place(spot)

    # -- going back ---------------------------------------------------------------------------------

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
                self._picture(consumer.root, self._with_others(consumer.root, node, consumer.spot.draws, -1))

    def reserve(
        self, spot: Spot, evicted: Sequence[PlacedConsumer] = (), mover: PlacedConsumer | None = None
    ) -> None:
        """Keep a spot for a request, or for `mover`; mover and evicted consumers stay until they leave."""
        self._count(spot.draws, 0, 1)
        leaving = [each for each in evicted if each.uuid not in self._going]
        if mover is not None and mover.uuid not in self._going:
            leaving.append(mover)
        for each in leaving:
            self._count(each.spot.draws, 0, -1)
        self._note(self._going, {each.uuid for each in leaving})
        node = self.nodes.get(spot.root)
        if spot.node is not None:
            self._picture(spot.root, spot.node)
            self._note(self._unpictured, {each.uuid for each in evicted})
        elif node is not None:
            self._picture(spot.root, self._with_others(spot.root, node, spot.draws, 1))

    def release(self, spot: Spot) -> None:
        """Give up a spot that was reserved for a query."""
        self._count(spot.draws, 0, -1)
        node = self.nodes.get(spot.root)
        if node is not None:
            self._picture(spot.root, self._with_others(spot.root, node, spot.draws, -1))

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

    def place(self, spot: Spot) -> None:
        """Give a request the spot that was reserved for it."""
        self.placed.append(spot)
        self._on_back(self.placed.pop)

    # -- providers and nodes ------------------------------------------------------------------------

    def _count(self, draws: Draws, now: int, later: int) -> None:
        """Change how many times the draws are held `now`, and `later`, when all moves begun are done.

        The ground counts as free what is free at both times: a move must not hinder a later one, nor need it.
        """
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
        self._on_back(lambda: self._uncount(draws, now, later))

    def _uncount(self, draws: Draws, now: int, later: int) -> None:
        for draw in draws:
            self._now[draw.row, draw.class_id] -= now * draw.amount
            self._later[draw.row, draw.class_id] -= later * draw.amount

    def _picture(self, root: int, node: NodeInfo) -> None:
        """Replace the NodeInfo of a node."""
        before = self.nodes[root]
        self.nodes[root] = node
        self.changed_nodes.add(root)
        self._on_back(lambda: self.nodes.__setitem__(root, before))

    def draws_of(self, root: int, node: NodeInfo, consumer: str) -> Draws:
        """Return what a pod of a node holds."""
        shares = node.accounts.shares.get(consumer, {})
        classes = self._class_ids
        rows = self._rows_of(root, node)
        draws = (Draw(rows[place], classes[place.resource_class], amount) for place, amount in shares.items())
        return tuple(sorted(draw for draw in draws if draw.amount))

    def _rows_of(self, root: int, node: NodeInfo) -> dict[Place, int]:
        """Return the rows of the providers behind the inventories of a node."""
        rows = self._places.get(root)
        if rows is None:
            paths = {place.path for place in node.offers.inventories}
            by_path = {path: self.ground.row_of_uuid(node.identity.uuid(path)) for path in paths}
            rows = {place: by_path[place.path] for place in node.offers.inventories}
            self._places[root] = rows
        return rows

    def _with_others(self, root: int, node: NodeInfo, draws: Draws, sign: int) -> NodeInfo:
        """Return the node when consumers beside its pods hold these draws more (sign 1) or less (-1)."""
        places = {(row, place.resource_class): place for place, row in self._rows_of(root, node).items()}
        others, unused = Counter(node.others), Counter(node.unused)
        for draw in draws:
            place = places.get((draw.row, self._class_names[draw.class_id]))
            if place is not None:
                others[place] += sign * draw.amount
                if not place.path:
                    unused[place.resource_class] -= sign * draw.amount
        return replace(node, others=+others, unused=dict(unused), counted=None)
