"""What PodGroups say is known for pods, and a PodGroup that comes, changes or goes changes its pods."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from placement.common.gang import GANG_MIN_AVAILABLE, gang_of
from placement.sync.informer_store import InformerStore
from placement.sync.pod_groups import PodGroups
from placement.sync.watched_collections import Collection, collections
from placement.sync.watched_objects import Key, ObjectKind
from tests.pod_groups import KINDS, NATIVE, SIGS, gang_name, in_group, pod_group
from tests.synchronizing import pod_manifest

POD = Key(ObjectKind.POD, "default", "a")


class Watched:
    """A store to which the watches write."""

    def __init__(self) -> None:
        self._collections = collections([])
        self.store = InformerStore([each.title for each in self._collections])
        for collection in self._collections:
            self.store.replace(collection.title, {})
        self.groups = PodGroups(self.store)

    def of(self, manifest: dict[str, Any]) -> Collection:
        (found,) = [
            each
            for each in self._collections
            if (each.kind, each.api_version) == (manifest["kind"], manifest["apiVersion"])
        ]
        return found

    def put(self, manifest: dict[str, Any], *, gone: bool = False) -> set[Key]:
        """Store the object; the keys that changed."""
        collection = self.of(manifest)
        key, watched = collection.watched(manifest)
        self.store.put(collection.title, key, None if gone else watched)
        return self.store.changed(0)

    def mark(self) -> Any:
        watched = self.store.get(POD)
        assert watched is not None
        return self.groups.mark(watched)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def group_key(api_version: str) -> Key:
    return Key(ObjectKind.POD_GROUP, "default", f"{api_version.partition('/')[0]}/web")


@pytest.mark.parametrize("node", ["host-0", None], ids=["running", "waiting"])
@pytest.mark.parametrize("api_version", KINDS)
def test_a_group_that_comes_changes_or_goes_changes_its_pods(watched, api_version, node):
    marks = []
    key = group_key(api_version)
    watched.put(in_group(pod_manifest("a", node), api_version))
    watched.put(pod_manifest("b", node))
    marks.append(watched.mark())
    assert watched.put(pod_group(api_version, 2)) == {key, POD}
    marks.append(watched.mark())
    assert watched.put(pod_group(api_version, 3)) == {key, POD}
    marks.append(watched.mark())
    assert watched.put(pod_group(api_version, 3), gone=True) == {key, POD}
    assert watched.mark() == marks[0]
    assert len(set(marks)) == 3


def test_the_mark_of_a_pod_without_group_is_its_own(watched):
    watched.put(pod_manifest("a", "host-0"))
    watched.put(pod_group(SIGS))
    assert watched.mark() == watched.store.get(POD).mark


def test_the_status_of_a_group_changes_no_pod(watched):
    watched.put(in_group(pod_manifest("a", "host-0"), SIGS))
    watched.put(pod_group(SIGS))
    before = watched.mark()
    assert watched.put(pod_group(SIGS) | {"status": {"running": 1, "phase": "Running"}}) == set()
    assert watched.mark() == before


def test_a_pod_changes_with_the_group_that_it_names_now(watched):
    pod = pod_manifest("a", "host-0")
    for named in ("web", "other", "web"):
        watched.put(in_group(pod, SIGS, named))
        for name in ("web", "other"):
            watched.put(pod_group(SIGS, 2, name), gone=True)
            assert (POD in watched.put(pod_group(SIGS, 2, name))) == (name == named)
    watched.put(in_group(pod, SIGS), gone=True)
    assert watched.put(pod_group(SIGS, 4)) == {group_key(SIGS)}


@pytest.mark.parametrize("api_version", KINDS)
def test_pods_get_what_their_group_says(watched, api_version):
    pod = in_group(pod_manifest("a"), api_version)
    assert watched.groups.annotated(pod) == pod
    for other in set(KINDS) - {api_version}:
        watched.put(pod_group(other, 9))
    assert watched.groups.annotated(pod) == pod
    watched.put(pod_group(api_version, 3))
    annotated = watched.groups.annotated(pod)
    found = gang_of(annotated, "default")
    assert (found.name, found.least) == (gang_name(api_version), 3)
    # Nothing but its annotations differs.
    assert annotated | {"metadata": pod["metadata"]} == pod
    assert watched.groups.annotated(plain := pod_manifest("b")) is plain


@pytest.mark.parametrize("api_version", KINDS)
def test_it_is_said_which_group_a_pod_lacks(watched, api_version):
    pod, api_group = in_group(pod_manifest("a"), api_version), api_version.partition("/")[0]
    title = f"PodGroup default/web of {api_group}"
    assert watched.groups.lacking(pod) == f"{title} is not there"
    watched.store.lacks(f"PodGroups of {api_group}")
    assert watched.groups.lacking(pod) == f"{title} is not there, and Kubernetes offers none of that kind"
    watched.put(pod_group(api_version))
    assert watched.groups.lacking(pod) is None
    watched.put(pod_group(api_version, "many"))
    assert watched.groups.lacking(pod) == f"{title} asks for 'many' members, not a number of pods from 1 on"
    sure = {**pod["metadata"], "annotations": {**pod["metadata"].get("annotations", {})}}
    sure["annotations"][GANG_MIN_AVAILABLE] = "2"
    assert watched.groups.lacking({**pod, "metadata": sure}) is None


def test_pods_lack_nothing_that_name_no_group_or_say_it_all(watched):
    assert watched.groups.lacking(pod_manifest("a")) is None
    light = in_group(pod_manifest("a"), SIGS)
    light["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = "3"
    assert watched.groups.lacking(light) is None
    light["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = "many"
    assert watched.groups.lacking(light) == "PodGroup default/web of scheduling.sigs.k8s.io is not there"
    watched.put(pod_group(NATIVE, schedulingPolicy={"basic": {}}))
    basic = in_group(pod_manifest("a"), NATIVE)
    assert watched.groups.lacking(basic) is None
    assert watched.groups.annotated(basic) == basic


@pytest.mark.parametrize("odd", [None, 3, "", [], [3], {}, {"podGroupName": 3}, {"podGroupName": None}])
def test_odd_pods_and_groups_fault_nothing(watched, odd):
    for member in ("metadata", "spec", "status"):
        for pod in ({"kind": "Pod", member: odd}, {**pod_manifest("a"), member: odd}):
            assert watched.groups.annotated(pod) == pod
            assert watched.groups.lacking(pod) is None
    pod = pod_manifest("a")
    pod["spec"]["schedulingGroup"] = odd
    assert watched.groups.lacking(pod) is None
    for api_version in KINDS:
        watched.put({**pod_group(api_version), "spec": odd})
        named = in_group(pod_manifest("a"), api_version)
        watched.groups.annotated(named)
        assert (watched.groups.lacking(named) is None) == (api_version != NATIVE)


def test_threads_may_ask_while_groups_come_and_go(watched):
    pods = [in_group(pod_manifest("a", "host-0"), api_version) for api_version in KINDS]
    faults: list[Exception] = []
    over = threading.Event()

    def ask() -> None:
        try:
            while not over.is_set():
                for pod in pods:
                    found = gang_of(watched.groups.annotated(pod), "default")
                    assert found is None or found.least in (2, 3)
                    watched.groups.lacking(pod)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(200):
        for api_version, pod in zip(KINDS, pods, strict=True):
            watched.put(pod)
            watched.put(pod_group(api_version, 2 + number % 2), gone=number % 3 == 0)
    over.set()
    for thread in threads:
        thread.join()
    assert faults == []
