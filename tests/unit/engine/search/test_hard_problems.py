"""Combinations in one tree: complete, each once; what would take for ever is proven impossible or ends."""

from collections import Counter
from dataclasses import replace
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.inventories import Inventory
from placement.engine.search import solver
from placement.engine.search.assignment import Assignment
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.distribution import distribute
from placement.engine.search.fillings import PositionKind, fillings
from placement.engine.search.packing import can_fill, can_match
from placement.engine.search.problem import Contention, Problem, Split, SplitSupply, Splitting, bits
from placement.engine.search.search import search
from placement.engine.search.solver import solutions
from tests.forests import loaded
from tests.naive import NaiveProvider

# Far more than any of these problems takes, far less than trying them out.
_ENOUGH_STEPS = 20_000


class Counting(Budget):
    """A budget of steps: the same on every machine."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise SearchEnded(abandoned=False)


def full(positions: int) -> int:
    return (1 << positions) - 1


def each_alone(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((slot,) for slot in range(count))


def packing(positions: int, *demands: tuple[int, ...], room: int = 100) -> Problem:
    """Slots of several classes on positions with the same room of each."""
    slots = len(demands[0])
    return Problem(
        options=(full(positions),) * slots,
        blocks=each_alone(slots),
        contentions=tuple(Contention(demand, (room,) * positions) for demand in demands),
    )


def devices_below(tops: int, devices: int) -> tuple[int, ...]:
    """`tops` nodes with as many devices each: the nodes first, then the devices node by node."""
    below = [1 << top | full(devices) << tops + top * devices for top in range(tops)]
    return (*below, *(1 << tops + number for number in range(tops * devices)))


def sets_below(sets: int, width: int, tops: int, devices: int) -> Problem:
    """Isolated sets of a node and `width` devices, each set below its node."""
    slots = sets * (width + 1)
    nodes, others = full(tops), full(tops * devices) << tops
    members = [range(number * (width + 1), (number + 1) * (width + 1)) for number in range(sets)]
    return Problem(
        options=(nodes, *(others,) * width) * sets,
        blocks=each_alone(slots),
        isolated=sum(1 << slot for group in members for slot in group[1:]),
        subtrees=tuple(sum(1 << slot for slot in group) for group in members),
        below=devices_below(tops, devices),
    )


IMPOSSIBLE = {
    "more than half each": packing(16, (1, *range(51, 68))),
    "more than half each, descending": packing(16, (*range(67, 50, -1), 1)),
    "more than a third each": packing(16, tuple(34 + number % 16 for number in range(33))),
    "large ones and middle ones": packing(12, (1, 2, *range(60, 72), *range(41, 54))),
    "two classes that only conflict together": packing(
        14, (*(60,) * 8, *range(45, 53)), (*range(10, 18), *(95,) * 8)
    ),
    "more than half of one class or the other": packing(16, (1, *range(51, 68)), (3, *range(30, 47))),
    "other rooms": Problem(
        options=(full(16),) * 17,
        blocks=each_alone(17),
        contentions=(Contention(tuple(range(51, 68)), tuple(range(85, 101))),),
    ),
    "sets of three below nodes of five": sets_below(6, 3, 5, 5),
    "sets of two below nodes of three": sets_below(9, 2, 8, 3),
    "a class beside sets below nodes": sets_below(8, 3, 7, 5),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_it_is_proven_and_not_tried_out(name):
    assert list(solutions(IMPOSSIBLE[name], Counting(_ENOUGH_STEPS))) == []


def test_solutions_after_many_dead_ends_are_found():
    """Sixteen large ones and one that only the last device takes beside one of them."""
    rooms = (*(100,) * 15, 160)
    problem = Problem(
        options=(full(16),) * 17, blocks=each_alone(17), contentions=(Contention((1, *range(51, 67)), rooms),)
    )
    found = list(islice(solutions(problem, Counting(50 * _ENOUGH_STEPS)), 50))
    assert len(set(found)) == 50
    assert all(is_solution(problem, solution) for solution in found)


def test_permutations_of_more_blocks_than_calls_can_be_nested():
    pairs = 1100
    problem = Problem(
        options=(0b1,) * (2 * pairs - 2) + (0b11, 0b11),
        blocks=tuple((2 * number, 2 * number + 1) for number in range(pairs)),
        contentions=(Contention((1,) * (2 * pairs), (2 * pairs, 2 * pairs)),),
    )
    assert [places[-2:] for places in solutions(problem, Budget())] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_what_cannot_be_proven_ends_with_the_budget():
    amounts = tuple(2 * amount + 1 for amount in range(60, 140))
    problem = packing(16, amounts, room=sum(amounts) // 16 + 1)
    with pytest.raises(SearchEnded):
        list(solutions(problem, Counting(2_000)))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.lists(st.integers(0, 16), max_size=4))
def test_bounds_refuse_only_what_is_impossible(amounts, rooms):
    contention = Contention(tuple(amounts), tuple(rooms))
    ways = product(range(len(rooms)), repeat=len(amounts))
    assert can_fill(amounts, rooms) or not any(has_room(contention, places) for places in ways)


@st.composite
def problems(draw) -> Problem:
    """Slots that are alike by name, with what they ask for, on positions of a few small trees."""
    positions = draw(st.integers(1, 5))
    # Coverage is for slots that all differ.
    are_different = draw(st.booleans())
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=are_different))

    def alike(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        drawn = {name: draw(values) for name in dict.fromkeys(names)}
        return tuple(drawn[name] for name in names)

    def some_slots() -> int:
        return sum(chosen << slot for slot, chosen in enumerate(alike(st.integers(0, 1))))

    blocks = tuple(tuple(at for at, name in enumerate(names) if name == own) for own in sorted({*names}))
    parents = [draw(st.integers(-1, position - 1)) for position in range(positions)]
    below = [1 << position for position in range(positions)]
    for position in reversed(range(positions)):
        if parents[position] >= 0:
            below[parents[position]] |= below[position]
    trees = [draw(st.integers(0, 1)) for _ in range(positions)]
    by_tree = draw(st.booleans()) and all(parent < 0 for parent in parents)
    contentions = tuple(
        Contention(alike(st.integers(0, 4)), tuple(draw(st.integers(0, 6)) for _ in range(positions)))
        for _ in range(draw(st.integers(0, 2)))
    )
    # What no slot alone could take is not among the options that a search comes with.
    options = tuple(
        sum(1 << at for at in bits(mask) if all(c.demand[slot] <= c.headroom[at] for c in contentions))
        for slot, mask in enumerate(alike(st.integers(1, full(positions))))
    )
    each_differs = len(blocks) == len(names)
    return Problem(
        options=options,
        blocks=blocks,
        isolated=draw(st.sampled_from((0, full(len(names)), some_slots()))),
        contentions=contentions,
        subtrees=tuple(filter(None, (some_slots() for _ in range(draw(st.integers(0, 2)))))),
        below=tuple(below),
        base_slots=full(len(names)) if each_differs else 0,
        coverage=tuple(draw(st.lists(st.integers(0, full(positions)), max_size=2 * each_differs))),
        exclusive=tuple(
            sum(1 << q for q in range(positions) if q != p and trees[q] == trees[p]) for p in range(positions)
        )
        if by_tree
        else (),
    )


def has_room(contention: Contention, places: tuple[int, ...]) -> bool:
    taken = Counter[int]()
    for amount, at in zip(contention.demand, places, strict=True):
        taken[at] += amount
    return all(taken[at] <= room for at, room in enumerate(contention.headroom))


def is_solution(problem: Problem, places: tuple[int, ...]) -> bool:
    """The rules of a problem, read off its description."""
    isolated = [places[slot] for slot in bits(problem.isolated)]

    def is_below(top: int, constraint: int) -> bool:
        return all(problem.below[places[top]] >> places[slot] & 1 for slot in bits(constraint))

    return (
        len(set(isolated)) == len(isolated)
        and all(has_room(contention, places) for contention in problem.contentions)
        and all(any(is_below(top, subtree) for top in bits(subtree)) for subtree in problem.subtrees)
        and all(any(satisfying >> place & 1 for place in places) for satisfying in problem.coverage)
        and not any(problem.exclusive[p] >> q & 1 for p in places for q in places if problem.exclusive)
    )


@given(problems())
@settings(max_examples=300)
def test_solutions_are_those_of_brute_force_each_once_and_asking_ahead_changes_none(problem):
    """With no patience at all, each step asks first whether the rest can be completed."""
    expected = [places for places in product(*map(bits, problem.options)) if is_solution(problem, places)]
    patient = list(solutions(problem, Budget()))
    assert sorted(patient) == sorted(expected)
    kept, solver._PATIENCE = solver._PATIENCE, 0
    try:
        assert list(solutions(problem, Budget())) == patient
    finally:
        solver._PATIENCE = kept


def alike(slots: int, positions: int, **rest) -> Problem:
    return Problem(options=(full(positions),) * slots, blocks=(tuple(range(slots)),), **rest)


def test_distinct_allocations_come_before_permutations():
    found = list(solutions(alike(2, 4, isolated=0b11), Budget()))
    assert found[:6] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert sorted(found[6:]) == sorted((high, low) for low, high in found[:6])


@pytest.mark.parametrize("slots", [16, 64])
@pytest.mark.parametrize("isolated", [True, False])
def test_one_position_too_few_is_seen_without_trying(slots, isolated, monkeypatch):
    """No position is ever tried: 64 groups on 63 devices would have 63! dead ends."""

    def never(*_, **__):
        raise AssertionError("a position was tried")

    monkeypatch.setattr(Assignment, "assign", never)
    contentions = () if isolated else (Contention((1,) * slots, (1,) * (slots - 1)),)
    problem = alike(slots, slots - 1, isolated=full(slots) if isolated else 0, contentions=contentions)
    assert list(solutions(problem, Budget())) == []


@pytest.mark.parametrize("isolated", [True, False])
def test_as_many_groups_as_positions_start_at_once(isolated):
    contentions = () if isolated else (Contention((1,) * 64, (1,) * 64),)
    problem = alike(64, 64, isolated=full(64) if isolated else 0, contentions=contentions)
    found = list(islice(solutions(problem, Budget()), 10))
    assert len(set(found)) == 10
    assert all(sorted(solution) == list(range(64)) for solution in found)


@given(st.lists(st.integers(0, 31), max_size=6), st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_matching_agrees_with_brute_force(domains, capacities):
    possible = any(
        all(chosen.count(at) <= capacities[at] for at in range(5))
        for chosen in product(*(tuple(bits(domain)) for domain in domains))
    )
    assert can_match(domains, capacities, Budget()) == possible


PACK, REQUIRE, ISOLATE, SPREAD = SplitRule
SOCKETS, CORES = 8, 128


def shared_out(
    rooms: list[int], *asked: tuple[int, SplitRule], apart: bool = False, steps: int = 1000
) -> list[dict[int, int]] | None:
    """Amounts of one class on positions with these rooms, nothing else in use."""
    count = len(rooms)
    units = (1,) * count
    splitting = Splitting(
        splits=tuple(
            Split(slot, 0, amount, rule, full(count), ()) for slot, (amount, rule) in enumerate(asked)
        ),
        supplies=(SplitSupply(tuple(rooms), units, units, tuple(rooms), (0,) * len(asked)),),
        below=(),
        group_of=tuple(range(len(asked))) if apart else (-1,) * len(asked),
    )
    return distribute(splitting, (0,) * len(asked), Counting(steps))


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
def test_each_rule_has_its_preferred_way(rule, rooms, amount, expected):
    assert shared_out(rooms, (amount, rule)) == (None if expected is None else [expected])


def test_packing_takes_whole_providers_before_one_that_is_in_use():
    kinds = [PositionKind(1, 1, 3, 1, 3, unused=False), PositionKind(2, 1, 2, 1, 2, unused=True)]
    first = next(fillings(kinds, 4, PACK, Budget()))
    assert [(part.kind, part.count, part.amount) for part in first] == [(1, 2, 2)]


def test_amounts_of_several_groups_are_shared_out_together():
    """Whole cores are left to those that need them, and groups kept apart share none."""
    found = shared_out([2, 2, 2], (1, PACK), (2, REQUIRE), (1, ISOLATE))
    assert found is not None
    assert sorted(map(len, found)) == [1, 1, 1]
    assert len({position for parts in found for position in parts}) == 3
    assert shared_out([2, 2], (1, PACK), (3, PACK)) is not None
    assert shared_out([2, 2], (1, PACK), (3, PACK), apart=True) is None


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
        feasible = wanted <= amount and not (rule is REQUIRE and wanted % 2)
        assert (shared_out(rooms, (wanted, rule), steps=500) is not None) == feasible
    asked = [(31, PACK), (30, REQUIRE), (30, ISOLATE), (31, SPREAD)] * 8
    assert shared_out(rooms, *asked, steps=100_000) is not None


def numbered(kind: int, number: int) -> str:
    return f"{kind}0000000-0000-0000-0000-{number:012}"


def socket(number: int, parent: str | None, in_use: int) -> list[NaiveProvider]:
    """A socket with its cores, of which every other one has so much in use."""
    top = NaiveProvider(numbered(1, number), parent, {"MEMORY_MB": Inventory(total=4096)})
    names = [numbered(2, number * CORES + core) for core in range(CORES)]
    core = {"PCPU": Inventory(total=2)}
    used = [{"PCPU": at % 2 * in_use} for at in range(CORES)]
    return [top, *(NaiveProvider(name, top.uuid, core, use) for name, use in zip(names, used, strict=True))]


def found_in(providers: list[NaiveProvider], query: CandidateQuery, maximum: int, steps: int) -> int:
    """How many candidates are found in so many steps."""
    world = loaded(providers)
    wanted = replace(world.query(query, maximum), budget=Counting(steps))
    return len(search(world.forest, world.sharing, wanted).candidates)


@pytest.mark.parametrize("amount", [1, CORES, 2 * CORES, 2 * CORES + 1])
def test_a_large_host_is_searched_in_bounded_steps(amount: int):
    host = NaiveProvider(numbered(0, 0), None, {})
    providers = [host, *(each for number in range(SOCKETS) for each in socket(number, host.uuid, 0))]
    wanted, split = {"MEMORY_MB": 1, "PCPU": amount}, frozenset({"PCPU"})
    groups = tuple(RequestGroup(f"_{rule}", wanted, split=split, split_rule=rule) for rule in (PACK, SPREAD))
    assert found_in(providers, CandidateQuery(groups), 20, 200_000) == (20 if amount <= 2 * CORES else 0)


@pytest.mark.parametrize(("amount", "expected"), [(CORES, 10), (2 * CORES, 0)])
def test_subtrees_that_cannot_give_an_amount_are_not_combined(amount: int, expected: int):
    """Four devices beside the cores, of 32 each: a million ways that need not be tried."""
    providers, device = socket(0, None, 1), {"PGPU": Inventory(total=1)}
    providers += [NaiveProvider(numbered(3, number), numbered(1, 0), device) for number in range(32)]
    cpus = RequestGroup("_cpus", {"PCPU": amount}, split=frozenset({"PCPU"}))
    devices = [RequestGroup(f"_{number}", {"PGPU": 1}) for number in range(4)]
    groups = (RequestGroup("_top", {"MEMORY_MB": 1}), cpus, *devices)
    query = CandidateQuery(groups, same_subtree=(frozenset(group.suffix for group in groups),))
    assert found_in(providers, query, 10, 50_000) == expected
