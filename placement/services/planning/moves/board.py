"""Who is where: the state that moves change, and that is as it was after going back.

Providers are columns (search.ground); nodes with their pods are pictures beside that, and what pods hold of
providers follows from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.node_offers import Place
from placement.search.answer import Draw
from placement.search.ground import Draws, Ground

if TYPE_CHECKING:
    from placement.services.planning.moves.wishes import Wish


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a request: what it takes, and for a pod the node when it is there."""

    root: int
    draws: Draws
    node: NodeInfo | None = None
    recorded: RecordedPod | None = None


@dataclass(frozen=True, eq=False)
class Consumer:
    """Who holds something of a host. `kind` says where its `wish` is from; `fixed`: why it may not be moved.

    `labels`, and `pod`, are those of pods.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    spot: Spot
    kind: str
    wish: Wish | None = None
    fixed: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    pod: RecordedPod | None = None

    @property
    def root(self) -> int:
        """The host that it is on at first."""
        return self.spot.root


@dataclass(frozen=True, slots=True)
class Relocation:
    """A consumer goes to a spot."""

    consumer: Consumer
    to: Spot


class Board:
    """Consumers on hosts. What happened since a `mark` is undone by going `back` to it."""

    def __init__(self, ground: Ground, nodes: Mapping[int, NodeInfo], consumers: Iterable[Consumer]) -> None:
        self.ground = ground
        self.nodes = dict(nodes)
        self.closed: Counter[int] = Counter()
        self.moved: list[Relocation] = []
        self.placed: list[Spot] = []
        self.changed_nodes: set[int] = set()
        self.on: dict[int, dict[str, Consumer]] = {}
        # Equal when the same consumers are on a host.
        self.who: Counter[int] = Counter()
        for consumer in consumers:
            self.on.setdefault(consumer.root, {})[consumer.uuid] = consumer
            self.who[consumer.root] += hash(consumer.uuid)
        self._log: list[Callable[[], Any]] = []
        # What those still hold who were taken off the picture of their node before they moved.
        self._lingering: dict[str, Draws] = {}
        self._places: dict[int, dict[Place, int]] = {}

    # -- going back ---------------------------------------------------------------------------------

    def mark(self) -> int:
        """This moment."""
        return len(self._log)

    def back(self, mark: int) -> None:
        """Undo what happened since."""
        while len(self._log) > mark:
            self._log.pop()()

    def close(self, root: int) -> None:
        """Nobody may go to a host any more."""
        self.closed[root] += 1
        self._log.append(lambda: self.closed.subtract([root]))

    def open(self, root: int) -> None:
        """Take back one closing."""
        self.closed[root] -= 1
        self._log.append(lambda: self.closed.update([root]))

    # -- coming and going ---------------------------------------------------------------------------

    def leave(self, consumer: Consumer) -> None:
        """A consumer, which is where it was at first, holds nothing any more."""
        self._goes(consumer.uuid, consumer.root)
        self._log.append(lambda: self._comes(consumer, consumer.root))
        draws = self._lingering.get(consumer.uuid)
        if draws is not None:
            self._take(draws, -1)
            return
        node = self.nodes.get(consumer.root)
        if consumer.pod is not None and node is not None:
            self._become(consumer.root, node.without(frozenset((consumer.uuid,))))
            return
        self._take(consumer.spot.draws, -1)
        if node is not None:
            self._become(consumer.root, self._with_others(consumer.root, node, consumer.spot.draws, -1))

    def reserve(self, spot: Spot, evicted: Sequence[Consumer] = ()) -> None:
        """Keep a spot for somebody, where those who are to be evicted still are."""
        if spot.node is None:
            self._take(spot.draws, 1)
            node = self.nodes.get(spot.root)
            if node is not None:
                self._become(spot.root, self._with_others(spot.root, node, spot.draws, 1))
            return
        staying = {each.uuid: self._held(each) for each in evicted}
        # The picture of the node is without them, but they are there until they have moved.
        pods = [each for each in evicted if each.pod is not None]
        self._become(spot.root, spot.node)
        self._take([draw for each in pods for draw in staying[each.uuid]], 1)
        self._lingering.update(staying)
        self._log.append(lambda: [self._lingering.pop(uuid) for uuid in staying])

    def arrive(self, consumer: Consumer, spot: Spot) -> None:
        """A consumer, which left, takes a spot."""
        self.reserve(spot)
        self.settle(consumer, spot)

    def settle(self, consumer: Consumer, spot: Spot) -> None:
        """A consumer has a spot that was reserved for it; it does not move again."""
        self._comes(replace(consumer, spot=spot, fixed="was moved already", pod=spot.recorded), spot.root)
        self.moved.append(Relocation(consumer, spot))
        self._log.append(self.moved.pop)
        self._log.append(lambda: self._goes(consumer.uuid, spot.root))

    def _comes(self, consumer: Consumer, root: int) -> None:
        self.on.setdefault(root, {})[consumer.uuid] = consumer
        self.who[root] += hash(consumer.uuid)

    def _goes(self, uuid: str, root: int) -> None:
        del self.on[root][uuid]
        self.who[root] -= hash(uuid)

    def release(self, spot: Spot) -> None:
        """Keep a spot, which was reserved for a query, no longer."""
        self._take(spot.draws, -1)
        node = self.nodes.get(spot.root)
        if node is not None:
            self._become(spot.root, self._with_others(spot.root, node, spot.draws, -1))

    def place(self, spot: Spot) -> None:
        """A request, for which the spot was reserved, has it."""
        self.placed.append(spot)
        self._log.append(self.placed.pop)

    # -- providers and nodes ------------------------------------------------------------------------

    def _take(self, draws: Iterable[Draw], sign: int) -> None:
        some = [draw._replace(amount=sign * draw.amount) for draw in draws]
        self.ground.take(some)
        self._log.append(lambda: self.ground.give(some))

    def _become(self, root: int, node: NodeInfo) -> None:
        """A node looks like this from now on, and its pods hold of its providers what follows."""
        before = self.nodes[root]
        held = self.pods_of(root, node)
        held.subtract(self.pods_of(root, before))
        self._take([Draw(*place, amount) for place, amount in held.items() if amount], 1)
        self.nodes[root] = node
        self.changed_nodes.add(root)
        self._log.append(lambda: self.nodes.__setitem__(root, before))

    def pods_of(self, root: int, node: NodeInfo) -> Counter[tuple[int, int]]:
        """What the pods of a node hold, by row and class."""
        held: Counter[tuple[int, int]] = Counter()
        for consumer in node.accounts.shares:
            for draw in self.draws_of(root, node, consumer):
                held[draw.row, draw.class_id] += draw.amount
        return held

    def draws_of(self, root: int, node: NodeInfo, consumer: str) -> Draws:
        """What a pod of a node holds."""
        shares = node.accounts.shares.get(consumer, {})
        classes = self._class_ids
        rows = self._rows_of(root, node)
        draws = (Draw(rows[place], classes[place.resource_class], amount) for place, amount in shares.items())
        return tuple(sorted(draw for draw in draws if draw.amount))

    def _held(self, consumer: Consumer) -> Draws:
        if consumer.pod is None:
            return consumer.spot.draws
        return self.draws_of(consumer.root, self.nodes[consumer.root], consumer.uuid)

    def know_classes(self, class_ids: Mapping[str, int]) -> None:
        """The ids of resource classes by name."""
        self._class_ids = class_ids

    def _rows_of(self, root: int, node: NodeInfo) -> dict[Place, int]:
        """The rows of the providers behind the inventories of a node."""
        rows = self._places.get(root)
        if rows is None:
            paths = {place.path for place in node.offers.inventories}
            by_path = {path: self.ground.row_of(node.identity.uuid(path)) for path in paths}
            rows = {place: by_path[place.path] for place in node.offers.inventories}
            self._places[root] = rows
        return rows

    def _with_others(self, root: int, node: NodeInfo, draws: Draws, sign: int) -> NodeInfo:
        """The node when consumers beside its pods hold so much more of it."""
        names = {id_: name for name, id_ in self._class_ids.items()}
        places = {(row, place.resource_class): place for place, row in self._rows_of(root, node).items()}
        others, unused = Counter(node.others), Counter(node.unused)
        for draw in draws:
            place = places.get((draw.row, names[draw.class_id]))
            if place is not None:
                others[place] += sign * draw.amount
                if not place.path:
                    unused[place.resource_class] -= sign * draw.amount
        return replace(node, others=+others, unused=dict(unused), counted=None)
