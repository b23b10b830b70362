"""Which bound pods need no report, as the service knows all about them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from placement.common.manifest import CHOOSE_GATE, PINNED
from placement.sync.own_claims import OwnClaims
from placement.sync.watched_objects import watched_object

STATUS = "scheduling.koordinator.sh/resource-status"
PLACED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "web",
        "name": "a",
        "uid": "uid-a",
        "resourceVersion": "5",
        "labels": {"app": "x"},
        "annotations": {"owner": "me"},
    },
    "spec": {"schedulerName": "placement", "schedulingGates": [{"name": CHOOSE_GATE}], "containers": []},
    "status": {"phase": "Pending"},
}


def bound() -> dict[str, Any]:
    """The pod as Kubernetes 1.36 has it after its Binding."""
    found = copy.deepcopy(PLACED)
    found["metadata"]["resourceVersion"] = "9"
    found["metadata"]["labels"] |= {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"}
    found["metadata"]["annotations"] |= {STATUS: '{"cpuset":"0-1"}', PINNED: "n1"}
    del found["spec"]["schedulingGates"]
    found["spec"] |= {"nodeName": "n1", "affinity": {"nodeAffinity": {"required": 1}}}
    found["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled"}]}
    return found


@pytest.fixture
def own() -> OwnClaims:
    claims = OwnClaims()
    claims.begins("uid-a")
    claims.binds("uid-a", "n1", PLACED, [STATUS])
    return claims


def test_a_binding_changes_nothing_that_the_service_does_not_know(own):
    assert own.says_all(watched_object(bound()))
    assert own.is_bound("uid-a")
    assert not own.is_binding("uid-a")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("metadata", {"labels": {"app": "y"}}),
        ("metadata", {"annotations": {"owner": "you", STATUS: "{}"}}),
        ("metadata", {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ("spec", {"containers": [{"name": "m"}]}),
        ("spec", {"nodeName": "n2"}),
        ("spec", {"affinity": {"podAntiAffinity": {"required": 1}}}),
    ],
)
def test_a_pod_that_changed_otherwise_is_reported(own, part, change):
    manifest = bound()
    manifest[part] |= change
    assert not own.says_all(watched_object(manifest))


def test_pods_of_others_are_reported(own):
    other = bound()
    other["metadata"]["uid"] = "uid-b"
    assert not own.says_all(watched_object(other))
    own.forget("uid-a")
    assert not own.says_all(watched_object(bound()))


def test_a_pod_that_could_not_be_bound_is_not_bound():
    claims = OwnClaims()
    claims.begins("uid-a")
    assert (claims.binding, claims.is_binding("uid-a")) == (1, True)
    claims.fails("uid-a")
    assert (claims.binding, claims.is_bound("uid-a")) == (0, False)
