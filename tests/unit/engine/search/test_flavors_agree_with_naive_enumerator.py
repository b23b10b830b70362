"""A flavor finds on core trees and on all others, in one search, what the naive enumerator finds there."""

from __future__ import annotations

import uuid
from itertools import count

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.scoring.order import Order
from placement.flavors.nova import Flavor, Translation, translate
from tests.forests import World
from tests.naive import NaiveProvider, enumerate_splits
from tests.scoring_strategies import orders
from tests.strategies import Search

_SPECS = (
    {"hw:cpu_policy": "dedicated"},
    {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"},
    {"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"},
    {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
    {
        "hw:cpu_policy": "dedicated",
        "hw:cpu_thread_policy": "require",
        "hw:emulator_threads_policy": "isolate",
    },
    {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"},
)
_MEMORY = (None, *(Inventory(total=total) for total in (1, 2, 4)))
_VCPU = (None, Inventory(total=2), Inventory(total=4))
_PCPU = ((2, 0), (2, 0), (2, 0), (2, 1), (2, 2), (1, 0), (4, 0))
_NUMA_TRAITS = frozenset({"HW_NUMA_ROOT"})


def offered(**inventories: Inventory | None) -> dict[str, Inventory]:
    return {name: inventory for name, inventory in inventories.items() if inventory is not None}


@st.composite
def hosts(draw: st.DrawFn, uuids: count[int]) -> list[NaiveProvider]:
    """A host with all of its CPUs, or with NUMA nodes and their cores; memory is here or there."""

    def provider(parent: str | None, inventories: dict[str, Inventory], **known: object) -> NaiveProvider:
        return NaiveProvider(str(uuid.UUID(int=next(uuids))), parent, inventories, **known)

    nodes = draw(st.integers(0, 2))
    host_memory = Inventory(total=4) if not nodes else draw(st.sampled_from((None, None, *_MEMORY)))
    cpus = {"PCPU": Inventory(total=4), "VCPU": Inventory(total=4)} if not nodes else {}
    traits = draw(st.sampled_from((frozenset[str](), frozenset({"HW_CPU_HYPERTHREADING"}))))
    own = {**offered(MEMORY_MB=host_memory, DISK_GB=Inventory(total=4)), **cpus}
    host = provider(None, own, traits=traits)
    found = [host]
    for _ in range(nodes):
        own = offered(MEMORY_MB=draw(st.sampled_from(_MEMORY)), VCPU=draw(st.sampled_from(_VCPU)))
        traits = draw(st.sampled_from((_NUMA_TRAITS, _NUMA_TRAITS, frozenset[str]())))
        node = provider(host.uuid, own, traits=traits)
        found.append(node)
        for _ in range(draw(st.integers(0, 3))):
            total, used = draw(st.sampled_from(_PCPU))
            core = {"PCPU": Inventory(total=total)}
            found.append(provider(node.uuid, core, used={"PCPU": used} if used else {}))
    return found


@st.composite
def flavor_searches(draw: st.DrawFn) -> Search:
    """A few hosts of either kind, and what a small flavor asks of them."""
    uuids = count(1)
    trees = [draw(hosts(uuids)) for _ in range(draw(st.integers(1, 3)))]
    cells, specs = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from(_SPECS))
    is_mixed = specs["hw:cpu_policy"] == "mixed"
    asked = Flavor(
        vcpus=cells * draw(st.integers(1, 2)) if cells == 2 else draw(st.integers(1, 4)),
        memory_mb=cells * draw(st.integers(1, 2)),
        # The enumerator tries all providers for each of the classes.
        root_gb=0 if is_mixed else draw(st.integers(0, 1)),
        extra_specs={**specs, "hw:numa_nodes": str(cells)},
    )
    # The mask leaves nothing of a single CPU.
    assume(asked.vcpus > 1 or not is_mixed)
    return tuple(each for tree in trees for each in tree), query_of(translate(asked))


def query_of(translation: Translation) -> CandidateQuery:
    """What the query string of a flavor says, and what is asked of core trees."""
    groups = (
        RequestGroup(
            suffix,
            group.resources,
            required=tuple(frozenset((trait,)) for trait in group.required),
            forbidden=group.forbidden,
        )
        for suffix, group in translation.groups.items()
    )
    return CandidateQuery(tuple(groups), on_core_trees=translation.on_core_trees)


@settings(max_examples=60)
@given(flavor_searches())
def test_each_kind_of_tree_is_asked_its_own(given_search: Search) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    found = world.elements(world.search_jointly(query))
    expected = enumerate_splits(providers, query)
    assert len(found) == len(expected)
    for ways in expected.values():
        assert sum(candidate in ways for candidate in found) == 1
    for maximum in range(1, len(found) + 1):
        assert world.elements(world.search_jointly(query, maximum)) == found[:maximum]


@settings(max_examples=60)
@given(flavor_searches(), orders())
def test_the_best_of_both_kinds_come_first(given_search: Search, order: Order) -> None:
    providers, query = given_search
    world = World(providers)
    world.load()
    by_score = world.ordered(order)
    ordered = world.search_jointly(query, order=by_score)
    found, scores = world.elements(ordered), [element.score for element in ordered.elements()]
    assert set(found) == set(world.elements(world.search_jointly(query)))
    assert scores == sorted(scores, reverse=True)
    for maximum in range(1, len(found) + 1):
        assert world.elements(world.search_jointly(query, maximum, by_score)) == found[:maximum]
