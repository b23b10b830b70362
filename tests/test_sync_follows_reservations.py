"""`placement sync kubernetes`: Reservations come, are used, change, end, and need not be known at all."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.api_server import ApiServer
from tests.kubernetes import STATUS
from tests.kubernetes import pod_manifest as any_pod
from tests.probes import probed
from tests.reservations import ALLOCATED, WEB, reservation
from tests.server import free_port
from tests.service import Service
from tests.synchronizing import eventually, join, pod_manifest


@pytest.fixture(autouse=True)
def two_machines(api_server: ApiServer) -> None:
    for name in ("host-0", "host-1"):
        join(api_server, name)


def resource(name: str = "kept", cpu: str = "4", **spec: Any) -> dict[str, Any]:
    manifest = reservation(name, cpu, **spec)
    manifest["metadata"]["uid"] = str(uuid.uuid4())
    return manifest


def held(around: Any) -> dict[str, Any]:
    path = f"/ext/v1/clusters/{around.cluster}/reservations"
    answer = Service(around.url).call("GET", path)
    listed = answer.body["reservations"] if answer.status == 200 else []
    return {each["name"]: each for each in listed}


def test_reservations_come_change_and_go(around, api_server):
    with around.running() as sync:
        eventually(2, lambda: len(around.nodes()))
        first = resource(allocateOnce=False)
        api_server.put(first)
        eventually(["kept"], lambda: list(held(around)))
        assert held(around)["kept"]["uid"] == first["metadata"]["uid"]
        assert around.used(held(around)["kept"]["node"], "PCPU") == 4
        changed = {**first, "spec": {**first["spec"], "allocatePolicy": "Restricted"}}
        api_server.put(changed)
        eventually("Restricted", lambda: held(around)["kept"]["allocate_policy"])
        api_server.put({**changed, "status": {"phase": "Succeeded"}})
        eventually([], lambda: list(held(around)))
        api_server.put(resource())
        eventually(["kept"], lambda: list(held(around)))
        api_server.delete("Reservation", "kept")
        eventually([], lambda: list(held(around)))
        assert sum(around.used(node, "PCPU") for node in around.nodes()) == 0
        sync.end()


def test_pods_that_run_out_of_a_reservation_take_from_it(around, api_server):
    api_server.put(resource(allocateOnce=False))
    assert "reservations 1" in around.once().stdout
    kept = held(around)["kept"]
    pod = pod_manifest("web", kept["node"])
    pod["metadata"]["labels"] = {**any_pod()["metadata"]["labels"], **WEB}
    cpus = kept["held"]["cpuset"]
    allocated = json.dumps({"name": "kept", "uid": kept["uid"]})
    pod["metadata"]["annotations"] = {STATUS: json.dumps({"cpuset": cpus}), ALLOCATED: allocated}
    api_server.put(pod)
    assert around.once().returncode == 0
    assert [owner["name"] for owner in held(around)["kept"]["current_owners"]] == ["web"]
    assert around.once().stdout.splitlines()[-1] == "nodes 2, pods 1, reservations 1, rejected 0"


def test_a_node_goes_with_its_reservations_which_go_elsewhere(around, api_server):
    api_server.put(resource())
    around.once()
    first = held(around)["kept"]["node"]
    other = next(node for node in around.nodes() if node != first)
    api_server.delete("NodeResourceTopology", first)
    api_server.delete("Node", first)
    assert around.once().stdout.splitlines()[-1] == "nodes 1, pods 0, reservations 1, rejected 0"
    assert held(around)["kept"]["node"] == other


def test_what_fits_nowhere_is_rejected_and_named(around, api_server):
    api_server.put(resource(cpu="1000"))
    once = around.once()
    assert once.returncode == 1
    assert "reservation kept: rejected: " in once.stdout + once.stderr
    assert held(around) == {}


def test_where_kubernetes_knows_no_reservations_those_of_the_service_stay(around, api_server):
    api_server.unknown_kinds.add("Reservation")
    assert around.once().returncode == 0
    path = f"/ext/v1/clusters/{around.cluster}/reservations/mine"
    assert Service(around.url).call("PUT", path, reservation("mine")).status == 201
    once = around.once()
    assert once.returncode == 0
    assert "eservation" not in once.stdout + once.stderr
    assert list(held(around)) == ["mine"]


def test_reservations_stay_where_kubernetes_stops_knowing_them_and_nothing_is_wrong(around, api_server):
    port = free_port()
    api_server.put(resource())
    api_server.put(resource("too-large", cpu="1000"))
    with around.running("--health-port", str(port)) as sync:
        eventually(["kept"], lambda: list(held(around)))
        eventually(True, lambda: "reservation too-large: rejected" in sync.said)
        # The watch breaks off, and goes on with a list.
        with api_server.away():
            api_server.unknown_kinds.add("Reservation")
        eventually(True, lambda: "Kubernetes, reservations: well again" in sync.said)
        # Everything that was due before this node has been done when the service has it.
        join(api_server, "host-2")
        eventually(3, lambda: len(around.nodes()))
        eventually(200, lambda: probed(f"http://127.0.0.1:{port}", "/readyz")[0])
        eventually(True, lambda: "0 rejected" in probed(f"http://127.0.0.1:{port}", "/readyz?verbose")[1])
        assert list(held(around)) == ["kept"]
