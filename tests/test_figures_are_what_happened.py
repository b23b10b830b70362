"""/metrics tells what happened in all worker processes, without a token, in lines whose number is bounded."""

from __future__ import annotations

import os
import re
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.client import Client
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.patience import eventually
from tests.probes import figure, figures
from tests.reservations import reservation
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

pytestmark = pytest.mark.one_database

_CLAIMS = "placement_claims_total"
_SEARCH = "/allocation_candidates?resources=DISK_GB:1"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A service that the tests of this module share: each has resource classes of its own."""
    with database_url("sqlite") as url, running_service(url, workers=2) as running:
        eventually(2.0, lambda: figure(running.url, "placement_workers"))
        yield running


def offering(service: Service, name: str, resource_class: str = "VCPU", **inventory: float) -> str:
    own = str(uuid.uuid4())
    service.must("POST", "/resource_providers", {"name": name, "uuid": own})
    body = {"resource_provider_generation": 0, "inventories": {resource_class: inventory}}
    service.must("PUT", f"/resource_providers/{own}/inventories", body)
    return own


def claimed(service: Service, provider: str, amount: int, resource_class: str = "VCPU") -> int:
    body = Client.allocations(
        {provider: {resource_class: amount}}, None, project_id="project", user_id="user"
    )
    return service.call("PUT", f"/allocations/{uuid.uuid4()}", body).status


def test_requests_searches_and_claims_of_all_workers_are_counted(server: RunningServer):
    service = Service(server.url)
    host = offering(service, "host", "DISK_GB", total=4)
    searches, before = 12, figures(server.url)
    threads = [threading.Thread(target=service.call, args=("GET", _SEARCH)) for _ in range(searches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [claimed(service, host, amount, "DISK_GB") for amount in (3, 3, 1)] == [204, 409, 204]
    service.call("GET", f"/resource_providers/{uuid.uuid4()}")
    service.call("GET", f"/resource_providers/{uuid.uuid4()}")
    service.call("GET", f"/nothing/{uuid.uuid4()}")
    found = figures(server.url)

    def of(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return found[key] - before.get(key, 0)

    route = {"route": "/allocation_candidates", "method": "GET"}
    assert of("placement_http_requests_total", status="200", **route) == searches
    assert of("placement_http_request_seconds_count", **route) == searches
    one = "/resource_providers/<uuid>"
    assert of("placement_http_requests_total", route=one, method="GET", status="404") == 2
    assert of("placement_http_requests_total", route="none", method="GET", status="404") == 1
    assert of("placement_searches_total", outcome="found") == searches
    assert of("placement_search_candidates_count") == searches
    assert of("placement_search_candidates_sum") == searches
    for stage in ("catch_up", "filter", "combine"):
        assert of("placement_search_stage_seconds_count", stage=stage) == searches
    assert of("placement_claims_total", kind="consumer", outcome="won") == 2
    assert of("placement_claims_total", kind="consumer", outcome="no_room") == 1
    assert not any(host in str(labels) for _, labels in found)


def test_only_who_gets_a_place_has_won_it(api: Client):
    def won(kind: str) -> float:
        return REGISTRY.get_sample_value("placement_claims_total", {"kind": kind, "outcome": "won"}) or 0

    cluster_of(api, "n1")
    before = won("pod"), won("reservation")
    running = pod_manifest("2", node="n1", status={"cpuset": "14-15"})
    ended = pod_manifest("2", phase="Succeeded")
    for _ in range(2):
        assert api.put(f"{CLUSTER}/pods/default/web", pod_manifest("2")).json["node"] == "n1"
        assert api.put(f"{CLUSTER}/pods/default/running", running).status_code < 300
        assert api.put(f"{CLUSTER}/pods/default/ended", ended).status_code < 300
        assert api.put(f"{CLUSTER}/reservations/kept", reservation()).status_code < 300
    assert (won("pod"), won("reservation")) == (before[0] + 1, before[1] + 1)


def test_a_claim_that_is_repeated_is_not_refused(api: Client):
    outcomes = ("won", "repeated", "concurrent", "conflict", "no_room", "other")

    def counts(kind: str) -> dict[str, float]:
        labels = [{"kind": kind, "outcome": outcome} for outcome in outcomes]
        return {each["outcome"]: REGISTRY.get_sample_value(_CLAIMS, each) or 0 for each in labels}

    cluster_of(api, "n1")
    api.provider("host", VCPU=100, MEMORY_MB=100_000, DISK_GB=1000)
    who = {"project_id": "p", "user_id": "u", "consumer_type": "T"}
    members = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(3)]
    query = {**who, "query": "resources=VCPU:1"}
    flavor = {**who, "flavor": {"vcpus": 2, "memory_mb": 2048, "root_gb": 10}}
    claims: list[tuple[str, str, dict[str, Any], str, int]] = [
        ("POST", "/ext/v1/claims", {**query, "consumer_uuid": str(uuid.uuid4())}, "consumer", 1),
        ("POST", "/ext/v1/claims", {**query, "members": members[:2]}, "consumer", 2),
        ("POST", "/ext/v1/claims", {**query, "members": members[2:], "minimum": 1}, "consumer", 1),
        ("POST", "/ext/v1/claims", {**flavor, "consumer_uuid": str(uuid.uuid4())}, "consumer", 1),
        ("PUT", f"{CLUSTER}/pods/default/web", pod_manifest("2"), "pod", 1),
        ("PUT", f"{CLUSTER}/reservations/kept", reservation(), "reservation", 1),
    ]
    for method, path, body, kind, consumers in claims:
        before = counts(kind)
        for _ in range(3):
            answer = api.call(method, path, body)
            assert answer.status_code < 300, answer.text
        rise = {name: now - before[name] for name, now in counts(kind).items()}
        assert rise == {**dict.fromkeys(outcomes, 0), "won": consumers, "repeated": 2 * consumers}, path
    refused = api.get("/ui/refusals?format=json").json
    assert not [each for each in refused["refused"] if each["outcome"] in ("won", "repeated")]


def test_capacity_is_that_of_the_inventories_by_aggregate(server: RunningServer):
    service = Service(server.url)
    aggregate = str(uuid.uuid4())
    hosts = [
        offering(service, "a", total=10, reserved=2, allocation_ratio=1.5),
        offering(service, "b", total=30, allocation_ratio=4.0),
        offering(service, "c", total=7),
    ]
    for host in hosts[:2]:
        body = {"aggregates": [aggregate], "resource_provider_generation": 1}
        service.must("PUT", f"/resource_providers/{host}/aggregates", body)
    assert claimed(service, hosts[0], 5) == 204

    def told(name: str, group: str) -> float:
        return figure(server.url, f"openstack_placement_resource_{name}", hostname=group, resourcetype="VCPU")

    eventually(5.0, lambda: told("usage", aggregate))
    assert told("total", aggregate) == 40
    assert told("reserved", aggregate) == 2
    # 8 at 1.5 and 30 at 4.
    assert told("allocation_ratio", aggregate) == pytest.approx(132 / 38, abs=1e-6)
    assert told("total", "none") == 7
    assert told("usage", "none") == 0
    service.must(
        "PUT",
        f"/resource_providers/{hosts[2]}/inventories/VCPU",
        {"resource_provider_generation": 1, "total": 9, "reserved": 1},
    )
    eventually((9.0, 1.0), lambda: (told("total", "none"), told("reserved", "none")))


def test_nothing_that_was_counted_goes_with_a_worker_and_nothing_is_left_of_it(tmp_path: Path):
    """Hosts are told where that is asked for."""
    directory = tmp_path / "figures"
    directory.mkdir()
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(directory), "OS_METRICS__PER_HOST": "true"}
    with (
        database_url("sqlite") as url,
        running_service(url, workers=2, environment=environment) as server,
    ):
        eventually(2.0, lambda: figure(server.url, "placement_workers"))
        service = Service(server.url)
        for _ in range(8):
            service.call("GET", "/traits")

        def counted() -> float:
            labels = {"route": "/traits", "method": "GET", "status": "200"}
            return figure(server.url, "placement_http_requests_total", **labels)

        assert counted() == 8
        before = server.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        eventually(2, lambda: len(set(server.workers()) - set(before)))
        eventually(2.0, lambda: figure(server.url, "placement_workers"))
        assert counted() == 8
        offering(service, "compute-7", total=10, reserved=1, allocation_ratio=1.1)
        labels = {"hostname": "compute-7", "resourcetype": "VCPU"}
        eventually(10.0, lambda: figure(server.url, "openstack_placement_resource_total", **labels))
        for name, value in (("allocation_ratio", 1.1), ("reserved", 1), ("usage", 0)):
            assert figure(server.url, f"openstack_placement_resource_{name}", **labels) == value, name
        numbers = {re.findall(r"_(\d+)\.db", file.name)[0] for file in directory.iterdir()}
        assert not numbers & {str(worker) for worker in before}
