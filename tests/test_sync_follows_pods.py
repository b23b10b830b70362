"""`placement sync kubernetes`: pods that occupy nodes, wait, end, and follow one another."""

from __future__ import annotations

import copy
import io
import time
from contextlib import suppress
from typing import Any

import pytest

from placement.client.client import Client
from placement.sync.api_server import ApiServer as RealApiServer
from placement.sync.journal import Journal
from placement.sync.service import ServiceCluster
from placement.sync.synchronization import Synchronization
from tests.api_server import ApiServer, write_kubeconfig
from tests.kubernetes import STATUS
from tests.service import Service, ServiceError
from tests.synchronizing import eventually, join, pod_manifest


@pytest.fixture(autouse=True)
def two_machines(api_server: ApiServer) -> None:
    for name in ("host-0", "host-1"):
        join(api_server, name)


def pinned(manifest: dict[str, Any], cpus: str) -> dict[str, Any]:
    """The pod with CPUs that a scheduler gave it."""
    changed = copy.deepcopy(manifest)
    changed["metadata"]["annotations"] = {STATUS: f'{{"cpuset":"{cpus}"}}'}
    return changed


def test_once_records_pods_with_their_cpus(around, api_server):
    for number in range(5):
        cpus = f"{2 * number + 2},{2 * number + 34}"
        api_server.put(pinned(pod_manifest(f"web-{number}", f"host-{number % 2}"), cpus))
    api_server.put(pod_manifest("waiting"))
    once = around.once()
    assert once.returncode == 0, once.stderr
    assert once.stdout.splitlines()[-1] == "nodes 2, pods 5, rejected 0"
    assert around.pods() == {f"default/web-{number}": f"host-{number % 2}" for number in range(5)}
    assert around.pod("web-3")["cpuset"] == "8,40"
    assert around.used("host-0", "PCPU") == 6
    api_server.delete("Pod", "web-3", "default")
    assert around.once().stdout.splitlines()[-1] == "nodes 2, pods 4, rejected 0"
    assert "default/web-3" not in around.pods()
    assert around.used("host-1", "PCPU") == 2


def test_pods_appear_change_end_and_vanish(around, api_server):
    first, second, third = (pod_manifest(name) for name in ("a", "b", "c"))
    with around.running() as sync:
        for manifest in (first, second, third):
            api_server.put(manifest)
        eventually(2, lambda: len(around.nodes()))
        for manifest, node in ((first, "host-0"), (second, "host-0"), (third, "host-1")):
            manifest["spec"]["nodeName"] = node
            api_server.put(manifest)
        eventually(
            {"default/a": "host-0", "default/b": "host-0", "default/c": "host-1"}, lambda: around.pods()
        )
        api_server.put(pinned(first, "2,34"))
        eventually("2,34", lambda: around.pod("a")["cpuset"])
        second["status"]["phase"] = "Succeeded"
        api_server.put(second)
        api_server.delete("Pod", "c", "default")
        eventually({"default/a": "host-0"}, around.pods)
        eventually((1, 0), lambda: (around.used("host-0"), around.used("host-1")))
        sync.end()
        assert "stopped: nodes 2, pods 1, rejected 0" in sync.said


def test_a_pod_that_comes_back_on_another_node_without_cpus_is_warned_of(around, api_server):
    bare = pod_manifest("web", "host-0")
    api_server.put(pinned(bare, "2,34"))
    assert around.once().returncode == 0
    bare["spec"]["nodeName"] = "host-1"
    api_server.put(bare)
    once = around.once()
    warning = "moved from node host-0, where it had CPUs 2,34, to node host-1, where it has none of its own"
    assert f"pod default/web: {warning}" in once.stdout + once.stderr
    assert around.pod("web")["node"] == "host-1"


def test_a_pod_waits_for_its_node(around, api_server):
    api_server.put(pod_manifest("early", "host-9"))
    with around.running() as sync:
        eventually(True, lambda: "nodes 2, pods 0, waiting 1, rejected 0" in sync.said)
        join(api_server, "host-9")
        eventually({"default/early": "host-9"}, around.pods)
        sync.end()
        assert "stopped: nodes 3, pods 1, rejected 0" in sync.said


def test_a_node_goes_after_its_pods(around, api_server):
    api_server.put(pod_manifest("a", "host-0"))
    api_server.put(pod_manifest("b", "host-1"))
    with around.running() as sync:
        eventually(2, lambda: len(around.pods()))
        api_server.delete("Node", "host-0")
        eventually(True, lambda: "it is closed to new pods: Node host-0 still has pods." in sync.said)
        assert around.pods() == {"default/a": "host-0", "default/b": "host-1"}
        # Kubernetes collects the pod later.
        api_server.delete("Pod", "a", "default")
        eventually(["host-1"], around.nodes)
        join(api_server, "host-0")
        eventually(2, lambda: len(around.nodes()))
    assert around.pods() == {"default/b": "host-1"}


def test_a_node_goes_after_its_pods_after_a_restart_too(around, api_server):
    api_server.put(pod_manifest("a", "host-0"))
    api_server.put(pod_manifest("b", "host-1"))
    assert around.once().returncode == 0
    api_server.delete("Node", "host-0")
    once = around.once()
    assert once.stdout.splitlines()[-1] == "nodes 2, pods 2, rejected 1"
    assert around.pods() == {"default/a": "host-0", "default/b": "host-1"}
    api_server.delete("Pod", "a", "default")
    assert around.once().stdout.splitlines()[-1] == "nodes 1, pods 1, rejected 0"
    assert (around.nodes(), around.pods()) == (["host-1"], {"default/b": "host-1"})


def test_pods_of_a_node_that_came_back_are_on_the_new_one(around, api_server):
    api_server.put(pod_manifest("a", "host-0"))
    with around.running():
        eventually({"default/a": "host-0"}, around.pods)
        before = around.pod("a")["resource_provider"]
        join(api_server, "host-0")
        eventually(True, lambda: _provider(around, "a") not in (None, before))


def _provider(around, name):
    """Where the pod is; it may vanish between any two looks."""
    with suppress(ServiceError):
        return around.pod(name)["resource_provider"]
    return None


def test_what_ended_unseen_is_released(around, api_server):
    for name in ("a", "b", "c"):
        api_server.put(pod_manifest(name, "host-0"))
    with around.running() as sync:
        eventually(3, lambda: len(around.pods()))
        with api_server.away():
            api_server.delete("Pod", "a", "default")
            api_server.put(pod_manifest("d", "host-1"))
            api_server.forget()
        eventually({"default/b", "default/c", "default/d"}, lambda: set(around.pods()))
        sync.end()
    api_server.delete("Pod", "b", "default")
    with around.running():
        eventually({"default/c", "default/d"}, lambda: set(around.pods()))


def test_a_claim_for_a_pod_that_waits_is_left_alone(around, api_server):
    waiting = pod_manifest("waiting")
    assert around.once().returncode == 0
    api_server.put(waiting)
    path = f"/ext/v1/clusters/{around.cluster}/pods/default/waiting"
    claimed = Service(around.url).must("PUT", path, waiting)
    with around.running():
        api_server.put(pod_manifest("other", "host-1"))
        eventually(True, lambda: "default/other" in around.pods())
        waiting["metadata"]["annotations"] = {"unrelated": "change"}
        api_server.put(waiting)
        api_server.put(pod_manifest("another", "host-1"))
        eventually(True, lambda: "default/another" in around.pods())
        assert around.pod("waiting")["cpuset"] == claimed["cpuset"]
        waiting["spec"]["nodeName"] = claimed["node"]
        waiting["metadata"]["annotations"] = claimed["annotations"]
        api_server.put(waiting)
        api_server.put(pod_manifest("one-more", "host-1"))
        eventually(True, lambda: "default/one-more" in around.pods())
        assert around.pod("waiting")["cpuset"] == claimed["cpuset"]
        api_server.delete("Pod", "waiting", "default")
        eventually(False, lambda: "default/waiting" in around.pods())


def test_a_pod_that_is_newer_than_the_list_is_not_taken_for_gone(around, api_server):
    newer = pod_manifest("newer", "host-0")
    api_server.put(newer)
    assert around.once().returncode == 0
    api_server.unlisted.add("newer")
    assert around.once().returncode == 0
    assert around.pods() == {"default/newer": "host-0"}
    api_server.delete("Pod", "newer", "default")
    assert around.once().returncode == 0
    assert around.pods() == {}


def test_a_pod_under_the_same_name_replaces_the_former_one(around, api_server):
    former = api_server.put(pod_manifest("web-0", "host-0"))
    with around.running():
        eventually({"default/web-0": "host-0"}, around.pods)
        with api_server.away():
            api_server.delete("Pod", "web-0", "default")
            api_server.put(pod_manifest("web-0", "host-1"))
        eventually({"default/web-0": "host-1"}, around.pods)
        assert around.pod("web-0")["uid"] != former["metadata"]["uid"]


def test_a_pod_that_waits_does_not_keep_the_place_of_the_former_one(around, api_server):
    api_server.put(pod_manifest("web-0", "host-0"))
    with around.running():
        eventually({"default/web-0": "host-0"}, around.pods)
        with api_server.away():
            api_server.delete("Pod", "web-0", "default")
            waiting = api_server.put(pod_manifest("web-0"))
        eventually({}, around.pods)
        path = f"/ext/v1/clusters/{around.cluster}/pods/default/web-0"
        claimed = Service(around.url).must("PUT", path, waiting)
        waiting["metadata"]["labels"]["unrelated"] = "change"
        api_server.put(waiting)
        api_server.put(pod_manifest("other", "host-1"))
        eventually(True, lambda: "default/other" in around.pods())
    assert around.once().returncode == 0
    assert around.pods()["default/web-0"] == claimed["node"]


def test_a_claim_for_the_successor_is_left_alone(around, api_server):
    former = api_server.put(pod_manifest("web-0", "host-0"))
    with around.running():
        eventually({"default/web-0": "host-0"}, around.pods)
        successor = pod_manifest("web-0")
        path = f"/ext/v1/clusters/{around.cluster}/pods/default/web-0"
        claimed = Service(around.url).must("PUT", path, successor)
        # That the former one is gone is told later than the scheduler has seen its successor.
        api_server.delete("Pod", "web-0", "default")
        api_server.put(pod_manifest("other", "host-1"))
        eventually(True, lambda: "default/other" in around.pods())
        assert around.pod("web-0")["uid"] == successor["metadata"]["uid"] != former["metadata"]["uid"]
        api_server.put(successor)
        successor["spec"]["nodeName"] = claimed["node"]
        api_server.put(successor)
        eventually(2, lambda: len(around.pods()))
        api_server.delete("Pod", "web-0", "default")
        eventually({"default/other": "host-1"}, around.pods)


def test_only_pods_of_some_namespaces(around, api_server):
    api_server.put(pod_manifest("a", "host-0"))
    other = pod_manifest("b", "host-0")
    other["metadata"]["namespace"] = "other"
    api_server.put(other)
    assert around.once("--namespace", "other").stdout.splitlines()[-1] == "nodes 2, pods 1, rejected 0"
    assert around.pods() == {"other/b": "host-0"}
    # What others have put into another namespace is not one of its business.
    assert around.once().stdout.splitlines()[-1] == "nodes 2, pods 2, rejected 0"
    api_server.delete("Pod", "a", "default")
    assert around.once("--namespace", "other").returncode == 0
    assert around.pods() == {"other/b": "host-0", "default/a": "host-0"}
    with around.running("--namespace", "other", "--namespace", "default"):
        eventually({"other/b": "host-0"}, around.pods)


def test_a_bad_pod_does_not_stop_the_others(around, api_server):
    bad = pod_manifest("bad", "host-0")
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    api_server.put(bad)
    api_server.put(pod_manifest("good", "host-0"))
    with around.running() as sync:
        eventually({"default/good": "host-0"}, around.pods)
        eventually(True, lambda: "pod default/bad: rejected: " in sync.said)
        bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        api_server.put(bad)
        eventually(2, lambda: len(around.pods()))


def claim(around, name: str, node: str = "host-0") -> dict[str, Any]:
    """A pod waits, and a scheduler claims its place."""
    manifest = claim_only(around, name, node)
    around.api_server.put(manifest)
    return manifest


def claim_only(around, name: str, node: str = "host-0") -> dict[str, Any]:
    """The same, and nobody has heard of the pod."""
    manifest = pod_manifest(name)
    manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    Service(around.url).must("PUT", f"/ext/v1/clusters/{around.cluster}/pods/default/{name}", manifest)
    return manifest


def bound(manifest: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    changed = copy.deepcopy(manifest)
    changed["spec"]["nodeName"] = "host-0"
    changed["status"]["phase"] = phase
    return changed


@pytest.fixture
def machines_with_names(api_server: ApiServer) -> None:
    for name in ("host-0", "host-1"):
        node, _ = join(api_server, name)
        node["metadata"]["labels"] = {**node["metadata"].get("labels", {}), "kubernetes.io/hostname": name}
        api_server.put(node)


def test_claims_of_pods_that_end_unreported_are_released(around, api_server, machines_with_names):
    with around.running():
        eventually(2, lambda: len(around.nodes()))
        # Reported and over in one go, so that the synchronisation has never sent them.
        with api_server.condition:
            for number in range(4):
                manifest = claim_only(around, f"short-{number}")
                api_server.put(manifest)
                if number % 2:
                    api_server.put(bound(manifest))
                    api_server.delete("Pod", f"short-{number}", "default")
                else:
                    api_server.put(bound(manifest, "Succeeded"))
        eventually({}, around.pods)
        assert around.used("host-0", "PCPU") == 0


def test_a_node_that_is_gone_keeps_claims_until_their_pods_are_gone(around, api_server, machines_with_names):
    with around.running() as sync:
        eventually(2, lambda: len(around.nodes()))
        claim(around, "claimed")
        api_server.delete("Node", "host-0")
        # A Binding to that node may be under way.
        eventually(True, lambda: "In the way: pod default/claimed." in sync.said)
        assert around.pods() == {"default/claimed": "host-0"}
        api_server.delete("Pod", "claimed", "default")
        eventually(["host-1"], around.nodes)


def synchronization(around, patience: float) -> Synchronization:
    """The synchronisation in this process, as far as it has lists."""
    kubeconfig = write_kubeconfig(around.kubeconfig, ("lab", around.api_server.url))
    journal = Journal(io.StringIO(), io.StringIO())
    service = ServiceCluster(Client(around.url, "admin"), around.cluster)
    return Synchronization(RealApiServer(str(kubeconfig)), service, [], journal, patience)


def test_a_claim_that_is_never_followed_by_a_binding_expires(around, machines_with_names, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    patient, impatient = synchronization(around, 600), synchronization(around, 3)
    for one in (patient, impatient):
        one.once()
    abandoned = claim(around, "abandoned")
    fresh = claim(around, "fresh", "host-1")
    for one in (patient, impatient):
        one.once()
        one.look_at_claims()
    assert set(around.pods()) == {"default/abandoned", "default/fresh"}
    time.sleep(3.1)
    # Somebody claims it again: it is not the claim that was seen before.
    touch(around, "fresh", fresh)
    for one in (patient, impatient):
        one.look_at_claims()
    assert around.pods() == {"default/fresh": "host-1"}
    assert abandoned["metadata"]["uid"] not in str(around.shown("host-0"))


def test_a_claim_does_not_expire_because_a_watch_is_dead(
    around, api_server, machines_with_names, monkeypatch
):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    deaf = synchronization(around, 0.0)
    deaf.once()
    manifest = claim(around, "web")
    deaf.once()
    # Nothing tells it so: its lists are old, and it watches nothing.
    api_server.put(bound(manifest))
    deaf.look_at_claims()
    deaf.look_at_claims()
    assert around.pods() == {"default/web": "host-0"}
    api_server.put(manifest)
    api_server.fail_next("/pods/web", 503)
    deaf.look_at_claims()
    assert around.pods() == {"default/web": "host-0"}
    deaf.look_at_claims()
    assert around.pods() == {}


def touch(around, name: str, manifest: dict[str, Any]) -> None:
    path = f"/ext/v1/clusters/{around.cluster}/pods/default/{name}"
    service = Service(around.url)
    service.must("DELETE", path)
    service.must("PUT", path, manifest)


def test_a_claim_is_released_only_as_it_was_seen(around, machines_with_names):
    assert around.once().returncode == 0
    manifest = claim(around, "web")
    service, path = Service(around.url), f"/ext/v1/clusters/{around.cluster}/pods"
    (listed,) = service.must("GET", f"{path}?scheduled=true")["pods"]
    assert listed["uid"] == manifest["metadata"]["uid"]
    other = [("uid", "somebody-else")]
    assert service.call("DELETE", f"{path}/default/web", query=other).status == 404
    older = [("uid", listed["uid"]), ("changed_at", "2020-01-01T00:00:00")]
    assert service.call("DELETE", f"{path}/default/web", query=older).status == 409
    assert service.call("DELETE", f"{path}/default/web", query=[("u", "1")]).status == 400
    assert "default/web" in around.pods()
    exact = [("uid", listed["uid"].upper()), ("changed_at", listed["changed_at"])]
    assert service.call("DELETE", f"{path}/default/web", query=exact).status == 204
    assert service.must("GET", f"{path}?scheduled=true")["pods"] == []
