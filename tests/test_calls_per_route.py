"""The ten hottest routes call no more functions than recorded: what grows must be meant to grow."""

from __future__ import annotations

import pytest

from tests.calls import PYTHON, measured, more, recorded
from tests.server import BACKENDS

ROUTES = 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_route_calls_more_than_recorded(backend: str):
    if recorded()["python"] != PYTHON:
        pytest.skip(f"NOT RUN: the counts are those of Python {recorded()['python']}")
    now, before = measured(backend), recorded()["calls"][backend]
    assert now.keys() == before.keys()
    assert len(now) == ROUTES
    assert more(now, before) == {}, "make it simpler; what has to be is recorded by python -m tests.calls"


def test_a_count_that_grows_is_found():
    assert more({"a": 2, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 1}) == {"a": (1, 2)}
