"""Seven questions of a platform team with 200 nodes: each is answered rightly by commands and by pages.

An answer takes two steps at most. What is right is counted here from the manifests and the nodes of the pods.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from benchmarks import cluster as kubernetes
from benchmarks.cluster import CLUSTER, GPU_RESOURCE
from benchmarks.wire import Wire
from tests.kubernetes import pod_manifest
from tests.questions import Question, assert_readable
from tests.server import database_url, running_service

pytestmark = pytest.mark.one_database

_NODES = 200
_ON_CALL = "on-call"
_PATH = f"/ext/v1/clusters/{CLUSTER}"


class FilledCluster:
    """A service with the cluster, and what is true of it, counted from its manifests."""

    def __init__(self, url: str, placed: list[dict[str, Any]]) -> None:
        self.url = url
        self.nodes = [kubernetes.node(number)["node"] for number in range(_NODES)]
        self.pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
        manifests = {_key(each): each for each in kubernetes.pods(_NODES * 15)}
        for pod in placed:
            self.pods[pod["pod"]["node"]].append(manifests[pod["namespace"], pod["name"]])

    def asked(self) -> Question:
        """Return a new question to the service."""
        return Question(self.url)

    def left(self, node: dict[str, Any]) -> dict[str, int]:
        """Return what no pod requests of a node: millicores, MiB and pods."""
        requested: Counter[str] = Counter()
        for pod in self.pods[node["metadata"]["name"]]:
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            requested += Counter(
                cpu=_millicores(requests["cpu"]), memory=_mebibytes(requests["memory"]), pods=1
            )
        offered = node["status"]["allocatable"]
        return {
            "cpu": _millicores(offered["cpu"]) - requested["cpu"],
            "memory": _mebibytes(offered["memory"]) - requested["memory"],
            "pods": int(offered["pods"]) - requested["pods"],
        }

    def open_nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that take pods without tolerations."""
        return [
            each
            for each in self.nodes
            if not each["spec"].get("unschedulable") and not each["spec"].get("taints")
        ]


def _key(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _millicores(text: str) -> int:
    return int(text.removesuffix("m")) if text.endswith("m") else 1000 * int(text)


def _mebibytes(text: str) -> int:
    return int(text[:-2]) * (1024 if text.endswith("Gi") else 1)


@pytest.fixture(scope="module")
def filled() -> Iterator[FilledCluster]:
    """The cluster, in a service with one worker."""
    with database_url("sqlite") as connection, running_service(connection, workers=1) as server:
        answers = kubernetes.fill(Wire(server.url).must, _NODES)
        assert all(each["status"] < 300 for each in answers.nodes)
        yield FilledCluster(server.url, [each for each in answers.pods if each["status"] < 300])


def _pod(**given: Any) -> dict[str, Any]:
    manifest = pod_manifest("8", "64Gi", qos="LS", **given)
    manifest["metadata"]["name"] = "wanted"
    return manifest


def _in_page(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}"


# Which node is fullest?


def test_the_fullest_node_is_the_first(filled: FilledCluster):
    least = min(filled.left(node)["cpu"] for node in filled.nodes)
    command = ("node", "list", CLUSTER, "--sort-column", "cpus_free", "--limit", "1")
    (row,) = filled.asked().typed_json(*command)
    assert 1000 * row["cpus_free"] == least
    parameters = {"by": "use", "class": "CUSTOM_NODE_CPU_MILLI", "cluster": CLUSTER}
    first = filled.asked().opened(_in_page("/ui/map", **parameters)).partition("Percent")[2].split()[0]
    shares = {
        node["metadata"]["name"]: filled.left(node)["cpu"] / _millicores(node["status"]["allocatable"]["cpu"])
        for node in filled.nodes
    }
    assert shares[first.rpartition("/")[2]] == min(shares.values())


# Why does a pod not fit in a zone?


def test_a_pod_learns_what_is_short_in_its_zone(filled: FilledCluster, tmp_path: Path):
    pod = _pod(
        requests={GPU_RESOURCE: "8"},
        nodeSelector={"topology.kubernetes.io/zone": "eu-west-1a"},
        tolerations=[{"operator": "Exists"}],
    )
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    answer = filled.asked().typed("pod", "explain", CLUSTER, str(file), succeeds=False)
    page = filled.asked().opened(_in_page("/ui/why", kind="pod", cluster=CLUSTER, pod=json.dumps(pod)))
    in_zone = {
        each["metadata"]["name"]
        for each in filled.nodes
        if each["metadata"]["labels"]["topology.kubernetes.io/zone"] == "eu-west-1a"
    }
    # Below, the page lists all nodes with their reasons.
    for text in (answer, page.partition("Nodes that refuse it")[0]):
        assert GPU_RESOURCE in text
        named = set(re.findall(r"\w+-\d{3}\.prod-eu\.example\.org", text))
        assert named <= in_zone


# Which pods have the CPUs of a node?


def test_the_pods_with_the_cpus_of_a_node_are_named(filled: FilledCluster):
    def bound(name: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in filled.pods[name]
            if pod["metadata"]["labels"].get("app") in ("cache", "encoder", "ledger")
        ]

    node = max((each["metadata"]["name"] for each in filled.nodes), key=lambda name: len(bound(name)))
    shown = filled.asked().typed("node", "show", CLUSTER, node)
    page = filled.asked().opened(f"/ui/nodes/{CLUSTER}/{node}")
    for pod in bound(node):
        name = pod["metadata"]["name"]
        assert name in shown
        assert name in page


# What changed on a node, and by whom?


def test_a_change_of_a_node_is_found_by_its_name(filled: FilledCluster):
    node = kubernetes.node(5)
    name = node["node"]["metadata"]["name"]
    node["node"]["metadata"]["labels"]["example.org/pool"] = "batch"
    Wire(filled.url, token=f"{_ON_CALL}:platform").must("PUT", f"{_PATH}/nodes/{name}", node)
    newest = filled.asked().typed_json("audit", "--target", f"{CLUSTER}/{name}", "--since", "1h")[0]
    assert newest["user"].startswith(_ON_CALL)
    assert _ON_CALL in filled.asked().opened(_in_page("/ui/changes", target=f"{CLUSTER}/{name}"))


# How many more pods fit?


def test_room_for_pods_is_counted_on_open_nodes(filled: FilledCluster, tmp_path: Path):
    wanted = {"cpu": 8000, "memory": 65536, "pods": 1}
    lefts = [filled.left(node) for node in filled.open_nodes()]
    room = sum(max(0, min(left[name] // amount for name, amount in wanted.items())) for left in lefts)
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(_pod()))
    row = filled.asked().typed_json("capacity", str(file), "--cluster", CLUSTER)[0]
    assert row["room"] == room
    page = filled.asked().opened(_in_page("/ui/room", kind="pod", cluster=CLUSTER, pod=json.dumps(_pod())))
    assert f"Room for {room:,} more".replace(",", " ") in page


# Can a node be drained?


def test_a_node_is_drained_onto_open_nodes(filled: FilledCluster):
    names = {each["metadata"]["name"] for each in filled.open_nodes()}
    node = max(names, key=lambda name: len(filled.pods[name]))
    moves = filled.asked().typed_json("plan", "make", "empty", f"{CLUSTER}/{node}")
    assert len(moves) == len(filled.pods[node])
    assert {move["to"].rpartition("/")[2] for move in moves} <= names - {node}
    page = filled.asked().opened(_in_page("/ui/moves", goal="empty", hosts=f"{CLUSTER}/{node}"))
    assert f"{len(filled.pods[node])} moves are enough" in page


# Is the service well?


def test_the_service_says_that_it_is_well(filled: FilledCluster):
    assert "read" in filled.asked().typed("status")
    assert "Ready" in filled.asked().opened("/ui/")


def pages(nodes: list[dict[str, Any]]) -> list[str]:
    """Return every kind of page, asked of the cluster as its operator would; each kind of node has one."""
    names = [each["metadata"]["name"] for each in nodes]
    kinds = {name.partition(".")[0].rpartition("-")[0]: name for name in names}
    pod = {"kind": "pod", "cluster": CLUSTER, "pod": json.dumps(_pod())}
    large = {**pod, "pod": json.dumps(pod_manifest("400", "64Gi", qos="LSR"))}
    one = next(iter(kinds.values()))
    return [
        "/ui/",
        _in_page("/ui/map", by="use", cluster=CLUSTER, **{"class": "CUSTOM_NODE_CPU_MILLI"}),
        _in_page("/ui/map", by="stranded"),
        "/ui/figures",
        _in_page("/ui/hosts", by="cores", cluster=CLUSTER),
        *(f"/ui/nodes/{CLUSTER}/{name}" for name in kinds.values()),
        _in_page("/ui/why", **pod),
        _in_page("/ui/why", **large),
        _in_page("/ui/room", **pod),
        _in_page("/ui/moves", goal="empty", hosts=f"{CLUSTER}/{one}"),
        _in_page("/ui/pods", cluster=CLUSTER),
        _in_page("/ui/pods", cluster=CLUSTER, node=one),
        "/ui/orphans",
        "/ui/changes",
        _in_page("/ui/search", q=one),
    ]


def test_every_page_of_the_cluster_can_be_read(filled: FilledCluster, browser: Any):
    assert_readable(browser, filled.url, pages(filled.nodes))
