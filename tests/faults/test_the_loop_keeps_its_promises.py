"""On a real Kubernetes, each release there is: preemption, volumes and gates of docs/scheduling.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.common.manifest import CHOOSE_GATE
from tests.faults.around_kubernetes import Lab, lab
from tests.faults.loops import ask, bound, cpus_of, none_twice, running_loop
from tests.kubernetes import STATUS
from tests.patience import eventually
from tests.real_kubernetes import ETC, ControlPlane, Refused
from tests.server import database_url

MERGE = "application/merge-patch+json"
_GATED, _POLICIES = 27, 36
KUEUE = "kueue.x-k8s.io/admission"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture
def around(any_kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    # What is tested is in front of the database.
    with database_url("sqlite") as connection, lab(any_kubernetes, connection, tmp_path) as found:
        yield found


def reason(around: Lab, name: str) -> str:
    """Why a pod waits, as its condition says."""
    pod = around.kubernetes.pod(name)
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def priority(around: Lab, name: str, value: int) -> None:
    manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    around.kubernetes.ensure({**manifest, "value": value})


def leaving(around: Lab) -> set[str]:
    """The names of the pods that are being deleted."""
    pods = around.kubernetes.pods()
    return {each["metadata"]["name"] for each in pods if each["metadata"].get("deletionTimestamp")}


def test_less_important_pods_go_for_more_important_ones_and_each_keeps_its_node(around: Lab) -> None:
    priority(around, "low", 10)
    priority(around, "high", 1000)
    around.add_node("host-0")
    around.add_node("host-1")
    low = {f"low-{number}" for number in range(16)}
    with running_loop(around, said="nodes 2"):
        for name in sorted(low):
            ask(around, name, priorityClassName="low")
        eventually(low, lambda: set(bound(around)))
        for number in range(2):
            # Of different shapes, so that each looks for victims of its own.
            ask(around, f"high-{number}", cpus=4 + 2 * number, priorityClassName="high")
        eventually(5, lambda: len(leaving(around)))
        nominated = [
            (around.kubernetes.pod(f"high-{number}") or {})["status"]["nominatedNodeName"]
            for number in range(2)
        ]
        assert len(set(nominated)) == 2
        # A pod that comes meanwhile gets nothing of what the victims leave.
        ask(around, "late", priorityClassName="low")
        for name in sorted(leaving(around)):
            around.kubernetes.delete_pod(name)
        eventually(nominated, lambda: [bound(around).get(f"high-{number}") for number in range(2)])
        eventually(True, lambda: "Insufficient cpu" in reason(around, "late"))
        assert "late" not in bound(around)
        events = around.kubernetes.call("GET", "/api/v1/namespaces/default/events")["items"]
        told = {each["involvedObject"]["name"] for each in events if each["reason"] == "Preempted"}
        assert len(told) == 5
        none_twice(around)


def volume(around: Lab, name: str, node: str | None) -> None:
    """A claim, bound to a volume of its name that only this node reaches; unbound without a node."""
    amounts = {"accessModes": ["ReadWriteOnce"]}
    around.kubernetes.call(
        "POST",
        _CLAIMS,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                **amounts,
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
                **({"volumeName": name} if node else {}),
            },
        },
    )
    if node is None:
        return
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    around.kubernetes.call(
        "POST",
        _VOLUMES,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **amounts,
                "capacity": {"storage": "1Gi"},
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    # There is no controller here that would do it.
    around.kubernetes.call("PATCH", f"{_CLAIMS}/{name}/status", {"status": {"phase": "Bound"}}, MERGE)


def forget(around: Lab, name: str) -> None:
    """Delete a claim and its volume, which no controller protects here."""
    for path in (f"{_CLAIMS}/{name}", f"{_VOLUMES}/{name}"):
        around.kubernetes.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        around.kubernetes.call("DELETE", path)


def claiming(name: str) -> list[dict[str, Any]]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def test_pods_go_where_their_bound_volumes_are_and_others_are_refused_with_the_name_of_the_gate(
    around: Lab,
) -> None:
    around.add_node("host-0")
    around.add_node("host-1")
    volume(around, "bound", "host-1")
    volume(around, "unbound", None)
    try:
        with running_loop(around, said="nodes 2"):
            for number in range(3):
                ask(around, f"data-{number}", volumes=claiming("bound"))
            ask(around, "waits", volumes=claiming("unbound"))
            ask(around, "lost", volumes=claiming("missing"))
            eventually(
                {f"data-{number}": "host-1" for number in range(3)},
                lambda: {name: node for name, node in bound(around).items() if name.startswith("data-")},
            )
            eventually(True, lambda: CHOOSE_GATE in reason(around, "waits"))
            eventually(True, lambda: "not found" in reason(around, "lost"))
            # Another volume has the name of the claim by now.
            forget(around, "bound")
            volume(around, "bound", "host-0")
            ask(around, "again", volumes=claiming("bound"))
            eventually("host-0", lambda: bound(around).get("again"))
    finally:
        forget(around, "bound")
        around.kubernetes.call("PATCH", f"{_CLAIMS}/unbound", {"metadata": {"finalizers": None}}, MERGE)
        around.kubernetes.call("DELETE", f"{_CLAIMS}/unbound")


def test_gates_of_others_are_heeded(around: Lab) -> None:
    if around.kubernetes.minor < _GATED:
        pytest.skip("Kubernetes has no scheduling gates before 1.27")
    around.add_node("host-0")
    gates = [{"name": CHOOSE_GATE}, {"name": KUEUE}]
    with around.kubernetes.scheduler(), running_loop(around, said="nodes 1"):
        ask(around, "own", schedulingGates=[{"name": KUEUE}])
        ask(around, "both", scheduler="default-scheduler", schedulingGates=gates)
        ask(around, "free")
        eventually({"free"}, lambda: set(bound(around)))
        assert set(around.claims()) == {"free"}
        for name, left in (("own", []), ("both", gates[:1])):
            path = f"/api/v1/namespaces/default/pods/{name}"
            around.kubernetes.call("PATCH", path, {"spec": {"schedulingGates": left}}, MERGE)
        eventually({"free", "own", "both"}, lambda: set(bound(around)))
        assert all(len(cpus_of(pod)) == 2 for pod in none_twice(around))


def test_the_policy_gives_the_gate_to_pods_that_want_cpus_of_their_own(around: Lab) -> None:
    if around.kubernetes.minor < _POLICIES:
        pytest.skip("Kubernetes has no MutatingAdmissionPolicy of v1 before 1.36")
    manifests = list(yaml.safe_load_all((ETC / "kubernetes-scheduling" / "gate-policy.yaml").read_text()))
    group = "/apis/admissionregistration.k8s.io/v1"
    paths = [
        f"{group}/{each['kind'].lower().removesuffix('y')}{'ies' if each['kind'].endswith('y') else 's'}"
        for each in manifests
    ]
    namespace = "/api/v1/namespaces/default"
    label = {"metadata": {"labels": {CHOOSE_GATE: "true"}}}
    try:
        for path, manifest in zip(paths, manifests, strict=True):
            around.kubernetes.call("POST", path, manifest)
        around.kubernetes.call("PATCH", namespace, label, MERGE)

        def is_gated() -> bool:
            around.kubernetes.delete_pod("probe")
            made = ask(around, "probe", scheduler="default-scheduler")
            return [each["name"] for each in made["spec"].get("schedulingGates", ())] == [CHOOSE_GATE]

        # Policies take effect a moment after they were made.
        eventually(True, is_gated)
        assert "schedulingGates" not in ask(around, "own")["spec"]
        plain = ask(around, "plain", scheduler="default-scheduler", labels={"koordinator.sh/qosClass": "LS"})
        assert "schedulingGates" not in plain["spec"]
    finally:
        for path, manifest in zip(paths, manifests, strict=True):
            with suppress(Refused):
                around.kubernetes.call("DELETE", f"{path}/{manifest['metadata']['name']}")
        around.kubernetes.call("PATCH", namespace, {"metadata": {"labels": {CHOOSE_GATE: None}}}, MERGE)


def test_pods_of_koord_scheduler_are_taken_over_with_their_cpus(around: Lab) -> None:
    around.add_node("host-0")
    # As koord-scheduler leaves it: bound, with its CPUs as an annotation.
    made = ask(around, "former", scheduler="koord-scheduler")
    given = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "former",
            "uid": made["metadata"]["uid"],
            "annotations": {STATUS: json.dumps({"cpuset": "4-5"})},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "host-0"},
    }
    around.kubernetes.call("POST", "/api/v1/namespaces/default/pods/former/binding", given)
    ask(around, "waiting", scheduler="koord-scheduler")
    names = {f"new-{number}" for number in range(6)}
    arguments = ("--scheduler-name", "placement", "--scheduler-name", "koord-scheduler")
    with running_loop(around, *arguments, said="nodes 1"):
        for name in sorted(names):
            ask(around, name)
        eventually(names | {"former", "waiting"}, lambda: set(bound(around)))
        pods = {pod["metadata"]["name"]: pod for pod in none_twice(around)}
        assert cpus_of(pods["former"]) == {4, 5}
        eventually(names | {"former", "waiting"}, lambda: set(around.claims()))
