"""A Node that is deleted and registered again: what runs on it keeps its CPUs, and no pod gets them twice."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.client.client import ServiceError
from placement.engine.numa.cpus import format_cpu_list, parse_cpu_list
from placement.http.registry import registry_of
from placement.pods.services import extender
from placement.storage import tables
from placement.storage.database import Database
from placement.sync import reconciled_pods, sending
from placement.sync.service import ServiceCluster
from tests import pod_invariants
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import ALLOCS, CLUSTER, ROWS, node_manifests, pod_manifest
from tests.reservations import reservation
from tests.stepping import (
    NODE,
    POD,
    TOPOLOGY,
    Kubernetes,
    Scheduling,
    Stepped,
    cpus_of,
    node_of,
    recorded,
    runs,
)

pytestmark = pytest.mark.one_database
HOST = "host-0"
CONSUMER = "1a2b3c4d-0000-4000-8000-00000000000a"


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture
def api(database: Database, kubernetes: Kubernetes) -> Iterator[Client]:
    """A service that may bind in that Kubernetes."""
    application = build(database, compatible(), binders=kubernetes)
    yield Client(application.test_client())
    registry_of(application).close()


@pytest.fixture
def sync(kubernetes: Kubernetes, api: Client) -> Stepped:
    """A synchronization that runs, and knows a machine of 16 CPUs."""
    kubernetes.register(HOST)
    found = Stepped(kubernetes, api)
    found.catch_up()
    return found


@pytest.fixture
def scheduling(kubernetes: Kubernetes, api: Client) -> Scheduling:
    return Scheduling(kubernetes, api)


def full(kubernetes: Kubernetes, scheduling: Scheduling, sync: Stepped, count: int = 8) -> None:
    """Pods of 2 CPUs run on the machine; eight of them fill it."""
    for number in range(count):
        kubernetes.create_pod(f"run-{number}")
        assert scheduling.schedule(f"run-{number}") == HOST
    sync.see()
    sync.settle()


def owners(kubernetes: Kubernetes, api: Client) -> dict[tuple[str, int], set[str]]:
    """The pods that run or are recorded with each CPU of each node."""
    found: dict[tuple[str, int], set[str]] = {}
    having = [(pod["metadata"]["name"], node_of(pod), cpus_of(pod)) for pod in kubernetes.pods() if runs(pod)]
    having += [(name, pod["node"], pod_cpus(api, name)) for name, pod in recorded(api).items()]
    for name, node, cpus in having:
        for cpu in cpus:
            found.setdefault((str(node), cpu), set()).add(name)
    return found


def pod_cpus(api: Client, name: str) -> frozenset[int]:
    """The CPUs that a recorded pod has."""
    return frozenset(parse_cpu_list(api.get(f"{CLUSTER}/pods/default/{name}").json["cpuset"]))


def none_twice(kubernetes: Kubernetes, api: Client) -> None:
    twice = {cpu: names for cpu, names in owners(kubernetes, api).items() if len(names) > 1}
    assert not twice, twice


def others_try(kubernetes: Kubernetes, scheduling: Scheduling, sync: Stepped, count: int = 6) -> None:
    """Pods wait, and kube-scheduler tries them before each call of the synchronization."""
    for number in range(count):
        kubernetes.create_pod(f"wait-{number}")

    def tries() -> None:
        for pod in kubernetes.pods():
            if not node_of(pod) and pod["metadata"]["name"].startswith("wait"):
                scheduling.schedule(pod["metadata"]["name"])

    sync.between = tries


@pytest.mark.both_databases
@pytest.mark.parametrize("same_uid", [False, True])
@pytest.mark.parametrize("running", [8, 4])
@pytest.mark.parametrize("when", ["at once", "later", "while no synchronization runs"])
def test_no_cpu_has_two_owners_when_a_node_comes_back(
    kubernetes, api, sync, scheduling, database, when, running, same_uid
):
    full(kubernetes, scheduling, sync, running)
    uid = kubernetes.objects[NODE, HOST]["metadata"]["uid"] if same_uid else None
    if when == "while no synchronization runs":
        sync.stop()
    kubernetes.delete(NODE, HOST)
    if when == "later":
        sync.see()
        sync.settle()
    others_try(kubernetes, scheduling, sync)
    kubernetes.register(HOST, uid=uid)
    sync.between()
    none_twice(kubernetes, api)
    sync.catch_up()
    sync.between()
    none_twice(kubernetes, api)
    sync.catch_up()
    expected = {f"run-{number}" for number in range(running)}
    assert expected <= recorded(api).keys()
    assert len(recorded(api)) == min(8, running + 6)
    pod_invariants.check(database, "edge")


def test_pods_that_end_while_their_node_is_away_are_released(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync)
    sync.stop()
    kubernetes.delete(NODE, HOST)
    kubernetes.delete(POD, "run-0")
    kubernetes.end("run-1")
    sync.start()
    sync.settle()
    kubernetes.delete(POD, "run-2")
    kubernetes.end("run-3", "Failed")
    sync.see()
    sync.settle()
    assert sorted(recorded(api)) == ["run-4", "run-5", "run-6", "run-7"]
    kubernetes.register(HOST)
    kubernetes.delete(POD, "run-4")
    sync.see(POD)
    sync.settle()
    sync.see()
    sync.settle()
    assert sorted(recorded(api)) == ["run-5", "run-6", "run-7"]
    none_twice(kubernetes, api)


def test_a_node_that_is_gone_is_closed_and_goes_with_its_last_pod(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 2)
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    assert "it is closed to new pods: Node host-0 still has pods." in sync.said.getvalue()
    assert sorted(recorded(api)) == ["run-0", "run-1"]
    listed = api.get(f"{CLUSTER}/nodes?include=state").json["nodes"]
    assert [node["closed"] for node in listed] == [["closed"]]
    # Whatever it tolerates, and whoever asks.
    tolerant = pod_manifest(tolerations=[{"operator": "Exists"}])
    preview = api.post(f"{CLUSTER}/pods/preview", {"pod": tolerant, "nodeNames": [HOST]}).json
    assert preview["message"] == "0/1 nodes are available: 1 node(s) were closed to new pods."
    assert preview["explanation"]["stages"][0]["condition"] == "not closed to new pods"
    assert api.put(f"{CLUSTER}/pods/default/new", tolerant).status_code == 409
    kubernetes.delete(POD, "run-0")
    sync.see()
    sync.settle()
    assert sorted(recorded(api)) == ["run-1"]
    kubernetes.delete(POD, "run-1")
    sync.see()
    sync.settle()
    assert api.get(f"{CLUSTER}/nodes").json["nodes"] == []
    assert "node host-0: well again" in sync.said.getvalue()


def test_a_closed_node_opens_when_it_comes_back(kubernetes, api, sync, scheduling):
    uid = kubernetes.objects[NODE, HOST]["metadata"]["uid"]
    for again in (uid, None):
        kubernetes.create_pod("web")
        assert scheduling.schedule("web") == HOST
        kubernetes.delete(NODE, HOST)
        sync.see()
        sync.settle()
        kubernetes.register(HOST, uid=again)
        kubernetes.create_pod("new")
        assert scheduling.filter("new") == []
        sync.see()
        sync.settle()
        assert scheduling.filter("new") == [HOST]
        kubernetes.delete(POD, "web")
        sync.see()
        sync.settle()


def test_pods_of_another_scheduler_are_recorded_before_their_node_opens(kubernetes, api, sync, scheduling):
    """They were bound while the node was away, or are on a node that the service does not have yet."""
    full(kubernetes, scheduling, sync, 2)
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    taken = {cpu for name in recorded(api) for cpu in pod_cpus(api, name)}
    free = format_cpu_list(set(range(16)) - taken)
    kubernetes.create_pod("theirs", "12", node=HOST, status={"cpuset": free})
    kubernetes.create_pod("elsewhere", "12", node="host-1", status={"cpuset": "4-15"})
    others_try(kubernetes, scheduling, sync, 8)
    kubernetes.register(HOST)
    kubernetes.register("host-1")
    sync.see()
    sync.settle()
    sync.between()
    none_twice(kubernetes, api)
    assert sorted(name for name in recorded(api) if name.startswith("wait")) == ["wait-0", "wait-1"]


def test_a_cluster_that_is_made_anew_hands_out_no_cpu_that_is_in_use(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 6)
    sync.stop()
    for name in recorded(api):
        assert api.delete(f"{CLUSTER}/pods/default/{name}").status_code == 204
    assert api.delete(f"{CLUSTER}/nodes/{HOST}").status_code == 204
    assert api.delete(CLUSTER).status_code == 204
    others_try(kubernetes, Tolerant(kubernetes, api), sync)
    sync.catch_up()
    sync.between()
    none_twice(kubernetes, api)
    assert len(recorded(api)) == 8


class Tolerant(Scheduling):
    """kube-scheduler while there may be no cluster to ask about."""

    def filter(self, name: str) -> list[str]:
        """The nodes on which a pod fits, none of a cluster that is not there."""
        is_there = self._api.get(CLUSTER).status_code == 200
        return super().filter(name) if is_there else []


def test_a_binding_in_flight_keeps_its_claim(kubernetes, api, sync, scheduling):
    kubernetes.is_slow = True
    pod = kubernetes.create_pod("slow")
    assert "may still be bound" in scheduling.bind(pod, HOST)
    claimed = pod_cpus(api, "slow")
    for later in (False, True):
        kubernetes.delete(NODE, HOST)
        if later:
            sync.see()
            sync.settle(claims=True)
        kubernetes.register(HOST)
        sync.see()
        sync.settle(claims=True)
        sync.catch_up()
        assert pod_cpus(api, "slow") == claimed
    kubernetes.carry_out()
    assert cpus_of(kubernetes.objects[POD, "slow"]) == claimed
    sync.catch_up()
    assert (recorded(api)["slow"]["node"], pod_cpus(api, "slow")) == (HOST, claimed)


def test_what_is_bound_elsewhere_is_not_kept_on_a_node_that_is_gone(kubernetes, api, sync, scheduling):
    kubernetes.register("host-1")
    sync.catch_up()
    for target in ("host-1", "host-9"):
        pod = kubernetes.create_pod(f"to-{target}")
        kubernetes.is_slow = True
        scheduling.bind(pod, HOST)
        kubernetes.is_slow = False
        kubernetes.in_flight.clear()
        kubernetes.bind("default", f"to-{target}", pod["metadata"]["uid"], target, {})
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    assert {name: pod["node"] for name, pod in recorded(api).items()} == {"to-host-1": "host-1"}
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == ["host-1"]


def test_filter_writes_all_pods_that_leave_a_node_at_once(kubernetes, api, sync, scheduling, monkeypatch):
    """A drained node has more than a hundred of them, and kube-scheduler gives up on a call."""
    full(kubernetes, scheduling, sync)
    real, writes = Database.write, list[Database]()
    monkeypatch.setattr(Database, "write", lambda self: (writes.append(self), real(self))[1])
    kubernetes.create_pod("wait")
    counts = []
    for names in (["run-0"], ["run-1", "run-2", "run-3", "run-4"]):
        for name in names:
            kubernetes.begin_deletion(name)
        writes.clear()
        assert scheduling.filter("wait") == []
        counts.append(len(writes))
    assert counts[0] == counts[1] > 0

    assert len(recorded(api)) == 8


def test_filter_brings_back_no_pod_that_was_released(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync)
    kubernetes.begin_deletion("run-0")
    kubernetes.create_pod("wait")

    def pod_vanishes() -> None:
        kubernetes.between = lambda: None
        kubernetes.delete(POD, "run-0")
        sync.see()
        sync.settle()
        assert "run-0" not in recorded(api)

    kubernetes.between = pod_vanishes
    scheduling.filter("wait")
    assert "run-0" not in recorded(api)
    assert scheduling.filter("wait") == [HOST]


@pytest.mark.both_databases
@pytest.mark.parametrize("ends", ["is over", "is gone"])
def test_a_late_report_takes_no_cpu_from_the_pod_that_has_it_by_now(
    kubernetes, api, sync, scheduling, database, ends
):
    """The extender sees the end of a pod first, and the synchronization only that its deletion began."""
    full(kubernetes, scheduling, sync)
    kubernetes.begin_deletion("run-0")
    if ends == "is over":
        kubernetes.end("run-0")
    else:
        kubernetes.delete(POD, "run-0")
    kubernetes.create_pod("wait")
    assert scheduling.schedule("wait") == HOST
    sync.see(POD, most=1)
    sync.settle()
    assert "run-0" not in recorded(api)
    assert len(recorded(api)) == 8
    sync.see()
    sync.settle()
    assert "run-0" not in recorded(api)
    assert "wait" in recorded(api)
    pod_invariants.check(database, "edge")


def test_pods_that_run_with_the_same_cpus_stay_recorded_and_name_each_other(kubernetes, api, sync):
    for name in ("one", "two"):
        kubernetes.create_pod(name, node=HOST, status={"cpuset": "0-1"})
    sync.see()
    sync.settle()
    assert sorted(recorded(api)) == ["one", "two"]
    assert "CPUs 0-1 are also held by pod default/one" in sync.said.getvalue()
    assert api.get(f"{CLUSTER}/pods/default/one").json["shared_with"] == ["default/two"]
    kubernetes.delete(POD, "two")
    sync.see()
    sync.settle()
    assert "shared_with" not in api.get(f"{CLUSTER}/pods/default/one").json


def test_filter_brings_back_no_pod_that_another_one_of_its_name_followed(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync)
    kubernetes.begin_deletion("run-0")
    kubernetes.create_pod("wait")

    def pod_is_made_anew() -> None:
        kubernetes.between = lambda: None
        kubernetes.delete(POD, "run-0")
        sync.see()
        sync.settle()
        kubernetes.create_pod("run-0")
        assert scheduling.schedule("run-0") == HOST

    kubernetes.between = pod_is_made_anew
    scheduling.filter("wait")
    uid = kubernetes.objects[POD, "run-0"]["metadata"]["uid"]
    assert recorded(api)["run-0"]["uid"] == uid
    assert api.get(f"{CLUSTER}/nodes/{HOST}").json["resources"]["PCPU"]["used"] == 16


def test_a_pod_made_anew_under_its_name_has_what_it_was_given(kubernetes, api, sync, scheduling):
    """As a StatefulSet does it, while the node is away, and while no synchronization runs."""
    for away in (False, True):
        kubernetes.create_pod("set-0")
        assert scheduling.schedule("set-0") == HOST
        kubernetes.delete(NODE, HOST)
        kubernetes.delete(POD, "set-0")
        if away:
            sync.stop()
        kubernetes.register(HOST)
        pod = kubernetes.create_pod("set-0")
        assert scheduling.schedule("set-0") == HOST
        sync.catch_up()
        assert recorded(api)["set-0"]["uid"] == pod["metadata"]["uid"]
        none_twice(kubernetes, api)
        kubernetes.delete(POD, "set-0")
        sync.catch_up()
        assert recorded(api) == {}


def test_a_former_node_is_closed_if_the_one_that_came_instead_is_refused(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 2)
    former = kubernetes.objects[NODE, HOST]["metadata"]["uid"]
    kubernetes.delete(NODE, HOST)
    kubernetes.register(HOST, cpu="many")
    kubernetes.create_pod("new")
    sync.see()
    sync.settle()
    assert scheduling.filter("new") == []
    assert sorted(recorded(api)) == ["run-0", "run-1"]
    # Also if it is the former one again, as it was.
    for uid in (former, None):
        kubernetes.delete(NODE, HOST)
        kubernetes.register(HOST, uid=uid)
        sync.see()
        sync.settle()
        assert scheduling.filter("new") == [HOST]


def test_a_former_node_is_closed_by_a_synchronization_that_did_not_see_it(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 2)
    sync.stop()
    kubernetes.delete(NODE, HOST)
    kubernetes.register(HOST, cpu="many")
    kubernetes.create_pod("new")
    sync.catch_up()
    assert scheduling.filter("new") == []
    assert sorted(recorded(api)) == ["run-0", "run-1"]


def test_a_former_node_without_pods_is_deleted_if_the_one_that_came_instead_is_refused(kubernetes, api, sync):
    kubernetes.register("host-1")
    sync.catch_up()
    kubernetes.delete(NODE, "host-1")
    kubernetes.register("host-1", cpu="many")
    sync.see()
    sync.settle()
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == [HOST]
    # Its pods wait for a node that the service takes.
    kubernetes.create_pod("run", node="host-1")
    sync.see()
    sync.settle()
    assert "pod default/run: rejected" not in sync.said.getvalue()


def test_a_former_node_is_closed_although_the_service_did_not_answer_at_first(
    kubernetes, api, sync, scheduling, monkeypatch
):
    full(kubernetes, scheduling, sync, 2)
    kubernetes.delete(NODE, HOST)
    kubernetes.register(HOST, cpu="many")
    kubernetes.create_pod("new")
    sync.see()

    def unanswered(*_: Any, **__: Any) -> bool:
        raise ServiceError("The database cannot be reached.", 503)

    with monkeypatch.context() as patch:
        patch.setattr(ServiceCluster, "delete_node", unanswered)
        sync.settle()
    assert scheduling.filter("new") == [HOST]
    sync.settle()
    assert scheduling.filter("new") == []


def test_a_node_that_another_one_closed_opens_with_the_next_comparison(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 2)
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true").status_code == 409
    kubernetes.create_pod("new")
    sync.see()
    sync.settle()
    assert scheduling.filter("new") == []
    sync.settle(compare=True)
    assert scheduling.filter("new") == [HOST]


def refuse_to_delete(monkeypatch: pytest.MonkeyPatch, refused: list[str], asked: list[str]) -> None:
    """The service refuses to delete what is called so at that time; `asked` are the names in all calls."""
    delete = ServiceCluster.delete

    def called(self: ServiceCluster, *of: str, **given: Any) -> bool:
        asked.append(of[-1])
        if of[-1] in refused:
            raise ServiceError("Provider edge/host-0 is gone; import the node again.", 409)
        return delete(self, *of, **given)

    monkeypatch.setattr(ServiceCluster, "delete", called)


def test_a_refused_release_holds_up_nothing_else(kubernetes, api, sync, scheduling, monkeypatch):
    full(kubernetes, scheduling, sync, 3)
    assert api.put(f"{CLUSTER}/reservations/kept", reservation("kept", "2")).status_code == 201
    refused, asked = ["run-0", "kept"], list[str]()
    refuse_to_delete(monkeypatch, refused, asked)
    # It is not time to try again before it is said so.
    monkeypatch.setattr(sending, "time", SimpleNamespace(monotonic=lambda: 0.0))
    for name in ("run-0", "run-1"):
        kubernetes.delete(POD, name)
    kubernetes.register("host-1")
    for compare in (True, False, False):
        sync.see()
        sync.settle(compare=compare)
    assert sorted(recorded(api)) == ["run-0", "run-2"]
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == [HOST, "host-1"]
    assert "pod default/run-0: rejected: Provider edge/host-0 is gone" in sync.said.getvalue()
    assert "pod default/run-0: well again" not in sync.said.getvalue()
    assert asked.count("run-0") == 1
    refused.clear()
    sync.catch_up()
    assert sorted(recorded(api)) == ["run-2"]
    assert "pod default/run-0: well again" in sync.said.getvalue()
    assert api.get(f"{CLUSTER}/reservations").json["reservations"] == []


def test_a_refused_release_is_dropped_once_the_pod_is_recorded_where_it_runs(
    kubernetes, api, sync, scheduling, monkeypatch
):
    """It was to be released as it ran elsewhere, on a node that the service did not have yet."""
    full(kubernetes, scheduling, sync, 1)
    refused, asked = ["run-0"], list[str]()
    refuse_to_delete(monkeypatch, refused, asked)
    elsewhere = copy.deepcopy(kubernetes.objects[POD, "run-0"])
    elsewhere["spec"]["nodeName"] = "host-1"
    kubernetes.put(elsewhere)
    for _ in range(2):
        sync.see()
        sync.settle()
    assert "run-0" in asked
    assert recorded(api)["run-0"]["node"] == HOST
    kubernetes.register("host-1")
    sync.see()
    sync.settle()
    assert recorded(api)["run-0"]["node"] == "host-1"
    refused.clear()
    asked.clear()
    sync.catch_up()
    assert "run-0" not in asked
    assert recorded(api)["run-0"]["node"] == "host-1"


@pytest.mark.parametrize("text", ["{", "null", '{"metadata":1}'])
def test_a_node_that_cannot_be_read_is_sent_again(kubernetes, api, sync, scheduling, database, text):
    full(kubernetes, scheduling, sync, 3)
    before = {name: pod_cpus(api, name) for name in ("run-1", "run-2")}
    with database.write() as transaction:
        transaction.execute(sa.text("UPDATE nodes SET manifest = :text"), {"text": text})
    # Another process, which knows nothing but what is stored.
    application = build(database, compatible(), binders=kubernetes)
    other = Client(application.test_client())
    again = Stepped(kubernetes, other)
    kubernetes.delete(POD, "run-0")
    again.catch_up()
    assert {name: pod_cpus(other, name) for name in recorded(other)} == before
    kubernetes.create_pod("new")
    assert Scheduling(kubernetes, other).filter("new") == [HOST]
    pod_invariants.check(database, "edge")
    registry_of(application).close()


def test_two_synchronizations_do_no_harm_to_what_runs(kubernetes, api, sync, scheduling):
    full(kubernetes, scheduling, sync, 6)
    other = Stepped(kubernetes, api)
    other.catch_up()
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    kubernetes.register(HOST)
    others_try(kubernetes, scheduling, sync)
    other.between = sync.between
    sync.see()
    sync.settle()
    # This one only hears now that the node was deleted.
    other.see(NODE, most=1)
    other.settle()
    other.see()
    other.settle()
    sync.catch_up()
    other.catch_up()
    none_twice(kubernetes, api)
    assert {f"run-{number}" for number in range(6)} <= recorded(api).keys()


@pytest.mark.parametrize("profile", ["design", "koord-scheduler"])
def test_a_topology_that_comes_later_finds_the_pods_with_their_cpus(
    kubernetes, api, sync, scheduling, database, profile
):
    api.put(CLUSTER, {"profile": profile})
    full(kubernetes, scheduling, sync, 6)
    before = {name: pod_cpus(api, name) for name in recorded(api)}
    kubernetes.delete(NODE, HOST)
    kubernetes.delete(TOPOLOGY, HOST)
    kubernetes.register(HOST, topology=False)
    sync.see()
    sync.settle()
    kubernetes.create_pod("new")
    assert scheduling.filter("new") == []
    assert recorded(api).keys() == before.keys()
    kubernetes.put(node_manifests(HOST)["nodeResourceTopology"])
    others_try(kubernetes, scheduling, sync)
    sync.see()
    sync.settle()
    sync.between()
    none_twice(kubernetes, api)
    assert {name: pod_cpus(api, name) for name in before} == before
    pod_invariants.check(database, "edge")


@pytest.mark.both_databases
def test_a_smaller_machine_names_what_is_not_there_any_more(kubernetes, api, sync, scheduling, database):
    full(kubernetes, scheduling, sync)
    kubernetes.delete(NODE, HOST)
    kubernetes.register(HOST, rows=ROWS[:8])
    sync.see()
    sync.settle()
    said = sync.said.getvalue()
    gone = {name for name in recorded(api) if f"of pod default/{name} are not there" in said}
    assert len(gone) == 4
    assert len(recorded(api)) == 8
    pod_invariants.check(database, "edge")
    kubernetes.register(HOST)
    sync.see()
    sync.settle()
    none_twice(kubernetes, api)
    assert sum(map(len, (pod_cpus(api, name) for name in recorded(api)))) == 16
    pod_invariants.check(database, "edge")


@pytest.mark.both_databases
def test_reservations_stay_with_a_node_that_comes_back_at_once(kubernetes, api, sync, scheduling, database):
    assert api.put(f"{CLUSTER}/reservations/kept", reservation("kept", "4")).status_code == 201
    kept = api.get(f"{CLUSTER}/reservations/kept").json
    full(kubernetes, scheduling, sync, 6)
    kubernetes.delete(NODE, HOST)
    kubernetes.register(HOST)
    others_try(kubernetes, scheduling, sync)
    sync.see()
    sync.settle()
    sync.between()
    after = api.get(f"{CLUSTER}/reservations/kept").json
    assert (after["node"], after["left"]) == (HOST, kept["left"])
    assert len(recorded(api)) == 6
    pod_invariants.check(database, "edge")


def kept_by_kubernetes(kubernetes: Kubernetes, name: str = "kept") -> None:
    """A Reservation of 4 CPUs in Kubernetes, for pods of which there are none."""
    manifest = reservation(name, "4", owners=[{"labelSelector": {"matchLabels": {"app": "none"}}}])
    manifest["metadata"]["uid"] = str(uuid.uuid4())
    kubernetes.put(manifest)


@pytest.mark.both_databases
def test_reservations_stay_as_long_as_a_node_that_is_gone(kubernetes, api, sync, scheduling, database):
    full(kubernetes, scheduling, sync, 2)
    kept_by_kubernetes(kubernetes)
    sync.see()
    sync.settle()
    before = api.get(f"{CLUSTER}/reservations/kept").json
    kubernetes.register("host-1")
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle(compare=True)
    away = api.get(f"{CLUSTER}/reservations/kept").json
    assert (away["node"], away["held"], away["left"]) == (HOST, before["held"], before["left"])
    others_try(kubernetes, scheduling, sync)
    kubernetes.register(HOST)
    sync.see()
    sync.settle()
    sync.between()
    after = api.get(f"{CLUSTER}/reservations/kept").json
    assert (after["node"], after["left"]) == (HOST, before["left"])
    kept = set(parse_cpu_list(after["left"]["cpuset"]))
    assert not any(kept & pod_cpus(api, name) for name, pod in recorded(api).items() if pod["node"] == HOST)
    pod_invariants.check(database, "edge")


@pytest.mark.both_databases
def test_reservations_go_with_their_node_and_find_another_place(kubernetes, api, sync, scheduling, database):
    kept_by_kubernetes(kubernetes)
    sync.catch_up()
    full(kubernetes, scheduling, sync, 1)
    kubernetes.register("host-1")
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    assert api.get(f"{CLUSTER}/reservations/kept").json["node"] == HOST
    kubernetes.delete(POD, "run-0")
    sync.see()
    sync.settle()
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == ["host-1"]
    assert api.get(f"{CLUSTER}/reservations/kept").json["node"] == "host-1"
    assert len(api.get(f"{CLUSTER}/reservations").json["reservations"]) == 1
    pod_invariants.check(database, "edge")


@pytest.mark.both_databases
def test_reservations_are_deleted_with_a_node_or_not_at_all(kubernetes, api, sync, scheduling, database):
    assert api.put(f"{CLUSTER}/reservations/kept", reservation("kept", "4")).status_code == 201
    an_instance_holds_some(api)
    answer = api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true&reservations=true")
    assert answer.status_code == 409
    assert f"consumer {CONSUMER}" in answer.json["errors"][0]["detail"]
    assert api.get(f"{CLUSTER}/reservations/kept").json["held"]["cpuset"] != ""
    pod_invariants.check(database, "edge")
    assert api.delete(f"/allocations/{CONSUMER}").status_code == 204
    answer = api.delete(f"{CLUSTER}/nodes/{HOST}")
    assert "reservation kept" in answer.json["errors"][0]["detail"]
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?reservations=no").status_code == 400
    answer = api.delete(f"{CLUSTER}/nodes/{HOST}?reservations=true")
    assert answer.status_code == 204
    request = answer.headers["x-openstack-request-id"]
    events = api.get(f"/ext/v1/audit?request_id={request}").json["events"]
    targets = {(event["action"], event["target"]["id"]) for event in events}
    assert {("delete", "edge/kept"), ("delete", f"edge/{HOST}")} <= targets
    assert api.get(f"{CLUSTER}/reservations/kept").status_code == 404
    assert consumers_of(database) == []


def test_a_reservation_that_holds_nothing_any_more_leaves_no_consumer(kubernetes, api, sync, database):
    assert api.put(f"{CLUSTER}/reservations/kept", reservation("kept", "4")).status_code == 201
    shrunk = kubernetes.objects[NODE, HOST]
    shrunk["status"]["allocatable"] = dict.fromkeys(shrunk["status"]["allocatable"], "0")
    assert api.put(f"{CLUSTER}/nodes/{HOST}", {"node": shrunk}).status_code == 200
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?reservations=true").status_code == 204
    assert consumers_of(database) == []


def an_instance_holds_some(api: Client) -> None:
    """`CONSUMER` holds something of the host that no pod and no reservation holds."""
    root = api.get(f"{CLUSTER}/nodes/{HOST}").json["tree"]["uuid"]
    body = {"allocations": {root: {"resources": {"CUSTOM_PODS": 1}}}, "consumer_type": "INSTANCE"}
    labels = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    assert api.put(f"/allocations/{CONSUMER}", {**body, **labels}).status_code == 204


def consumers_of(database: Database) -> list[str]:
    """All consumers there are."""
    with database.read() as connection:
        return list(connection.execute(sa.select(tables.consumers.c.uuid)).scalars())


def test_nodes_open_one_after_another_as_their_pods_are_recorded(kubernetes, api, monkeypatch):
    """The pods of a large cluster take minutes, and no pod may wait that long for a node that is complete."""
    monkeypatch.setattr(reconciled_pods, "_PODS_IN_CALL", 4)
    for number in range(4):
        kubernetes.register(f"host-{number}")
    # By name, the pods of each node are among those of all others.
    for number in range(12):
        cpus = f"{2 * (number // 3)},{2 * (number // 3) + 1}"
        kubernetes.create_pod(f"run-{number:02}", node=f"host-{number % 3}", status={"cpuset": cpus})
    sync, calls = Stepped(kubernetes, api), list[Any]()
    for name in ("put_nodes", "put_pods"):
        monkeypatch.setattr(ServiceCluster, name, noted(calls, api, name))
    others_try(kubernetes, Tolerant(kubernetes, api), sync, 20)
    sync.catch_up()
    sync.between()
    none_twice(kubernetes, api)
    closed = ["host-0", "host-1", "host-2"]
    expected: list[Any] = [("put_nodes", 0, [])]
    for number in range(3):
        expected += [
            ("put_pods", 4 * number, closed[number:]),
            ("put_nodes", 4 * number + 4, closed[number:]),
        ]
    assert calls == expected
    assert len(recorded(api)) == 32


def noted(calls: list[Any], api: Client, name: str) -> Any:
    """A call of the synchronization that notes how many running pods are recorded, and what is closed."""
    real = getattr(ServiceCluster, name)

    def call(self: ServiceCluster, given: Any) -> Any:
        listed = api.get(f"{CLUSTER}/nodes?include=state").json["nodes"]
        having = [found for found in recorded(api) if found.startswith("run")]
        calls.append((name, len(having), [node["name"] for node in listed if node.get("closed")]))
        return real(self, given)

    return call


def test_a_node_in_use_by_others_is_closed_and_opens_again(kubernetes, api, sync, scheduling):
    an_instance_holds_some(api)
    answer = api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true")
    assert answer.status_code == 409
    assert f"consumer {CONSUMER}" in answer.json["errors"][0]["detail"]
    kubernetes.create_pod("new")
    assert scheduling.filter("new") == []
    # The same again changes nothing.
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true").status_code == 409
    assert api.delete(f"{CLUSTER}/nodes/{HOST}").status_code == 409
    manifests = node_manifests(HOST)
    manifests["node"]["metadata"]["uid"] = kubernetes.objects[NODE, HOST]["metadata"]["uid"]
    assert api.put(f"{CLUSTER}/nodes/{HOST}", manifests).status_code == 200
    assert scheduling.filter("new") == [HOST]
    # Another machine cannot take over what an instance holds of this one.
    assert api.put(f"{CLUSTER}/nodes/{HOST}", node_manifests(HOST)).status_code == 409
    assert api.delete(f"/allocations/{CONSUMER}").status_code == 204
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true").status_code == 204
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?closes=true").status_code == 404
    assert api.delete(f"{CLUSTER}/nodes/{HOST}?closes=perhaps").status_code == 400


def test_kube_scheduler_asks_again_soon_about_a_node_that_opens_in_a_moment(
    kubernetes, api, sync, scheduling, monkeypatch
):
    """An error brings a pod back within seconds, a refusal only after minutes."""
    full(kubernetes, scheduling, sync, 2)
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    kubernetes.register(HOST)
    body = {"Pod": kubernetes.create_pod("new"), "NodeNames": [HOST]}
    soon = api.post(f"{CLUSTER}/extender/filter", body).json
    assert soon["Error"] == f"node {HOST} is closed until it is recorded with all pods that run there"
    monkeypatch.setattr(extender, "_OPENS_WITHIN_SECONDS", 0.0)
    late = api.post(f"{CLUSTER}/extender/filter", body).json
    assert late["FailedAndUnresolvableNodes"] == {HOST: "node(s) were closed to new pods"}
    monkeypatch.undo()
    # Where the pod fits elsewhere it does not wait.
    assert api.put(f"{CLUSTER}/nodes/host-1", node_manifests("host-1")).status_code == 201
    both = api.post(f"{CLUSTER}/extender/filter", {**body, "NodeNames": [HOST, "host-1"]}).json
    assert (both["NodeNames"], both["Error"]) == (["host-1"], "")
    sync.see()
    sync.settle()
    assert api.post(f"{CLUSTER}/extender/filter", body).json["NodeNames"] == [HOST]


def closed_now(kubernetes: Kubernetes, api: Client, *names: str) -> None:
    """Nodes as they are while the pods that run there are not recorded yet."""
    for name in names:
        manifests = node_manifests(name)
        manifests["node"]["metadata"]["annotations"] = {"placement/closed": "a moment"}
        assert api.put(f"{CLUSTER}/nodes/{name}", manifests).status_code == 201


def asked(api: Client, pod: dict[str, Any], *names: str) -> dict[str, Any]:
    """What `filter` answers for a pod on these nodes."""
    answer: dict[str, Any] = api.post(f"{CLUSTER}/extender/filter", {"Pod": pod, "NodeNames": names}).json
    return answer


def test_a_pod_waits_for_a_closed_node_no_longer_because_others_ask_about_other_nodes(
    kubernetes, api, sync, monkeypatch
):
    closed_now(kubernetes, api, "host-1", "host-2")
    clock = [1000.0]
    monkeypatch.setattr(extender, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    one, other = kubernetes.create_pod("one"), kubernetes.create_pod("other")
    for _ in range(7):
        assert "is closed until" in asked(api, one, "host-1", "host-2")["Error"]
        asked(api, other, "host-2")
        clock[0] += 9
    assert set(asked(api, one, "host-1", "host-2")["FailedAndUnresolvableNodes"]) == {"host-1", "host-2"}


@pytest.mark.parametrize(
    ("cpu", "demand"), [("2", {"nodeSelector": {"disk": "fast"}}), ("64", {})], ids=["elsewhere", "too large"]
)
def test_a_pod_waits_for_no_closed_node_that_would_refuse_it_anyway(kubernetes, api, sync, cpu, demand):
    closed_now(kubernetes, api, "host-1")
    assert "is closed until" in asked(api, kubernetes.create_pod("new"), "host-1")["Error"]
    answer = asked(api, kubernetes.create_pod("odd", cpu, **demand), "host-1")
    assert (answer["Error"], list(answer["FailedAndUnresolvableNodes"])) == ("", ["host-1"])


def test_a_gang_that_waits_for_a_closed_node_keeps_no_claims(kubernetes, api, sync, scheduling):
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    for name in ("first", "second"):
        pod = kubernetes.create_pod(name)
        pod["metadata"]["annotations"] = gang
        kubernetes.put(pod)
    assert scheduling.schedule("first") == ""
    assert set(recorded(api)) == {"first"}
    closed_now(kubernetes, api, "host-1")
    assert "is closed until" in asked(api, kubernetes.objects[POD, "second"], "host-1")["Error"]
    assert recorded(api) == {}


def test_the_memory_of_closed_nodes_is_bounded_and_forgets_nodes_that_opened(monkeypatch):
    monkeypatch.setattr(extender, "_NODES_REMEMBERED", 2)
    nodes = extender.OpeningNodes()
    for number in range(9):
        assert nodes.soon("edge", ["a", f"n{number}"], {"a", f"n{number}"}) == ["a", f"n{number}"]
    assert set(nodes._since) == {("edge", "a"), ("edge", "n8")}
    assert nodes.soon("edge", "abc", set("abc")) == []
    nodes.soon("edge", ["a"], set())
    nodes.soon("other", ["n8"], set())
    assert set(nodes._since) == {("edge", "n8")}


def test_a_node_can_be_closed_by_an_annotation(kubernetes, api, sync, scheduling):
    kubernetes.create_pod("new")
    uid = kubernetes.objects[NODE, HOST]["metadata"]["uid"]
    for given, nodes in (({"placement/closed": "a fan is loud"}, []), ({}, [HOST])):
        kubernetes.register(HOST, uid=uid, annotations=given)
        sync.see()
        sync.settle()
        assert scheduling.filter("new") == nodes


def test_cpus_that_a_topology_reports_stay_with_a_pod_that_was_deleted_by_force(
    kubernetes, api, sync, scheduling
):
    """A pod is deleted by force while its machine is cut off, where it runs on (hashicorp/nomad 6212)."""
    full(kubernetes, scheduling, sync, 1)
    pod, cpus = kubernetes.objects[POD, "run-0"]["metadata"], pod_cpus(api, "run-0")
    kubernetes.delete(NODE, HOST)
    kubernetes.delete(POD, "run-0")
    sync.see()
    sync.settle()
    report = {"namespace": "default", "name": "run-0", "uid": pod["uid"], "cpuset": format_cpu_list(cpus)}
    kubernetes.register(HOST, nrt={ALLOCS: [report]})
    others_try(kubernetes, scheduling, sync, 8)
    sync.see()
    sync.settle()
    sync.between()
    having = {name: pod_cpus(api, name) for name in recorded(api)}
    assert len(having) == 7
    assert not any(mine & cpus for mine in having.values())


def test_one_machine_is_no_two_nodes(kubernetes, api, sync, scheduling):
    """A uid that comes with another name takes no tree away from what runs there (hashicorp/nomad 1240)."""
    full(kubernetes, scheduling, sync, 2)
    uid = kubernetes.objects[NODE, HOST]["metadata"]["uid"]
    kubernetes.register("host-1", uid=uid)
    sync.see()
    sync.settle()
    assert "node host-1: rejected: " in sync.said.getvalue()
    assert {pod["node"] for pod in recorded(api).values()} == {HOST}
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == [HOST]
    # Another name is another node: its pods go, and only then it is there.
    kubernetes.delete(NODE, HOST)
    sync.see()
    sync.settle()
    assert sorted(recorded(api)) == ["run-0", "run-1"]
    for name in ("run-0", "run-1"):
        kubernetes.delete(POD, name)
    sync.catch_up()
    assert [node["name"] for node in api.get(f"{CLUSTER}/nodes").json["nodes"]] == ["host-1"]
