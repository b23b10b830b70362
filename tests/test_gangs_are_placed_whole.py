"""Of a gang, as many members as it needs are placed together, or none; nobody waits for others for ever."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from placement.app import build
from placement.common.clock import utcnow
from placement.http.registry import registry_of
from placement.pods.decide import gangs
from placement.pods.services.place_choice import PlaceChoice
from placement.pods.services.pods import Pods
from placement.pods.services.scheduler import PodScheduler
from placement.providers.statements import clusters, providers
from placement.server.binders import KubeconfigBinders
from placement.storage.database import Database
from tests import clocks
from tests.api_server import ApiServer, write_kubeconfig
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import check
from tests.reservations import AFFINITY, ALLOCATED, WEB, reservation

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
NAME, LEAST, MODE, WAITING, TOGETHER = (
    f"gang.scheduling.koordinator.sh/{key}"
    for key in ("name", "min-available", "mode", "waiting-time", "groups")
)
GROUPED = {"pod-group.scheduling.sigs.k8s.io": "web"}


@pytest.fixture
def cluster(
    database: Database, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """Two machines of 16 CPUs; the service may bind."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", ("edge", api_server.url))
    application = build(database, compatible(), binders=KubeconfigBinders(str(kubeconfig)))
    yield cluster_of(Client(application.test_client()), "host-0", "host-1")
    check(database, "edge")
    registry_of(application).close()


def single(name: str, cpu: str, **labels: str) -> dict[str, Any]:
    """A pod that waits for a node, and for no other pod."""
    pod = pod_manifest(cpu, uid=f"uid-{name}", phase="Pending", labels=labels)
    pod["metadata"] |= {"name": name, "namespace": "default"}
    return pod


def member(name: str, gang: str = "g", least: int = 3, cpu: str = "8", **others: str) -> dict[str, Any]:
    """A member of a gang; `others` are annotations."""
    pod = single(name, cpu)
    pod["metadata"]["annotations"] |= {NAME: gang, LEAST: str(least), **others}
    return pod


def put_all(cluster: Client, *pods: dict[str, Any]) -> dict[str, int]:
    answer = cluster.post(PODS, {"apiVersion": "v1", "kind": "List", "items": list(pods)})
    assert answer.status_code == 200, answer.text
    return {each["name"]: each["status"] for each in answer.json["pods"]}


def placed(cluster: Client) -> set[str]:
    return {pod["name"] for pod in cluster.get(PODS).json["pods"]}


def bind(cluster: Client, api_server: ApiServer, pod: dict[str, Any], node: str) -> str:
    """The error of an attempt, empty if it succeeds."""
    api_server.put(pod)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}
    error: str = cluster.post(f"{CLUSTER}/extender/bind", body).json["Error"]
    return error


def bound(api_server: ApiServer, *names: str) -> list[str | None]:
    found = [api_server.get("Pod", name, "default") for name in names]
    return [pod["spec"].get("nodeName") if pod else None for pod in found]


def test_of_a_gang_that_does_not_fit_nobody_is_placed(cluster):
    pods = [member(name, least=5) for name in "abcde"]
    answer = cluster.post(PODS, {"apiVersion": "v1", "kind": "List", "items": pods}).json["pods"]
    error = answer[0]["error"]
    assert "4 of 5 of gang default/g" in error["detail"]
    assert error["code"] == "gang_waits"
    # Others beside it are placed whatever becomes of it.
    assert put_all(cluster, *pods, single("alone", "4")) == {**dict.fromkeys("abcde", 409), "alone": 201}
    assert placed(cluster) == {"alone"}


def test_more_than_the_least_are_placed_as_far_as_they_fit(cluster):
    statuses = put_all(cluster, *(member(name, least=3) for name in "abcde"))
    assert sorted(statuses.values()) == [201] * 4 + [409]
    assert len(placed(cluster)) == 4


def test_a_member_is_not_placed_by_itself_before_its_gang(cluster):
    path = f"{PODS}/default/a"
    answer = cluster.put(path, member("a"))
    assert answer.status_code == 409
    lacking = "gang default/g has {} of the 3 members it needs, and there are places for these."
    assert f"is not placed without its gang: with it, {lacking.format(1)}" in answer.text
    several = {"apiVersion": "v1", "kind": "List", "items": [member("a"), member("b")]}
    refused = cluster.post(PODS, several).json["pods"][0]["error"]
    assert refused["detail"].endswith(f"without its gang: {lacking.format(2)}")
    assert put_all(cluster, *(member(name, cpu="4") for name in "bcd")) == dict.fromkeys("bcd", 201)
    assert cluster.put(path, member("a")).status_code == 201


def test_a_node_that_refuses_one_of_a_gang_is_passed_over(cluster, database):
    with database.write() as transaction:
        core = providers.uuids_by_name(transaction, ["edge/host-0/core-0-0"])["edge/host-0/core-0-0"]
        locked = providers.lock(transaction, core)
        assert locked is not None
        providers.delete(transaction, [locked.id])
    assert put_all(cluster, member("a", least=2), member("b", least=2)) == {"a": 201, "b": 201}
    assert {pod["node"] for pod in cluster.get(PODS).json["pods"]} == {"host-1"}
    assert cluster.put(f"{CLUSTER}/nodes/host-0", node_manifests("host-0")).json["created"]


@pytest.mark.both_databases
def test_gangs_that_go_together_are_placed_together(cluster):
    together = {TOGETHER: '["default/g", "default/h"]'}
    small = [member(name, "g", 2, **together) for name in "ab"]
    large = [member(name, "h", 3, **together) for name in "xyz"]
    assert set(put_all(cluster, *small).values()) == {409}
    assert set(put_all(cluster, *small, *large).values()) == {409}
    assert placed(cluster) == set()
    fitting = [member(name, "h", 2, **together) for name in "xy"]
    assert set(put_all(cluster, *small, *fitting).values()) == {201}


def test_a_pod_group_says_how_many(cluster):
    pods = [single(name, "8", **GROUPED) for name in "abcde"]
    metadata = {"name": "web", "namespace": "default"}
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata}
    group["spec"] = {"minMember": 5}
    assert put_all(cluster, group, *pods) == dict.fromkeys("abcde", 409)
    group["spec"]["minMember"] = 4
    assert sorted(put_all(cluster, group, *pods).values()) == [201] * 4 + [409]


def test_a_pod_that_was_bound_without_its_group_is_reported_with_a_warning(cluster, api_server):
    """The extender does not get PodGroups, and its answers have no place for a warning."""
    assert bind(cluster, api_server, single("a", "2", **GROUPED), "host-0") == ""
    bound = api_server.get("Pod", "a", "default")
    (outcome,) = cluster.post(PODS, {"apiVersion": "v1", "kind": "List", "items": [bound]}).json["pods"]
    (warning,) = outcome["pod"]["warnings"]
    assert warning.endswith(": PodGroup web is not known here; the pod is placed alone")


def test_what_a_gang_says_wrongly_is_named(cluster):
    pod = member("a")
    pod["metadata"]["annotations"][LEAST] = "many"
    answer = cluster.put(f"{PODS}/default/a", pod)
    assert answer.status_code == 400
    assert f"Pod.metadata.annotations[{LEAST}]: must be a number of pods from 1 on, not 'many'" in answer.text


@pytest.mark.both_databases
def test_members_wait_with_their_places_until_the_gang_is_whole(cluster, api_server):
    pods = [member(name) for name in "abc"]
    assert "1 of 3 of gang default/g" in bind(cluster, api_server, pods[0], "host-0")
    assert "2 of 3 of gang default/g" in bind(cluster, api_server, pods[1], "host-0")
    assert bound(api_server, "a", "b") == [None, None]
    assert placed(cluster) == {"a", "b"}
    (remark,) = [r for r in cluster.get(f"{PODS}/default/a").json["remarks"] if "waits" in r]
    assert "waits for others of gang default/g until " in remark
    # Their places are nobody else's.
    other = pod_manifest("4", uid="uid-other")
    preview = cluster.post(f"{PODS}/preview", {"pod": other, "nodeNames": ["host-0"]}).json
    assert preview["fitting"] == 0
    assert bind(cluster, api_server, pods[2], "host-1") == ""
    assert bound(api_server, "a", "b", "c") == ["host-0", "host-0", "host-1"]
    assert cluster.get(f"{PODS}/default/a").json["remarks"] == []


def test_members_that_wait_have_their_host_ports(cluster, api_server):
    waiting, other = member("a", cpu="1"), single("other", "1")
    for pod in (waiting, other):
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    assert "1 of 3 of gang default/g" in bind(cluster, api_server, waiting, "host-0")
    fitting = cluster.post(f"{PODS}/preview", other).json["nodes"]
    assert [node["name"] for node in fitting] == ["host-1"]


def test_a_member_that_is_bound_again_goes_on_waiting_and_no_longer_for_that(cluster, api_server):
    remarks = []
    for node in ("host-0", "host-0", "host-1"):
        assert "1 of 3 of gang default/g" in bind(cluster, api_server, member("a"), node)
        shown = cluster.get(f"{PODS}/default/a").json
        assert shown["node"] == node
        remarks += shown["remarks"]
    assert (len(remarks), len(set(remarks))) == (3, 1)


def test_whoever_waited_too_long_meanwhile_still_has_its_cpus(cluster, api_server, monkeypatch):
    assert "1 of 2" in bind(cluster, api_server, member("a", least=2, cpu="4"), "host-0")
    later = utcnow() + datetime.timedelta(hours=1)

    def lock_late(*args: Any) -> None:
        lock_alone(*args)
        monkeypatch.setattr(gangs, "agreed_now", lambda: later)

    lock_alone = clusters.lock_alone
    monkeypatch.setattr(clusters, "lock_alone", lock_late)
    assert bind(cluster, api_server, member("b", least=2, cpu="4"), "host-0") == ""
    pods = [cluster.get(f"{PODS}/default/{name}").json for name in "ab"]
    assert {pod["node"] for pod in pods} == {"host-0"}
    assert len({pod["cpuset"] for pod in pods}) == 2


@pytest.mark.both_databases
def test_nobody_waits_longer_than_the_first_may(cluster, api_server, monkeypatch):
    assert "1 of 3" in bind(cluster, api_server, member("a", **{WAITING: "90s"}), "host-0")
    assert "2 of 3" in bind(cluster, api_server, member("b", **{WAITING: "10h"}), "host-0")
    remarks = [cluster.get(f"{PODS}/default/{name}").json["remarks"] for name in "ab"]
    assert remarks[0] == remarks[1]
    later = utcnow() + datetime.timedelta(seconds=91)
    monkeypatch.setattr(gangs, "agreed_now", lambda: later)
    other = single("other", "16")
    preview = cluster.post(f"{PODS}/preview", {"pod": other, "nodeNames": ["host-0"]}).json
    assert preview["fitting"] == 1
    assert cluster.put(f"{PODS}/default/other", other).status_code == 201
    assert placed(cluster) == {"other"}


@pytest.mark.both_databases
@pytest.mark.parametrize("days", [400, -400])
def test_a_wrong_clock_ends_no_wait_early(cluster, api_server, database, monkeypatch, days):
    """Of the process that asks while it is ahead, or that let the member wait while it was behind."""
    clocks.needs_two(database)
    by = datetime.timedelta(days=days)
    with monkeypatch.context() as patch:
        clocks.here(patch, min(by, datetime.timedelta(0)))
        assert "1 of 3" in bind(cluster, api_server, member("a"), "host-0")
    clocks.here(monkeypatch, max(by, datetime.timedelta(0)))
    other = single("other", "16")
    preview = cluster.post(f"{PODS}/preview", {"pod": other, "nodeNames": ["host-0"]}).json
    assert preview["fitting"] == 0
    assert cluster.put(f"{PODS}/default/other", other).status_code == 201
    assert placed(cluster) == {"a", "other"}
    assert cluster.get(f"{PODS}/default/a").json["node"] == "host-0"


def filtered(cluster: Client, pod: dict[str, Any]) -> dict[str, Any]:
    """What `filter` answers for a pod on both nodes."""
    args = {"Pod": pod, "NodeNames": ["host-0", "host-1"]}
    answer: dict[str, Any] = cluster.post(f"{CLUSTER}/extender/filter", args).json
    return answer


@pytest.mark.parametrize(("mode", "waiting"), [("Strict", set()), ("NonStrict", {"a", "b"})])
def test_whether_others_wait_for_one_that_fits_nowhere(cluster, api_server, mode, waiting):
    for name in "ab":
        assert "of 3" in bind(cluster, api_server, member(name, **{MODE: mode}), "host-0")
    assert filtered(cluster, member("c", cpu="64", **{MODE: mode}))["NodeNames"] == []
    assert placed(cluster) == waiting


def schedule(cluster: Client, api_server: ApiServer, *pods: dict[str, Any]) -> list[str]:
    """One round of kube-scheduler: the pods for which it found a node, and tried to bind them."""
    tried = []
    for pod in pods:
        if nodes := filtered(cluster, pod)["NodeNames"]:
            bind(cluster, api_server, pod, nodes[0])
            tried.append(pod["metadata"]["name"])
    return tried


def other_on(cluster: Client, api_server: ApiServer, node: str, cpu: str = "16") -> None:
    """A pod beside gangs, bound to the node."""
    assert bind(cluster, api_server, single("other", cpu), node) == ""


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    """The calls of a method from here on."""
    real, calls = getattr(owner, name), list[object]()

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(owner, name, noted)
    return calls


@pytest.mark.both_databases
def test_a_gang_that_gave_up_claims_nothing_before_it_fits(cluster, api_server, monkeypatch):
    """Room for two of three members is left to other pods, however often kube-scheduler asks."""
    other_on(cluster, api_server, "host-1")
    gang = [member(name) for name in "abc"]
    assert schedule(cluster, api_server, *gang) == ["a", "b"]
    searches = counted(monkeypatch, PlaceChoice, "best")
    for _ in range(5):
        assert schedule(cluster, api_server, *gang) == []
        assert placed(cluster) == {"other"}
    # It costs no search while nothing changes.
    assert len(searches) == len(gang)
    assert schedule(cluster, api_server, single("alone", "16")) == ["alone"]
    assert schedule(cluster, api_server, *gang) == []
    # Each member is asked about once when there is room.
    for name in ("other", "alone"):
        assert cluster.delete(f"{PODS}/default/{name}").status_code == 204
    assert schedule(cluster, api_server, *gang) == ["a", "b", "c"]
    assert None not in bound(api_server, "a", "b", "c")


def test_members_that_lack_room_may_have_others_evicted(cluster, api_server):
    """Eviction can make room for the member that lacks it; for the others it is of no use."""
    other_on(cluster, api_server, "host-1", "8")
    gang = [member("a"), member("b"), member("c", cpu="16")]
    schedule(cluster, api_server, *gang)
    answers = [filtered(cluster, pod) for pod in gang]
    assert [answer["NodeNames"] for answer in answers] == [[], [], []]
    for answer in answers[:2]:
        assert answer["FailedNodes"] == {}
        refused = "the gang of the pod does not fit as a whole"
        assert set(answer["FailedAndUnresolvableNodes"].values()) == {refused}
    assert answers[2]["FailedNodes"].keys() == {"host-0", "host-1"}


def test_a_gang_that_gave_up_tries_again_with_another_member(cluster, api_server):
    gang = [member("a"), member("b"), member("c", cpu="64")]
    schedule(cluster, api_server, *gang)
    assert schedule(cluster, api_server, *gang) == []
    smaller = member("c")
    smaller["metadata"]["uid"] = "uid-smaller"
    assert schedule(cluster, api_server, smaller, *gang[:2]) == ["c", "a", "b"]
    assert None not in bound(api_server, "a", "b", "c")


def test_a_gang_that_gave_up_finds_the_room_of_pods_that_are_gone_at_once(cluster, api_server):
    other_on(cluster, api_server, "host-1")
    gang = [member(name) for name in "abc"]
    schedule(cluster, api_server, *gang)
    assert schedule(cluster, api_server, *gang) == []
    # The synchronization has not reported it yet.
    api_server.delete("Pod", "other", "default")
    assert schedule(cluster, api_server, *gang) == ["a", "b", "c"]
    assert None not in bound(api_server, "a", "b", "c")


def test_members_are_tried_together_only_after_their_gang_gave_up(cluster, api_server, monkeypatch):
    trials = counted(monkeypatch, Pods, "refused_of_gang")
    assert schedule(cluster, api_server, *(member(name) for name in "abc")) == ["a", "b", "c"]
    assert trials == []


def test_a_gang_in_a_call_frees_those_who_wait(cluster, api_server):
    assert "1 of 3" in bind(cluster, api_server, member("a", cpu="4"), "host-0")
    assert put_all(cluster, member("b"), member("c")) == {"b": 201, "c": 201}
    assert cluster.get(f"{PODS}/default/a").json["remarks"] == []
    assert bind(cluster, api_server, member("a", cpu="4"), "host-0") == ""


def late(monkeypatch: pytest.MonkeyPatch) -> None:
    later = utcnow() + datetime.timedelta(hours=11)
    monkeypatch.setattr(gangs, "agreed_now", lambda: later)


def meanwhile(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> list[object]:
    """Have another writer come once, between the look that finds waiting over and the lock; its calls."""
    real, calls = PodScheduler._give_up, list[object]()

    def give_up(*arguments: Any) -> None:
        if not calls:
            calls.append(arguments)
            other()
        real(*arguments)

    monkeypatch.setattr(PodScheduler, "_give_up", give_up)
    return calls


def test_a_member_that_was_bound_meanwhile_keeps_its_place(cluster, api_server, monkeypatch):
    assert "1 of 2" in bind(cluster, api_server, member("a", least=2), "host-0")

    def others_come() -> None:
        monkeypatch.setattr(gangs, "agreed_now", utcnow)
        assert bind(cluster, api_server, member("b", least=2), "host-1") == ""
        late(monkeypatch)

    late(monkeypatch)
    calls = meanwhile(monkeypatch, others_come)
    assert cluster.put(f"{PODS}/default/other", pod_manifest("2", uid="uid-other")).status_code == 201
    assert len(calls) == 1
    assert placed(cluster) == {"a", "b", "other"}


def test_a_member_that_waits_anew_is_not_released_for_its_former_end(cluster, api_server, monkeypatch):
    assert "1 of 2" in bind(cluster, api_server, member("a", least=2), "host-0")
    late(monkeypatch)
    calls = meanwhile(monkeypatch, lambda: bind(cluster, api_server, member("a", least=2), "host-0"))
    assert cluster.put(f"{PODS}/default/other", pod_manifest("2", uid="uid-other")).status_code == 201
    assert len(calls) == 1
    assert placed(cluster) == {"a", "other"}
    assert any("waits" in remark for remark in cluster.get(f"{PODS}/default/a").json["remarks"])


def reserve(cluster: Client, name: str, node: str, cpu: str = "8") -> None:
    """A reservation on that node for one web pod."""
    body = reservation(name, template=pod_manifest(cpu, nodeName=node))
    assert cluster.put(f"{CLUSTER}/reservations/{name}", body).status_code == 201


def web(*names: str, **options: Any) -> list[dict[str, Any]]:
    """Members that may use these reservations."""
    pods = [member(name, **options) for name in names]
    for pod in pods:
        pod["metadata"]["labels"] |= WEB
    return pods


@pytest.mark.both_databases
def test_each_member_of_a_gang_uses_a_reservation_of_its_own(cluster, database):
    kept = {"r0": "host-0", "r1": "host-0", "r2": "host-1"}
    for name, node in kept.items():
        reserve(cluster, name, node)
    assert put_all(cluster, single("other", "8"), *web(*"abc")) == {"other": 201, **dict.fromkeys("abc", 201)}
    remarks = [cluster.get(f"{CLUSTER}/reservations/{name}").json for name in kept]
    assert {each["phase"] for each in remarks} == {"Succeeded"}
    users = [cluster.get(f"{PODS}/default/{name}").json["annotations"][ALLOCATED] for name in "abc"]
    assert len(set(users)) == 3
    assert put_all(cluster, *web("d", gang="later", least=1)) == {"d": 409}


def test_no_two_members_of_a_gang_use_one_reservation(cluster):
    reserve(cluster, "kept", "host-0", "16")
    pods = [single("other", "16"), *web("a", "b", least=2)]
    for pod in pods[1:]:
        pod["metadata"]["annotations"][AFFINITY] = '{"name": "kept"}'
    assert put_all(cluster, *pods) == {"other": 201, "a": 409, "b": 409}
    assert cluster.get(f"{CLUSTER}/reservations/kept").json["phase"] == "Available"


@pytest.mark.both_databases
def test_members_that_give_up_give_their_reservations_back(cluster, api_server, monkeypatch):
    template = pod_manifest("8", nodeName="host-0")
    assert cluster.put(f"{CLUSTER}/reservations/kept", reservation(template=template)).status_code == 201
    before = cluster.get(f"{CLUSTER}/reservations/kept").json
    pod = member("a", least=2)
    pod["metadata"]["labels"] |= WEB
    assert "1 of 2" in bind(cluster, api_server, pod, "host-0")
    assert cluster.get(f"{CLUSTER}/reservations/kept").json["phase"] == "Succeeded"
    late(monkeypatch)
    assert cluster.put(f"{PODS}/default/other", pod_manifest("2", uid="uid-other")).status_code == 201
    assert placed(cluster) == {"other"}
    after = cluster.get(f"{CLUSTER}/reservations/kept").json
    assert {**after, "changed_at": ""} == {**before, "changed_at": ""}
