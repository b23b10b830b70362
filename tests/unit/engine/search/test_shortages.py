"""Near misses across groups tell what is missing, and with that much more the request fits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.explanation import ConditionKind, Miss, Reason, Shortage, sentences
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.explanation import explain
from placement.engine.search.query import Trace, Vocabulary
from placement.engine.search.search import search
from tests.forests import World
from tests.naive import SHARING_TRAIT, NaiveProvider, enumerate_candidates
from tests.querystring import parsed
from tests.strategies import Search, searches


def named(name: str) -> str:
    """The uuid of a provider: its name, and zeros."""
    return f"{name.encode().hex():0<8}-0000-0000-0000-000000000000"


HOST, N0, N1 = named("host"), named("n0"), named("n1")


def provider(name: str, parent: str | None, **offers: int) -> NaiveProvider:
    inventories = {kind: Inventory(amount) for kind, amount in offers.items() if amount >= 0}
    return NaiveProvider(named(name), named(parent) if parent else None, inventories)


def host() -> list[NaiveProvider]:
    """Two NUMA nodes with memory and six and four CPUs, the first with three cores and the other with two."""
    nodes = [
        provider("n0", "host", VCPU=6, MEMORY_MB=100),
        provider("n1", "host", VCPU=4, MEMORY_MB=200),
    ]
    cores = [provider(f"c{n}{at}", f"n{n}", PCPU=2) for n, count in ((0, 3), (1, 2)) for at in range(count)]
    return [provider("host", None, DISK_GB=10), *nodes, *cores]


def explained(providers: list[NaiveProvider], query: CandidateQuery) -> tuple[list[Miss], list[str]]:
    """The misses of a search and the sentences about them."""
    made = World(providers)
    made.load()
    trace = Trace(one_by_one=True)
    wanted = made.query(query)
    search(made.forest, made.sharing, wanted, trace)
    words = Vocabulary(
        {number: name for name, number in made.classes.items()},
        {number: name for name, number in made.traits.items()},
    )
    sharing = made.sharing.of(made.forest, made.traits[SHARING_TRAIT])
    names = {p.uuid: bytes.fromhex(p.uuid[:8]).rstrip(b"\0").decode() for p in providers}
    found = replace(explain(made.forest, sharing, wanted, trace, words), names=names)
    at = found.first_empty
    told = [] if at is None else sentences(found)[at + 1 :]
    return list(found.misses), [text for text in told if " of 0 trees" not in text]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "resources1=VCPU:4&resources2=VCPU:4&resources3=VCPU:3&group_policy=none",
            ["n0 lacks 1 VCPU for 2 and 3: 7 wanted, 6 free"],
        ),
        (
            "resources1=VCPU:5&resources2=VCPU:5&group_policy=none",
            ["n1 lacks 1 VCPU for group 2: 5 wanted, 4 free"],
        ),
        (
            "resources1=VCPU:5&resources2=VCPU:5&group_policy=isolate",
            ["n1 lacks 1 VCPU for group 2: 5 wanted, 4 free"],
        ),
        (
            "resources=DISK_GB:6&resources1=DISK_GB:7&group_policy=none",
            ["host lacks 3 DISK_GB for the unsuffixed group and 1: 13 wanted, 10 free"],
        ),
        (
            "resources1=VCPU:6&resources2=MEMORY_MB:101&same_subtree=1,2&group_policy=none",
            ["n0 lacks 1 MEMORY_MB for group 2: 101 wanted, 100 free"],
        ),
        (
            "resources_N=MEMORY_MB:10&resources_A=PCPU:2&resources_B=PCPU:2&resources_C=PCPU:2"
            "&resources_D=PCPU:2&same_subtree=_N,_A,_B,_C,_D&group_policy=isolate",
            ["no provider is left for group _D below n0"],
        ),
        (
            "resources1=VCPU:1&resources2=VCPU:1&resources3=VCPU:1&group_policy=isolate",
            ["the tree of host has no provider left for group 3: the groups are kept apart"],
        ),
    ],
    ids=["sum of three", "sum of two", "apart", "unsuffixed", "subtree", "cores of a node", "too few"],
)
def test_what_is_missing_is_told(query: str, said: list[str]) -> None:
    pairs = [tuple(pair.split("=", 1)) for pair in query.split("&")]
    assert explained(host(), parsed(pairs))[1] == said


def split_cores(cores: int, memory: int, *traits: str) -> CandidateQuery:
    """Memory of a provider and cores below it, each of which has the traits."""
    required = tuple(frozenset((name,)) for name in traits)
    wanted = {"MEMORY_MB": memory, "PCPU": cores}
    return CandidateQuery((RequestGroup("_c", wanted, required, split=frozenset({"PCPU"})),))


def test_what_is_on_different_subtrees_is_told_of_each() -> None:
    # n0 has three cores of two and little memory, n1 has two of them and more memory.
    _, said = explained(host(), split_cores(5, 150))
    assert said == [
        "n0 lacks 50 MEMORY_MB for group _c: 150 wanted, 100 free",
        "below n1: 4 of 5 PCPU for group _c",
    ]


def test_a_trait_that_cores_lack_is_named_with_the_amount() -> None:
    providers = [
        replace(each, traits=frozenset({"CUSTOM_T"})) if "MEMORY_MB" in each.inventories else each
        for each in host()
    ]
    one = next(at for at, each in enumerate(providers) if "PCPU" in each.inventories)
    providers[one] = replace(providers[one], traits=frozenset({"CUSTOM_T"}))
    _, said = explained(providers, split_cores(3, 50, "CUSTOM_T"))
    assert "below n0: 2 of 3 PCPU with trait CUSTOM_T for group _c" in said


def test_a_trait_that_the_unsuffixed_group_lacks_besides_is_named() -> None:
    # n1 has room for one of the two that may only be there.
    providers = [
        provider("host", None, DISK_GB=10),
        provider("n0", "host", VCPU=8),
        replace(provider("n1", "host", VCPU=4), traits=frozenset({"CUSTOM_T", "CUSTOM_U"})),
    ]
    asked = (
        "resources=DISK_GB:6,VCPU:4&required=CUSTOM_T&resources1=VCPU:4&required1=CUSTOM_U&group_policy=none"
    )
    pairs = [tuple(pair.split("=", 1)) for pair in asked.split("&")]
    trait = "the tree of host has most free for the unsuffixed group on providers without trait CUSTOM_T"
    assert explained(providers, parsed(pairs))[1] == [trait]
    short = explained(providers, parsed([*pairs, ("resources2", "DISK_GB:7")]))[1]
    assert short == ["host lacks 3 DISK_GB for the unsuffixed group and 2: 13 wanted, 10 free", trait]


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
    misses, said = explained(providers, CandidateQuery(tuple(groups), isolate=chance.random() < 0.5))
    assert all(miss.shortages or miss.lacking or miss.unwanted for miss in misses)
    if not enumerate_candidates(providers, CandidateQuery(tuple(groups))):
        assert said
    assert "the tree of host met everything before" not in said


def test_cores_that_are_short_are_told_together() -> None:
    """Six groups want cores, four of which are in use."""
    providers = [
        replace(p, used={"PCPU": 2}) if "PCPU" in p.inventories and p.uuid > named("c00") else p
        for p in host()
    ]
    query = parsed([*((f"resources{at}", "PCPU:2") for at in range(1, 6)), ("group_policy", "isolate")])
    misses, said = explained(providers, query)
    assert said == ["the tree of host lacks 8 PCPU for 2, 3, 4 and 5: 8 wanted, 0 free on several providers"]
    (shortage,) = misses[0].shortages
    assert (shortage.reason, shortage.groups, shortage.provider) == (
        Reason.AMOUNT,
        ("2", "3", "4", "5"),
        None,
    )


def test_conditions_that_nobody_in_the_tree_meets_are_named() -> None:
    """Each group has somebody somewhere, but never in one tree."""
    other = replace(provider("oth", None, VGPU=1), traits=frozenset({"CUSTOM_BLUE"}))
    plain = provider("p", "host", VGPU=1)
    blue = [("resources2", "VGPU:1"), ("required2", "CUSTOM_BLUE")]
    query = parsed([("resources1", "DISK_GB:1"), *blue, ("group_policy", "none")])
    assert explained([*host(), plain, other], query)[1] == [
        "the tree of host has no provider for group 2: none that could serve it has trait CUSTOM_BLUE",
        "the tree of oth lacks 1 DISK_GB for group 1: no suitable provider offers any",
    ]


def test_units_that_forbid_an_amount_are_told() -> None:
    """The sum of a consumer's amounts may not exceed max_unit either."""
    small = NaiveProvider(N0, HOST, {"VCPU": Inventory(8, max_unit=4)})
    query = parsed([("resources1", "VCPU:3"), ("resources2", "VCPU:3"), ("group_policy", "none")])
    assert explained([provider("host", None, DISK_GB=1), small], query)[1] == [
        "n0 offers VCPU for 1 and 2, but the amount breaks its min_unit, max_unit or step_size"
    ]


def test_many_groups_are_counted_instead_of_named() -> None:
    """Sixty-four groups on sixty-three devices: refused and explained without trying one order of them."""
    devices = [provider(f"d{number:02}", "host", VGPU=1) for number in range(63)]
    groups = [(f"resources{number}", "VGPU:1") for number in range(1, 65)]
    _, said = explained([provider("host", None), *devices], parsed([*groups, ("group_policy", "isolate")]))
    assert said == ["the tree of host has no provider left for group 64: the groups are kept apart"]
    used = [replace(device, used={"VGPU": 1}) for device in devices]
    _, said = explained(
        [provider("host", None), *used, provider("free", "host", VGPU=1)],
        parsed([*groups, ("group_policy", "isolate")]),
    )
    assert said == [
        "the tree of host lacks 63 VGPU for 2, 3, 4 and 60 more groups: "
        "63 wanted, 0 free on several providers"
    ]


def test_the_nearest_trees_come_first() -> None:
    """A tree that has too few providers is farther away than any that lacks amounts."""
    hosts = [provider("few", None, VCPU=100)]
    for used in range(7, 0, -1):
        hosts.append(provider(f"h{used}", None))
        hosts += [provider(f"{side}{used}", f"h{used}", VCPU=8) for side in "ab"]
        hosts[-1] = replace(hosts[-1], used={"VCPU": used})
    query = parsed([("resources1", "VCPU:8"), ("resources2", "VCPU:8"), ("group_policy", "isolate")])
    _, said = explained(hosts, query)
    assert said == [f"b{at} lacks {at} VCPU for group 2: 8 wanted, {8 - at} free" for at in range(1, 6)]


def test_siblings_that_should_share_a_subtree_are_a_shortage_of_providers() -> None:
    """Also where one of the groups is in a constraint of its own."""
    hosts = [provider("host", None), provider("a", "host", VCPU=8), provider("b", "host", FPGA=8)]
    query = parsed(
        [
            ("resources_A", "VCPU:1"),
            ("resources_B", "FPGA:1"),
            ("group_policy", "none"),
            ("same_subtree", "_A"),
            ("same_subtree", "_A,_B"),
        ]
    )
    misses, _ = explained(hosts, query)
    assert [shortage.reason for miss in misses for shortage in miss.shortages] == [Reason.BELOW]


def _collective(query: CandidateQuery) -> bool:
    return any(group.suffix == UNSUFFIXED and group.required for group in query.groups)


def _given(providers: tuple[NaiveProvider, ...], shortage: Shortage, name: str) -> tuple[NaiveProvider, ...]:
    """The providers, with as much more as is missing where it is missing, or everywhere if that is untold."""
    return tuple(
        replace(
            p,
            inventories={
                **p.inventories,
                name: replace(
                    p.inventories[name],
                    total=p.inventories[name].capacity + shortage.missing,
                    reserved=0,
                    allocation_ratio=1.0,
                ),
            },
        )
        if name in p.inventories and shortage.provider in (None, p.uuid)
        else p
        for p in providers
    )


@settings(max_examples=200)
@given(searches(), st.booleans())
def test_with_what_is_missing_the_request_fits(given_search: Search, one_by_one: bool) -> None:
    providers, query = given_search
    if _collective(query):
        return
    made = World(providers)
    made.load()
    trace = Trace(one_by_one)
    wanted = made.query(query)
    search(made.forest, made.sharing, wanted, trace)
    words = Vocabulary({number: name for name, number in made.classes.items()}, {})
    found = explain(made.forest, made.sharing.of(made.forest, wanted.sharing_trait), wanted, trace, words)
    if found.first_empty is None:
        return
    if found.stages[found.first_empty].condition.kind not in (
        ConditionKind.GROUPS,
        ConditionKind.COMBINATION,
    ):
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
                richer = _given(richer, shortage, shortage.resource_class)
            assert enumerate_candidates(richer, query)
