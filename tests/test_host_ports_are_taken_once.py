"""No two pods of a node have the same host port, however they come; what runs already is a fact."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.pods.services.place_choice import PlaceChoice
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.reservations import WEB, reservation

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
REASON = "node(s) didn't have free ports for the requested pod ports"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api, "n1", "n2")


def on_ports(
    *ports: int | dict[str, Any], name: str | None = None, priority: int = 9500, **given: Any
) -> dict[str, Any]:
    """A small pod with these host ports; `given` as `pod_manifest` takes it."""
    pod = pod_manifest("1", "64Mi", qos=None, priority=priority, **given)
    listed = [{"containerPort": 80, "hostPort": port} if isinstance(port, int) else port for port in ports]
    pod["spec"]["containers"][0]["ports"] = listed
    if name is not None:
        pod["metadata"] |= {"name": name, "namespace": "default"}
    return pod


def put(api: Client, name: str, pod: dict[str, Any], status: int = 201) -> Any:
    answer = api.put(f"{PODS}/default/{name}", pod)
    assert answer.status_code == status, answer.text
    return answer.json


def put_all(api: Client, pods: list[dict[str, Any]]) -> list[Any]:
    answer = api.post(PODS, {"kind": "List", "items": pods})
    assert answer.status_code == 200, answer.text
    return list(answer.json["pods"])


def preview(api: Client, pod: dict[str, Any]) -> Any:
    answer = api.post(f"{PODS}/preview", pod)
    assert answer.status_code == 200, answer.text
    return answer.json


def restarted(database: Database) -> Client:
    """Another process, which knows nothing but what is stored."""
    return Client(build(database, compatible()).test_client())


@pytest.mark.both_databases
def test_a_port_is_taken_once_on_each_node_and_is_free_when_its_pod_leaves(cluster: Client) -> None:
    first = put(cluster, "a", on_ports(8080))
    assert (first["undecided"], first["warnings"]) == ([], [])
    assert {first["node"], put(cluster, "b", on_ports(8080))["node"]} == {"n1", "n2"}
    refused = put(cluster, "c", on_ports(8080, 8081), 409)
    assert detail(cluster.put(f"{PODS}/default/c", on_ports(8080))) == f"0/2 nodes are available: 2 {REASON}."
    assert refused["errors"][0]["code"] == "unschedulable"
    # Asking again returns the place, and other ports are free.
    assert put(cluster, "a", on_ports(8080), 200)["node"] == first["node"]
    put(cluster, "d", on_ports(8081))
    put(cluster, "e", on_ports({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}))
    assert cluster.delete(f"{PODS}/default/a").status_code == 204
    assert put(cluster, "c", on_ports(8080))["node"] == first["node"]


def test_pods_of_one_call_see_those_before_them(cluster: Client) -> None:
    outcomes = put_all(cluster, [on_ports(80, name=f"p{number}") for number in range(3)])
    assert [each["status"] for each in outcomes] == [201, 201, 409]
    assert {each["pod"]["node"] for each in outcomes[:2]} == {"n1", "n2"}
    assert REASON in outcomes[2]["error"]["detail"]


def test_a_pod_that_asks_for_other_ports_by_now_is_placed_again(cluster: Client) -> None:
    node = put(cluster, "a", on_ports(80))["node"]
    put(cluster, "b", on_ports(80, 81))
    assert put(cluster, "a", on_ports(81), 200)["node"] == node
    put(cluster, "c", on_ports(81), 409)
    put(cluster, "d", on_ports({"hostPort": 80}, node=None))


def test_addresses_and_the_network_of_the_host_count(cluster: Client) -> None:
    one, other = ({"hostPort": 80, "hostIP": f"10.0.0.{number}"} for number in (1, 2))
    for name, pod in (("a", on_ports(one, node="n1")), ("b", on_ports(80, node="n2"))):
        put(cluster, name, pod)
    assert preview(cluster, on_ports(other))["fitting"] == 1
    assert preview(cluster, on_ports(one))["fitting"] == 0
    assert preview(cluster, on_ports(80))["fitting"] == 0
    assert preview(cluster, on_ports({"containerPort": 80}))["fitting"] == 2
    assert preview(cluster, on_ports({"containerPort": 80}, hostNetwork=True))["fitting"] == 0


def test_previews_explain_and_the_extender_says_that_preemption_may_help(cluster: Client) -> None:
    put(cluster, "a", on_ports(80, node="n1"))
    found = preview(cluster, on_ports(80, 443))
    assert found["message"] == f"1/2 nodes are available: 1 {REASON}."
    assert found["rejected"] == [{"node": "n1", "reasons": [REASON], "status": "Unschedulable"}]
    stages = [each for each in found["explanation"]["stages"] if each["kind"] == "host_ports"]
    words = "free ports for the requested pod ports 80/TCP, 443/TCP"
    assert [(each["condition"], each["came"], each["providers"]) for each in stages] == [(words, 2, 1)]
    put(cluster, "b", on_ports(443, node="n2"))
    explanation = preview(cluster, on_ports(80, 443))["explanation"]
    assert [each["reasons"] for each in explanation["nearest"]] == [[REASON]] * 2
    asked = {"Pod": on_ports(80, name="web"), "NodeNames": ["n1", "n2"]}
    answer = cluster.post(f"{CLUSTER}/extender/filter", asked).json
    assert (answer["NodeNames"], answer["FailedNodes"]) == (["n2"], {"n1": REASON})
    assert answer["FailedAndUnresolvableNodes"] == {}


def test_pods_that_run_are_recorded_with_their_ports_though_they_collide(cluster: Client) -> None:
    put(cluster, "a", on_ports(80, node="n1"))
    both = on_ports(80, 81, node="n1", name="b")
    assert put(cluster, "b", both)["warnings"] == ["host port 80/TCP is also taken by pod default/a"]
    # Reported again it has the same warning, also beside others.
    again = put_all(cluster, [both, on_ports(82, node="n1", name="c")])
    assert [each["status"] for each in again] == [200, 201]
    assert cluster.delete(f"{PODS}/default/a").status_code == 204
    for port, fitting in ((80, 1), (81, 1), (82, 1), (83, 2)):
        assert preview(cluster, on_ports(port))["fitting"] == fitting
    # A pod that leaves has its ports until it is gone, and one that is over has none.
    both["metadata"]["deletionTimestamp"] = "2026-05-17T09:00:00Z"
    put(cluster, "b", both, 200)
    assert preview(cluster, on_ports(81))["fitting"] == 1
    put(cluster, "b", {**both, "status": {"phase": "Succeeded"}}, 200)
    assert preview(cluster, on_ports(80, 81))["fitting"] == 2


def test_a_report_with_other_ports_is_seen(cluster: Client) -> None:
    put_all(cluster, [on_ports(node="n1", name="a"), on_ports(node="n2", name="b")])
    assert preview(cluster, on_ports(80))["fitting"] == 2
    put_all(cluster, [on_ports(80, node="n1", name="a"), on_ports(node="n2", name="b")])
    assert preview(cluster, on_ports(80))["fitting"] == 1


@pytest.mark.parametrize(
    ("odd", "field"),
    [("80", "hostPort"), (70000, "hostPort"), (10**30, "hostPort"), (-1, "hostPort"), ([], "hostPort")],
    ids=str,
)
def test_an_odd_port_is_named_and_a_pod_that_runs_with_it_is_recorded(
    cluster: Client, odd: Any, field: str
) -> None:
    pod = on_ports({"containerPort": 80, "hostPort": 80}, {"hostPort": odd})
    answer = cluster.put(f"{PODS}/default/a", pod)
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json["errors"]] == [f"/spec/containers/0/ports/1/{field}"]
    pod["spec"]["nodeName"] = "n1"
    (warning,) = put(cluster, "a", pod)["warnings"]
    assert warning.startswith(f"Pod.spec.containers[0].ports[1].{field}: ")
    assert preview(cluster, on_ports(80))["fitting"] == 1


def test_victims_are_chosen_that_have_the_port(cluster: Client) -> None:
    for number, port in enumerate((80, 81)):
        put(cluster, f"p{number}", on_ports(port, node="n1", uid=f"uid-{number}", priority=0))
    urgent = on_ports(81, name="urgent", priority=100)
    for proposed, victims in (([], ["uid-1"]), (["uid-1"], ["uid-1"]), (["uid-0"], ["uid-0", "uid-1"])):
        body = {
            "Pod": urgent,
            "NodeNameToMetaVictims": {
                "n1": {"Pods": [{"UID": uid} for uid in proposed], "NumPDBViolations": 0}
            },
        }
        found = cluster.post(f"{CLUSTER}/extender/preempt", body).json["NodeNameToMetaVictims"]
        assert sorted(pod["UID"] for pod in found["n1"]["Pods"]) == victims


def test_capacity_counts_one_on_each_node(cluster: Client) -> None:
    put(cluster, "a", on_ports(80, node="n1"))
    for qos in (None, "LSR"):
        pod = on_ports(80)
        pod["metadata"]["labels"] |= {"koordinator.sh/qosClass": qos} if qos else {}
        answer = cluster.post("/ext/v1/capacity", {"kinds": {"it": {"pod": pod}}, "cluster": "edge"})
        assert answer.status_code == 200, answer.text
        total = answer.json["kinds"]["it"]["total"]
        assert (total["lower"], total["upper"]) == (1, 1)


@pytest.mark.parametrize("allocate_once", [False, True])
def test_a_reservation_keeps_its_ports_for_its_owners(cluster: Client, allocate_once: bool) -> None:
    template = on_ports(80, nodeName="n1")
    body = reservation(template=template, allocateOnce=allocate_once)
    assert cluster.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
    put(cluster, "b", on_ports(80, node="n2"))
    put(cluster, "stranger", on_ports(80), 409)
    ignoring = on_ports(80, labels={"scheduling.koordinator.sh/reservation-ignored": "true"})
    assert preview(cluster, ignoring)["fitting"] == 1
    assert put(cluster, "owner", on_ports(80, labels=WEB))["node"] == "n1"
    put(cluster, "next", on_ports(80, labels=WEB), 409)


def test_a_pod_that_must_use_a_reservation_is_told_that_its_port_is_taken(cluster: Client) -> None:
    body = reservation(template=on_ports(nodeName="n1"))
    assert cluster.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
    put(cluster, "a", on_ports(80, node="n1"))
    pod = on_ports(80, labels=WEB)
    pod["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-affinity"] = '{"name":"kept"}'
    rejected = {each["node"]: each["reasons"] for each in preview(cluster, pod)["rejected"]}
    assert rejected["n1"] == [REASON]
    pod["spec"]["containers"][0]["ports"][0]["hostPort"] = 81
    assert preview(cluster, pod)["fitting"] == 1


@pytest.mark.both_databases
def test_two_requests_at_once_never_get_the_same_port(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are decided on the node before either is written."""
    cluster_of(api, "n1")
    put(api, "warm", on_ports(79))
    best, decided = PlaceChoice.best, threading.Barrier(2)
    first_looks = threading.local()

    def decided_together(*args: Any, **given: Any) -> Any:
        choice = best(*args, **given)
        if not hasattr(first_looks, "is_over"):
            first_looks.is_over = True
            decided.wait(PATIENCE_SECONDS)
        return choice

    monkeypatch.setattr(PlaceChoice, "best", decided_together)
    application = api.http.application

    def place(name: str) -> int:
        answer = Client(application.test_client()).put(f"{PODS}/default/{name}", on_ports(80))
        return int(answer.status_code)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(place, ("a", "b"))) == [201, 409]


@pytest.mark.both_databases
def test_ports_of_rows_of_the_release_before_are_those_of_the_manifest(
    cluster: Client, database: Database
) -> None:
    body = reservation(template=on_ports(82, nodeName="n1"))
    assert cluster.put(f"{CLUSTER}/reservations/kept", body).status_code == 201
    put(cluster, "a", on_ports(80, node="n1"))
    put(cluster, "b", on_ports({"containerPort": 81}, hostNetwork=True, node="n1"))
    waiting = on_ports(node="n1")
    put(cluster, "c", waiting)

    def former(status: dict[str, Any]) -> dict[str, Any]:
        del status["record"]["ports"]
        return status

    rows = sa.text("SELECT id, status FROM pods")
    with database.write() as transaction:
        for id_, status in transaction.execute(rows).all():
            parsed = json.loads(status) if isinstance(status, str) else status
            written = {"id": id_, "status": json.dumps(former(parsed))}
            transaction.execute(sa.text("UPDATE pods SET status = :status WHERE id = :id"), written)
    again = restarted(database)
    for port, fitting in ((80, 1), (81, 1), (82, 1), (83, 2)):
        assert preview(again, on_ports(port))["fitting"] == fitting
    # A node with such rows is followed, and a report completes them.
    put(again, "d", on_ports(83, node="n1"))
    put(again, "a", on_ports(80, node="n1"), 200)
    other = restarted(database)
    assert preview(other, on_ports(80))["fitting"] == preview(other, on_ports(83))["fitting"] == 1
    with database.read() as connection:
        found = connection.execute(sa.text("SELECT status FROM pods WHERE name = 'a'")).scalar_one()
    record = (json.loads(found) if isinstance(found, str) else found)["record"]
    assert record["ports"] == [["TCP", 80, ""]]
