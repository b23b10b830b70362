"""What nodes offer becomes resource classes, which all clusters share, so their number is bounded."""

from __future__ import annotations

import pytest

from placement.services.clusters import trees
from tests.client import Client, detail
from tests.kubernetes import node_manifests

CLUSTER = "/ext/v1/clusters/edge"


def devices(name: str, first: int, count: int) -> dict:
    numbers = range(first, first + count)
    return node_manifests(name, **{f"example.com__dev{number}": "1" for number in numbers})


def classes(api: Client) -> int:
    return len(api.get("/resource_classes").json["resource_classes"])


def test_a_node_makes_no_more_than_a_few(api: Client):
    assert api.put(CLUSTER).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/big", devices("big", 0, 3000))
    assert answer.status_code == 400
    assert "Node.status.allocatable: " in detail(answer)
    assert classes(api) == before
    assert api.put(f"{CLUSTER}/nodes/usual", devices("usual", 0, 40)).status_code == 201


def test_a_cluster_makes_no_more_than_it_may_have(api: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trees, "_MOST_CLASSES", 60)
    assert api.put(CLUSTER).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n1", devices("n1", 0, 40)).status_code == 201
    before = classes(api)
    answer = api.put(f"{CLUSTER}/nodes/n2", devices("n2", 40, 40))
    assert answer.status_code == 409
    assert "Node.status.allocatable: resource class CUSTOM_EXAMPLE_COM_DEV" in detail(answer)
    assert classes(api) == before
    # Of many nodes those are imported that bring no new class.
    items = [part for body in (devices("n2", 40, 40), devices("n3", 0, 40)) for part in body.values()]
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [each["status"] for each in outcomes] == [409, 201]
