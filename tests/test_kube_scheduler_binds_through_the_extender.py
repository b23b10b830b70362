"""Binding a pod: its CPUs are claimed, written to the pod, and the pod is assigned; or nothing of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.engine.domain.errors import PlacementError
from placement.http.registry import registry_of
from placement.pods.services.pods import Pods
from placement.pods.services.scheduler import PlacementResult
from placement.server.binders import KubeconfigBinders
from placement.storage.database import Database
from tests.api_server import ApiServer, Held, running_api_server, write_kubeconfig
from tests.certificates import Authority
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, SPEC, STATUS, cluster_of, node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import running_service
from tests.service import Service

pytestmark = pytest.mark.one_database

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def kubeconfig(api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return write_kubeconfig(
        tmp_path / "kubeconfig", ("other", "http://127.0.0.1:1"), ("edge", api_server.url)
    )


@pytest.fixture
def cluster(database: Database, kubeconfig: Path) -> Iterator[Client]:
    """Two machines of 16 CPUs; the service may bind."""
    application = build(database, compatible(), binders=KubeconfigBinders(str(kubeconfig)))
    yield cluster_of(Client(application.test_client()), "host-0", "host-1")
    registry_of(application).close()


def waiting(
    api_server: ApiServer, name: str = "web-0", cpu: str = "4", qos: str = "LSR", **annotations: str
) -> dict[str, Any]:
    """A pod that waits for a node."""
    manifest = pod_manifest(cpu, qos=qos, uid=f"uid-{name}", phase="Pending")
    manifest["metadata"].update(name=name, namespace="default")
    manifest["metadata"]["annotations"].update(annotations)
    return api_server.put(manifest)


def bind(cluster: Client, node: str = "host-0", name: str = "web-0", uid: str | None = None) -> str:
    """The error of an attempt, empty if it succeeds."""
    body = {"PodName": name, "PodNamespace": "default", "PodUID": uid or f"uid-{name}", "Node": node}
    answer = cluster.post(f"{CLUSTER}/extender/bind", body)
    assert answer.status_code == 200
    assert set(answer.json) == {"Error"}
    error: str = answer.json["Error"]
    return error


def in_use(cluster: Client, node: str = "host-0") -> int:
    found: int = cluster.get(f"{CLUSTER}/nodes/{node}").json["resources"]["PCPU"]["used"]
    return found


def claimed(cluster: Client) -> dict[str, str]:
    return {pod["name"]: pod["node"] for pod in cluster.get(f"{CLUSTER}/pods").json["pods"]}


def seen(api_server: ApiServer, name: str = "web-0") -> dict[str, Any]:
    found = api_server.get("Pod", name, "default")
    assert found is not None
    return found


def test_a_pod_is_bound_with_its_cpus(cluster, api_server):
    waiting(api_server, unrelated="kept")
    assert bind(cluster) == ""
    pod = seen(api_server)
    assert pod["spec"]["nodeName"] == "host-0"
    annotations = pod["metadata"]["annotations"]
    assert json.loads(annotations[STATUS]) == {"cpuset": "0-3"}
    assert json.loads(annotations[SPEC]) == {"preferredCPUBindPolicy": "FullPCPUs"}
    assert annotations["unrelated"] == "kept"
    recorded = cluster.get(f"{CLUSTER}/pods/default/web-0").json
    assert (recorded["node"], recorded["cpuset"]) == ("host-0", "0-3")
    # Nobody can see the pod on the node without its CPUs, for both are written at once.
    assert [write[:2] for write in api_server.writes] == [("POST", f"{PODS}/web-0/binding")]
    binding = api_server.writes[0][2]
    assert binding["metadata"]["annotations"].keys() == {STATUS, SPEC}
    assert (binding["apiVersion"], binding["kind"]) == ("v1", "Binding")
    assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": "host-0"}
    # What comes back through the synchronisation changes nothing.
    again = cluster.put(f"{CLUSTER}/pods/default/web-0", seen(api_server)).json
    assert (again["node"], again["cpuset"]) == ("host-0", "0-3")


def test_binding_again_is_no_error_and_changes_nothing(cluster, api_server):
    waiting(api_server)
    assert bind(cluster) == ""
    writes = len(api_server.writes)
    assert bind(cluster) == ""
    assert len(api_server.writes) == writes
    assert "assigned to node host-0 already" in bind(cluster, "host-1")
    assert (in_use(cluster), in_use(cluster, "host-1")) == (4, 0)


def test_where_there_is_no_room_nothing_is_written(cluster, api_server):
    waiting(api_server, "shared", cpu="1500m", qos="LS")
    assert bind(cluster, "host-1", "shared") == ""
    assert seen(api_server, "shared")["spec"]["nodeName"] == "host-1"
    assert [method for method, _, _ in api_server.writes] == ["POST"]
    waiting(api_server, "web-0", "12")
    waiting(api_server, "web-1", "8")
    assert bind(cluster) == ""
    writes = len(api_server.writes)
    assert "Insufficient cpu" in bind(cluster, name="web-1")
    assert len(api_server.writes) == writes
    assert claimed(cluster) == {"shared": "host-1", "web-0": "host-0"}
    assert bind(cluster, "host-1", "web-1") == ""


def test_what_cannot_be_bound_is_told_and_claims_and_writes_nothing(cluster, api_server):
    with api_server.away():
        assert "cannot be reached" in bind(cluster)
    assert bind(cluster) == "pod default/web-0 does not exist"
    waiting(api_server)
    for node in ("host-9", "not a node"):
        assert bind(cluster, node) == f"Node: no node {node!r} in cluster edge"
    assert "uid-web-0, not uid-former" in bind(cluster, uid="uid-former")
    waiting(api_server, cpu="1500m")
    assert "integer" in bind(cluster)
    assert (claimed(cluster), api_server.writes) == ({}, [])


def test_what_the_api_server_refuses_is_taken_back(cluster, api_server):
    waiting(api_server, **{STATUS: "{}"})
    api_server.fail_next("/pods/web-0/binding", 403)
    assert bind(cluster) == "told to fail (403)"
    assert (claimed(cluster), in_use(cluster)) == ({}, 0)
    pod = seen(api_server)
    assert "nodeName" not in pod["spec"]
    assert pod["metadata"]["annotations"] == {STATUS: "{}"}
    # So it is when the pod is gone meanwhile.
    api_server.fail_next("/pods/web-0/binding", 404)
    api_server.fail_next("/pods/web-0", 404)
    assert bind(cluster) == "told to fail (404)"
    assert (claimed(cluster), in_use(cluster)) == ({}, 0)
    assert bind(cluster) == ""


def test_an_answer_that_is_lost_is_found_out_about(cluster, api_server):
    waiting(api_server)
    api_server.fail_next("/pods/web-0/binding", 0)
    assert bind(cluster) == ""
    assert seen(api_server)["spec"]["nodeName"] == "host-0"
    assert claimed(cluster) == {"web-0": "host-0"}
    assert bind(cluster) == ""
    assert claimed(cluster) == {"web-0": "host-0"}


@pytest.mark.parametrize("qos", ["LSR", "LS"])
def test_while_nobody_knows_whether_the_pod_is_bound_its_place_stays_claimed(
    cluster, api_server, database, qos
):
    waiting(api_server, qos=qos)
    api_server.fail_next("/pods/web-0/binding", 500)
    api_server.fail_next("/pods/web-0", 503)
    assert "stays claimed" in bind(cluster)
    assert claimed(cluster) == {"web-0": "host-0"}
    # The scheduler may choose another node the next time; but the Binding may still be under way.
    assert "may still be bound" in bind(cluster, "host-1")
    assert claimed(cluster) == {"web-0": "host-0"}
    grow_old(database)
    assert bind(cluster, "host-1") == ""
    assert claimed(cluster) == {"web-0": "host-1"}
    assert in_use(cluster) == 0


def test_a_pod_that_may_still_be_bound_does_not_move_though_it_asks_for_something_else(
    cluster, api_server, database
):
    waiting(api_server)
    api_server.fail_next("/pods/web-0/binding", 504)
    assert "may still be bound" in bind(cluster)
    waiting(api_server, cpu="6")
    assert "may still be bound" in bind(cluster, "host-1")
    assert (claimed(cluster), in_use(cluster)) == ({"web-0": "host-0"}, 4)
    grow_old(database)
    assert bind(cluster, "host-1") == ""
    assert (claimed(cluster), in_use(cluster, "host-1")) == ({"web-0": "host-1"}, 6)


def test_a_cluster_without_a_context_cannot_be_bound_in(cluster, api_server):
    waiting(api_server)
    assert cluster.put("/ext/v1/clusters/lab").status_code == 201
    body = {"PodName": "web-0", "PodNamespace": "default", "PodUID": "uid-web-0", "Node": "host-0"}
    error = cluster.post("/ext/v1/clusters/lab/extender/bind", body).json["Error"]
    assert "lab" in error
    assert api_server.calls["GET", f"{PODS}/web-0"] == 0


def test_worker_processes_hand_no_cpu_out_twice(connection_url, kubeconfig, api_server):
    environment = {"OS_KUBERNETES__KUBECONFIG": str(kubeconfig)}
    names = [f"web-{number}" for number in range(8)]
    for name in names:
        waiting(api_server, name)
    with running_service(connection_url, workers=2, environment=environment) as server:
        service = Service(server.url)
        service.must("PUT", CLUSTER, {})
        service.must("PUT", f"{CLUSTER}/nodes/host-0", node_manifests("host-0"))

        def schedule(name: str) -> str:
            args = {"Pod": seen(api_server, name), "NodeNames": ["host-0"]}
            left = service.must("POST", f"{CLUSTER}/extender/filter", args)
            assert left["Error"] == ""
            service.must("POST", f"{CLUSTER}/extender/prioritize", args)
            body = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": "host-0"}
            error: str = service.must("POST", f"{CLUSTER}/extender/bind", body)["Error"]
            return error

        with ThreadPoolExecutor(4) as threads:
            errors = list(threads.map(schedule, names))
    assert sorted(bool(error) for error in errors) == [False] * 4 + [True] * 4
    assert all("Insufficient cpu" in error for error in errors if error)
    bound = [seen(api_server, name) for name, error in zip(names, errors, strict=True) if not error]
    cpusets = [json.loads(pod["metadata"]["annotations"][STATUS])["cpuset"] for pod in bound]
    assert sorted(cpusets) == ["0-3", "12-15", "4-7", "8-11"]


def grow_old(database: Database) -> None:
    """Every claim is as old as if it had been made long ago."""
    with database.write() as transaction:
        transaction.execute(sa.text("UPDATE pods SET created_at = '2026-01-01 00:00:00', updated_at = NULL"))


def test_an_api_server_that_hangs_is_not_waited_for_longer_than_a_bind_may_take(
    cluster, api_server, monkeypatch
):
    monkeypatch.setattr("placement.pods.services.binding._BINDS_WITHIN_SECONDS", 5.0)
    waiting(api_server)
    binding = api_server.hold_next("POST", "/binding")
    assert "may still be bound" in bind(cluster)
    assert claimed(cluster) == {"web-0": "host-0"}
    binding.may_go.set()
    eventually(True, lambda: "nodeName" in seen(api_server)["spec"])
    assert bind(cluster) == ""


@contextmanager
def attempt_held(cluster: Client, held: Held) -> Iterator[Future[str]]:
    """An attempt on host-0 that is held goes on after the block, which begins when it has come so far."""
    with ThreadPoolExecutor(1) as threads:
        # Test clients are not made for several threads.
        result = threads.submit(bind, Client(cluster.http.application.test_client()))
        try:
            assert held.has_come.wait(PATIENCE_SECONDS)
            yield result
        finally:
            held.may_go.set()


@pytest.fixture
def claims_held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The next attempt waits when it has its claim, before it sends the Binding."""
    held, claim = Held(threading.Event(), threading.Event()), Pods.bind

    def held_claim(*given: Any) -> PlacementResult:
        taken = claim(*given)
        if not held.has_come.is_set():
            held.has_come.set()
            assert held.may_go.wait(PATIENCE_SECONDS)
        return taken

    monkeypatch.setattr(Pods, "bind", held_claim)
    return held


@pytest.mark.parametrize("has_sent", [False, True])
def test_an_attempt_on_another_node_leaves_one_alone_that_is_under_way(
    cluster, api_server, request, has_sent
):
    """It has its claim, and has sent its Binding or not."""
    held = api_server.hold_next("POST", "/binding") if has_sent else request.getfixturevalue("claims_held")
    waiting(api_server)
    with attempt_held(cluster, held) as first:
        assert "may still be bound" in bind(cluster, "host-1")
        assert claimed(cluster) == {"web-0": "host-0"}
    assert first.result(PATIENCE_SECONDS) == ""
    assert seen(api_server)["spec"]["nodeName"] == "host-0"
    assert (claimed(cluster), in_use(cluster)) == ({"web-0": "host-0"}, 4)


def test_an_attempt_that_fails_leaves_the_claim_to_a_former_one_that_is_under_way(cluster, api_server):
    waiting(api_server)
    with attempt_held(cluster, api_server.hold_next("POST", "/binding")) as first:
        api_server.fail_next("/pods/web-0/binding", 403)
        assert "stays claimed" in bind(cluster)
    assert first.result(PATIENCE_SECONDS) == ""
    assert (claimed(cluster), in_use(cluster)) == ({"web-0": "host-0"}, 4)


def test_an_attempt_that_was_overtaken_sends_no_binding_and_releases_nothing(
    cluster, api_server, claims_held
):
    waiting(api_server)
    with attempt_held(cluster, claims_held) as first:
        api_server.fail_next("/pods/web-0/binding", 403)
        assert "stays claimed" in bind(cluster)
    assert "another caller" in first.result(PATIENCE_SECONDS)
    assert api_server.calls["POST", f"{PODS}/web-0/binding"] == 1
    assert (claimed(cluster), in_use(cluster)) == ({"web-0": "host-0"}, 4)
    assert bind(cluster) == ""


def test_a_claim_that_is_gone_is_not_bound(cluster, api_server, claims_held):
    waiting(api_server)
    with attempt_held(cluster, claims_held) as first:
        assert cluster.delete(f"{CLUSTER}/pods/default/web-0").status_code == 204
    assert "another caller" in first.result(PATIENCE_SECONDS)
    assert "nodeName" not in seen(api_server)["spec"]


def test_whoever_claims_again_renews_the_claim(cluster, api_server, database):
    manifest = waiting(api_server)
    path = f"{CLUSTER}/pods/default/web-0"
    first = cluster.put(path, manifest).json
    with database.write() as transaction:
        transaction.execute(sa.text("UPDATE pods SET created_at = '2026-01-01 00:00:00'"))
    (old,) = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    assert cluster.put(path, manifest).json == first
    (renewed,) = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    assert renewed["changed_at"] > old["changed_at"]
    assert {**renewed, "changed_at": ""} == {**old, "changed_at": ""}
    assert cluster.delete(f"{path}?uid=uid-web-0&changed_at={old['changed_at']}").status_code == 409
    assert cluster.put(path, manifest).json == first
    (again,) = cluster.get(f"{CLUSTER}/pods?scheduled=true").json["pods"]
    assert again["changed_at"] > renewed["changed_at"]


def fitting(cluster: Client, pod: dict[str, Any]) -> list[str]:
    """The nodes that the extender leaves to kube-scheduler."""
    answer = cluster.post(f"{CLUSTER}/extender/filter", {"Pod": pod, "NodeNames": ["host-0", "host-1"]})
    assert answer.json["Error"] == ""
    found: list[str] = answer.json["NodeNames"]
    return found


@pytest.fixture
def full(cluster: Client, api_server: ApiServer) -> Client:
    """The machines, each of them full of two pods: a-0 and a-1 on host-0, b-0 and b-1 on host-1."""
    for name in ("a-0", "a-1", "b-0", "b-1"):
        waiting(api_server, name, "8")
        assert bind(cluster, "host-0" if name.startswith("a") else "host-1", name) == ""
    return cluster


def changes_in(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The verbs of the extender that the audit log has, whatever other loggers say."""
    lines = [record.getMessage() for record in caplog.records if record.name == "placement.audit"]
    return {verb for verb in ("filter", "prioritize", "preempt") if f"/extender/{verb}" in str(lines)}


def test_room_that_a_pod_left_is_found_before_anybody_reports_it(full, api_server, caplog):
    """What filter released is logged as a change of it."""
    pod = waiting(api_server, "next", "8")
    assert fitting(full, pod) == []
    assert len(claimed(full)) == 4
    api_server.delete("Pod", "b-1", "default")
    with caplog.at_level("INFO", "placement.audit"):
        assert fitting(full, pod) == ["host-1"]
    assert changes_in(caplog) == {"filter"}
    assert claimed(full).keys() == {"a-0", "a-1", "b-0"}
    assert bind(full, "host-1", "next") == ""


def test_a_place_that_a_pod_begins_to_leave_is_found_before_anybody_reports_it(cluster, api_server):
    """Count pods that are being deleted for no spread, as kube-scheduler does: it leaves their place only."""
    web = {"app": "web"}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}

    def create(name: str) -> dict[str, Any]:
        pod = waiting(api_server, name, "1")
        pod["metadata"]["labels"].update(web)
        pod["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": web}}]
        return api_server.put(pod)

    for name, node in (("a-0", "host-0"), ("b-0", "host-1"), ("a-1", "host-0")):
        create(name)
        assert bind(cluster, node, name) == ""
    assert fitting(cluster, create("next")) == ["host-1"]
    for name in ("a-0", "a-1"):
        leaving = seen(api_server, name)
        leaving["metadata"]["deletionTimestamp"] = "2026-05-17T09:00:00Z"
        api_server.put(leaving)
    args = {"Pod": seen(api_server, "next"), "NodeNames": ["host-0"]}
    assert cluster.post(f"{CLUSTER}/extender/filter", args).json["NodeNames"] == ["host-0"]
    assert claimed(cluster).keys() == {"a-0", "a-1", "b-0"}
    assert bind(cluster, "host-0", "next") == ""


def test_a_pod_that_fits_somewhere_costs_the_api_server_nothing_and_is_no_change(cluster, api_server, caplog):
    waiting(api_server, "a-0", "16")
    assert bind(cluster, "host-0", "a-0") == ""
    calls = api_server.calls.total()
    with caplog.at_level("INFO", "placement.audit"):
        assert fitting(cluster, waiting(api_server, "next", "8")) == ["host-1"]
    assert (api_server.calls.total(), changes_in(caplog)) == (calls, set())


def test_pods_stay_where_the_api_server_cannot_be_asked(full, api_server):
    """After one failure no other node is asked about: the time-outs do not add up."""
    pod = waiting(api_server, "next", "8")
    api_server.delete("Pod", "b-1", "default")
    before = api_server.calls.copy()
    api_server.fail_next("/api/v1/pods", 500)
    assert fitting(full, pod) == []
    assert len(claimed(full)) == 4
    assert (api_server.calls - before) == {("GET", "/api/v1/pods"): 1}


def test_the_verbs_that_may_release_are_logged_as_changes(full, api_server, caplog):
    args = {"Pod": waiting(api_server, "next", "8"), "NodeNames": ["host-1"]}
    victims = {**args, "NodeNameToMetaVictims": {"host-1": {"Pods": [], "NumPDBViolations": 0}}}
    with caplog.at_level("INFO", "placement.audit"):
        for verb, body in (("filter", args), ("prioritize", args), ("preempt", victims)):
            assert full.post(f"{CLUSTER}/extender/{verb}", body).status_code == 200
    assert changes_in(caplog) == {"filter", "preempt"}


def test_an_authority_that_was_replaced_in_the_kubeconfig_is_read_again(tmp_path, monkeypatch):
    """As certificates of a cluster are renewed under an authority of their own, the service runs on."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    former, fresh = Authority(tmp_path, "former"), Authority(tmp_path, "fresh")
    with running_api_server(fresh.sign("server")) as found:
        file = write_kubeconfig(tmp_path / "config", ("edge", found.url), authority=former.file)
        waiting(found)
        binder = KubeconfigBinders(str(file)).of("edge")
        with pytest.raises(PlacementError, match="certificate verify failed"):
            binder.pod("default", "web-0")
        write_kubeconfig(file, ("edge", found.url), authority=fresh.file)
        assert binder.pod("default", "web-0")
