"""Combinations inside one tree: complete, each once, and infeasibility is proven instead of tried out."""

from __future__ import annotations

from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.search.budget import Budget
from placement.engine.search.problem import Assignment, Contention, Problem, bits, can_match
from placement.engine.search.solver import solutions
from tests.unit.engine.search.test_hard_problems import full, is_solution


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


@st.composite
def problems(draw):
    positions, slots = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    masks = st.integers(1, full(positions))
    groups = draw(st.lists(st.sampled_from("abc"), min_size=slots, max_size=slots))
    of_group = {name: (draw(masks), draw(st.integers(0, 2))) for name in set(groups)}
    blocks = [tuple(at for at, name in enumerate(groups) if name == wanted) for wanted in sorted(set(groups))]
    parents = [draw(st.integers(-1, at - 1)) for at in range(positions)]
    below = [1 << at for at in range(positions)]
    for at in range(positions):
        up = parents[at]
        while up >= 0:
            below[up] |= 1 << at
            up = parents[up]
    constraint = sum(1 << slot for block in blocks if draw(st.booleans()) for slot in block)
    demand = tuple(of_group[name][1] for name in groups)
    headroom = tuple(draw(st.integers(0, 4)) for _ in range(positions))
    contended = any(demand) and draw(st.booleans())
    # A slot only has options where its own amount fits, as the filters see to it.
    options = tuple(
        sum(1 << at for at in bits(of_group[name][0]) if not contended or headroom[at] >= of_group[name][1])
        for name in groups
    )
    return Problem(
        options=options,
        blocks=tuple(blocks),
        isolated=full(slots) if draw(st.booleans()) else 0,
        contentions=(Contention(demand, headroom),) if contended else (),
        subtrees=(constraint,) if constraint else (),
        below=tuple(below),
        collective=full(slots) if len(blocks) == slots else 0,
        coverage=(draw(masks),) if len(blocks) == slots and draw(st.booleans()) else (),
    )


@given(problems())
def test_solutions_are_those_of_brute_force_each_once(problem):
    found = list(solutions(problem, Budget()))
    assert len(found) == len(set(found))
    assert set(found) == {
        places for places in product(*map(bits, problem.options)) if is_solution(problem, places)
    }


@given(st.lists(st.integers(0, 31), max_size=6), st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_matching_agrees_with_brute_force(domains, capacities):
    possible = any(
        all(chosen.count(at) <= capacities[at] for at in range(5))
        for chosen in product(*(tuple(bits(domain)) for domain in domains))
    )
    assert can_match(domains, capacities, Budget()) == possible
