"""What a node withholds from pods stays withheld while the manifest that says so cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from placement.common.manifest import ManifestReport
from placement.pods.services import nodes as node_imports
from tests.client import Client
from tests.kubernetes import ALLOCS, CLUSTER, KUBELET, RESERVATION, node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

NODE, POD = f"{CLUSTER}/nodes/n1", f"{CLUSTER}/pods/default"
SYSTEM = "node.koordinator.sh/system-qos-resource"
LISTS = ("0;8", "0-", "3-1", "0,,8", "0 8", "eight")


@pytest.fixture
def cluster(api: Client) -> Client:
    assert api.put(CLUSTER).status_code == 201
    return api


def imported(api: Client, on_report: bool = False, **annotations: Any) -> list[str]:
    """Import the node with these annotations; return the warnings."""
    given = {key.replace("__", "/"): value for key, value in annotations.items()}
    manifests = node_manifests("n1", **{"nrt" if on_report else "annotations": given})
    answer = api.put(NODE, manifests)
    assert answer.status_code in (200, 201), answer.text
    found: list[str] = answer.json["warnings"]
    documents = [manifests["node"], manifests["nodeResourceTopology"]]
    (again,) = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": documents}).json["nodes"]
    assert [each for each in found if "read" in each] == [
        each for each in again["warnings"] if "read" in each
    ]
    return found


def placed(api: Client, name: str = "p", **pod: Any) -> Any:
    return api.put(f"{POD}/{name}", pod_manifest("2", **pod))


def owners(api: Client) -> dict[int, str]:
    return {cpu["cpu"]: cpu["owner"] for cpu in api.get(NODE).json["cpus"]}


@pytest.mark.parametrize("listed", ["0, 8", " 0 ,8 ", "8,0"])
def test_blanks_in_a_list_are_read(cluster: Client, listed: str):
    imported(cluster, **{RESERVATION: {"reservedCPUs": listed}})
    assert [owners(cluster)[cpu] for cpu in (0, 8)] == ["reserved", "reserved"]
    assert placed(cluster).json["cpuset"] == "2-3"


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize("key", [RESERVATION, SYSTEM, KUBELET])
def test_a_list_that_cannot_be_read_gives_no_pod_cpus_of_its_own(cluster: Client, key: str, listed: str):
    member = "cpuset" if key == SYSTEM else "reservedCPUs"
    (warning,) = imported(cluster, on_report=True, **{key: {"policy": "none", member: listed}})
    assert f"[{key}].{member}: not a CPU list" in warning
    refused = placed(cluster)
    assert refused.status_code == 409
    assert "node(s) have a reservation of CPUs that cannot be read" in refused.text
    assert placed(cluster, "shared", qos="LS", priority=None).status_code == 201
    # A list that can be read opens the node again.
    imported(cluster, on_report=True, **{key: {"policy": "none", member: "0,8"}})
    assert placed(cluster).json["cpuset"] == "2-3"


def test_the_former_list_is_the_one_that_is_stored_at_last(cluster: Client, monkeypatch):
    """Another writer imports another list while the one that cannot be read is completed."""
    imported(cluster, on_report=False, **{RESERVATION: {"reservedCPUs": "0"}})
    complete, between = node_imports.with_former_withholding, [{"reservedCPUs": "1"}]

    def interrupted(*given: Any) -> Any:
        if between:
            imported(cluster, on_report=False, **{RESERVATION: between.pop()})
        return complete(*given)

    monkeypatch.setattr(node_imports, "with_former_withholding", interrupted)
    imported(cluster, on_report=False, **{RESERVATION: {"reservedCPUs": "0-"}})
    assert [owners(cluster)[cpu] for cpu in (0, 1)] == ["free", "reserved"]


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize("on_report", [True, False])
def test_the_former_list_stays_in_force(cluster: Client, listed: str, on_report: bool):
    imported(cluster, on_report, **{RESERVATION: {"reservedCPUs": "0,8"}})
    for _ in range(2):
        (warning,) = imported(cluster, on_report, **{RESERVATION: {"reservedCPUs": listed}})
        assert warning.endswith("; the former annotation stays in force")
        assert [owners(cluster)[cpu] for cpu in (0, 8)] == ["reserved", "reserved"]
    assert placed(cluster).json["cpuset"] == "2-3"
    # Without the annotation nothing is reserved any more.
    assert imported(cluster, on_report) == []
    assert owners(cluster)[0] == "free"


@pytest.mark.parametrize("reservation", [{"reservedCPUs": "0-"}, {"resources": {"memory": "much"}}])
def test_no_words_of_a_warning_decide(
    cluster: Client, monkeypatch: pytest.MonkeyPatch, reservation: dict[str, Any]
):
    warn = ManifestReport.warn
    monkeypatch.setattr(ManifestReport, "warn", lambda self, sentence: warn(self, f"{sentence} (E17)"))
    imported(cluster, **{RESERVATION: {"reservedCPUs": "0", "resources": {"memory": "2Gi"}}})
    imported(cluster, **{RESERVATION: reservation})
    assert owners(cluster)[0] == "reserved"
    memory = cluster.get(NODE).json["resources"]["CUSTOM_NODE_MEMORY_MB"]
    assert memory["capacity"] == 30 * 1024


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RESERVATION, "{"),
        (RESERVATION, []),
        (RESERVATION, '{"reservedCPUs":"0"} trailing'),
        (SYSTEM, {"cpuset": 4}),
        (SYSTEM, {"cpuset": "4", "cpusetExclusive": "no"}),
        (KUBELET, "static"),
        (KUBELET, {"policy": "statik"}),
        (KUBELET, {"policy": "static", "options": ["full-pcpus-only"]}),
        (ALLOCS, "nothing"),
        (ALLOCS, [{"uid": "u", "cpuset": "0-", "managedByKubelet": True}]),
        (ALLOCS, [{"cpuset": "0", "managedByKubelet": True}]),
        (ALLOCS, [{"uid": "u", "cpuset": "0", "managedByKubelet": 1}]),
    ],
)
def test_other_things_that_withhold_cpus_close_the_node_as_well(cluster: Client, key: str, value: Any):
    warnings = imported(cluster, on_report=True, **{key: value})
    assert [each for each in warnings if key in each and "until it can be read" in each]
    assert placed(cluster).status_code == 409


@pytest.mark.parametrize("amount", ["much", "-1", [], {}])
def test_an_amount_that_cannot_be_read_is_all_there_is(cluster: Client, amount: Any):
    def left(resource_class: str) -> int:
        return cluster.get(NODE).json["resources"][resource_class]["capacity"]

    warnings = imported(cluster, **{RESERVATION: {"resources": {"memory": amount}}})
    assert [each for each in warnings if "resources.memory" in each]
    assert (left("CUSTOM_NODE_MEMORY_MB"), left("CUSTOM_NODE_CPU_MILLI")) == (0, 16000)
    imported(cluster, **{RESERVATION: {"resources": {"memory": "2Gi"}}})
    assert left("CUSTOM_NODE_MEMORY_MB") == 30 * 1024
    imported(cluster, **{RESERVATION: {"resources": {"memory": amount}}})
    assert left("CUSTOM_NODE_MEMORY_MB") == 30 * 1024


def test_the_owner_of_the_node_sees_that_it_is_closed(cluster: Client):
    imported(cluster, **{RESERVATION: json.dumps({"reservedCPUs": "0-"})})
    shown = cluster.get("/ui/refusals").text
    assert "no pod is bound there, as its reservation of CPUs cannot be read" in shown
