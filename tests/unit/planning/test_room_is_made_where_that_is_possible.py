"""Plans make room wherever so many moves can, with as few, and never break a consumer's request."""

from __future__ import annotations

import random

import pytest

from placement.planning.board import QueryWish
from tests.naive import enumerate_candidates
from tests.planning import Scene, dedicated, fewest_moves, random_cluster, replayed, shared

_MOST = 3


@pytest.mark.parametrize("seed", range(150))
def test_with_as_few_moves_as_trying_all_of_them(seed):
    chance = random.Random(seed)
    cluster = random_cluster(chance)
    wanted = chance.choice([dedicated(4, 2), dedicated(3, 4), dedicated(2, 3), shared(2, 5), shared(4, 4)])
    expected = fewest_moves(cluster, wanted, _MOST)
    scene = Scene(cluster, _MOST)
    wish = scene.wish(wanted)
    bound = scene.maker.bound(wish)
    found = next((k for k in range(_MOST + 1) if next(scene.maker.requests(wish, k), None) is not None), None)
    assert found == expected
    if found is None:
        return
    assert found == 0 or bound <= found
    checked = Scene(cluster, _MOST).board
    for each in scene.board.moved:
        consumer = checked.on[each.consumer.root][each.consumer.uuid]
        checked.leave(consumer)
        assert isinstance(consumer.wish, QueryWish)
        assert consumer.wish.admits(checked, each.to)
        checked.arrive(consumer, each.to)
    moves = list(scene.moves())
    assert len(moves) == found
    guests = replayed(cluster, moves)
    (placed,) = scene.board.placed
    after = enumerate_candidates(cluster.filled(guests), wanted)
    assert scene.held(placed) in {each.allocations for each in after}
