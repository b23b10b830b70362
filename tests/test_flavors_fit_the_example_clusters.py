"""Flavors are claimed on the example clusters: pinned ones on Kubernetes nodes, all of them in the cloud."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.client import Client
from tests.conftest import application_at
from tests.server import database_url

DEDICATED = {"hw:cpu_policy": "dedicated"}
TWO_CELLS = {"hw:numa_nodes": "2"}
# (guest CPUs, properties, PCPU held, NUMA nodes)
PINNED = [
    *((vcpus, DEDICATED, vcpus, 1) for vcpus in (2, 3, 4, 8, 16)),
    (8, {**DEDICATED, **TWO_CELLS}, 8, 2),
    (4, {**DEDICATED, "hw:cpu_thread_policy": "prefer"}, 4, 1),
    (4, {**DEDICATED, "hw:cpu_thread_policy": "require"}, 4, 1),
    (4, {**DEDICATED, "hw:cpu_thread_policy": "isolate"}, 8, 1),
    (8, {**DEDICATED, **TWO_CELLS, "hw:cpu_thread_policy": "require"}, 8, 2),
    (8, {**DEDICATED, **TWO_CELLS, "hw:cpu_thread_policy": "isolate"}, 16, 2),
]
MIXED = [
    (4, {"resources:VCPU": "2", "resources:PCPU": "2"}, 2, 1),
    (8, {"resources:VCPU": "4", "resources:PCPU": "4"}, 4, 1),
    (8, {"resources:VCPU": "4", "resources:PCPU": "4", **TWO_CELLS}, 4, 2),
    *(
        (4, {"resources:VCPU": "2", "resources:PCPU": "2", "hw:cpu_thread_policy": policy}, held, 1)
        for policy, held in (("prefer", 2), ("require", 2), ("isolate", 4))
    ),
]


@pytest.fixture(scope="module")
def api() -> Iterator[Client]:
    with database_url("sqlite", has_examples=True) as url, application_at(url) as application:
        yield Client(application.test_client())


@pytest.mark.parametrize(
    ("cluster", "vcpus", "specs", "pcpu", "nodes"),
    [("edge", *row) for row in PINNED] + [("cloud", *row) for row in PINNED + MIXED],
)
def test_a_flavor_is_placed_and_claimed(
    api: Client, cluster: str, vcpus: int, specs: dict[str, str], pcpu: int, nodes: int
) -> None:
    flavor = {"vcpus": vcpus, "memory_mb": 2048, "root_gb": 10, "extra_specs": specs}
    asked = {"flavor": flavor, "cluster": cluster}
    found = api.post("/ext/v1/flavors/candidates", asked).json["candidates"]
    consumer = str(uuid.uuid4())
    body = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    claimed = api.post("/ext/v1/claims", {**body, **asked})
    assert claimed.status_code == 201, claimed.text
    held = {key: entry["resources"] for key, entry in claimed.json["allocations"].items()}
    assert held in [
        {key: entry["resources"] for key, entry in each["allocations"].items()}
        for each in found["allocation_requests"]
    ]
    given = [amounts["PCPU"] for amounts in held.values() if "PCPU" in amounts]
    assert (sum(given), max(given)) == (pcpu, min(2, pcpu))
    memory = [amounts for amounts in held.values() if "MEMORY_MB" in amounts]
    assert [amounts["MEMORY_MB"] for amounts in memory] == [2048 // nodes] * nodes
    shared = int(specs.get("resources:VCPU", 0))
    assert sum(amounts.get("VCPU", 0) for amounts in memory) == shared
    assert api.delete(f"/allocations/{consumer}").status_code == 204
