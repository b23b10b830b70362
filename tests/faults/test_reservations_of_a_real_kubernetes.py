"""On a real Kubernetes: reservations are followed once it knows them, used by bound pods, and given back.

The scheduling loop writes their status.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.around_kubernetes import Lab, lab
from tests.kubernetes import STATUS, pod_manifest
from tests.real_kubernetes import ControlPlane, Refused
from tests.reservations import ALLOCATED, WEB, reservation
from tests.synchronizing import eventually

DEFINITION = Path(__file__).resolve().parents[2] / "etc" / "examples" / "kubernetes-reservations.yaml"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.fixture
def kubernetes(any_kubernetes: ControlPlane) -> ControlPlane:
    return any_kubernetes


@pytest.fixture
def around(kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(kubernetes, connection_url, tmp_path) as found:
        found.add_node("host-0")
        yield found


@pytest.fixture
def definition(kubernetes: ControlPlane) -> Iterator[None]:
    """Kubernetes knows reservations."""
    with defined(kubernetes, yaml.safe_load(DEFINITION.read_text())):
        yield


@contextmanager
def defined(kubernetes: ControlPlane, manifest: dict[str, Any]) -> Iterator[None]:
    kubernetes.call("POST", _DEFINITIONS, manifest)
    eventually(True, lambda: is_served(kubernetes))
    yield
    kubernetes.call("DELETE", f"{_DEFINITIONS}/{manifest['metadata']['name']}")
    eventually(False, lambda: is_served(kubernetes))


def is_served(kubernetes: ControlPlane) -> bool:
    with suppress(Refused):
        kubernetes.call("GET", _RESERVATIONS)
        return True
    return False


def held(around: Lab) -> dict[str, Any]:
    return {each["name"]: each for each in around.service("GET", "/reservations")["reservations"]}


def waiting(around: Lab, name: str, labels: dict[str, str] = WEB, **spec: Any) -> Any:
    manifest = pod_manifest("4", labels=labels)
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    del manifest["metadata"]["uid"], manifest["status"], manifest["spec"]["priority"]
    manifest["spec"]["containers"][0]["image"] = "none"
    manifest["spec"] |= spec
    return around.kubernetes.create(manifest)


def reserve(around: Lab, *arguments: Any, **options: Any) -> Any:
    return around.kubernetes.call("POST", _RESERVATIONS, reservation(*arguments, **options))


def shown(around: Lab, name: str) -> dict[str, Any]:
    """A Reservation as Kubernetes has it, with its conditions by type."""
    found = around.kubernetes.call("GET", f"{_RESERVATIONS}/{name}")
    status = found.get("status") or {}
    conditions = {each.pop("type"): each for each in status.get("conditions", ())}
    return {**found, "status": {**status, "conditions": conditions}}


def state(around: Lab, name: str) -> tuple[Any, ...]:
    """Phase and node of a Reservation, and the status and reason of its conditions."""
    status = shown(around, name)["status"]
    conditions = [status["conditions"].get(kind, {}) for kind in ("Scheduled", "Ready")]
    told = [f"{each.get('status')} {each.get('reason')}" for each in conditions]
    return status.get("phase"), status.get("nodeName"), *told


def owners(around: Lab, name: str) -> tuple[Any, ...]:
    """The uids of the pods that use a Reservation, and what they have of it."""
    status = shown(around, name)["status"]
    return [each["uid"] for each in status.get("currentOwners", ())], status.get("allocated", {}).get("cpu")


def test_a_cluster_that_knows_no_reservations_is_followed(around):
    with around.synchronized(1) as sync:
        around.add_node("host-1")
        eventually({"host-0", "host-1"}, around.nodes)
        sync.end()
        assert "eservation" not in sync.said


def test_reservations_come_are_used_by_pods_and_go(around, definition):
    with around.synchronized(1) as sync:
        made = around.kubernetes.call("POST", _RESERVATIONS, reservation(cpu="8", allocateOnce=False))
        eventually(["kept"], lambda: list(held(around)))
        assert held(around)["kept"]["uid"] == made["metadata"]["uid"]
        assert around.used("host-0") == 8
        pod = waiting(around, "web")
        assert around.bind("web", pod["metadata"]["uid"], "host-0") == ""
        written = around.kubernetes.pod("web")["metadata"]["annotations"]
        assert json.loads(written[ALLOCATED])["uid"] == made["metadata"]["uid"]
        # What the pod says of itself is reported and changes nothing.
        eventually(False, lambda: around.service("GET", "/pods/default/web")["scheduled"])
        assert [owner["name"] for owner in held(around)["kept"]["current_owners"]] == ["web"]
        assert around.used("host-0") == 8
        around.kubernetes.delete_pod("web")
        eventually("0-7", lambda: held(around)["kept"]["left"]["cpuset"])
        around.kubernetes.call("DELETE", f"{_RESERVATIONS}/kept")
        eventually([], lambda: list(held(around)))
        assert around.used("host-0") == 0
        sync.end()


AVAILABLE = "Available", "host-0", "True Scheduled", "True Available"
PENDING = "Pending", None, "False Unschedulable", "None None"
SCHEDULER = {"schedulerName": "placement"}
OTHERS = [{"labelSelector": {"matchLabels": {"app": "other"}}}]


def test_the_loop_says_where_reservations_are_and_which_pods_use_them(around, definition):
    with around.scheduled(1) as loop:
        reserve(around, "before", cpu="8", owners=OTHERS)
        eventually(AVAILABLE, lambda: state(around, "before"))
        reserve(around, cpu="12", allocateOnce=False)
        eventually(PENDING, lambda: state(around, "kept"))
        why = shown(around, "kept")["status"]["conditions"]["Scheduled"]["message"]
        assert why.startswith("0/1 nodes are available: ")
        around.kubernetes.call("DELETE", f"{_RESERVATIONS}/before")
        eventually(AVAILABLE, lambda: state(around, "kept"))
        kept = shown(around, "kept")
        assert kept["status"]["allocatable"]["cpu"] == "12"
        cpus = json.loads(kept["metadata"]["annotations"][STATUS])["cpuset"]
        assert cpus == held(around)["kept"]["held"]["cpuset"]
        web = waiting(around, "web", **SCHEDULER)
        eventually(([web["metadata"]["uid"]], "4"), lambda: owners(around, "kept"))
        assert state(around, "kept") == AVAILABLE
        around.kubernetes.delete_pod("web")
        eventually(([], None), lambda: owners(around, "kept"))
        # What a user has ended stays so, and is given back.
        ended = {"status": {"phase": "Failed"}}
        patch = "application/merge-patch+json"
        around.kubernetes.call("PATCH", f"{_RESERVATIONS}/kept/status", ended, patch)
        eventually([], lambda: list(held(around)))
        reserve(around, "after", cpu="12")
        eventually(AVAILABLE, lambda: state(around, "after"))
        assert state(around, "kept") == ("Failed", *AVAILABLE[1:])
        loop.end()
        assert "status of reservation" not in loop.said


def test_the_loop_says_that_reservations_are_used_up_or_expired(around, definition):
    with around.scheduled(1) as loop:
        reserve(around, "once", cpu="8")
        reserve(around, "short", cpu="2", owners=OTHERS, ttl="2s")
        reserve(around, "large", cpu="1000", owners=OTHERS, ttl="2s")
        eventually(("Failed", "Expired"), lambda: ended(around, "short"))
        eventually(("Failed", "Expired"), lambda: ended(around, "large"))
        eventually(AVAILABLE, lambda: state(around, "once"))
        web = waiting(around, "web", **SCHEDULER)
        eventually(
            ("Succeeded", "host-0", "True Scheduled", "False Succeeded"), lambda: state(around, "once")
        )
        assert owners(around, "once") == ([web["metadata"]["uid"]], "4")
        eventually([], lambda: list(held(around)))
        assert around.used("host-0") == 4
        around.kubernetes.delete_pod("web")
        eventually(0, lambda: around.used("host-0"))
        assert owners(around, "once") == ([web["metadata"]["uid"]], "4")
        loop.end()


def ended(around: Lab, name: str) -> tuple[Any, ...]:
    status = shown(around, name)["status"]
    return status.get("phase"), status["conditions"].get("Ready", {}).get("reason")


def test_a_status_that_is_no_resource_of_its_own_is_written_too(around, kubernetes):
    manifest = yaml.safe_load(DEFINITION.read_text())
    del manifest["spec"]["versions"][0]["subresources"]
    with defined(kubernetes, manifest), around.scheduled(1):
        reserve(around, cpu="4")
        eventually(AVAILABLE, lambda: state(around, "kept"))
