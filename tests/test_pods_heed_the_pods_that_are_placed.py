"""Pods go where affinity, anti-affinity and topology spread let them, by the words of kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placement.app import build
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import node_manifests
from tests.pod_rules import REASONS, ruled_pod
from tests.server import database_url

GIVEN = json.loads((Path(__file__).parent / "data" / "pod-rules.json").read_text())
CLUSTER = "/ext/v1/clusters/edge"
PREVIEW = f"{CLUSTER}/pods/preview"


def import_nodes(api: Client, nodes: dict[str, dict[str, str]], tainted: tuple[str, ...] = ()) -> None:
    taints = [{"key": "closed", "effect": "NoSchedule"}]
    for name, labels in nodes.items():
        spec = {"taints": taints} if name in tainted else {}
        answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, labels=labels, spec=spec))
        assert answer.status_code in (200, 201), answer.text


def put(api: Client, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = api.post(f"{CLUSTER}/pods", {"apiVersion": "v1", "kind": "List", "items": pods})
    assert answer.status_code == 200, answer.text
    return list(answer.json["pods"])


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with database_url("sqlite") as url:
        database = Database(url)
        api = Client(build(database, compatible()).test_client())
        assert api.put(CLUSTER).status_code == 201
        import_nodes(api, GIVEN["nodes"])
        yield api
        database.dispose()


@pytest.fixture
def service(shared: Client) -> Iterator[Client]:
    yield shared
    for pod in shared.get(f"{CLUSTER}/pods").json["pods"]:
        gone = shared.delete(f"{CLUSTER}/pods/{pod['namespace']}/{pod['name']}")
        assert gone.status_code == 204
    import_nodes(shared, GIVEN["nodes"])


@pytest.mark.parametrize("case", GIVEN["cases"], ids=lambda case: str(case["id"]))
def test_a_case(service: Client, case: dict[str, Any]) -> None:
    if "tainted" in case:
        import_nodes(service, GIVEN["nodes"], tuple(case["tainted"]))
    placed = [
        ruled_pod(f"placed-{number}", each, node=each["node"]) for number, each in enumerate(case["placed"])
    ]
    if placed:
        assert [each["status"] for each in put(service, placed)] == [201] * len(placed)
    pod = ruled_pod("incoming", case["pod"])
    preview = service.post(PREVIEW, pod).json
    refused = {each["node"]: each["reasons"] for each in preview["rejected"]}
    assert refused == {node: [REASONS[reason]] for node, reason in case["refused"].items()}
    fitting = [each["name"] for each in preview["nodes"]]
    assert sorted(fitting) == sorted(GIVEN["nodes"].keys() - case["refused"].keys())
    if "first" in case:
        assert sorted(fitting[: len(case["first"])]) == case["first"]
