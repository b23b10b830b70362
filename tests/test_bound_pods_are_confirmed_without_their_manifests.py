"""POST pods/bound: a claim whose pod was bound becomes what a report makes of it; nothing else changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement.http.registry import registry_of
from placement.pods.services.pods import Pods
from placement.pods.store import statements
from placement.pods.store.writer import PodWriter
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import check, loaded
from tests.reservations import WEB, reservation
from tests.statements import Counter
from tests.test_clusters_stay_right_in_races import once_around
from tests.test_gangs_are_placed_whole import member
from tests.test_pods_are_reported_where_they_are import stamps

PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d0{}"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api, "n1")


def pod(number: int, cpu: str = "2", **given: Any) -> dict[str, Any]:
    manifest = pod_manifest(cpu, uid=UID.format(number), **given)
    manifest["metadata"] |= {"name": f"p{number}", "namespace": "default"}
    return manifest


def place(cluster: Client, *numbers: int) -> list[dict[str, Any]]:
    """Place these pods; what is answered about each, but when it was claimed."""
    body = {"apiVersion": "v1", "kind": "List", "items": [pod(number) for number in numbers]}
    answer = cluster.post(PODS, body)
    assert [each["status"] for each in answer.json["pods"]] == [201] * len(numbers), answer.text
    placed = [each["pod"] for each in answer.json["pods"]]
    assert all(pod.pop("changed_at") for pod in placed)
    return placed


def bound(number: int, node: str = "n1", **members: str) -> dict[str, str]:
    return {"namespace": "default", "name": f"p{number}", "uid": UID.format(number), "node": node, **members}


def confirm(cluster: Client, *pods: dict[str, str]) -> list[str]:
    answer = cluster.post(f"{PODS}/bound", {"pods": list(pods)})
    assert answer.status_code == 200, answer.text
    found = answer.json["pods"]
    named = [{name: each[name] for name in ("namespace", "name", "uid")} for each in pods]
    assert [{name: text for name, text in each.items() if name != "outcome"} for each in found] == named
    return [each["outcome"] for each in found]


def claims(cluster: Client) -> dict[str, str]:
    """The pods that are claims, with their `changed_at`."""
    found = cluster.get(f"{PODS}?scheduled=true").json["pods"]
    return {each["name"]: each["changed_at"] for each in found}


def changed_at(database: Database, number: int) -> Any:
    statement = sa.select(tables.pods.c.updated_at).where(tables.pods.c.uid == UID.format(number))
    with database.read() as connection:
        return connection.execute(statement).scalar_one()


def kept(database: Database) -> list[Any]:
    """What is stored of nodes: their stamps, and what their pods hold."""
    return [(node.revision, node.pods, node.accounts.cpus) for node in loaded(database, "edge").values()]


def test_claims_end_and_what_they_hold_stays(cluster: Client, database: Database):
    before = place(cluster, 1, 2, 3)
    accounts, marks = kept(database), stamps(database)
    old = claims(cluster)
    assert confirm(cluster, bound(3), bound(1)) == ["confirmed", "confirmed"]
    assert claims(cluster) == {"p2": old["p2"]}
    shown = [cluster.get(f"{PODS}/default/p{number}").json for number in (1, 2, 3)]
    assert shown == [{**each, "scheduled": number == 2} for number, each in enumerate(before, 1)]
    # Neither accounts nor stamps changed, and no other process has to read the node again.
    assert (kept(database), stamps(database)) == (accounts, marks)
    check(database, "edge")
    # A report of the running pod finds nothing left to do, and does no harm.
    reported = pod(1, node="n1")
    reported["metadata"]["annotations"] = before[0]["annotations"]
    assert cluster.put(f"{PODS}/default/p1", reported).json["cpuset"] == before[0]["cpuset"]
    assert stamps(database) == marks


def test_a_pod_is_confirmed_once_and_again(cluster: Client, database: Database):
    place(cluster, 1)
    assert confirm(cluster, bound(1), bound(1)) == ["confirmed", "confirmed"]
    at = changed_at(database, 1)
    assert confirm(cluster, bound(1)) == ["confirmed"]
    assert changed_at(database, 1) == at
    # One that was reported is no claim either.
    assert cluster.put(f"{PODS}/default/p2", pod(2, node="n1")).status_code == 201
    assert confirm(cluster, bound(2)) == ["confirmed"]


def test_a_pod_that_is_not_there_as_it_is_said_is_unknown(cluster: Client):
    add_nodes(cluster, "n2")
    taken = place(cluster, 1)[0]
    there = taken["node"]
    elsewhere = "n2" if there == "n1" else "n1"
    wrong = [
        bound(1, elsewhere),
        bound(1, "n3"),
        bound(1, there, uid=UID.format(9)),
        bound(1, there, name="another"),
        bound(1, there, namespace="another"),
        bound(2, there),
    ]
    assert confirm(cluster, *wrong) == ["unknown"] * len(wrong)
    assert list(claims(cluster)) == ["p1"]
    assert confirm(cluster, *wrong, bound(1, there)) == [*["unknown"] * len(wrong), "confirmed"]
    # The pods of another cluster are not those of this one, whatever their uids.
    assert cluster.put("/ext/v1/clusters/other").status_code == 201
    assert cluster.put("/ext/v1/clusters/other/nodes/n1", node_manifests("n1")).status_code == 201
    answer = cluster.post("/ext/v1/clusters/other/pods/bound", {"pods": [bound(1, there)]})
    assert answer.json["pods"][0]["outcome"] == "unknown"
    assert cluster.post("/ext/v1/clusters/none/pods/bound", {"pods": [bound(1)]}).status_code == 404


def test_uids_in_capitals_are_the_same_uids(cluster: Client):
    place(cluster, 1)
    assert confirm(cluster, bound(1, uid=UID.format(1).upper())) == ["confirmed"]
    assert claims(cluster) == {}


def test_a_pod_that_has_ended_is_unknown(cluster: Client):
    place(cluster, 1)
    assert cluster.put(f"{PODS}/default/p1", pod(1, node="n1", phase="Succeeded")).status_code == 200
    assert confirm(cluster, bound(1)) == ["unknown"]


def test_a_row_that_cannot_be_read_is_left_to_a_report(cluster: Client, database: Database):
    place(cluster, 1)
    with database.write() as transaction:
        transaction.execute(sa.update(tables.pods).values(status={"told": {"scheduled": True}}))
    assert confirm(cluster, bound(1)) == ["unknown"]


def test_a_claim_that_was_confirmed_cannot_be_given_back_as_one_that_never_ran(
    cluster: Client, database: Database
):
    assert cluster.put(f"{CLUSTER}/reservations/kept", reservation("kept", "8")).status_code == 201
    assert cluster.put(f"{PODS}/default/p1", pod(1, "4", labels=WEB)).json["cpuset"] == "0-3"
    old = claims(cluster)["p1"]
    assert confirm(cluster, bound(1)) == ["confirmed"]
    path = f"{PODS}/default/p1?changed_at="
    assert cluster.delete(path + old.replace("+", "%2B")).status_code == 409
    # Whoever knows its row by now deletes a pod that ran: the reservation is used up.
    assert cluster.delete(path + changed_at(database, 1).isoformat()).status_code == 204
    assert cluster.get(f"{CLUSTER}/reservations/kept").json["phase"] == "Succeeded"
    check(database, "edge")


def test_a_bound_member_of_a_gang_waits_no_longer(cluster: Client, other: Client, database: Database):
    """It is what a report of the member does."""
    waiting = [member(name, least=3, cpu="2") for name in ("g-0", "g-1")]
    pods = registry_of(cluster.http.application)[Pods]
    for each in waiting:
        with pytest.raises(Exception, match="waits for its gang"):
            pods.bind("edge", "default", each["metadata"]["name"], each["metadata"]["uid"], "n1", each)
    # Another process knows both.
    assert other.post(f"{PODS}/preview", pod(9)).status_code == 200
    sent = {"namespace": "default", "name": "g-0", "uid": "uid-g-0", "node": "n1"}
    assert confirm(cluster, sent) == ["confirmed"]
    running = {**waiting[1], "spec": {**waiting[1]["spec"], "nodeName": "n1"}}
    assert other.put(f"{PODS}/default/g-1", running).status_code == 200
    for api in (cluster, other):
        shown = [api.get(f"{PODS}/default/{name}").json for name in ("g-0", "g-1")]
        assert [each["scheduled"] for each in shown] == [False, False]
        assert not any("waits for" in remark for each in shown for remark in each["remarks"])
    states = check(database, "edge")
    assert [pod.membership and pod.membership.waits_until for pod in states.popitem()[1].pods] == [None, None]
    for application in (cluster.http.application, other.http.application):
        registry_of(application)[Pods].release_waiting("edge")
    assert {each["name"] for each in cluster.get(PODS).json["pods"]} == {"g-0", "g-1"}


def test_many_cost_as_many_statements_as_one(cluster: Client, database: Database):
    place(cluster, *range(1, 9))
    database.dispose()
    counter, counts = Counter(database.engine), list[int]()
    for numbers in ([1], [2], [3, 4, 5, 6, 7, 8]):
        before = counter.count
        assert confirm(cluster, *map(bound, numbers)) == ["confirmed"] * len(numbers)
        counts.append(counter.count - before)
    # The first call begins with new connections.
    assert counts[1] == counts[2]


def test_bodies_that_are_none_are_refused(cluster: Client):
    for pods, field in (
        ([], "/pods"),
        ([bound(1)] * 501, "/pods"),
        ([{**bound(1), "uid": ""}], "/pods/0/uid"),
        ([{**bound(1), "uid": "u" * 37}], "/pods/0/uid"),
        ([{**bound(1), "node": None}], "/pods/0/node"),
        ([{**bound(1), "phase": "Running"}], "/pods/0/phase"),
        ([{"namespace": "default"}], "/pods/0/name"),
    ):
        answer = cluster.post(f"{PODS}/bound", {"pods": pods})
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field), detail(answer)
    assert cluster.post(f"{PODS}/bound", {"pods": [bound(1)] * 500}).status_code == 200


# Others write at the same time. SQLite lets one writer in at a time, so there all is before or after.


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen between the request and its locks."""
    lock = once_around(statements.lock_hosts_of, before=act)
    monkeypatch.setattr(statements, "lock_hosts_of", lock)


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_what_was_deleted_moved_or_reported_meanwhile_is_answered_as_it_is(
    cluster: Client, other: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    place(cluster, 1, 2, 3)
    add_nodes(cluster, "n2")

    def act() -> None:
        assert other.delete(f"{PODS}/default/p1").status_code == 204
        assert other.put(f"{PODS}/default/p2", pod(2, node="n2")).status_code == 200
        assert other.put(f"{PODS}/default/p3", pod(3, node="n1")).status_code == 200

    meanwhile(monkeypatch, act)
    assert confirm(cluster, bound(1), bound(2), bound(3)) == ["unknown", "unknown", "confirmed"]
    assert claims(cluster) == {}
    check(database, "edge")


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_node_that_was_replaced_meanwhile_is_locked_as_it_is_by_then(
    cluster: Client, other: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    place(cluster, 1)
    body = node_manifests("n1")
    body["node"]["metadata"]["uid"] = "uid-of-another"
    locked = list[set[int]]()

    def replaced_after(*arguments: Any) -> set[int]:
        """Lock nothing of the node as it is, as if it had been replaced while this waited for the lock."""
        if not locked:
            assert other.put(f"{CLUSTER}/nodes/n1", body).status_code in (200, 201)
            locked.append(set())
        else:
            locked.append(lock(*arguments))
        return locked[-1]

    lock = statements.lock_hosts_of
    monkeypatch.setattr(statements, "lock_hosts_of", replaced_after)
    assert confirm(cluster, bound(1)) == ["confirmed"]
    assert [len(each) for each in locked] == [0, 1]
    assert claims(cluster) == {}
    check(database, "edge")


def claim_of_a_reservation(cluster: Client) -> str:
    """The path of a claim that is given back only if the pod never ran."""
    assert cluster.put(f"{CLUSTER}/reservations/kept", reservation("kept", "8")).status_code == 201
    assert cluster.put(f"{PODS}/default/p1", pod(1, "4", labels=WEB)).status_code == 201
    return f"{PODS}/default/p1?changed_at={claims(cluster)['p1']}"


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_claim_that_is_confirmed_before_it_is_given_back_stays(
    cluster: Client, other: Client, monkeypatch: pytest.MonkeyPatch
):
    path = claim_of_a_reservation(cluster)

    def act() -> None:
        assert confirm(other, bound(1)) == ["confirmed"]

    # The caller's time was right when it was compared; the locks come after that.
    monkeypatch.setattr(PodWriter, "lock", once_around(PodWriter.lock, before=act))
    assert cluster.delete(path).status_code == 409
    assert cluster.get(f"{PODS}/default/p1").json["scheduled"] is False


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_release_waits_for_the_confirmation_that_has_the_locks(
    cluster: Client, other: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    path = claim_of_a_reservation(cluster)
    statuses = list[int]()
    releasing = threading.Thread(target=lambda: statuses.append(other.delete(path).status_code))
    lock = once_around(statements.lock_hosts_of, after=releasing.start)
    monkeypatch.setattr(statements, "lock_hosts_of", lock)
    assert confirm(cluster, bound(1)) == ["confirmed"]
    releasing.join()
    assert statuses == [409]
    check(database, "edge")
