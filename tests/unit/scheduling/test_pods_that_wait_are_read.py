"""Pods as the scheduling loop reads them from their manifests."""

from __future__ import annotations

from typing import Any

import pytest

from placement.common.manifest import CHOOSE_GATE, PINNED
from placement.scheduling.pending import BindingWay, PendingPod, read_pending
from placement.sync.watched_objects import Key, ObjectKind, watched_object

KEY = Key(ObjectKind.POD, "default", "pod")


def read(metadata: Any = None, **spec: Any) -> PendingPod | None:
    """The pod as it is read; it names this scheduler unless its spec says otherwise."""
    whole = {"namespace": "default", "name": "pod", "uid": "uid", **(metadata or {})}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": whole,
        "spec": {"schedulerName": "ours", **spec},
    }
    return read_pending(KEY, watched_object(manifest), {"ours"}, lambda given: given)


@pytest.mark.parametrize(
    ("spec", "metadata", "way"),
    [
        ({}, {}, BindingWay.BINDING),
        ({"schedulerName": "theirs"}, {}, None),
        ({"schedulerName": "theirs", "schedulingGates": [{"name": CHOOSE_GATE}]}, {}, BindingWay.GATE),
        # Kubernetes binds no pod with a gate, so the gate goes first, whoever binds afterwards.
        ({"schedulingGates": [{"name": CHOOSE_GATE}]}, {}, BindingWay.GATE),
        ({}, {"annotations": {PINNED: "host-0"}}, BindingWay.BINDING),
        ({"schedulerName": "theirs"}, {"annotations": {PINNED: "host-0"}}, BindingWay.GATE),
        ({"nodeName": "host-0"}, {}, None),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, None),
    ],
)
def test_pods_of_the_loop_have_a_way(spec: Any, metadata: Any, way: BindingWay | None) -> None:
    found = read(metadata, **spec)
    assert (found and found.way) == way


def test_a_pod_is_pinned_only_for_a_scheduler_that_is_not_the_loop() -> None:
    metadata = {"annotations": {PINNED: "host-0"}}
    ours, theirs = read(metadata), read(metadata, schedulerName="theirs")
    assert ours is not None
    assert theirs is not None
    assert (ours.pinned_to, theirs.pinned_to) == (None, "host-0")


def test_what_decides_nothing_does_not_change_the_shape() -> None:
    one = read({"uid": "uid", "resourceVersion": "1"}, containers=[{"name": "main", "image": "one"}])
    other = read({"uid": "other", "resourceVersion": "2"}, containers=[{"name": "main", "image": "other"}])
    larger = read(containers=[{"name": "main", "resources": {"requests": {"cpu": "4"}}}])
    assert one is not None
    assert other is not None
    assert larger is not None
    assert one.shape == other.shape != larger.shape
