"""Like nodes are one for the scheduler; what was found out is kept, but not of what is no more."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest
from flask import Flask

from placement.engine.domain.errors import NotFound
from placement.engine.numa.allocator import ReservedPlacing
from placement.engine.numa.cpus import format_cpu_list, members_of
from placement.http.registry import registry_of
from placement.pods.decide.ranking import Ranked, ShapeCache, ShapeRanking
from placement.pods.decide.reading import import_pod
from placement.pods.decide.reservations import ReservationLooks, ReservationMatch
from placement.pods.decide.rules.rule import PodShape
from placement.pods.services import placing
from placement.pods.state.model import SchedulerSettings
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import ALLOCS, CLUSTER, KUBELET, add_nodes, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import loaded
from tests.reservations import IGNORED, WEB, reservation

pytestmark = pytest.mark.one_database

ROUNDS = 60


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api, "n1", "n2")


def viewed(application: Flask) -> ClusterSnapshot:
    found: ClusterSnapshot = registry_of(application)[ClusterCache].snapshot("edge")
    return found


def shape(cpu: int) -> PodShape:
    manifest = pod_manifest(cpu=str(cpu))
    manifest["metadata"]["name"] = "web"
    incoming = import_pod(manifest, SchedulerSettings())
    return PodShape(incoming.request, incoming.selection, SchedulerSettings())


def many(database: Database) -> NodeColumns:
    """As many nodes, all different objects, as no memory of a few nodes would hold."""
    state = next(iter(loaded(database, "edge").values()))
    states = (replace(state, name=f"n{number}") for number in range(2000))
    return NodeColumns().updated(states)


def test_like_nodes_are_one(cluster: Client, application: Flask):
    one, other = viewed(application).nodes.values()
    assert one.template is other.template
    assert one.host is other.host
    for name in ("n1", "n2"):
        body = pod_manifest(cpu="4", node=name, status={"cpuset": "0-3"})
        assert cluster.put(f"{CLUSTER}/pods/default/on-{name}", body).status_code == 201
    one, other = viewed(application).nodes.values()
    assert one.host is other.host


def previewed(cluster: Client, *nodes: str) -> dict[str, Any]:
    """The places of a pod that no other test places, by node."""
    pod = pod_manifest("3", "777Mi")
    answer = cluster.post(f"{CLUSTER}/pods/preview", {"pod": pod, "nodeNames": list(nodes)})
    return {place["name"]: place for place in answer.json["nodes"]}


def test_equal_hosts_give_a_pod_equal_places_once(cluster: Client, monkeypatch: pytest.MonkeyPatch):
    for name in ("n1", "n2"):
        body = pod_manifest(cpu="4", node=name, status={"cpuset": "0-3"})
        assert cluster.put(f"{CLUSTER}/pods/default/on-{name}", body).status_code == 201
    allocated = list[str]()
    allocate = ReservedPlacing.allocate

    def noted(self: ReservedPlacing, affinity: Any) -> Any:
        found = allocate(self, affinity)
        allocated.append(format_cpu_list(members_of(found.cpus)))
        return found

    monkeypatch.setattr(ReservedPlacing, "allocate", noted)
    one, other = previewed(cluster, "n1", "n2").values()
    own = ("name", "resource_provider")
    assert {**one, **dict.fromkeys(own)} == {**other, **dict.fromkeys(own)}
    # The score is that of an allocation, too.
    assert len(allocated) == 2
    assert previewed(cluster, "n1", "n2") == {"n1": one, "n2": other}
    assert len(allocated) == 2
    body = pod_manifest(cpu="4", node="n2", status={"cpuset": "8-11"})
    assert cluster.put(f"{CLUSTER}/pods/default/more", body).status_code == 201
    assert previewed(cluster, "n1") == {"n1": one}
    assert len(allocated) == 2
    assert previewed(cluster, "n2")["n2"]["cpuset"] == allocated[-1] != one["cpuset"]
    assert len(allocated) == 4


def test_empty_like_nodes_are_one_answer_of_a_preview(cluster: Client, monkeypatch: pytest.MonkeyPatch):
    add_nodes(cluster, "n3", labels={"rather": "here"})
    add_nodes(cluster, "n4", memory="16Gi")
    body = pod_manifest(cpu="4", node="n2", status={"cpuset": "0-3"})
    assert cluster.put(f"{CLUSTER}/pods/default/on-n2", body).status_code == 201
    alone = {name: previewed(cluster, name)[name] for name in ("n1", "n2", "n3", "n4")}
    assert len({(each["cpuset"], each["score"]) for each in alone.values()}) > 1
    seen, place = list[str](), placing.placed

    def noted(ranked: Ranked, *given: Any) -> Any:
        seen.append(ranked.node.name)
        return place(ranked, *given)

    monkeypatch.setattr(placing, "placed", noted)
    assert previewed(cluster, "n1", "n2", "n3", "n4") == alone
    assert len(seen) == 3


def test_what_a_node_was_long_ago_is_forgotten(cluster: Client, application: Flask):
    former = []
    for number in range(ROUNDS):
        allocs = [
            {"namespace": "a", "name": "k", "uid": f"u{number}", "cpuset": "0", "managedByKubelet": True}
        ]
        body = node_manifests("n1", nrt={ALLOCS: allocs, KUBELET: {"policy": "static"}})
        assert cluster.put(f"{CLUSTER}/nodes/n1", body).status_code == 200
        assert cluster.post(f"{CLUSTER}/pods/preview", pod_manifest()).json["fitting"] == 2
        state = viewed(application).by_name["n1"]
        former += [ref(state.template), ref(state.host)]
        del state
    assert sum(known() is not None for known in former) < ROUNDS


def test_what_is_noted_about_a_node_does_not_keep_it(cluster: Client, database: Database):
    columns, rankings = many(database), ShapeCache(ShapeRanking)
    ranking = rankings.of(1, shape(1), columns)
    before = ref(columns.nodes[7])
    assert len(list(ranking.best_first(columns))) == len(columns.nodes)
    assert not ranking.refusals(columns)
    columns = columns.updated([replace(columns.nodes[7])])
    assert before() is None


def test_being_asked_about_one_node_does_not_forget_the_others(cluster: Client, database: Database):
    columns, rankings = many(database), ShapeCache(ShapeRanking)
    ranking = rankings.of(1, shape(2), columns)
    found = [ranking.look(state) for state in columns.nodes]
    (one,) = rankings.of(1, shape(2), columns).best_first(columns.among(["n0"]))
    assert one.node is columns.nodes[0]
    # Others changed meanwhile, more than are kept as they were.
    for _ in range(3):
        columns = columns.updated([replace(state) for state in list(columns.nodes)[:600]])
        list(rankings.of(1, shape(2), columns).best_first(columns))
    assert all(
        ranking.look(state) is result
        for state, result in zip(list(columns.nodes)[600:], found[600:], strict=True)
    )


def test_the_shapes_that_were_asked_for_last_are_kept(cluster: Client, database: Database):
    columns, rankings = many(database).among(["n0"]), ShapeCache(ShapeRanking)
    often, seldom = rankings.of(1, shape(1), columns), rankings.of(1, shape(2), columns)
    for cpu in range(3, 40):
        rankings.of(1, shape(cpu), columns)
        assert rankings.of(1, shape(1), columns) is often
    assert rankings.of(1, shape(2), columns) is not seldom


def test_clusters_asked_about_in_turn_do_not_make_each_other_forgotten(cluster: Client, database: Database):
    here, there, rankings = many(database), many(database), ShapeCache(ShapeRanking)
    ranking = rankings.of(1, shape(2), here)
    found = [ranking.look(state) for state in here.nodes]
    list(rankings.of(2, shape(2), there).best_first(there))
    again = rankings.of(1, shape(2), here)
    assert all(again.look(state) is result for state, result in zip(here.nodes, found, strict=True))


def test_the_clusters_that_were_asked_for_last_are_kept(
    cluster: Client, application: Flask, monkeypatch: pytest.MonkeyPatch
):
    cluster_cache = registry_of(application)[ClusterCache]
    for name in ("second", "third"):
        assert cluster.put(f"/ext/v1/clusters/{name}").status_code == 201
        assert cluster.put(f"/ext/v1/clusters/{name}/nodes/{name}", node_manifests(name)).status_code == 201
    monkeypatch.setattr("placement.pods.store.cache._MOST_NODES", 3)
    edge, second = viewed(application), cluster_cache.snapshot("second")
    assert cluster_cache.snapshot("edge") is edge
    assert set(cluster_cache.snapshot("third").by_name) == {"third"}
    assert cluster_cache.snapshot("edge") is edge, "it was asked for later than the second"
    assert cluster_cache.snapshot("second") is not second
    assert set(cluster_cache.snapshot("second").by_name) == {"second"}


def test_a_pod_that_was_placed_here_is_not_read_again(cluster: Client, application: Flask):
    before = viewed(application)
    placed = cluster.put(f"{CLUSTER}/pods/default/web", pod_manifest(cpu="2")).json
    after = viewed(application)
    changed = {name for name, state in after.by_name.items() if state is not before.by_name[name]}
    assert changed == {placed["node"]}
    assert [pod.name for pod in after.by_name[placed["node"]].pods] == ["web"]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[NodeInfo]:
    """The nodes with reservations that were looked at for a pod, or counted anew without these."""
    seen: list[NodeInfo] = []
    look, without = ReservationLooks._looked, NodeInfo.without

    def looked(self: ReservationLooks, node: NodeInfo, *arguments: Any) -> ReservationMatch:
        seen.append(node)
        return look(self, node, *arguments)

    def counted(self: NodeInfo, consumers: frozenset[str]) -> NodeInfo:
        after = without(self, consumers)
        if after is not self:
            seen.append(self)
        return after

    monkeypatch.setattr(ReservationLooks, "_looked", looked)
    monkeypatch.setattr(NodeInfo, "without", counted)
    return seen


@pytest.mark.parametrize("labels", [WEB, {IGNORED: "true"}])
def test_nodes_with_reservations_are_looked_at_again_only_if_they_changed(
    cluster: Client, judged: list[NodeInfo], labels: dict[str, str]
):
    for name in ("n1", "n2"):
        kept = reservation(name, template=pod_manifest("4", nodeName=name), allocateOnce=False)
        assert cluster.put(f"{CLUSTER}/reservations/{name}", kept).status_code == 201

    def preview() -> list[str]:
        judged.clear()
        answer = cluster.post(f"{CLUSTER}/pods/preview", pod_manifest("2", labels=labels))
        assert [place["cpuset"] for place in answer.json["nodes"]] == ["0-1", "0-1"]
        return sorted({node.name for node in judged})

    assert preview() == ["n1", "n2"]
    assert preview() == []
    other = pod_manifest("2", node="n2", status={"cpuset": "14-15"})
    assert cluster.put(f"{CLUSTER}/pods/default/other", other).status_code == 201
    assert preview() == ["n2"]
    assert preview() == []


def test_collections_go_on_after_a_cluster_that_could_not_be_loaded(cluster: Client, application: Flask):
    cluster_cache = registry_of(application)[ClusterCache]
    with pytest.raises(NotFound):
        cluster_cache.snapshot("nobody")
    assert gc.isenabled()
