"""What is stranded after the moves of a plan is what counting finds, also where hosts share providers."""

from __future__ import annotations

import random

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.planning.goals import Defragmenting
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.planning import Cluster, Guest, Scene

CASES, MOST = 100, 10
POOLS = ("pool 1", "pool 2")


def asked(chance: random.Random) -> CandidateQuery:
    wanted = {
        "VCPU": chance.randint(1, 2),
        "MEMORY_MB": chance.randint(1, 3),
        "DISK_GB": chance.randint(1, 2),
    }
    return CandidateQuery((RequestGroup("", wanted),))


def sharing_cluster(chance: random.Random) -> Cluster:
    """Hosts without disk, each in some pools, and a sharing provider for each of these."""

    def provider(number: int, pools: frozenset[str], *traits: str, **amounts: int) -> NaiveProvider:
        inventories = {name: Inventory(total=amount, max_unit=amount) for name, amount in amounts.items()}
        uuid = f"{number:08x}-0000-0000-0000-000000000000"
        return NaiveProvider(uuid, None, inventories, {}, frozenset(traits), pools)

    providers = [
        provider(
            number,
            frozenset(pool for pool in POOLS if chance.random() < 0.7),
            VCPU=chance.randint(2, 8),
            MEMORY_MB=chance.randint(2, 9),
        )
        for number in range(1, chance.randint(3, 6))
    ]
    providers += [
        provider(number, frozenset({pool}), SHARING_TRAIT, DISK_GB=chance.randint(1, 8))
        for number, pool in enumerate(POOLS, start=10)
    ]
    guests: list[Guest] = []
    cluster = Cluster(providers, guests)
    for number in range(chance.randint(2, 8)):
        query = asked(chance)
        options = {each.allocations for each in enumerate_candidates(cluster.filled(guests), query)}
        if options:
            held = chance.choice(sorted(options, key=sorted))
            guests.append(Guest(f"{number:08x}-1111-0000-0000-000000000000", query, held))
    return cluster


def test_the_rest_is_what_counting_finds_after_the_moves():
    moved = 0
    for seed in range(CASES):
        chance = random.Random(seed)
        scene = Scene(sharing_cluster(chance), MOST)
        wish = scene.wish(asked(chance))
        ground, class_id = scene.ground, scene.world.classes["VCPU"]
        hosts = [root for root in ground.roots_in_order() if not ground.shares(root)]
        reached = Defragmenting(scene.board, scene.maker, wish, class_id, hosts).run(MOST)
        stranded = ground.stranded(wish.queries, class_id)
        assert reached.wanted - reached.achieved == sum(
            stranded[root] for root in hosts if root in stranded
        ), seed
        moved += bool(scene.board.moved)
    assert moved > CASES // 20
