"""The state of hosts and consumers that moves are tried on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from placement.allocations.candidates import CandidateSearch
from placement.engine.search.budget import Budget
from placement.engine.search.query import IsOpen
from placement.engine.search.simulation import Draws, SearchedForest
from placement.planning.consumers import PlacedConsumers
from placement.planning.simulation import MoveSimulation
from placement.pods.store.cache import ClusterSnapshot
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.view import View
from placement.storage.database import Database


@dataclass(frozen=True, slots=True)
class PlannedHosts:
    """The hosts of some clusters or of all, before any consumer is read.

    `inside` are the hosts that may take part, `outside` the others. No consumer goes to `closed` ones.
    """

    view: View
    forest: SearchedForest
    consumers: PlacedConsumers
    snapshots: Sequence[ClusterSnapshot]
    inside: Sequence[int]
    outside: frozenset[int]
    closed: frozenset[int]
    budget: Budget

    @classmethod
    def of(
        cls,
        candidates: CandidateSearch,
        view: View,
        snapshots: Sequence[ClusterSnapshot],
        aggregates: frozenset[int] | None,
        open_hosts: IsOpen | None,
        budget: Budget,
    ) -> PlannedHosts:
        """Return the hosts in these aggregates, all if None; the ones that fail `open_hosts` are closed."""
        forest = _forest(view)
        consumers = PlacedConsumers(view, candidates, forest, snapshots, budget)
        inside, outside = _participating(view, forest, aggregates)
        closed = frozenset[int]()
        if open_hosts is not None:
            closed = frozenset(forest.roots[~open_hosts.among(forest, forest.roots)].tolist())
        return cls(view, forest, consumers, snapshots, inside, outside, closed, budget)

    @property
    def open(self) -> list[int]:
        """Return the hosts that consumers may go to; shared storage is none."""
        storage = self.forest.sharing_roots
        return [root for root in self.inside if root not in self.closed and root not in storage]


@dataclass(frozen=True, slots=True)
class PlanningState:
    """The hosts that moves are planned on, and a simulation with the consumers there."""

    hosts: PlannedHosts
    simulation: MoveSimulation

    @classmethod
    def read(
        cls,
        database: Database,
        hosts: PlannedHosts,
        among: Collection[str] | None = None,
        purpose: Collection[int] = (),
    ) -> PlanningState:
        """Read the consumers on hosts, or the ones that hold something of hosts `among` these (uuids).

        `purpose` are the ids of traits as in MoveSimulation. Raises SearchEnded.
        """
        view, forest, consumers = hosts.view, hosts.forest, hosts.consumers
        roots = _roots_to_read(hosts, among)
        ids = view.forest.providers.id
        placed = consumers.read(database, None if roots is None else [int(ids[root]) for root in roots])
        placed = [each for each in placed if each.root not in hosts.outside]
        nodes = {
            consumers.rows[node.root_id]: node for each in hosts.snapshots for node in each.columns.nodes
        }
        simulation = MoveSimulation(forest, nodes, placed, view.names.class_ids, purpose)
        for root in hosts.outside | hosts.closed:
            simulation.close(root)
        return cls(hosts, simulation)

    def original_forest(self) -> SearchedForest:
        """Return the forest as it was before any move."""
        return _forest(self.hosts.view)

    def uuid(self, row: int) -> str:
        """Return the uuid of a provider."""
        return self.hosts.forest.uuids([row])[0]

    def resources(self, draws: Draws) -> dict[str, dict[str, int]]:
        """Return the amounts of draws by provider uuid and class name."""
        resources: dict[str, dict[str, int]] = {}
        uuids = self.hosts.forest.uuids([draw.row for draw in draws])
        for uuid, draw in zip(uuids, draws, strict=True):
            resources.setdefault(uuid, {})[self.hosts.view.names.classes[draw.class_id]] = draw.amount
        return resources


def _forest(view: View) -> SearchedForest:
    return SearchedForest(view.forest, view.sharing, view.names.trait_ids[SHARING_TRAIT])


def _participating(
    view: View, forest: SearchedForest, aggregates: frozenset[int] | None
) -> tuple[list[int], frozenset[int]]:
    """Return the hosts in one of the aggregates, all if None, and the other hosts."""
    roots = forest.roots.tolist()
    if aggregates is None:
        return roots, frozenset()
    outside = frozenset(root for root in roots if not aggregates & view.forest.aggregates.of(root))
    return [root for root in roots if root not in outside], outside


def _roots_to_read(hosts: PlannedHosts, among: Collection[str] | None) -> list[int] | None:
    """Return the hosts to read consumers of; None for all consumers."""
    if among is not None:
        rows = {hosts.forest.row_of_uuid(uuid) for uuid in among}
        return [root for root in hosts.inside if root in rows]
    return list(hosts.inside) if hosts.outside else None
