"""Of nodes that are equally good, those come first to which nobody else is going."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from placement.pods.decide.ranking import Ranked
from placement.pods.decide.rules.rule import Fit
from placement.pods.services.place_choice import ActivePlacements


def ranked(*scores: int) -> list[Ranked]:
    nodes = [SimpleNamespace(root_id=number) for number, _ in enumerate(scores)]
    return [Ranked(node, 0, score, Fit()) for node, score in zip(nodes, scores, strict=True)]


def numbers(found) -> list[int]:
    return [each.node.root_id for each in found]


def test_a_node_that_somebody_takes_comes_after_its_equals_and_before_worse_ones():
    contention = ActivePlacements()
    with contention.taking(0), contention.taking(0), contention.taking(1):
        assert numbers(contention.spread(ranked(9, 9, 9, 8))) == [2, 1, 0, 3]
        assert numbers(contention.spread(ranked(9, 8, 8))) == [0, 1, 2]


@given(st.lists(st.integers(7, 9), min_size=1, max_size=200), st.sets(st.integers(0, 9)))
def test_who_lost_a_race_sees_all_nodes_and_the_better_ones_first(scores, taken):
    contention = ActivePlacements()
    contention.lost()
    given_order = ranked(*sorted(scores, reverse=True))
    for root_id in taken:
        contention._taken[root_id] += 1
    found = list(contention.spread(given_order))
    assert sorted(numbers(found)) == numbers(given_order)
    assert [each.score for each in found] == [each.score for each in given_order]


def test_losers_do_not_all_choose_the_same():
    contention = ActivePlacements()
    contention.lost()
    assert len({numbers(contention.spread(ranked(*[9] * 40)))[0] for _ in range(40)}) > 1
