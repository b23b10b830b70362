"""The simulation of moves: which consumers are on which hosts, and the spots that requests get there.

Providers are columns (engine.search.simulation). Nodes with their pods are NodeInfo beside them; the
draws of a pod follow from its node. Every change can be undone. A request gets spots from the search, a
pod from the pod scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from placement.allocations.kubernetes_resources import host_class, numa_class
from placement.engine.forest.arrays import Amounts
from placement.engine.forest.inventories import Draw
from placement.engine.search.simulation import Draws, SearchedForest
from placement.engine.search.targets import Targets
from placement.pods.state.host import Place
from placement.pods.state.model import RecordedPod
from placement.pods.state.node_info import NodeInfo, host_shares

_OF_NODES = (
    *("cpu", "memory", "pods", "ephemeral-storage", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"),
    *("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"),
)
# The resource classes of any host; every other class is of devices.
_COMMON_CLASSES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}).union(
    *({host_class(name).name, numa_class(name).name} for name in _OF_NODES)
)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a request: its draws, and for a pod also the NodeInfo with the pod on it."""

    root: int
    draws: Draws
    node: NodeInfo | None = None
    recorded: RecordedPod | None = None


@dataclass(frozen=True, eq=False)
class PlacedConsumer:
    """A consumer that holds something of a host. `kind`: the source of its `demand`; `fixed`: why it stays.

    `labels` and `pod` are set for pods only.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    spot: Spot
    kind: str
    demand: PlanDemand | None = None
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
    spot: Spot


class Mark(NamedTuple):
    """A moment of a simulation to go back to, and how many moves and placed requests there were then."""

    undone: int
    relocations: int
    placed_spots: int


class SimulatedChanges(NamedTuple):
    """Moves in their order, and the spots of requests that were placed."""

    relocations: Sequence[Relocation]
    placed_spots: Sequence[Spot]


class PlanDemand(Protocol):
    """A request that gets spots in a simulation. Equal keys ask for the same, and get the same spots."""

    key: Hashable
    wanted: Mapping[Any, int]
    """The least that it takes, wherever it goes, of classes that only hosts offer."""

    def is_searched_in_full(self, simulation: MoveSimulation) -> bool:
        """Return whether every spot is found, and not only some."""

    def spots(self, simulation: MoveSimulation) -> Iterable[Spot]:
        """Yield its spots at present, on hosts that are open. Raises SearchEnded."""

    def spots_on(self, simulation: MoveSimulation, root: int) -> Sequence[Spot]:
        """Return its spots on one host."""

    def burdens(self, simulation: MoveSimulation) -> Amounts:
        """Return by row how many devices and purposes each host has that the request does not ask for."""

    def hosts(self, simulation: MoveSimulation) -> Sequence[int]:
        """Return the hosts that could take it if no consumer held anything."""

    def lacking(self, simulation: MoveSimulation, root: int) -> Mapping[Any, int]:
        """Return how much more of each class the host would need as a whole; others are left out."""

    def freed(self, simulation: MoveSimulation, consumer: PlacedConsumer) -> Mapping[Any, int]:
        """Return the amounts that a consumer holds, by the classes of `lacking`."""


class MoveSimulation:
    """Consumers on the hosts of a forest; `back` undoes all changes of both since a `mark`."""

    def __init__(
        self,
        forest: SearchedForest,
        nodes: Mapping[int, NodeInfo],
        consumers: Iterable[PlacedConsumer],
        class_ids: Mapping[str, int],
        purpose: Collection[int] = (),
    ) -> None:
        """Begin with this state; `class_ids` are the ids of resource classes by name.

        `purpose` are the ids of the traits of hosts that are kept for what needs them.
        """
        self.forest = forest
        self._class_ids = class_ids
        self.targets = Targets(forest, self.class_ids(_COMMON_CLASSES), purpose)
        self._class_names = {id_: name for name, id_ in class_ids.items()}
        self.nodes = dict(nodes)
        self.closed: Counter[int] = Counter()
        self.relocations: list[Relocation] = []
        self.placed_spots: list[Spot] = []
        self.changed_nodes: set[int] = set()
        self.on: dict[int, dict[str, PlacedConsumer]] = {}
        # Equal sums of hashes mean that the same consumers are on a host.
        self.consumer_hashes: Counter[int] = Counter()
        for consumer in consumers:
            self._add(consumer, consumer.root)
        self._on_back = forest.on_back
        # Changes of the amounts that are held, by row and class.
        self._held_now: Counter[tuple[int, int]] = Counter()
        self._held_later: Counter[tuple[int, int]] = Counter()
        # Consumers that will have left when all moves begun are done, and consumers that no NodeInfo counts.
        self._leaving: set[str] = set()
        self._uncounted: set[str] = set()
        self._places: dict[int, dict[Place, int]] = {}

    def class_ids(self, names: Iterable[str]) -> frozenset[int]:
        """Return the ids of resource classes; names without an id are left out."""
        return frozenset(self._class_ids[name] for name in names if name in self._class_ids)

    def class_name(self, class_id: int) -> str:
        """Return the name of a resource class, or its id as text if it has none."""
        return self._class_names.get(class_id, str(class_id))

    # -- going back ---------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return a mark of this moment."""
        return Mark(self.forest.mark(), len(self.relocations), len(self.placed_spots))

    def back(self, mark: Mark) -> None:
        """Undo everything since a mark."""
        self.forest.back(mark.undone)

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Undo everything that happens in the block, also if it raises."""
        mark = self.mark()
        try:
            yield
        finally:
            self.back(mark)

    def changes_since(self, mark: Mark) -> SimulatedChanges:
        """Return the moves and placed requests since a mark."""
        return SimulatedChanges(self.relocations[mark.relocations :], self.placed_spots[mark.placed_spots :])

    def replace_since(self, mark: Mark, changes: SimulatedChanges) -> None:
        """Go back to a mark, and make these changes."""
        self.back(mark)
        for relocation in changes.relocations:
            self.leave(relocation.consumer)
            self.arrive(relocation.consumer, relocation.spot)
        for spot in changes.placed_spots:
            self.reserve(spot)
            self.place(spot)

    def note(self, noted: set[str], uuids: Collection[str]) -> None:
        """Add consumers to a set, until this is undone."""
        added = set(uuids) - noted
        if added:
            noted |= added
            self._on_back(lambda: noted.difference_update(added))

    def unnote(self, noted: set[str], uuids: Collection[str]) -> None:
        """Take consumers from a set, until this is undone."""
        removed = noted.intersection(uuids)
        noted -= removed
        self._on_back(lambda: noted.update(removed))

    def close(self, root: int) -> None:
        """Close a host: no consumer may go to it any more."""
        self.closed[root] += 1
        self._on_back(lambda: self.closed.subtract([root]))

    def open(self, root: int) -> None:
        """Take back one closing."""
        self.closed[root] -= 1
        self._on_back(lambda: self.closed.update([root]))

    # -- moves --------------------------------------------------------------------------------------

    def leave(self, consumer: PlacedConsumer) -> None:
        """Let a consumer, which is still where it was at first, release its resources."""
        self._remove(consumer.uuid, consumer.root)
        self._on_back(lambda: self._add(consumer, consumer.root))
        self._count(consumer.spot.draws, -1, 0 if consumer.uuid in self._leaving else -1)
        node = self.nodes.get(consumer.root)
        if node is not None and consumer.uuid not in self._uncounted:
            if consumer.pod is not None:
                self._set_node(consumer.root, node.without(frozenset((consumer.uuid,))))
            else:
                self._set_others(consumer.root, consumer.spot.draws, -1)

    def reserve(
        self,
        spot: Spot,
        evicted_consumers: Sequence[PlacedConsumer] = (),
        moving_consumer: PlacedConsumer | None = None,
    ) -> None:
        """Keep a spot for a request or a moving consumer, which stays until it leaves, as evicted ones do."""
        self._count(spot.draws, 0, 1)
        consumers = (*evicted_consumers, *((moving_consumer,) if moving_consumer else ()))
        leaving = [each for each in consumers if each.uuid not in self._leaving]
        for each in leaving:
            self._count(each.spot.draws, 0, -1)
        self.note(self._leaving, [each.uuid for each in leaving])
        if spot.node is not None:
            self._set_node(spot.root, spot.node)
            self.note(self._uncounted, [each.uuid for each in evicted_consumers])
        else:
            self._set_others(spot.root, spot.draws, 1)

    def release(self, spot: Spot) -> None:
        """Give up a spot that was reserved for a query."""
        self._count(spot.draws, 0, -1)
        self._set_others(spot.root, spot.draws, -1)

    def place(self, spot: Spot) -> None:
        """Give a request the spot that was reserved for it."""
        self.placed_spots.append(spot)
        self._on_back(self.placed_spots.pop)

    def arrive(self, consumer: PlacedConsumer, spot: Spot) -> None:
        """Let a consumer that left take a spot."""
        self.reserve(spot)
        self.settle(consumer, spot)

    def settle(self, consumer: PlacedConsumer, spot: Spot) -> None:
        """Let a consumer that left take a spot that was reserved for it; it does not move again."""
        self._count(spot.draws, 1, 0)
        self._add(replace(consumer, spot=spot, fixed="was moved already", pod=spot.recorded), spot.root)
        self.relocations.append(Relocation(consumer, spot))
        self._on_back(self.relocations.pop)
        self._on_back(lambda: self._remove(consumer.uuid, spot.root))

    def _add(self, consumer: PlacedConsumer, root: int) -> None:
        self.on.setdefault(root, {})[consumer.uuid] = consumer
        self.consumer_hashes[root] += hash(consumer.uuid)

    def _remove(self, uuid: str, root: int) -> None:
        del self.on[root][uuid]
        self.consumer_hashes[root] -= hash(uuid)

    # -- providers and nodes ------------------------------------------------------------------------

    def _count(self, draws: Draws, now: int, later: int) -> None:
        """Change how many times the draws are held `now`, and `later`, when all moves begun are done.

        The forest has as free the amounts that are free at both times: a move must not hinder a later one,
        nor need it.
        """

        def uncount() -> None:
            for draw in draws:
                self._held_now[draw.row, draw.class_id] -= now * draw.amount
                self._held_later[draw.row, draw.class_id] -= later * draw.amount

        changes = []
        for draw in draws:
            place = (draw.row, draw.class_id)
            before = max(self._held_now[place], self._held_later[place])
            self._held_now[place] += now * draw.amount
            self._held_later[place] += later * draw.amount
            change = max(self._held_now[place], self._held_later[place]) - before
            if change:
                changes.append(draw._replace(amount=change))
        self.forest.take(changes)
        self._on_back(uncount)

    def _set_node(self, root: int, node: NodeInfo) -> None:
        """Replace the NodeInfo of a node."""
        before = self.nodes[root]
        self.nodes[root] = node
        self.changed_nodes.add(root)
        self._on_back(lambda: self.nodes.__setitem__(root, before))

    def _set_others(self, root: int, draws: Draws, sign: int) -> None:
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
        self._set_node(root, replace(node, others=others, beside=beside, unused=dict(unused), counted=None))

    def draws_of(self, root: int, node: NodeInfo, consumer: str) -> Draws:
        """Return the draws of a pod of a node."""
        rows, classes = self._rows_of(root, node), self._class_ids
        shares = node.accounts.shares.get(consumer, {}).items()
        draws = (Draw(rows[place], classes[place.resource_class], amount) for place, amount in shares)
        return tuple(sorted(draw for draw in draws if draw.amount))

    def _rows_of(self, root: int, node: NodeInfo) -> dict[Place, int]:
        """Return the rows of the providers behind the inventories of a node."""
        if root not in self._places:
            paths = {place.path for place in node.offers.inventories}
            by_path = {path: self.forest.row_of_uuid(node.identity.uuid(path)) for path in paths}
            self._places[root] = {place: by_path[place.path] for place in node.offers.inventories}
        return self._places[root]
