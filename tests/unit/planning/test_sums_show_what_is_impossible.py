"""What hosts cannot hold in all is called impossible at once, in words that name the sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from placement.engine.domain.inventories import Inventory
from placement.planning.goals import IMPOSSIBLE, Bound, Goals
from tests.naive import NaiveProvider
from tests.planning import Cluster, Guest, Scene, shared

HOSTS = [f"{number:08x}-0000-0000-0000-000000000000" for number in (1, 2, 3)]
ALLOWED = 100


def cluster(vcpu: int, guests: int) -> Cluster:
    """Three hosts with so many VCPUs each, on each of which so many consumers hold one."""
    inventories = {name: Inventory(total=vcpu, max_unit=vcpu) for name in ("VCPU", "MEMORY_MB")}
    providers = [NaiveProvider(uuid, None, inventories, {}, frozenset()) for uuid in HOSTS]
    held = [(host, frozenset({(host, "VCPU", 1), (host, "MEMORY_MB", 1)})) for host in HOSTS * guests]
    return Cluster(
        providers,
        [
            Guest(f"{at:08x}-1111-0000-0000-000000000000", shared(1, 1), each)
            for at, (_, each) in enumerate(held)
        ],
    )


def unasked(*_: Any) -> Iterator[int]:
    pytest.fail("places were looked for")
    yield 0


def test_hosts_that_are_too_full_are_not_freed():
    # 24 are held, and two hosts offer 20.
    scene = Scene(cluster(10, 8), ALLOWED)
    scene.maker.moves = unasked  # type: ignore[method-assign]
    reached = Goals(scene.board, scene.maker, ALLOWED).free(1, scene.ground.roots_in_order())
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))
    assert "24 " in reached.why
    assert "3 hosts are needed" in reached.why


def test_as_many_as_sums_allow_are_freed():
    scene = Scene(cluster(12, 6), ALLOWED)
    reached = Goals(scene.board, scene.maker, ALLOWED).free(2, scene.ground.roots_in_order())
    assert (reached.achieved, reached.complete) == (1, True)
    assert "2 hosts are needed" in reached.why


def test_hosts_that_the_others_cannot_take_in_are_not_emptied():
    # 6 are to go, and the two others have 4 left.
    scene = Scene(cluster(8, 6), ALLOWED)
    goals = Goals(scene.board, scene.maker, ALLOWED)
    reached = goals.empty([scene.ground.row_of_uuid(HOSTS[0])])
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))
    assert "left in all, 6 are needed" in reached.why
    # Those that found a place go all the same.
    assert (len(reached.left), len(scene.board.moved)) == (2, 4)


def test_requests_that_take_more_than_is_left_do_not_fit():
    scene = Scene(cluster(8, 6), ALLOWED)
    scene.maker.moves = unasked  # type: ignore[method-assign]
    reached = Goals(scene.board, scene.maker, ALLOWED).fit(scene.wish(shared(2, 2)), 4, lambda: False)
    # No consumer is moved for a fourth one, as nothing is left of six.
    assert (reached.achieved, reached.complete) == (3, True)
    assert "hosts have 6 " in reached.why
    assert "8 are needed" in reached.why


def test_no_room_is_looked_for_where_nothing_is_left():
    scene = Scene(cluster(8, 8), ALLOWED)
    scene.maker.moves = unasked  # type: ignore[method-assign]
    reached = Goals(scene.board, scene.maker, ALLOWED).fit(scene.wish(shared(1, 1)), 1, lambda: False)
    assert (reached.achieved, reached.complete, reached.bound) == (0, True, Bound(0, IMPOSSIBLE))
    assert "hosts have 0 " in reached.why
