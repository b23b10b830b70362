"""Who is where: the state that moves change, and that is as it was after going back.

Providers are columns (engine.search.simulation); nodes with their pods are pictures beside that, and what
pods hold of providers follows from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from placement.engine.search.answer import Draw
from placement.engine.search.simulation import Draws, Ground
from placement.pods.host import Place
from placement.pods.koordinator.records import RecordedPod
from placement.pods.node_info import NodeInfo

if TYPE_CHECKING:
    from placement.planning.plan import Wish


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

    def __init__(
        self,
        ground: Ground,
        nodes: Mapping[int, NodeInfo],
        consumers: Iterable[Consumer],
        class_ids: Mapping[str, int],
    ) -> None:
        """`class_ids` are the ids of resource classes by name."""
        self.ground = ground
        self._class_ids = class_ids
        self._class_names = {id_: name for name, id_ in class_ids.items()}
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
        # Changes of what is held, by row and class.
        self._now: Counter[tuple[int, int]] = Counter()
        self._later: Counter[tuple[int, int]] = Counter()
        # Who will have left when all that was begun is done; who is on no picture of a node any more.
        self._going: set[str] = set()
        self._unpictured: set[str] = set()
        self._places: dict[int, dict[Place, int]] = {}

    def class_name(self, class_id: int) -> str:
        """What a resource class is called."""
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
        self._count(consumer.spot.draws, -1, 0 if consumer.uuid in self._going else -1)
        node = self.nodes.get(consumer.root)
        if node is not None and consumer.uuid not in self._unpictured:
            if consumer.pod is not None:
                self._picture(consumer.root, node.without(frozenset((consumer.uuid,))))
            else:
                self._picture(consumer.root, self._with_others(consumer.root, node, consumer.spot.draws, -1))

    def reserve(self, spot: Spot, evicted: Sequence[Consumer] = (), mover: Consumer | None = None) -> None:
        """Keep a spot for a request, or for `mover`; it and who is to be evicted stay until they leave."""
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
        """Keep a spot, which was reserved for a query, no longer."""
        self._count(spot.draws, 0, -1)
        node = self.nodes.get(spot.root)
        if node is not None:
            self._picture(spot.root, self._with_others(spot.root, node, spot.draws, -1))

    def arrive(self, consumer: Consumer, spot: Spot) -> None:
        """A consumer, which left, takes a spot."""
        self.reserve(spot)
        self.settle(consumer, spot)

    def settle(self, consumer: Consumer, spot: Spot) -> None:
        """A consumer, which left, takes a spot that was reserved for it; it does not move again."""
        self._count(spot.draws, 1, 0)
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

    def _note(self, noted: set[str], uuids: set[str]) -> None:
        fresh = uuids - noted
        noted |= fresh
        self._log.append(lambda: noted.difference_update(fresh))

    def place(self, spot: Spot) -> None:
        """A request, for which the spot was reserved, has it."""
        self.placed.append(spot)
        self._log.append(self.placed.pop)

    # -- providers and nodes ------------------------------------------------------------------------

    def _count(self, draws: Draws, now: int, later: int) -> None:
        """Let so many times the draws be held now, and when all that was begun is done.

        What the ground has free is free now and then: a move must neither hinder one that is to come nor need
        one.
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
        self._log.append(lambda: self._uncount(draws, changes, now, later))

    def _uncount(self, draws: Draws, changes: Sequence[Draw], now: int, later: int) -> None:
        self.ground.give(changes)
        for draw in draws:
            self._now[draw.row, draw.class_id] -= now * draw.amount
            self._later[draw.row, draw.class_id] -= later * draw.amount

    def _picture(self, root: int, node: NodeInfo) -> None:
        """A node looks like this from now on."""
        before = self.nodes[root]
        self.nodes[root] = node
        self.changed_nodes.add(root)
        self._log.append(lambda: self.nodes.__setitem__(root, before))

    def draws_of(self, root: int, node: NodeInfo, consumer: str) -> Draws:
        """What a pod of a node holds."""
        shares = node.accounts.shares.get(consumer, {})
        classes = self._class_ids
        rows = self._rows_of(root, node)
        draws = (Draw(rows[place], classes[place.resource_class], amount) for place, amount in shares.items())
        return tuple(sorted(draw for draw in draws if draw.amount))

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
        places = {(row, place.resource_class): place for place, row in self._rows_of(root, node).items()}
        others, unused = Counter(node.others), Counter(node.unused)
        for draw in draws:
            place = places.get((draw.row, self._class_names[draw.class_id]))
            if place is not None:
                others[place] += sign * draw.amount
                if not place.path:
                    unused[place.resource_class] -= sign * draw.amount
        return replace(node, others=+others, unused=dict(unused), counted=None)
