"""The search finds exactly what a deliberately naive enumerator finds, on random forests and queries."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.inventories import Inventory
from placement.flavors.nova.flavor import Flavor
from placement.flavors.nova.translation import Translation, translate
from tests.forests import World, copied, loaded, without
from tests.naive import Candidate, NaiveProvider, enumerate_candidates, enumerate_splits, summarised_providers
from tests.scoring_strategies import orders
from tests.strategies import AGGREGATES, Search, searches, split_searches

EXAMPLES = 400


@settings(max_examples=EXAMPLES)
@given(searches())
def test_same_candidates_each_once_with_the_same_summaries(given_search: Search) -> None:
    providers, query = given_search
    world = loaded(providers)
    found = world.search(query)
    candidates = world.candidates(found)
    expected = enumerate_candidates(providers, query)
    assert set(candidates) == expected
    assert len(candidates) == len(set(candidates))
    assert world.summarised(found, whole_trees=True) == summarised_providers(providers, expected, query)


@settings(max_examples=EXAMPLES // 2)
@given(searches(one_provider_per_tree=True))
def test_same_candidates_before_nested_candidates(given_search: Search) -> None:
    providers, query = given_search
    world = loaded(providers)
    found = world.search(query)
    expected = enumerate_candidates(providers, query)
    assert set(world.candidates(found)) == expected
    assert world.summarised(found, whole_trees=False) == summarised_providers(providers, expected, query)


@settings(max_examples=EXAMPLES // 3)
@given(searches(), st.lists(st.frozensets(st.sampled_from(AGGREGATES), min_size=1), min_size=1, max_size=2))
def test_same_candidates_below_roots_in_aggregates(given_search, aggregates):
    providers, drawn = given_search
    query = replace(drawn, root_member_of=tuple(aggregates))
    world = loaded(providers)
    assert set(world.candidates(world.search(query))) == enumerate_candidates(providers, query)


@settings(max_examples=EXAMPLES // 2)
@given(searches())
def test_a_forest_fed_by_changes_equals_one_loaded_at_once(given_search: Search) -> None:
    """Records that come and change later end as one load does, and a removed leaf was never there."""
    providers, query = given_search
    world = loaded(providers)
    expected = world.candidates(world.search(query))
    fed = World(providers)
    fed.forest.apply([fed.record(without(provider)) for provider in providers])
    fed.search(query)
    for provider in providers:
        fed.forest.apply([fed.record(provider, revision=2)])
    assert fed.candidates(fed.search(query)) == expected
    parents = {provider.parent for provider in providers}
    leaf = next(provider for provider in reversed(providers) if provider.uuid not in parents)
    remaining = [provider for provider in providers if provider is not leaf]
    for forest in (world, fed):
        forest.forest.remove(forest.ids[leaf.uuid])
        assert set(forest.candidates(forest.search(query))) == enumerate_candidates(remaining, query)


@settings(max_examples=EXAMPLES // 3)
@given(searches())
def test_a_limit_keeps_the_first_of_all_candidates(given_search: Search) -> None:
    providers, query = given_search
    world = loaded(providers)
    for depth_first in (False, True):
        everything = world.candidates(world.search(query, depth_first=depth_first))
        for limit in (1, 2, 5):
            some = world.candidates(world.search(query, limit, depth_first))
            assert some == everything[:limit]
            at_once = world.search(query, limit, depth_first, first_trees=len(providers))
            assert world.candidates(at_once) == some


@settings(max_examples=EXAMPLES // 6)
@given(searches(), st.integers(2, 4), st.integers(1, 4))
def test_a_limit_keeps_the_first_also_of_many_trees(given_search: Search, copies: int, limit: int) -> None:
    providers, query = given_search
    world = loaded([copied(provider, number) for number in range(copies) for provider in providers])
    everything = world.candidates(world.search(query))
    assert world.candidates(world.search(query, limit)) == everything[:limit]


@settings(max_examples=200)
@given(split_searches())
def test_one_way_to_split_is_found_where_there_is_any(given_search: Search) -> None:
    """A single amount takes as few or as many providers as its rule says."""
    providers, query = given_search
    world = loaded(providers)
    found = world.search(query)
    uuids = {world.forest.row_of_uuid(uuid): uuid for uuid in world.ids}
    is_split = [slot.rule is not None for slot in found.slots]
    # The anchor of each candidate, and what gives all that is not split.
    keys = [
        (
            uuids[int(world.forest.providers.root[row[is_split.index(True)]])],
            *(uuids[each] for each, split in zip(row, is_split, strict=True) if not split),
        )
        for row in found.candidates.tolist()
    ]
    expected = enumerate_splits(providers, query)
    assert sorted(keys) == sorted(expected)
    splitting = [(group, name) for group in query.groups for name in group.split]
    group, name = splitting[0]
    # Only one amount is split, and no other group asks for its class.
    is_single = len(splitting) == 1 == sum(name in other.resources for other in query.groups)

    def size(candidate: Candidate) -> int:
        return sum(kind == name for _, kind, _ in candidate.allocations)

    for key, candidate in zip(keys, world.candidates(found), strict=True):
        assert candidate in expected[key]
        best = max if group.split_rule is SplitRule.SPREAD else min
        assert not is_single or size(candidate) == best(map(size, expected[key]))


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
def hosts(draw: st.DrawFn, uuids: Iterator[int]) -> list[NaiveProvider]:
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
    return CandidateQuery(tuple(groups), on_core_trees=translation.core_tree_query)


@settings(max_examples=100)
@given(flavor_searches(), orders())
def test_each_kind_of_tree_is_asked_its_own_and_the_best_of_both_come_first(given_search, order) -> None:
    providers, query = given_search
    world = loaded(providers)
    found = world.elements(world.search_jointly(query))
    expected = enumerate_splits(providers, query)
    assert len(found) == len(expected)
    assert all(sum(candidate in ways for candidate in found) == 1 for ways in expected.values())
    by_score = world.ordered(order)
    ordered = world.search_jointly(query, order=by_score)
    best, scores = world.elements(ordered), [element.score for element in ordered.elements()]
    assert set(best) == set(found)
    assert scores == sorted(scores, reverse=True)
    for maximum in range(1, len(found) + 1):
        assert world.elements(world.search_jointly(query, maximum)) == found[:maximum]
        assert world.elements(world.search_jointly(query, maximum, by_score)) == best[:maximum]
