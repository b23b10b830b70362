"""Reservations hold what their pod would hold; pods of owners take from them, and nobody else does."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from placement.pods import reservation_ends, scheduler
from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest
from tests.reservations import AFFINITY, ALLOCATED, IGNORED, ORDER, WEB, reservation

CLUSTER = "/ext/v1/clusters/edge"


@pytest.fixture
def cluster(api: Client) -> Client:
    """A cluster with one node of 16 CPUs."""
    assert api.put(CLUSTER).status_code == 201
    add_node(api, "n1")
    return api


def add_node(api: Client, name: str, **options: Any) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **options))
    assert answer.status_code == 201, answer.text


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


def use(api: Client, node: str = "n1") -> dict[str, int]:
    found = api.get(f"{CLUSTER}/nodes/{node}").json["resources"]
    return {name: found[name]["used"] for name in ("PCPU", "CUSTOM_NODE_CPU_MILLI", "CUSTOM_PODS")}


def test_a_reservation_holds_what_its_pod_would_hold(cluster: Client):
    kept = reserve(cluster)
    assert (kept["node"], kept["phase"], kept["allocate_policy"]) == ("n1", "Available", "Default")
    assert kept["held"]["cpuset"] == kept["left"]["cpuset"] == "0-3"
    assert kept["held"]["resources"] == {"cpu": "4", "memory": str(2**30)}
    assert use(cluster) == {"PCPU": 4, "CUSTOM_NODE_CPU_MILLI": 4000, "CUSTOM_PODS": 1}
    consumer = cluster.get(f"/allocations/{kept['consumer_uuid']}").json
    assert consumer["consumer_type"] == "RESERVATION"
    assert cluster.get(f"{CLUSTER}/pods").json["pods"] == []
    assert cluster.get(f"{CLUSTER}/pods?namespace=").json["pods"] == []


def test_the_one_owner_of_a_reservation_takes_from_it_and_ends_it(cluster: Client):
    kept = reserve(cluster, cpu="12")
    place(cluster, "other", "4")
    owner = place(cluster, "web", "8", labels=WEB)
    assert owner["cpuset"] == "0-7"
    assert json.loads(owner["annotations"][ALLOCATED]) == {"name": "kept", "uid": kept["uid"]}
    assert owner["remarks"][0] == "takes from reservation kept"
    assert cluster.get(f"{CLUSTER}/pods/default/web").json["annotations"] == owner["annotations"]
    over = shown(cluster)
    assert (over["phase"], over["node"], over["left"]) == ("Succeeded", None, None)
    assert over["remarks"] == [f"used by pod default/web, uid {owner['uid']}"]
    assert use(cluster) == {"PCPU": 12, "CUSTOM_NODE_CPU_MILLI": 12000, "CUSTOM_PODS": 2}
    # What it did not use is free again, and so is what it used once it is gone.
    assert place(cluster, "late", "4")["cpuset"] == "8-11"
    assert cluster.delete(f"{CLUSTER}/pods/default/web").status_code == 204
    assert shown(cluster)["phase"] == "Succeeded"
    assert place(cluster, "later", "8")["cpuset"] == "0-7"


def test_what_owners_leave_stays_reserved_if_several_may_come(cluster: Client):
    reserve(cluster, cpu="12", allocateOnce=False)
    place(cluster, "other", "4")
    first, second = (place(cluster, name, "4", labels=WEB) for name in ("web-0", "web-1"))
    assert (first["cpuset"], second["cpuset"]) == ("0-3", "4-7")
    kept = shown(cluster)
    assert kept["left"]["cpuset"] == "8-11"
    assert kept["left"]["resources"]["cpu"] == "4"
    assert [owner["name"] for owner in kept["current_owners"]] == ["web-0", "web-1"]
    assert use(cluster) == {"PCPU": 16, "CUSTOM_NODE_CPU_MILLI": 16000, "CUSTOM_PODS": 3}
    place(cluster, "stranger", "1", expect=409)
    assert cluster.delete(f"{CLUSTER}/pods/default/web-0").status_code == 204
    assert shown(cluster)["left"]["cpuset"] == "0-3,8-11"
    place(cluster, "stranger", "1", expect=409)
    assert cluster.delete(f"{CLUSTER}/reservations/kept").status_code == 204
    assert use(cluster) == {"PCPU": 8, "CUSTOM_NODE_CPU_MILLI": 8000, "CUSTOM_PODS": 2}
    assert place(cluster, "stranger", "8")["cpuset"] == "0-3,8-11"


def test_a_restricted_reservation_gives_no_more_than_it_has(cluster: Client):
    reserve(cluster, cpu="4", allocatePolicy="Restricted", allocateOnce=False)
    must = {AFFINITY: {"name": "kept"}}
    refusal = place(cluster, "web", "8", labels=WEB, annotations=texts(must), expect=409)["errors"][0]
    words = "Reservation(s) not enough cpus available to satisfy request"
    assert words in refusal["detail"]
    # It may do without, and then gets nothing that is reserved.
    free = place(cluster, "web", "8", labels=WEB)
    assert free["cpuset"] == "8-15"
    assert ALLOCATED not in free["annotations"]
    assert place(cluster, "small", "2", labels=WEB, annotations=texts(must))["cpuset"] == "0-1"
    assert shown(cluster)["left"]["cpuset"] == "2-3"
    memory = place(cluster, "fat", "2", memory="2Gi", labels=WEB, annotations=texts(must), expect=409)
    assert "Reservation(s) Insufficient memory" in memory["errors"][0]["detail"]


def test_pods_that_must_use_a_reservation_wait_for_one(cluster: Client):
    add_node(cluster, "n2")
    reserve(cluster, labels={"pool": "blue"})
    for affinity in (
        {"name": "another"},
        {"reservationSelector": {"pool": "red"}},
        {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "reservationSelectorTerms": [
                    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["red"]}]}
                ]
            }
        },
    ):
        refusal = place(cluster, "web", labels=WEB, annotations=texts({AFFINITY: affinity}), expect=409)
        assert "2 Reservation(s) node(s) no reservations match" in refusal["errors"][0]["detail"]
    accepted = texts({AFFINITY: {"reservationSelector": {"pool": "blue"}}})
    assert place(cluster, "stranger", annotations=accepted, expect=409)
    assert place(cluster, "web", labels=WEB, annotations=accepted)["node"] == "n1"


def test_pods_that_ignore_reservations_take_from_them(cluster: Client):
    reserve(cluster, cpu="12", allocateOnce=False)
    place(cluster, "other", "4")
    thief = place(cluster, "thief", "4", labels={IGNORED: "true"})
    assert thief["cpuset"] == "0-3"
    assert shown(cluster)["left"]["cpuset"] == "4-11"
    assert shown(cluster)["left"]["resources"]["cpu"] == "8"
    place(cluster, "web", "9", labels=WEB, expect=409)
    assert place(cluster, "web", "8", labels=WEB)["cpuset"] == "4-11"
    assert use(cluster) == {"PCPU": 16, "CUSTOM_NODE_CPU_MILLI": 16000, "CUSTOM_PODS": 3}


def test_pods_that_ignore_reservations_may_ask_about_some_nodes(cluster: Client):
    add_node(cluster, "n2")
    reserve(cluster, cpu="16", template=pod_manifest("16", nodeSelector={"kubernetes.io/hostname": "n1"}))
    asked = {"pod": pod_manifest("4", labels={IGNORED: "true"}), "nodeNames": ["n1"]}
    answer = cluster.post(f"{CLUSTER}/pods/preview", asked)
    assert answer.status_code == 200, answer.text
    assert answer.json["fitting"] == 1


@pytest.mark.parametrize(
    ("owner", "pod"),
    [
        ({"object": {"name": "web-0", "namespace": "default"}}, {}),
        ({"controller": {"kind": "StatefulSet", "name": "web", "controller": True}}, {}),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, {"labels": WEB}),
        ({"object": {"name": "web-0"}, "labelSelector": {"matchLabels": WEB}}, {"labels": WEB}),
    ],
)
def test_owners_are_pods_controllers_and_labels(cluster: Client, owner: Any, pod: dict[str, Any]):
    reserve(cluster, owners=[{"object": {"name": "nobody"}}, owner])
    manifest = pod_manifest(**pod)
    reference = {"kind": "StatefulSet", "name": "web", "apiVersion": "apps/v1", "controller": True}
    stranger = {**manifest, "metadata": {**manifest["metadata"], "labels": {}}}
    for name, body in (("other", stranger), ("web-0", manifest)):
        mine = {"ownerReferences": [reference]} if name == "web-0" else {"ownerReferences": []}
        body = {**body, "metadata": {**body["metadata"], **mine}}
        answer = cluster.put(f"{CLUSTER}/pods/default/{name}", body)
        assert answer.status_code == 201, answer.text
        assert (ALLOCATED in answer.json["annotations"]) == (name == "web-0")


def test_the_reservation_of_the_lowest_order_is_used_first_then_the_one_that_gets_fullest(cluster: Client):
    add_node(cluster, "n2")
    for name, cpu, labels in (
        ("large", "6", {}),
        ("small", "4", {}),
        ("late", "4", {ORDER: "7"}),
        ("early", "8", {ORDER: "3"}),
    ):
        reserve(cluster, name, cpu, labels=labels)
    used = [place(cluster, f"web-{number}", "4", labels=WEB)["remarks"][0] for number in range(4)]
    assert used == [f"takes from reservation {name}" for name in ("early", "late", "small", "large")]


def test_kube_scheduler_hears_first_of_nodes_with_a_reservation(cluster: Client):
    for name in ("n2", "n3"):
        add_node(cluster, name)
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


def test_pods_without_cpus_of_their_own_use_reservations_too(cluster: Client):
    template = pod_manifest("6", qos="LS", priority=None)
    reserve(cluster, template=template, allocateOnce=False)
    place(cluster, "other", "10")
    place(cluster, "ls", "1", qos="LS", priority=None, expect=409)
    owner = place(cluster, "web", "2", qos="LS", priority=None, labels=WEB)
    assert json.loads(owner["annotations"][ALLOCATED])["name"] == "kept"
    assert shown(cluster)["left"]["resources"] == {"cpu": "4"}
    assert use(cluster)["CUSTOM_NODE_CPU_MILLI"] == 16000


def test_amounts_of_numa_nodes_are_reserved_and_taken(cluster: Client):
    numa = {"numaTopologyPolicy": "SingleNUMANode"}
    template = pod_manifest("6", memory="12Gi", numa=numa)
    kept = reserve(cluster, template=template, allocateOnce=False)
    assert kept["held"]["numaNodeResources"] == [
        {"node": 0, "resources": {"cpu": "6", "memory": str(12 * 2**30)}}
    ]
    assert place(cluster, "other", "2", memory="8Gi", numa=numa)["cpuset"] == "8-9"
    web = place(cluster, "web", "4", memory="8Gi", numa=numa, labels=WEB)
    assert web["cpuset"] == "0-3"
    assert shown(cluster)["left"]["numaNodeResources"] == [
        {"node": 0, "resources": {"cpu": "2", "memory": str(4 * 2**30)}}
    ]


def test_what_nobody_used_is_released_when_the_time_is_over(cluster: Client, monkeypatch):
    for name, spec in (("kept", {"ttl": "90m"}), ("fixed", {"expires": "2100-01-01T00:00:00Z"})):
        reserve(cluster, name, cpu="8", allocateOnce=False, **spec)
    assert shown(cluster, "fixed")["expires_at"] == "2100-01-01T00:00:00Z"
    place(cluster, "web", "4", labels=WEB)
    place(cluster, "stranger", "4", expect=409)
    later = datetime.timedelta(minutes=91)
    for module in (reservation_ends, scheduler):
        now = module.utcnow
        monkeypatch.setattr(module, "utcnow", lambda now=now: now() + later)
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("4")).json
    assert preview["fitting"] == 1
    assert [kept["name"] for kept in cluster.get(f"{CLUSTER}/nodes/n1").json["reservations"]] == ["fixed"]
    over = shown(cluster)
    assert (over["phase"], over["remarks"], over["node"]) == ("Failed", ["expired"], None)
    assert use(cluster)["PCPU"] == 12
    place(cluster, "stranger", "4")
    assert cluster.get(f"{CLUSTER}/pods/default/web").json["cpuset"] == "0-3"


def test_placing_releases_what_has_expired(cluster: Client, monkeypatch):
    reserve(cluster, cpu="16")
    place(cluster, "stranger", "4", expect=409)
    now = reservation_ends.utcnow
    monkeypatch.setattr(reservation_ends, "utcnow", lambda: now() + datetime.timedelta(hours=25))
    assert place(cluster, "stranger", "4")["cpuset"] == "0-3"


def test_the_same_again_changes_nothing_and_terms_can_be_changed(cluster: Client):
    first = reserve(cluster)
    assert reserve(cluster, status=200) == first
    place(cluster, "web", labels={"app": "api"})
    changed = reserve(cluster, status=200, owners=[{"labelSelector": {"matchLabels": {"app": "db"}}}])
    assert changed["held"] == first["held"]
    assert ALLOCATED not in place(cluster, "web-1", labels=WEB)["annotations"]
    assert ALLOCATED in place(cluster, "db", labels={"app": "db"})["annotations"]
    assert reserve(cluster, status=200)["phase"] == "Succeeded"


def test_another_template_needs_another_reservation(cluster: Client):
    reserve(cluster)
    refusal = reserve(cluster, cpu="6", status=409)["errors"][0]["detail"]
    assert "Reservation.spec.template: reservation kept has its place already" in refusal


def test_reservations_are_listed_and_forgotten(cluster: Client):
    for name in ("b", "a"):
        reserve(cluster, name)
    everything = cluster.get(f"{CLUSTER}/reservations").json
    assert everything["next"] is None
    listed = everything["reservations"]
    assert [each["name"] for each in listed] == ["b", "a"]
    assert cluster.get(f"{CLUSTER}/reservations/b").json == listed[0]
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 409
    for name in ("b", "a"):
        assert cluster.delete(f"{CLUSTER}/reservations/{name}").status_code == 204
        assert cluster.get(f"{CLUSTER}/reservations/{name}").status_code == 404
        assert cluster.delete(f"{CLUSTER}/reservations/{name}").status_code == 404
    assert cluster.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert cluster.delete(CLUSTER).status_code == 204


def test_reservations_come_in_pages_and_by_node(cluster: Client):
    add_node(cluster, "n2")
    for name, node in (("a", "n2"), ("b", "n1"), ("c", "n1")):
        reserve(cluster, name, template=pod_manifest("4", nodeName=node))
    path = f"{CLUSTER}/reservations?limit=1&node=n1"
    first = cluster.get(path).json
    second = cluster.get(f"{path}&marker={first['next']}").json
    assert [each["name"] for page in (first, second) for each in page["reservations"]] == ["b", "c"]
    assert second["next"] is None
    assert cluster.get(f"{CLUSTER}/reservations?node=n3").json == {"reservations": [], "next": None}
    for wrong in ("limit=0", "marker=x", "name=a"):
        assert cluster.get(f"{CLUSTER}/reservations?{wrong}").status_code == 400


def test_all_that_expired_ends_at_once_and_nothing_else(cluster: Client, monkeypatch):
    add_node(cluster, "n2")
    for name in ("a", "b", "c"):
        reserve(cluster, name, cpu="8", ttl="1h" if name < "c" else "0")
    now = reservation_ends.utcnow
    monkeypatch.setattr(reservation_ends, "utcnow", lambda: now() + datetime.timedelta(hours=2))
    listed = cluster.get(f"{CLUSTER}/reservations").json["reservations"]
    assert [(each["phase"], each["remarks"]) for each in listed[:2]] == [("Failed", ["expired"])] * 2
    assert listed[2]["phase"] == "Available"
    assert sum(use(cluster, node)["PCPU"] for node in ("n1", "n2")) == 8


def test_a_reservation_that_fits_nowhere_is_refused_as_its_pod_would_be(cluster: Client):
    refusal = reserve(cluster, cpu="17", status=409)["errors"][0]
    assert "0/1 nodes are available: 1 Insufficient cpu." in refusal["detail"]
    assert cluster.get(f"{CLUSTER}/reservations").json["reservations"] == []


def test_a_template_may_name_its_node(cluster: Client):
    add_node(cluster, "n2")
    template = pod_manifest("4", node="n2")
    assert reserve(cluster, template=template)["node"] == "n2"
    assert place(cluster, "web", labels=WEB)["node"] == "n2"


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
    place(
        cluster,
        "runs",
        labels=WEB,
        node="n1",
        status={"cpuset": once["held"]["cpuset"]},
        annotations=texts({ALLOCATED: {"name": "kept", "uid": once["uid"]}}),
    )
    assert shown(cluster)["phase"] == "Succeeded"


def test_nodes_and_explanations_show_reservations(cluster: Client):
    reserve(cluster, cpu="14")
    node = cluster.get(f"{CLUSTER}/nodes/n1").json
    (kept,) = node["reservations"]
    assert (kept["name"], kept["left"]["cpuset"]) == ("kept", "0-13")
    owners = {cpu["cpu"]: (cpu["owner"], cpu.get("reservation")) for cpu in node["cpus"]}
    assert (owners[0], owners[14]) == (("reservation", "kept"), ("free", None))
    preview = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("4")).json
    assert "reservation kept keeps CPUs 0-13, cpu 14, memory 1073741824" in str(preview["explanation"])
    (place_of_owner,) = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("4", labels=WEB)).json["nodes"]
    assert place_of_owner["remarks"] == ["takes from reservation kept"]
    assert ALLOCATED in place_of_owner["annotations"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"owners": []}, "Reservation.spec.owners: "),
        ({"owners": [{}]}, "Reservation.spec.owners[0]: "),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}]},
            "Reservation.spec.owners[0].labelSelector.matchExpressions[0].operator: ",
        ),
        (
            {"owners": [{"controller": {"controller": "yes"}}]},
            "Reservation.spec.owners[0].controller.controller",
        ),
        ({"ttl": "soon"}, "Reservation.spec.ttl: "),
        ({"ttl": "99999999999h"}, "Reservation.spec.ttl: "),
        ({"ttl": "1h", "expires": "2100-01-01T00:00:00Z"}, "Reservation.spec.ttl: "),
        ({"expires": "tomorrow"}, "Reservation.spec.expires: "),
        ({"expires": "2001-01-01T00:00:00Z"}, "Reservation.spec: it expired"),
        ({"allocateOnce": "no"}, "Reservation.spec.allocateOnce: "),
        ({"allocatePolicy": "Mine"}, "Reservation.spec.allocatePolicy: "),
        ({"template": None}, "Reservation.spec.template.spec: is missing"),
        ({"template": {"spec": {"containers": []}}}, "Reservation.spec.template.spec.containers: "),
    ],
)
def test_what_is_wrong_is_named(cluster: Client, change: dict[str, Any], field: str):
    body = reservation()
    body["spec"] |= change
    answer = cluster.put(f"{CLUSTER}/reservations/kept", body)
    assert answer.status_code == 400
    assert field in answer.json["errors"][0]["detail"]


def test_names_and_kinds_are_checked(cluster: Client):
    assert cluster.put(f"{CLUSTER}/reservations/other", reservation()).status_code == 400
    assert cluster.put(f"{CLUSTER}/reservations/UPPER", reservation("UPPER")).status_code == 400
    assert cluster.put(f"{CLUSTER}/reservations/kept", pod_manifest()).status_code == 400
    warned = reserve(cluster, taints=[])
    assert warned["warnings"] == ["Reservation.spec.taints: has no effect here"]


def texts(annotations: dict[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in annotations.items()}
