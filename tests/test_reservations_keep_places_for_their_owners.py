"""Reservations hold what their pod would hold; pods of owners take from them, and nobody else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client import Client
from tests.kubernetes import node_manifests, pod_manifest

CLUSTER = "/ext/v1/clusters/edge"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
ORDER = "scheduling.koordinator.sh/reservation-order"
WEB = {"app": "web"}


@pytest.fixture
def cluster(api: Client) -> Client:
    """A cluster with one node of 16 CPUs."""
    assert api.put(CLUSTER).status_code == 201
    add_node(api, "n1")
    return api


def add_node(api: Client, name: str, **options: Any) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **options))
    assert answer.status_code == 201, answer.text


def reservation(
    name: str = "kept",
    cpu: str = "4",
    *,
    owners: list[Any] | None = None,
    template: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Reservation for pods that are called web."""
    pod = template or pod_manifest(cpu)
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "template": {"metadata": pod["metadata"], "spec": pod["spec"]},
            "owners": [{"labelSelector": {"matchLabels": WEB}}] if owners is None else owners,
            **spec,
        },
    }


def reserve(api: Client, name: str = "kept", cpu: str = "4", *, status: int = 201, **options: Any) -> Any:
    answer = api.put(f"{CLUSTER}/reservations/{name}", reservation(name, cpu, **options))
    assert answer.status_code == status, answer.text
    return answer.json


def shown(api: Client, name: str = "kept") -> Any:
    answer = api.get(f"{CLUSTER}/reservations/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json


def place(
    api: Client, name: str, cpu: str = "4", *, status: int = 201, annotations: Any = None, **options: Any
) -> Any:
    manifest = pod_manifest(cpu, **options)
    manifest["metadata"]["annotations"] |= annotations or {}
    answer = api.put(f"{CLUSTER}/pods/default/{name}", manifest)
    assert answer.status_code == status, answer.text
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


def test_others_do_not_see_what_is_reserved(cluster: Client):
    reserve(cluster, cpu="12")
    assert place(cluster, "other", "4")["cpuset"] == "12-15"
    refusal = place(cluster, "one-more", "1", status=409)
    assert "Insufficient cpu" in refusal["errors"][0]["detail"]


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
    place(cluster, "stranger", "1", status=409)
    assert cluster.delete(f"{CLUSTER}/pods/default/web-0").status_code == 204
    assert shown(cluster)["left"]["cpuset"] == "0-3,8-11"
    place(cluster, "stranger", "1", status=409)
    assert cluster.delete(f"{CLUSTER}/reservations/kept").status_code == 204
    assert use(cluster) == {"PCPU": 8, "CUSTOM_NODE_CPU_MILLI": 8000, "CUSTOM_PODS": 2}
    assert place(cluster, "stranger", "8")["cpuset"] == "0-3,8-11"
