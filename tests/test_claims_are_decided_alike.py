"""New consumers and those that hold something already are given the same, and refused the same."""

from __future__ import annotations

import uuid

import pytest

from tests.client import Client

# Four units are in use already, where that is possible.
INVENTORIES = {
    "room": {"total": 10},
    "reserved": {"total": 10, "reserved": 3},
    "ratio": {"total": 4, "allocation_ratio": 2.5},
    "units": {"total": 20, "min_unit": 2, "max_unit": 8, "step_size": 2},
}


def consumer_that_holds(api: Client, other: str) -> str:
    held = str(uuid.uuid4())
    assert api.claim({other: {"DISK_GB": 1}}, held).status_code == 204
    return held


def status_of(api: Client, consumer: str, resources: dict, generation: int | None) -> int:
    """What a claim is answered; what it got is given back."""
    answer = api.put(f"/allocations/{consumer}", Client.allocations(resources, generation))
    if answer.status_code == 204:
        assert api.delete(f"/allocations/{consumer}").status_code == 204
    return int(answer.status_code)


@pytest.mark.parametrize("name", INVENTORIES)
def test_by_one_statement_or_by_many(shared: Client, name: str):
    root = shared.provider(f"alike-{name}-{uuid.uuid4()}")
    other = shared.provider(f"other-{name}-{uuid.uuid4()}", DISK_GB=1000)
    given = {"resource_class": "VCPU", **INVENTORIES[name]}
    assert shared.post(f"/resource_providers/{root}/inventories", given).status_code == 201
    assert shared.claim({root: {"VCPU": 4}}, str(uuid.uuid4())).status_code == 204
    found = []
    for amount in range(1, 12):
        wanted = {root: {"VCPU": amount}, other: {"DISK_GB": 1}}
        fresh = status_of(shared, str(uuid.uuid4()), wanted, None)
        again = status_of(shared, consumer_that_holds(shared, other), wanted, 1)
        assert fresh == again, amount
        found.append(fresh)
    assert set(found) == {204, 409}, "some fit and some do not, or this would show nothing"
