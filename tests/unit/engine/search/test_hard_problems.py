"""Problems that would take for ever by trying: they are proven impossible, or the budget ends them."""

from __future__ import annotations

from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.search import solver
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.problem import Contention, Problem, bits, can_fill
from placement.engine.search.solver import solutions

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
        14, (*(60,) * 8, *(45 + n for n in range(8))), (*(10 + n for n in range(8)), *(95,) * 8)
    ),
    "more than half of one class or the other": packing(
        16, (1, *range(51, 68)), (3, *(30 + number for number in range(17)))
    ),
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
        options=(full(16),) * 17,
        blocks=each_alone(17),
        contentions=(Contention((1, *range(51, 67)), rooms),),
    )
    found = list(islice(solutions(problem, Counting(50 * _ENOUGH_STEPS)), 50))
    assert len(set(found)) == 50
    for solution in found:
        for position, room in enumerate(rooms):
            demand = problem.contentions[0].demand
            assert sum(amount for amount, at in zip(demand, solution, strict=True) if at == position) <= room


def test_permutations_of_more_blocks_than_calls_can_be_nested():
    pairs = 1100
    problem = Problem(
        options=(0b1,) * (2 * pairs - 2) + (0b11, 0b11),
        blocks=tuple((2 * number, 2 * number + 1) for number in range(pairs)),
        contentions=(Contention((1,) * (2 * pairs), (2 * pairs, 2 * pairs)),),
    )
    found = list(solutions(problem, Budget()))
    assert [solution[-2:] for solution in found] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_what_cannot_be_proven_ends_with_the_budget():
    amounts = tuple(2 * amount + 1 for amount in range(60, 140))
    problem = packing(16, amounts, room=sum(amounts) // 16 + 1)
    with pytest.raises(SearchEnded):
        list(solutions(problem, Counting(2_000)))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.lists(st.integers(0, 16), max_size=4))
def test_bounds_refuse_only_what_is_impossible(amounts, rooms):
    fits = any(
        all(
            sum(amount for amount, at in zip(amounts, places, strict=True) if at == number) <= room
            for number, room in enumerate(rooms)
        )
        for places in product(range(len(rooms)), repeat=len(amounts))
    )
    assert can_fill(amounts, rooms) or not fits


@st.composite
def problems(draw) -> Problem:
    slots, positions = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    sets = st.integers(0, full(positions))
    parents = [draw(st.integers(-1, position - 1)) for position in range(positions)]
    below = [1 << position for position in range(positions)]
    for position in reversed(range(positions)):
        if parents[position] >= 0:
            below[parents[position]] |= below[position]
    trees = [draw(st.integers(0, 1)) for _ in range(positions)]
    by_tree = draw(st.booleans()) and all(parent < 0 for parent in parents)
    amounts = st.tuples(*[st.integers(0, 4)] * slots)
    return Problem(
        options=tuple(draw(st.integers(1, full(positions))) for _ in range(slots)),
        blocks=each_alone(slots),
        isolated=draw(st.integers(0, full(slots))),
        contentions=tuple(
            Contention(draw(amounts), tuple(draw(st.integers(0, 6)) for _ in range(positions)))
            for _ in range(draw(st.integers(0, 2)))
        ),
        subtrees=tuple(draw(st.lists(st.integers(1, full(slots)), max_size=2))),
        below=tuple(below),
        collective=full(slots),
        coverage=tuple(draw(st.lists(sets, max_size=2))),
        exclusive=tuple(
            sum(1 << q for q in range(positions) if q != p and trees[q] == trees[p]) for p in range(positions)
        )
        if by_tree
        else (),
    )


def is_solution(problem: Problem, places: tuple[int, ...]) -> bool:
    """The rules of a problem, read off its description."""
    isolated = [places[slot] for slot in bits(problem.isolated)]
    return (
        len(set(isolated)) == len(isolated)
        and all(
            sum(amount for amount, at in zip(contention.demand, places, strict=True) if at == position)
            <= room
            for contention in problem.contentions
            for position, room in enumerate(contention.headroom)
        )
        and all(
            any(
                all(problem.below[places[top]] >> places[slot] & 1 for slot in bits(constraint))
                for top in bits(constraint)
            )
            for constraint in problem.subtrees
        )
        and all(any(satisfying >> place & 1 for place in places) for satisfying in problem.coverage)
        and not any(problem.exclusive[p] >> q & 1 for p in places for q in places if problem.exclusive)
    )


@given(problems())
@settings(max_examples=200)
def test_asking_ahead_changes_no_solution(problem):
    """With no patience at all, each step asks first whether the rest can be completed."""
    # What no slot alone could take is not among the options that a search comes with.
    options = tuple(
        sum(
            1 << position
            for position in bits(mask)
            if all(c.demand[slot] <= c.headroom[position] for c in problem.contentions)
        )
        for slot, mask in enumerate(problem.options)
    )
    problem = Problem(options, *(getattr(problem, name) for name in Problem.__slots__[1:]))
    expected = [places for places in product(*map(bits, options)) if is_solution(problem, places)]
    patient = list(solutions(problem, Budget()))
    assert sorted(patient) == sorted(expected)
    kept, solver._PATIENCE = solver._PATIENCE, 0
    try:
        assert list(solutions(problem, Budget())) == patient
    finally:
        solver._PATIENCE = kept
