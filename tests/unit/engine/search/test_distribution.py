"""Amounts are shared out as their rules say, together with others, in a bounded number of steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.inventories import Inventory
from placement.engine.search.budget import Budget
from placement.engine.search.distribution import PositionKind, distribute, fillings
from placement.engine.search.problem import Split, SplitSupply, Splitting
from placement.engine.search.search import search
from tests.forests import World
from tests.naive import NaiveProvider
from tests.unit.engine.search.test_hard_problems import Counting, full

PACK, REQUIRE, ISOLATE, SPREAD = SplitRule
SOCKETS, CORES = 8, 128


def splitting(
    rooms: list[int], *asked: tuple[int, SplitRule], options: int | None = None, apart: bool = False
) -> Splitting:
    """Amounts of one class on positions with these rooms, nothing else in use."""
    count = len(rooms)
    units = (1,) * count
    return Splitting(
        splits=tuple(
            Split(slot, slot, 0, amount, rule, full(count) if options is None else options, (), apart)
            for slot, (amount, rule) in enumerate(asked)
        ),
        supplies=(SplitSupply(tuple(rooms), units, units, tuple(rooms), (0,) * len(asked)),),
        below=(),
        group_of=(-1,) * len(asked),
    )


def shared_out(given_splitting: Splitting, steps: int = 1000) -> list[dict[int, int]] | None:
    return distribute(given_splitting, (0,) * len(given_splitting.splits), Counting(steps))


@pytest.mark.parametrize(
    ("rule", "rooms", "amount", "expected"),
    [
        (PACK, [2, 2, 2], 4, {0: 2, 1: 2}),
        (PACK, [4, 2, 2], 5, {0: 4, 1: 1}),
        (PACK, [2, 4, 4], 8, {1: 4, 2: 4}),
        (REQUIRE, [2, 2, 1], 4, {0: 2, 1: 2}),
        (REQUIRE, [3, 2, 2], 4, {1: 2, 2: 2}),
        (REQUIRE, [1, 1, 1], 2, None),
        (ISOLATE, [4, 2, 2], 2, {1: 2, 2: 2}),
        (ISOLATE, [2, 2], 3, None),
        (SPREAD, [5, 5, 1], 7, {0: 3, 1: 3, 2: 1}),
        (SPREAD, [5, 5, 5], 7, {0: 3, 1: 2, 2: 2}),
        (SPREAD, [2, 2, 2, 2], 3, {0: 1, 1: 1, 2: 1}),
    ],
)
def test_each_rule_has_its_preferred_way(
    rule: SplitRule, rooms: list[int], amount: int, expected: dict[int, int] | None
):
    found = shared_out(splitting(rooms, (amount, rule)))
    assert found == (None if expected is None else [expected])


def test_whole_cores_are_left_to_those_who_need_them():
    found = shared_out(splitting([2, 2, 2], (1, PACK), (2, REQUIRE), (1, ISOLATE)))
    assert found is not None
    assert sorted(map(len, found)) == [1, 1, 1]
    assert len({position for parts in found for position in parts}) == 3


def test_groups_kept_apart_share_nobody():
    assert shared_out(splitting([2, 2], (1, PACK), (3, PACK))) is not None
    assert shared_out(splitting([2, 2], (1, PACK), (3, PACK), apart=True)) is None


@given(
    st.lists(
        st.builds(
            lambda count, least, more, step: PositionKind(
                count, least * step, (least + more) * step, step, (least + more) * step, unused=True
            ),
            st.integers(1, 2),
            st.integers(1, 2),
            st.integers(0, 2),
            st.integers(1, 3),
        ),
        max_size=3,
    ),
    st.integers(1, 12),
    st.sampled_from((PACK, SPREAD)),
)
def test_all_ways_come_each_once(kinds: list[PositionKind], amount: int, rule: SplitRule):
    members = [at for at, kind in enumerate(kinds) for _ in range(kind.count)]
    choices = [(0, *range(kinds[at].least, kinds[at].most + 1, kinds[at].step)) for at in members]
    expected = {
        tuple(sorted((at, part) for at, part in zip(members, taken, strict=True) if part))
        for taken in product(*choices)
        if sum(taken) == amount
    }
    found = [
        tuple(sorted((part.kind, part.amount) for part in filling for _ in range(part.count)))
        for filling in fillings(kinds, amount, rule, Budget())
    ]
    assert sorted(found) == sorted(expected)
    sizes = [len(each) for each in found]
    assert sizes == sorted(sizes, reverse=rule is SPREAD)


@pytest.mark.parametrize("rule", SplitRule)
def test_a_thousand_cores_take_few_steps(rule: SplitRule):
    rooms = [2] * (SOCKETS * CORES)
    amount = SOCKETS * CORES if rule is ISOLATE else 2 * SOCKETS * CORES
    for wanted in (1, 2, amount // 2, amount, amount + 1):
        found = shared_out(splitting(rooms, (wanted, rule)), steps=500)
        feasible = wanted <= amount and not (rule is REQUIRE and wanted % 2)
        assert (found is not None) == feasible


def test_many_amounts_on_many_cores_take_steps_by_their_number():
    asked = [(31, PACK), (30, REQUIRE), (30, ISOLATE), (31, SPREAD)] * 8
    assert shared_out(splitting([2] * (SOCKETS * CORES), *asked), steps=100_000) is not None


@pytest.mark.parametrize("amount", [1, CORES, 2 * CORES, 2 * CORES + 1])
def test_a_large_host_is_searched_in_bounded_steps(amount: int):
    providers = [NaiveProvider("00000000-0000-0000-0000-000000000000", None, {})]
    for socket in range(SOCKETS):
        top = f"10000000-0000-0000-0000-{socket:012}"
        providers.append(NaiveProvider(top, providers[0].uuid, {"MEMORY_MB": Inventory(total=4096)}))
        providers += [
            NaiveProvider(f"20000000-0000-0000-{socket:04}-{core:012}", top, {"PCPU": Inventory(total=2)})
            for core in range(CORES)
        ]
    world = World(providers)
    world.load()
    groups = tuple(
        RequestGroup(
            f"_{number}",
            resources={"MEMORY_MB": 1, "PCPU": amount},
            split=frozenset({"PCPU"}),
            split_rule=(PACK, SPREAD)[number],
        )
        for number in range(2)
    )
    query = replace(world.query(CandidateQuery(groups), 20), budget=Counting(200_000))
    found = search(world.forest, world.sharing, query)
    assert len(found.candidates) == (20 if amount <= 2 * CORES else 0)


@pytest.mark.parametrize(("amount", "expected"), [(CORES, 10), (2 * CORES, 0)])
def test_subtrees_that_cannot_give_an_amount_are_not_combined(amount: int, expected: int):
    """Four devices beside the cores, of 32 each: a million ways that need not be tried."""
    socket = "10000000-0000-0000-0000-000000000000"
    providers = [NaiveProvider(socket, None, {"MEMORY_MB": Inventory(total=4096)})]
    for number in range(CORES):
        name = f"20000000-0000-0000-0000-{number:012}"
        providers.append(NaiveProvider(name, socket, {"PCPU": Inventory(total=2)}, {"PCPU": number % 2}))
    for number in range(32):
        name = f"30000000-0000-0000-0000-{number:012}"
        providers.append(NaiveProvider(name, socket, {"PGPU": Inventory(total=1)}))
    world = World(providers)
    world.load()
    cpus = RequestGroup("_cpus", resources={"PCPU": amount}, split=frozenset({"PCPU"}))
    devices = [RequestGroup(f"_{number}", resources={"PGPU": 1}) for number in range(4)]
    groups = (RequestGroup("_top", resources={"MEMORY_MB": 1}), cpus, *devices)
    together = (frozenset(group.suffix for group in groups),)
    wanted = world.query(CandidateQuery(groups, same_subtree=together), 10)
    found = search(world.forest, world.sharing, replace(wanted, budget=Counting(50_000)))
    assert len(found.candidates) == expected
