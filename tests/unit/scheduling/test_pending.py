"""Which pods wait for the loop, and which of them are alike."""

from __future__ import annotations

import copy
from typing import Any

import orjson

from placement.common.manifest import CHOOSE_GATE, PINNED
from placement.scheduling.pending import BindingWay, PendingPod, read_pending
from placement.sync.watched_objects import Key, ObjectKind, watched_object

KUEUE = "kueue.x-k8s.io/admission"


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "web", "name": name, "uid": f"uid-{name}", "labels": {"app": "x"}},
        "spec": {
            "schedulerName": "placement",
            "containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "2"}}}],
            **spec,
        },
    }


def read(manifest: dict[str, Any]) -> PendingPod | None:
    key = Key(ObjectKind.POD, "web", manifest["metadata"]["name"])
    return read_pending(key, watched_object(manifest), {"placement"}, lambda given: given)


def gates(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_pods_of_the_scheduler_wait_for_a_binding_and_pods_with_the_gate_for_their_cpus():
    assert read(pod()).way is BindingWay.BINDING
    assert (
        read(pod(schedulerName="default-scheduler", schedulingGates=gates(CHOOSE_GATE))).way
        is BindingWay.GATE
    )
    assert read(pod(schedulerName="default-scheduler")) is None
    assert read(pod(schedulerName="default-scheduler", schedulingGates=gates(KUEUE))) is None


def test_pods_that_have_a_node_are_over_or_are_deleted_wait_for_nothing():
    assert read(pod(nodeName="n1")) is None
    assert read({**pod(), "status": {"phase": "Failed"}}) is None
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert read(leaving) is None


def test_gates_of_others_are_named():
    assert read(pod(schedulingGates=gates(KUEUE))).other_gates == (KUEUE,)
    assert read(pod(schedulingGates=gates(CHOOSE_GATE, KUEUE))).other_gates == (KUEUE,)
    assert read(pod(schedulingGates=gates(CHOOSE_GATE))).other_gates == ()


def test_a_pod_is_pinned_once_its_gate_is_gone():
    manifest = pod(schedulerName="default-scheduler")
    manifest["metadata"]["annotations"] = {PINNED: "n1"}
    assert read(manifest).pinned_to == "n1"
    manifest["spec"]["schedulingGates"] = gates(CHOOSE_GATE)
    assert read(manifest).pinned_to is None


def test_names_mounts_and_images_make_no_shape():
    one, other = pod("a"), pod("b")
    other["spec"]["containers"][0] |= {"image": "y", "volumeMounts": [{"name": "token-x"}]}
    other["spec"]["volumes"] = [{"name": "token-x", "projected": {}}]
    other["metadata"]["ownerReferences"] = [{"uid": "x"}]
    assert read(one).shape == read(other).shape


def test_all_that_decides_makes_a_shape_of_its_own():
    first = read(pod())
    for change in (
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"priority": 5},
        {"hostNetwork": True},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"containers": [{"name": "m", "resources": {"requests": {"cpu": "3"}}}]},
        {"containers": [{**pod()["spec"]["containers"][0], "ports": [{"hostPort": 80}]}]},
    ):
        assert read(pod(**change)).shape != first.shape, change
    labelled = copy.deepcopy(pod())
    labelled["metadata"]["labels"]["app"] = "y"
    assert read(labelled).shape != first.shape


def test_members_of_any_type_are_read():
    for spec in ({"priority": "high"}, {"schedulingGates": "x"}, {"containers": None}, {"volumes": {}}):
        found = read(pod(**spec))
        assert found is not None
        assert found.priority == 0
        assert orjson.dumps(found.manifest)
