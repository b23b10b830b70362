"""Capacity is what claims one after another place at most: by trying all of them on random forests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.domain.groups import CandidateQuery
from placement.search.capacity.capacity import Capacity
from placement.search.capacity.totals import max_flow
from tests.forests import World
from tests.naive_capacity import TooLong, most_claims
from tests.strategies import Forest, Search, searches, split_searches

_TRIED = {"exact": 0, "bounds": 0, "left out": 0}


def _check(providers: Forest, query: CandidateQuery) -> None:
    world = World(providers)
    world.load()
    capacity = Capacity(world.forest, world.sharing, world.query(query))
    uuids = {number: uuid for uuid, number in world.ids.items()}
    ids = world.forest.providers.id[capacity.roots].tolist()
    roots = {uuids[number]: at for at, number in enumerate(ids)}
    for root, at in [*roots.items(), (None, -1)]:
        try:
            most = most_claims(providers, query, root)
        except TooLong:
            _TRIED["left out"] += 1
            continue
        if root is None:
            lower, upper = capacity.everywhere.lower, capacity.everywhere.upper
        else:
            lower, upper = int(capacity.bounds.lower[at]), int(capacity.bounds.upper[at])
        _TRIED["exact" if lower == upper else "bounds"] += 1
        if not lower <= most <= upper:
            print(
                "DBG",
                root,
                lower,
                most,
                upper,
                [
                    (
                        p.uuid[-2:],
                        p.parent and p.parent[-2:],
                        {
                            k: (
                                i.capacity,
                                i.min_unit,
                                i.max_unit if i.max_unit < 100 else 0,
                                i.step_size,
                                p.used.get(k, 0),
                            )
                            for k, i in p.inventories.items()
                        },
                        [t for t in p.traits],
                        [a[-1] for a in p.aggregates],
                    )
                    for p in providers
                ],
                query,
            )
        assert lower <= most <= upper, (root, lower, most, upper)


@settings(max_examples=400)
@given(searches())
def test_of_any_request(given_search: Search) -> None:
    _check(*given_search)


@settings(max_examples=200)
@given(split_searches())
def test_of_requests_that_split_amounts(given_search: Search) -> None:
    _check(*given_search)
    print(_TRIED)
