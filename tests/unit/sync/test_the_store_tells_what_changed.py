"""The store of watched objects holds the latest state, and tells once what changed and which pods ended."""

import threading

from placement.sync.informer_store import InformerStore
from placement.sync.service import PodId
from placement.sync.watched_objects import Key, ObjectKind, watched_object
from tests.patience import PATIENCE_SECONDS

NODE, POD = Key(ObjectKind.NODE, "", "n1"), Key(ObjectKind.POD, "default", "p")


def node(**members):
    return watched_object({"kind": "Node", "metadata": {"name": "n1", "uid": "N"}, **members})


def pod(uid="u1", host="n1", phase="Running", **status):
    metadata = {"name": "p", "namespace": "default", "uid": uid}
    spec = {"nodeName": host} if host else {}
    return watched_object(
        {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}
    )


def store(*collections):
    made = InformerStore(collections or ("all",))
    for title in collections or ("all",):
        made.replace(title, {})
    return made


def test_heartbeats_change_nothing_but_labels_do():
    before = node()
    beat = {"conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]}
    versioned = {"name": "n1", "uid": "N", "resourceVersion": "7", "managedFields": []}
    assert node(status=beat).mark == before.mark
    assert node(metadata=versioned).mark == before.mark
    assert node(metadata={**versioned, "labels": {"a": "b"}}).mark != before.mark
    assert node(status={**beat, "allocatable": {"cpu": "1"}}).mark != before.mark


def test_pods_that_are_over_are_not_kept_as_text():
    assert (pod().node, pod().over, pod().manifest["spec"]) == ("n1", False, {"nodeName": "n1"})
    waiting, ended = pod(host=None), pod(phase="Succeeded")
    assert (waiting.node, waiting.over) == (None, False)
    assert waiting.manifest["metadata"]["name"] == pod().manifest["metadata"]["name"]
    assert (ended.node, ended.text, ended.over) == (None, b"", True)


def test_nothing_is_told_before_every_collection_is_listed():
    made = InformerStore(["nodes", "pods"])
    made.replace("nodes", {NODE: node()})
    assert not made.complete
    assert made.changed(0) == set()
    made.replace("pods", {})
    assert made.complete
    assert made.changed(0) == {NODE}


def test_what_changed_is_told_once():
    made = store()
    made.put("all", NODE, node())
    assert made.changed(0) == {NODE}
    made.put("all", NODE, node(status={"conditions": [1]}))
    assert made.changed(0) == set()
    assert made.get(NODE).manifest["status"] == {"conditions": [1]}
    made.put("all", NODE, None)
    assert (made.changed(0), made.get(NODE), made.keys()) == ({NODE}, None, set())


def test_a_list_removes_what_it_lacks_from_its_own_collection_only():
    made = store("nodes", "pods")
    made.put("nodes", NODE, node())
    made.put("pods", POD, pod())
    made.changed(0)
    made.replace("pods", {})
    assert (made.changed(0), made.keys()) == ({POD}, {NODE})


def test_a_pod_ends_once_when_it_is_over_gone_or_another():
    for later in (pod(phase="Failed"), None, pod(uid="u2")):
        made = store()
        made.put("all", POD, pod())
        assert made.ended() == set()
        made.put("all", POD, later)
        assert made.ended() == {PodId("default", "p", "u1")}
        assert made.ended() == set()
        if later and later.over:
            made.put("all", POD, None)
            assert made.ended() == set()


def test_whoever_waits_for_changes_is_woken():
    made = store()
    found = []
    waiting = threading.Thread(target=lambda: found.append(made.changed(PATIENCE_SECONDS)), daemon=True)
    waiting.start()
    made.put("all", NODE, node())
    waiting.join(PATIENCE_SECONDS)
    assert found == [{NODE}]


def test_what_schedulers_write_to_a_reservation_changes_nothing_but_its_end_does():
    plain = {"kind": "Reservation", "metadata": {"name": "kept", "uid": "R"}, "spec": {"ttl": "1h"}}
    status = {"phase": "Available", "nodeName": "n1", "currentOwners": [{"name": "web"}]}
    annotated = {**plain["metadata"], "annotations": {"scheduling.koordinator.sh/resource-status": "{}"}}
    seen = watched_object(plain)
    written = watched_object({**plain, "metadata": annotated, "status": status})
    assert (written.mark, written.over) == (seen.mark, False)
    ended = watched_object({**plain, "status": {**status, "phase": "Failed"}})
    assert ended.over
    assert ended.mark != seen.mark
    longer = watched_object({**plain, "spec": {"ttl": "2h"}})
    assert longer.mark != seen.mark


def test_lists_that_bring_something_new_are_counted():
    made = store()
    made.replace("all", {NODE: node(), POD: pod()})
    before = made.lists
    made.replace("all", {NODE: node(), POD: pod()})
    made.put("all", POD, pod(host="n2"))
    made.lacks("other")
    assert made.lists == before
    made.replace("all", {NODE: node(), POD: pod()})
    made.replace("all", {NODE: node()})
    assert made.lists == before + 2
