"""Small clusters that are nearly full, and plans for them, tried out word by word."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from placement.engine.domain import stored_requests
from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.inventories import Draw
from placement.engine.search.budget import Budget
from placement.engine.search.simulation import SearchedForest
from placement.planning.demands import QueryPlanDemand
from placement.planning.evictions import EvictionPlanner
from placement.planning.limits import PlanLimits
from placement.planning.simulation import MoveSimulation, PlacedConsumer, PlanDemand, Spot
from tests.forests import World
from tests.naive import Amount, NaiveProvider, enumerate_candidates

Placement = frozenset[Amount]
NUMA = "HW_NUMA_ROOT"


@dataclass(frozen=True)
class Guest:
    """A consumer: what it asked for, and what it holds."""

    uuid: str
    query: CandidateQuery
    held: Placement


@dataclass(frozen=True)
class Cluster:
    """Providers on which nobody holds anything, and who holds something."""

    providers: Sequence[NaiveProvider]
    guests: Sequence[Guest]

    def used(self, guests: Sequence[Guest]) -> Counter[tuple[str, str]]:
        """What these hold together."""
        used: Counter[tuple[str, str]] = Counter()
        for guest in guests:
            used.update({(provider, name): amount for provider, name, amount in guest.held})
        return used

    def filled(self, guests: Sequence[Guest]) -> list[NaiveProvider]:
        """The providers with these guests on them."""
        used = self.used(guests)
        return [
            replace(each, used={name: used[each.uuid, name] for name in each.inventories})
            for each in self.providers
        ]


def provider(
    number: int, parent: str | None = None, *traits: str, pools: frozenset[str] = frozenset(), **amounts: int
) -> NaiveProvider:
    """A provider that gives any part of these amounts."""
    inventories = {name: Inventory(total=amount, max_unit=amount) for name, amount in amounts.items()}
    uuid = f"{number:08x}-0000-0000-0000-000000000000"
    return NaiveProvider(uuid, parent, inventories, {}, frozenset(traits), pools)


def guest(number: int, query: CandidateQuery, held: Placement) -> Guest:
    """A consumer with a number."""
    return Guest(f"{number:08x}-1111-0000-0000-000000000000", query, held)


def filled_up(
    chance: random.Random, providers: Sequence[NaiveProvider], queries: Iterable[CandidateQuery]
) -> Cluster:
    """The providers after consumers came one by one and took any place that was left."""
    guests: list[Guest] = []
    cluster = Cluster(providers, guests)
    for number, query in enumerate(queries):
        options = {each.allocations for each in enumerate_candidates(cluster.filled(guests), query)}
        if options:
            guests.append(guest(number, query, chance.choice(sorted(options, key=sorted))))
    return cluster


def shared(vcpu: int, memory: int) -> CandidateQuery:
    """CPUs of a pool and memory, from whatever providers of a host have them."""
    return CandidateQuery((RequestGroup("", {"VCPU": vcpu, "MEMORY_MB": memory}),))


def dedicated(cores: int, memory: int) -> CandidateQuery:
    """Cores and memory of one NUMA node."""
    group = RequestGroup("_n", {"PCPU": cores, "MEMORY_MB": memory}, (frozenset((NUMA,)),))
    return CandidateQuery((group,))


def key_of(query: CandidateQuery) -> str:
    """Equal for equal queries."""
    return stored_requests.written(query, None)


KINDS = (shared(1, 1), shared(2, 2), shared(1, 4), dedicated(1, 1), dedicated(2, 2), dedicated(3, 2))


def random_cluster(chance: random.Random) -> Cluster:
    """Flat hosts and hosts with two NUMA nodes, filled by random arrivals until hardly anything fits."""
    numbers = count(1)

    providers = []
    for _ in range(chance.randint(2, 3)):
        if chance.random() < 0.4:
            amounts = {"VCPU": chance.randint(2, 4), "MEMORY_MB": chance.randint(4, 8)}
            providers.append(provider(next(numbers), **amounts))
            continue
        root = provider(next(numbers))
        providers.append(root)
        for _ in range(2):
            amounts = {"VCPU": 1, "PCPU": chance.randint(2, 4), "MEMORY_MB": chance.randint(4, 6)}
            providers.append(provider(next(numbers), root.uuid, NUMA, **amounts))
    return filled_up(chance, providers, (chance.choice(KINDS) for _ in range(chance.randint(4, 7))))


class Scene:
    """A cluster as a plan sees it."""

    def __init__(self, cluster: Cluster, moves: int) -> None:
        self.cluster = cluster
        self.world = World(cluster.filled(cluster.guests))
        for query in KINDS:
            # Its classes are known from now on, whoever offers them.
            self.world.query(query)
        self.world.load()
        self.forest = SearchedForest(self.world.forest.snapshot(), self.world.sharing, 1)
        consumers = [self._consumer(guest) for guest in cluster.guests]
        self.simulation = MoveSimulation(self.forest, {}, consumers, self.world.classes)
        self.planner = EvictionPlanner(self.simulation, PlanLimits(moves), Budget())

    def demand(self, query: CandidateQuery) -> QueryPlanDemand:
        """A request."""
        return QueryPlanDemand([self.world.query(query)], key_of(query), frozenset())

    def _consumer(self, guest: Guest) -> PlacedConsumer:
        draws = tuple(
            sorted(
                Draw(self.forest.row_of_uuid(provider), self.world.classes[name], amount)
                for provider, name, amount in guest.held
            )
        )
        spot = Spot(self.forest.root_of(draws[0].row), draws)
        return PlacedConsumer(guest.uuid, 1, "p", "u", None, spot, "query", self.demand(guest.query))

    def held(self, spot: Spot) -> Placement:
        """What a spot takes, by names."""
        names = {id_: name for name, id_ in self.world.classes.items()}
        uuids = self.forest.uuids([draw.row for draw in spot.draws])
        return frozenset(
            (uuid, names[draw.class_id], draw.amount) for uuid, draw in zip(uuids, spot.draws, strict=True)
        )

    def moves(self) -> Iterator[tuple[str, Placement]]:
        """The moves that were made."""
        for each in self.simulation.relocations:
            yield each.consumer.uuid, self.held(each.spot)


def ways_to_place(planner: EvictionPlanner, demand: PlanDemand, spare: int) -> Iterator[int]:
    """Yield for each way to place a request how many moves it takes; the simulation shows that way."""
    search = planner.search(partial(planner.place, demand), spare)
    while (moves := search.next_way()) is not None:
        yield moves


def replayed(cluster: Cluster, moves: Sequence[tuple[str, Placement]]) -> list[Guest]:
    """The guests after the moves; each has to be one of those that the enumerator has for it then."""
    guests = {guest.uuid: guest for guest in cluster.guests}
    for uuid, to in moves:
        guest = guests.pop(uuid)
        providers = cluster.filled(list(guests.values()))
        assert to in {each.allocations for each in enumerate_candidates(providers, guest.query)}
        guests[uuid] = replace(guest, held=to)
    return list(guests.values())
