"""Each route sends as many statements as recorded: what grows must be meant to grow."""

from __future__ import annotations

import pytest

from tests.server import BACKENDS
from tests.statements import measured, recorded


@pytest.mark.parametrize("backend", BACKENDS)
def test_counts_are_those_recorded(backend: str):
    assert measured(backend) == recorded()[backend], "if that is meant, run python -m tests.statements"


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_consumers_cost_no_more_statements_than_one(backend: str):
    counts = recorded()[backend]
    assert counts["POST /allocations 50 new"] <= counts["PUT /allocations/{consumer} new"] + 1
    assert counts["POST /allocations 50 again"] <= counts["PUT /allocations/{consumer} again"] + 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("few", "many"),
    [
        ("POST /ext/v1/claims", "POST /ext/v1/claims 50 new"),
        ("POST nodes 2 new", "POST nodes 20 new"),
        ("POST pods 2 new", "POST pods 40 new"),
        ("POST pods bound 1", "POST pods bound 20"),
    ],
)
def test_many_of_one_call_cost_no_more_statements_than_few(backend: str, few: str, many: str):
    counts = recorded()[backend]
    # The first call of a kind asks for names, too.
    assert counts[many] <= counts[few]
