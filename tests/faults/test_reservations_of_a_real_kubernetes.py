"""On a real Kubernetes: reservations are followed once it knows them, used by bound pods, and given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.around_kubernetes import Lab, lab
from tests.kubernetes import pod_manifest
from tests.real_kubernetes import ControlPlane, Refused
from tests.reservations import ALLOCATED, WEB, reservation
from tests.synchronizing import eventually

DEFINITION = Path(__file__).resolve().parents[2] / "etc" / "examples" / "kubernetes-reservations.yaml"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.fixture
def around(kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(kubernetes, connection_url, tmp_path) as found:
        found.add_node("host-0")
        yield found


@pytest.fixture
def definition(kubernetes: ControlPlane) -> Iterator[None]:
    """Kubernetes knows reservations."""
    manifest = yaml.safe_load(DEFINITION.read_text())
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


def waiting(around: Lab, name: str) -> Any:
    manifest = pod_manifest("4", labels=WEB)
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    del manifest["metadata"]["uid"], manifest["status"], manifest["spec"]["priority"]
    manifest["spec"]["containers"][0]["image"] = "none"
    return around.kubernetes.create(manifest)


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
