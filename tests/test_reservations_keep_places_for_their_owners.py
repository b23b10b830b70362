"""Reservations hold what their pod would hold; pods of owners take from them, and nobody else does."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from placement.storage.database import Database
from tests import clocks
from tests.client import Client
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, pod_manifest
from tests.reservations import AFFINITY, ALLOCATED, IGNORED, WEB, reservation

pytestmark = pytest.mark.one_database


@pytest.fixture
def cluster(api: Client) -> Client:
    """A cluster with one node of 16 CPUs."""
    return cluster_of(api, "n1")


def reserve(api: Client, name: str = "kept", cpu: str = "4", *, status: int = 201, **options: Any) -> Any:
    answer = api.put(f"{CLUSTER}/reservations/{name}", reservation(name, cpu, **options))
    assert answer.status_code == status, answer.text
    return answer.json


def shown(api: Client, name: str = "kept") -> Any:
    answer = api.get(f"{CLUSTER}/reservations/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json


def place(
    api: Client, name: str, cpu: str = "4", *, expect: int = 201, annotations: Any = None, **options: Any
) -> Any:
    manifest = pod_manifest(cpu, **options)
    manifest["metadata"]["annotations"] |= annotations or {}
    answer = api.put(f"{CLUSTER}/pods/default/{name}", manifest)
    assert answer.status_code == expect, answer.text
    return answer.json


def bound(api: Client, *nodes: str) -> int:
    """The CPUs that are in use on these nodes."""
    found = (api.get(f"{CLUSTER}/nodes/{node}").json["resources"]["PCPU"]["used"] for node in nodes)
    return sum(found)


def test_a_reservation_holds_what_its_pod_would_hold(cluster: Client):
    kept = reserve(cluster)
    assert (kept["node"], kept["phase"], kept["allocate_policy"]) == ("n1", "Available", "Default")
    assert kept["held"]["cpuset"] == kept["left"]["cpuset"] == "0-3"
    assert kept["held"]["resources"] == {"cpu": "4", "memory": str(2**30)}
    found = cluster.get(f"{CLUSTER}/nodes/n1").json["resources"]
    held = {"PCPU": 4, "CUSTOM_NODE_CPU_MILLI": 4000, "CUSTOM_PODS": 1}
    assert {name: found[name]["used"] for name in held} == held
    consumer = cluster.get(f"/allocations/{kept['consumer_uuid']}").json
    assert consumer["consumer_type"] == "RESERVATION"
    assert cluster.get(f"{CLUSTER}/pods").json["pods"] == []
    assert cluster.get(f"{CLUSTER}/pods?namespace=").json["pods"] == []


def test_pods_that_ignore_reservations_may_ask_about_some_nodes(cluster: Client):
    add_nodes(cluster, "n2")
    reserve(cluster, cpu="16", template=pod_manifest("16", nodeName="n1"))
    asked = {"pod": pod_manifest("4", labels={IGNORED: "true"}), "nodeNames": ["n1"]}
    answer = cluster.post(f"{CLUSTER}/pods/preview", asked)
    assert (answer.status_code, answer.json["fitting"]) == (200, 1), answer.text


def test_a_template_with_an_unknown_node_is_refused_until_the_node_comes(cluster: Client):
    """The synchronization sends what 409 refuses again."""
    pinned = pod_manifest("4", nodeName="n2")
    answer = reserve(cluster, template=pinned, status=409)
    refusal = "Reservation.spec.template.spec.nodeName: no node 'n2' in cluster edge"
    assert [each["detail"] for each in answer["errors"]] == [refusal]
    add_nodes(cluster, "n2")
    assert reserve(cluster, template=pinned)["node"] == "n2"


@pytest.mark.parametrize("pod", [pod_manifest("4"), pod_manifest(None, None, qos=None)])
def test_no_eviction_helps_a_pod_whose_reservation_is_not_there(cluster: Client, pod: dict[str, Any]):
    add_nodes(cluster, "n2", spec={"unschedulable": True})
    pod["metadata"]["annotations"] |= {AFFINITY: '{"name": "kept"}'}
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod).json
    assert {each["status"] for each in preview["rejected"]} == {"UnschedulableAndUnresolvable"}
    explanation = preview["explanation"]
    assert explanation["first_empty"] == 0
    assert explanation["stages"][0]["kind"] == "reservation_affinity"
    assert explanation["nearest"][0]["reasons"] == ["Reservation(s) node(s) no reservations match"]


def test_kube_scheduler_hears_first_of_nodes_with_a_reservation(cluster: Client):
    add_nodes(cluster, "n2", "n3")
    node = reserve(cluster, cpu="12")["node"]
    must = {AFFINITY: {"name": "kept"}}

    def scores(annotations: dict[str, str], **options: Any) -> dict[str, int]:
        manifest = pod_manifest("4", **options)
        manifest["metadata"]["annotations"] |= annotations
        args = {"Pod": manifest, "NodeNames": ["n1", "n2", "n3"]}
        found = cluster.post(f"{CLUSTER}/extender/prioritize", args)
        assert found.status_code == 200, found.text
        return {each["Host"]: each["Score"] for each in found.json}

    strangers, owners = scores({}), scores({}, labels=WEB)
    assert min(strangers.values()) > 0
    assert all(owners[node] > owners[other] > 0 for other in owners if other != node)
    forced = scores(texts(must), labels=WEB)
    assert forced[node] > 0
    assert {forced[other] for other in forced if other != node} == {0}


def test_no_cpus_are_asked_for_a_pod_that_requests_nothing(cluster: Client):
    manifest = pod_manifest(None, None, qos=None)
    manifest["metadata"]["annotations"] |= texts({AFFINITY: {"name": "kept"}})
    answer = cluster.post(f"{CLUSTER}/pods/preview", {"pod": manifest})
    assert (answer.status_code, answer.json["fitting"]) == (200, 0), answer.text
    kinds = [stage["kind"] for stage in answer.json["explanation"]["stages"]]
    assert kinds == ["reservation_affinity", "cordon", "taints", "amount"]


def test_what_nobody_used_is_released_when_the_time_is_over(cluster: Client, monkeypatch):
    for name, spec in (("kept", {"ttl": "90m"}), ("fixed", {"expires": "2100-01-01T00:00:00Z"})):
        reserve(cluster, name, cpu="8", allocateOnce=False, **spec)
    assert shown(cluster, "fixed")["expires_at"] == "2100-01-01T00:00:00Z"
    place(cluster, "web", "4", labels=WEB)
    place(cluster, "stranger", "4", expect=409)
    clocks.agreed(monkeypatch, datetime.timedelta(minutes=91))
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("4")).json
    assert preview["fitting"] == 1
    assert [kept["name"] for kept in cluster.get(f"{CLUSTER}/nodes/n1").json["reservations"]] == ["fixed"]
    over = shown(cluster)
    assert (over["phase"], over["remarks"], over["node"]) == ("Failed", ["expired"], None)
    assert bound(cluster, "n1") == 12
    place(cluster, "stranger", "4")
    assert cluster.get(f"{CLUSTER}/pods/default/web").json["cpuset"] == "0-3"


def test_the_same_again_changes_nothing_and_terms_can_be_changed(cluster: Client):
    first = reserve(cluster)
    assert reserve(cluster, status=200) == first
    place(cluster, "web", labels={"app": "api"})
    changed = reserve(cluster, status=200, owners=[{"labelSelector": {"matchLabels": {"app": "db"}}}])
    assert changed["held"] == first["held"]
    assert ALLOCATED not in place(cluster, "web-1", labels=WEB)["annotations"]
    assert ALLOCATED in place(cluster, "db", labels={"app": "db"})["annotations"]
    used = reserve(cluster, status=200)
    assert (used["phase"], [owner["name"] for owner in used["current_owners"]]) == ("Succeeded", ["db"])
    assert cluster.get(f"{CLUSTER}/reservations").json["reservations"] == [used]


@pytest.mark.both_databases
def test_reservations_are_listed_in_pages_and_by_node_and_forgotten(cluster: Client):
    path = f"{CLUSTER}/reservations"
    add_nodes(cluster, "n2")
    for name, node in (("c", "n2"), ("b", "n1"), ("a", "n1")):
        reserve(cluster, name, template=pod_manifest("4", nodeName=node))
    everything = cluster.get(path).json
    assert everything["next"] is None
    listed = everything["reservations"]
    assert [each["name"] for each in listed] == ["c", "b", "a"]
    assert cluster.get(f"{path}/c").json == listed[0]
    first = cluster.get(f"{path}?limit=1&node=n1").json
    second = cluster.get(f"{path}?limit=1&node=n1&marker={first['next']}").json
    assert [each["name"] for page in (first, second) for each in page["reservations"]] == ["b", "a"]
    assert second["next"] is None
    assert cluster.get(f"{path}?node=n3").json == {"reservations": [], "next": None}
    for wrong in ("limit=0", "marker=x", "name=a"):
        assert cluster.get(f"{path}?{wrong}").status_code == 400
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 409
    for name in "abc":
        assert cluster.delete(f"{path}/{name}").status_code == 204
        assert cluster.get(f"{path}/{name}").status_code == 404
        assert cluster.delete(f"{path}/{name}").status_code == 404
    for gone in (f"{CLUSTER}/nodes/n1", f"{CLUSTER}/nodes/n2", CLUSTER):
        assert cluster.delete(gone).status_code == 204


def test_the_page_of_a_node_names_its_reservations(cluster: Client):
    reserve(cluster, "kept", template=pod_manifest("4", nodeName="n1"))
    root = cluster.get(f"{CLUSTER}/nodes/n1").json["tree"]["uuid"]
    page = cluster.get(f"/ui/hosts/{root}", Accept="text/html")
    assert page.status_code == 200, page.text
    assert "<li>kept " in page.text


def test_all_that_expired_ends_at_once_and_nothing_else(cluster: Client, monkeypatch):
    add_nodes(cluster, "n2")
    for name in ("a", "b", "c"):
        reserve(cluster, name, cpu="8", ttl="1h" if name < "c" else "0")
    clocks.agreed(monkeypatch, datetime.timedelta(hours=2))
    listed = cluster.get(f"{CLUSTER}/reservations").json["reservations"]
    assert [(each["phase"], each["remarks"]) for each in listed[:2]] == [("Failed", ["expired"])] * 2
    assert listed[2]["phase"] == "Available"
    assert bound(cluster, "n1", "n2") == 8


YEAR = datetime.timedelta(days=400)


@pytest.mark.both_databases
@pytest.mark.parametrize("wrong", [clocks.here, clocks.at_the_server])
def test_a_clock_that_is_ahead_ends_no_reservation(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch, wrong: Any
):
    clocks.needs_two(database)
    for name in ("kept", "other"):
        reserve(cluster, name, cpu="8", ttl="1h", allocateOnce=False)
    with monkeypatch.context() as patch:
        wrong(patch, YEAR)
        assert shown(cluster)["phase"] == "Available"
        assert bound(cluster, "n1") == 16
        place(cluster, "stranger", "4", expect=409)
        assert ALLOCATED in place(cluster, "web", "4", labels=WEB)["annotations"]
    assert [shown(cluster, name)["phase"] for name in ("kept", "other")] == ["Available"] * 2


@pytest.mark.both_databases
def test_a_reservation_that_a_process_of_another_day_makes_lasts_as_long(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    clocks.needs_two(database)
    for name, by in (("behind", -YEAR), ("ahead", YEAR)):
        with monkeypatch.context() as patch:
            clocks.here(patch, by)
            reserve(cluster, name, cpu="8", ttl="1h")
    place(cluster, "stranger", "4", expect=409)
    clocks.agreed(monkeypatch, datetime.timedelta(minutes=61))
    assert [shown(cluster, name)["phase"] for name in ("behind", "ahead")] == ["Failed"] * 2


def test_running_pods_say_from_which_reservation_they_take(cluster: Client):
    kept = reserve(cluster, allocateOnce=False, cpu="8")
    allocated = texts({ALLOCATED: {"name": "kept", "uid": kept["uid"]}})
    options: dict[str, Any] = {"node": "n1", "status": {"cpuset": "0-3"}, "annotations": allocated}
    place(cluster, "web", labels=WEB, **options)
    assert shown(cluster)["left"]["cpuset"] == "4-7"
    assert [owner["name"] for owner in shown(cluster)["current_owners"]] == ["web"]
    # Who is no owner has its CPUs nevertheless: it runs.
    place(cluster, "liar", **{**options, "status": {"cpuset": "4-5"}}, cpu="2")
    assert shown(cluster)["left"]["cpuset"] == "6-7"
    assert len(shown(cluster)["current_owners"]) == 1
    assert cluster.delete(f"{CLUSTER}/reservations/kept").status_code == 204
    once = reserve(cluster, cpu="4")
    allocated = texts({ALLOCATED: {"name": "kept", "uid": once["uid"]}})
    status = {"cpuset": once["held"]["cpuset"]}
    place(cluster, "runs", labels=WEB, node="n1", status=status, annotations=allocated)
    assert shown(cluster)["phase"] == "Succeeded"


def texts(annotations: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in annotations.items()}
