"""A search tells how many passed each condition, which was the first that none passed, what is missing."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement.engine.domain.explanation import (
    MOST_MISSES,
    ConditionKind,
    CountedUnit,
    Explanation,
    Miss,
    Reason,
    Shortage,
    first_obstacle,
    lacks,
    sentences,
)
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.explanation import FoundCount, explain
from placement.engine.search.search import search
from placement.engine.search.vocabulary import Vocabulary
from tests.forests import World, loaded
from tests.naive import Candidate, NaiveProvider, combinations, enumerate_candidates
from tests.naive import Forest as NaiveForest
from tests.querystring import parsed
from tests.strategies import Search, searches, split_searches


def traced(world: World, query: CandidateQuery, in_full: bool = True) -> tuple[list[Candidate], Explanation]:
    """What a search finds, and how it is explained."""
    wanted = world.query(query)
    found = world.candidates(search(world.forest, world.sharing, wanted))
    classes = {number: name for name, number in world.classes.items()}
    traits, aggregates = (
        {number: name for name, number in ids.items()} for ids in (world.traits, world.aggregates)
    )
    words = Vocabulary(classes, traits, aggregates)
    sharing = world.sharing.of(world.forest, wanted.sharing_trait)
    counted = FoundCount(len(found))
    return found, explain(world.forest, sharing, wanted, counted, words, in_full=in_full)


def named(name: str) -> str:
    """The uuid of a provider: its name, and zeros."""
    return f"{name.encode().hex():0<8}-0000-0000-0000-000000000000"


def provider(name: str, parent: str | None, *traits: str, **offers: int) -> NaiveProvider:
    inventories = {kind: Inventory(amount) for kind, amount in offers.items()}
    return NaiveProvider(
        named(name), named(parent) if parent else None, inventories, traits=frozenset(traits)
    )


def asked(query: str) -> CandidateQuery:
    return parsed([tuple(pair.split("=", 1)) for pair in query.split("&")])


def explained(providers: Sequence[NaiveProvider], query: CandidateQuery) -> Explanation:
    names = {p.uuid: bytes.fromhex(p.uuid[:8]).rstrip(b"\0").decode() for p in providers}
    return replace(traced(loaded(providers), query)[1], names=names)


def missing(providers: Sequence[NaiveProvider], query: CandidateQuery) -> tuple[list[Miss], list[str]]:
    """The misses of a search and the sentences about them."""
    found = explained(providers, query)
    empty = found.first_empty
    shown = () if empty is None else found.misses
    return list(shown), [text for miss in shown for text in lacks(miss, found.stages[empty or 0], found)]


def paragraphs(text: str) -> list[tuple[str, list[str]]]:
    """A query, and below it what is to be told of it."""
    cases = (paragraph.strip().splitlines() for paragraph in text.strip().split("\n\n"))
    return [(query, [line.strip() for line in said]) for query, *said in cases]


# Host one with a device below it, and host two, nearly full and without.
HOSTS = [
    NaiveProvider(
        named("one"), None, {"VCPU": Inventory(8, max_unit=6)}, {"VCPU": 1}, frozenset({"CUSTOM_SSD"})
    ),
    NaiveProvider(named("two"), None, {"VCPU": Inventory(8), "DISK_GB": Inventory(10)}, {"VCPU": 6}),
    provider("vga", "one", VGPU=2),
]
SAID_OF_HOSTS = """
resources=VCPU:4
    4 VCPU free: 1 of 2 hosts
    hosts that can serve the whole request at once: 1 of 1 hosts
    VCPU ends first: 7 VCPU free on 1 host with a candidate, room for 1 such request

resources1=VCPU:8
    group 1, 8 VCPU free: 0 of 2 hosts
    one lacks 1 VCPU: it has 7 free
    two lacks 6 VCPU: it has 2 free
    hosts that can serve the whole request at once: 0 of 0 hosts

resources1=VCPU:7
    group 1, 7 VCPU free: 0 of 2 hosts
    one has enough free, but the amount breaks its min_unit, max_unit or step_size
    two lacks 5 VCPU: it has 2 free
    hosts that can serve the whole request at once: 0 of 0 hosts

resources1=VCPU:1,VGPU:1
    group 1, 1 VCPU free: 2 of 2 hosts
    group 1, 1 VGPU free: 0 of 2 hosts
    one lacks 1 VGPU: it has 0 free
    two lacks 1 VGPU: it has 0 free
    hosts that can serve the whole request at once: 0 of 0 hosts

resources1=VCPU:1&required1=CUSTOM_SSD,!CUSTOM_SSD
    group 1, 1 VCPU free: 2 of 2 hosts
    group 1, trait CUSTOM_SSD: 1 of 2 hosts
    group 1, no trait CUSTOM_SSD: 0 of 1 hosts
    one meets all earlier conditions; forbidden: CUSTOM_SSD
    hosts that can serve the whole request at once: 0 of 0 hosts

resources1=VGPU:1&resources2=DISK_GB:1&group_policy=none
    group 1, 1 VGPU free: 1 of 2 hosts, 1 of 1 provider
    group 2, 1 DISK_GB free: 0 of 1 hosts, 0 of 0 providers
    host one lacks 1 DISK_GB for group 2: no suitable provider offers any
    host two lacks 1 VGPU for group 1: no suitable provider offers any
    hosts that can serve the whole request at once: 0 of 0 hosts

resources1=VGPU:1&resources2=VGPU:1&group_policy=isolate
    group 1, 1 VGPU free: 1 of 2 hosts, 1 of 1 provider
    hosts that can serve the whole request at once: 0 of 1 hosts
    host one has no provider left for group 2: the groups are kept apart
"""


@pytest.mark.parametrize(("query", "said"), paragraphs(SAID_OF_HOSTS))
def test_each_stage_is_told_in_a_sentence(query: str, said: list[str]) -> None:
    assert sentences(explained(HOSTS, asked(query))) == said


def test_the_verdict_is_the_first_empty_stage_and_the_nearest_miss() -> None:
    assert first_obstacle(explained(HOSTS, asked("resources=VCPU:3,VGPU:4"))) == (
        "4 VGPU free: 0 of 1 hosts; vga lacks 2 VGPU: it has 2 free"
    )
    assert first_obstacle(explained(HOSTS, asked("resources=VCPU:1"))) == ""


# Two NUMA nodes with memory and six and four CPUs, the first with three cores and the other with two.
NUMA_HOST = [
    provider("host", None, DISK_GB=10),
    provider("n0", "host", VCPU=6, MEMORY_MB=100),
    provider("n1", "host", VCPU=4, MEMORY_MB=200),
    *(provider(f"c{n}{at}", f"n{n}", PCPU=2) for n, count in ((0, 3), (1, 2)) for at in range(count)),
]
MISSING_ON_NUMA_HOST = """
resources1=VCPU:4&resources2=VCPU:4&resources3=VCPU:3&group_policy=none
    n0 lacks 1 VCPU for 2 and 3: 7 wanted, 6 free

resources1=VCPU:5&resources2=VCPU:5&group_policy=none
    n1 lacks 1 VCPU for group 2: 5 wanted, 4 free

resources1=VCPU:5&resources2=VCPU:5&group_policy=isolate
    n1 lacks 1 VCPU for group 2: 5 wanted, 4 free

resources=DISK_GB:6&resources1=DISK_GB:7&group_policy=none
    host lacks 3 DISK_GB for the base group and 1: 13 wanted, 10 free

resources1=VCPU:6&resources2=MEMORY_MB:101&same_subtree=1,2&group_policy=none
    n0 lacks 1 MEMORY_MB for group 2: 101 wanted, 100 free

resources_N=MEMORY_MB:10&resources_A=PCPU:2&resources_B=PCPU:2&resources_C=PCPU:2&resources_D=PCPU:2&same_subtree=_N,_A,_B,_C,_D&group_policy=isolate
    no provider is left for group _D below n0

resources1=VCPU:1&resources2=VCPU:1&resources3=VCPU:1&group_policy=isolate
    host host has no provider left for group 3: the groups are kept apart
"""


@pytest.mark.parametrize(("query", "said"), paragraphs(MISSING_ON_NUMA_HOST))
def test_what_is_missing_across_groups_is_told(query: str, said: list[str]) -> None:
    assert missing(NUMA_HOST, asked(query))[1] == said


def split_cores(cores: int, memory: int, *traits: str) -> CandidateQuery:
    """Memory of a provider and cores below it, each of which has the traits."""
    required = tuple(frozenset((name,)) for name in traits)
    wanted = {"MEMORY_MB": memory, "PCPU": cores}
    return CandidateQuery((RequestGroup("_c", wanted, required, split=frozenset({"PCPU"})),))


def test_of_amounts_that_are_split_each_subtree_is_told() -> None:
    # n0 has three cores of two and little memory, n1 has two of them and more memory.
    assert missing(NUMA_HOST, split_cores(5, 150))[1] == [
        "n0 lacks 50 MEMORY_MB for group _c: 150 wanted, 100 free",
        "below n1: 4 of 5 PCPU for group _c",
    ]
    marked = [
        replace(each, traits=frozenset({"CUSTOM_T"}))
        if "MEMORY_MB" in each.inventories or each.uuid == named("c00")
        else each
        for each in NUMA_HOST
    ]
    said = missing(marked, split_cores(3, 50, "CUSTOM_T"))[1]
    assert "below n0: 2 of 3 PCPU with trait CUSTOM_T for group _c" in said


def test_a_trait_that_the_unsuffixed_group_lacks_besides_is_named() -> None:
    # n1 has room for one of the two that may only be there.
    providers = [
        provider("host", None, DISK_GB=10),
        provider("n0", "host", VCPU=8),
        provider("n1", "host", "CUSTOM_T", "CUSTOM_U", VCPU=4),
    ]
    query = (
        "resources=DISK_GB:6,VCPU:4&required=CUSTOM_T&resources1=VCPU:4&required1=CUSTOM_U&group_policy=none"
    )
    trait = "host host has most of the free amount for the base group on providers without trait CUSTOM_T"
    assert missing(providers, asked(query))[1] == [trait]
    short = missing(providers, asked(f"{query}&resources2=DISK_GB:7"))[1]
    assert short == ["host lacks 3 DISK_GB for the base group and 2: 13 wanted, 10 free", trait]


def test_cores_that_are_short_are_told_together() -> None:
    """Six groups want cores, four of which are in use."""
    providers = [
        replace(p, used={"PCPU": 2}) if "PCPU" in p.inventories and p.uuid > named("c00") else p
        for p in NUMA_HOST
    ]
    query = asked("&".join(f"resources{at}=PCPU:2" for at in range(1, 6)) + "&group_policy=isolate")
    misses, said = missing(providers, query)
    assert said == ["host host lacks 8 PCPU for 2, 3, 4 and 5: 8 wanted, 0 free on several providers"]
    (shortage,) = misses[0].shortages
    found = (shortage.reason, shortage.groups, shortage.provider)
    assert found == (Reason.AMOUNT, ("2", "3", "4", "5"), None)


def test_conditions_that_no_provider_of_a_tree_meets_are_named() -> None:
    """Each group has a provider somewhere, but never in one tree."""
    others = [provider("p", "host", VGPU=1), provider("oth", None, "CUSTOM_BLUE", VGPU=1)]
    query = "resources1=DISK_GB:1&resources2=VGPU:1&required2=CUSTOM_BLUE&group_policy=none"
    assert missing([*NUMA_HOST, *others], asked(query))[1] == [
        "host host has no provider for group 2: none that could serve it has trait CUSTOM_BLUE",
        "host oth lacks 1 DISK_GB for group 1: no suitable provider offers any",
    ]


def test_units_that_forbid_an_amount_are_told() -> None:
    """The sum of a consumer's amounts may not exceed max_unit either."""
    small = NaiveProvider(named("n0"), named("host"), {"VCPU": Inventory(8, max_unit=4)})
    query = asked("resources1=VCPU:3&resources2=VCPU:3&group_policy=none")
    assert missing([provider("host", None, DISK_GB=1), small], query)[1] == [
        "n0 offers VCPU for 1 and 2, but the amount breaks its min_unit, max_unit or step_size"
    ]


def test_many_groups_are_counted_instead_of_named() -> None:
    """Sixty-four groups on sixty-three devices: refused and explained without trying one order of them."""
    host, free = provider("host", None), provider("free", "host", VGPU=1)
    devices = [provider(f"d{number:02}", "host", VGPU=1) for number in range(63)]
    used = [replace(device, used={"VGPU": 1}) for device in devices]
    query = asked("&".join(f"resources{at}=VGPU:1" for at in range(1, 65)) + "&group_policy=isolate")
    left = "host host has no provider left for group 64: the groups are kept apart"
    lacks = "host host lacks 63 VGPU for 2, 3, 4 and 60 more groups: 63 wanted, 0 free on several"
    assert missing([host, *devices], query)[1] == [left]
    assert missing([host, *used, free], query)[1] == [f"{lacks} providers"]


def test_the_nearest_trees_come_first() -> None:
    """A tree that has too few providers is farther away than any that lacks amounts."""
    hosts = [provider("few", None, VCPU=100)]
    for used in range(7, 0, -1):
        sides = [provider(f"{side}{used}", f"h{used}", VCPU=8) for side in "ab"]
        hosts += [provider(f"h{used}", None), sides[0], replace(sides[1], used={"VCPU": used})]
    said = missing(hosts, asked("resources1=VCPU:8&resources2=VCPU:8&group_policy=isolate"))[1]
    assert said == [f"b{at} lacks {at} VCPU for group 2: 8 wanted, {8 - at} free" for at in range(1, 6)]


def test_siblings_that_should_share_a_subtree_are_a_shortage_of_providers() -> None:
    """Also where one of the groups is in a constraint of its own."""
    hosts = [provider("host", None), provider("a", "host", VCPU=8), provider("b", "host", FPGA=8)]
    query = "resources_A=VCPU:1&resources_B=FPGA:1&group_policy=none&same_subtree=_A&same_subtree=_A,_B"
    misses, _ = missing(hosts, asked(query))
    assert [shortage.reason for miss in misses for shortage in miss.shortages] == [Reason.BELOW]


@pytest.mark.parametrize("seed", range(300))
def test_every_refusal_of_split_amounts_has_a_reason(seed: int) -> None:
    chance = random.Random(seed)
    providers = [provider("host", None, DISK_GB=10)]
    for node in range(chance.randint(1, 3)):
        traits = frozenset(name for name in ("CUSTOM_T", "CUSTOM_U") if chance.random() < 0.5)
        top = provider(f"n{node}", "host", MEMORY_MB=chance.randint(1, 5))
        providers.append(replace(top, traits=traits))
        for at in range(chance.randint(0, 3)):
            core = provider(f"c{node}{at}", f"n{node}", PCPU=chance.randint(1, 2))
            providers.append(replace(core, traits=traits if chance.random() < 0.5 else frozenset()))
    groups = [
        RequestGroup(
            suffix,
            {"MEMORY_MB": chance.randint(1, 4), "PCPU": chance.randint(1, 5)},
            (frozenset({"CUSTOM_T"}),) if chance.random() < 0.3 else (),
            split=frozenset({"PCPU"}),
        )
        for suffix in ("_a", "_b")[: chance.randint(1, 2)]
    ]
    misses, said = missing(providers, CandidateQuery(tuple(groups), isolate=chance.random() < 0.5))
    assert all(miss.shortages or miss.lacking or miss.unwanted for miss in misses)
    if not enumerate_candidates(providers, CandidateQuery(tuple(groups))):
        assert said
    assert "host host meets all earlier conditions" not in said


OFFERED_BY_NO_PROVIDER = (
    (provider("host", None, DISK_GB=8, FPGA=8),),
    CandidateQuery((RequestGroup("1", {"DISK_GB": 1}), RequestGroup("2", {"DISK_GB": 1, "VCPU": 1}))),
)


ON_ANOTHER_HOST = (
    (
        provider("a", None, VCPU=8),
        provider("b", None),
        provider("c", "b", "HW_CPU_X86_AVX"),
    ),
    CandidateQuery(
        (RequestGroup("1", {"VCPU": 1}), RequestGroup("2", {}, (frozenset({"HW_CPU_X86_AVX"}),))),
        same_subtree=(frozenset({"1", "2"}),),
    ),
)
ASKED_TWICE = (
    (provider("host", None, VCPU=8),),
    CandidateQuery(
        (RequestGroup("", {"VCPU": 1}),),
        root_required=frozenset({"CUSTOM_OF_NOBODY", "CUSTOM_OF_NOBODY_EITHER"}),
    ),
)


@settings(max_examples=200)
@given(searches() | split_searches(), st.booleans())
@example(OFFERED_BY_NO_PROVIDER, False)
@example(ASKED_TWICE, False)
@example(ON_ANOTHER_HOST, False)
def test_explaining_changes_nothing_and_a_reason_is_found(given_search: Search, in_full: bool) -> None:
    providers, query = given_search
    world = loaded(providers)
    found, explanation = traced(world, query, in_full)
    assert found == world.candidates(world.search(query))
    empty = explanation.first_empty
    # Shared storage is a host only where nothing else has a candidate.
    anchors = {anchor for anchor, _ in combinations(NaiveForest(providers), query)}
    hosts = anchors - {each.uuid for each in providers if each.shares}
    assert explanation.stages[-1].trees == len(hosts or anchors)
    assert (empty is None) == bool(anchors)
    assert len(explanation.misses) <= MOST_MISSES
    on_trees = [stage for stage in explanation.stages if stage.counted is CountedUnit.TREES]
    assert [stage.trees for stage in on_trees] == sorted((stage.trees for stage in on_trees), reverse=True)
    # Each is asked once; a trait of the root and one of any provider read alike.
    assert len({(stage.condition.kind, stage.condition.text) for stage in on_trees}) == len(on_trees)
    # Each stage begins with the hosts that the one before left; a sharing provider serves several.
    left = [stage.trees for stage in explanation.stages]
    assert [stage.trees_came for stage in explanation.stages[1:]] == left[:-1]
    for stage in explanation.stages:
        assert stage.trees <= stage.trees_came
        assert stage.passed <= stage.came
        assert bool(stage.trees) == bool(stage.passed)
    said = sentences(explanation)
    assert all(said)
    if empty is None:
        return
    assert all(miss.shortages or miss.lacking or miss.unwanted for miss in explanation.misses)
    assert len(said) > len(explanation.stages)
    stage = explanation.stages[empty]
    # A host may fail for a trait of what is below it.
    if stage.condition.kind is ConditionKind.TRAITS and stage.counted is CountedUnit.PROVIDERS:
        carried = {provider.uuid: provider.traits for provider in providers}
        for miss in explanation.misses:
            # What a whole host lacks is said of its groups.
            if miss.is_tree:
                assert miss.shortages
                assert miss.lacking_groups
                continue
            assert miss.lacking or miss.unwanted
            assert not carried[miss.provider].intersection(miss.lacking)
            assert carried[miss.provider].issuperset(miss.unwanted)


def enriched(provider: NaiveProvider, shortage: Shortage) -> NaiveProvider:
    """The provider with as much more as is missing, if it is missing there or that is untold."""
    name = shortage.resource_class
    if name not in provider.inventories or shortage.provider not in (None, provider.uuid):
        return provider
    total = provider.inventories[name].capacity + shortage.missing
    more = replace(provider.inventories[name], total=total, reserved=0, allocation_ratio=1.0)
    return replace(provider, inventories={**provider.inventories, name: more})


@settings(max_examples=200)
@given(searches(), st.booleans())
def test_with_what_is_missing_the_request_fits(given_search: Search, in_full: bool) -> None:
    providers, query = given_search
    if any(group.suffix == UNSUFFIXED and group.required for group in query.groups):
        return
    _, found = traced(loaded(providers), query, in_full)
    if found.first_empty is None or not all(miss.is_tree for miss in found.misses):
        return
    free = {
        (p.uuid, name): inventory.capacity - p.used.get(name, 0)
        for p in providers
        for name, inventory in p.inventories.items()
    }
    for miss in found.misses:
        assert miss.shortages
        for shortage in miss.shortages:
            if shortage.reason is Reason.AMOUNT and shortage.provider is not None:
                left = free[shortage.provider, shortage.resource_class]
                assert (shortage.free, shortage.missing) == (max(left, 0), shortage.wanted - left)
        if all(shortage.reason is Reason.AMOUNT for shortage in miss.shortages):
            richer = providers
            for shortage in miss.shortages:
                richer = tuple(enriched(each, shortage) for each in richer)
            assert enumerate_candidates(richer, query)
