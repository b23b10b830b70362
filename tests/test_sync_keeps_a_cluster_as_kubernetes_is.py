"""`placement sync kubernetes` against a real service and a stand-in of the API server: nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import ApiServer
from tests.api_server_http import running_api_server, write_kubeconfig
from tests.client import unique
from tests.server import RunningServer, database_url, free_port, running_service
from tests.service import Service, ServiceError
from tests.synchronizing import Surroundings, eventually, node_manifests

CORE = "edge-01/core-0-1"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with database_url("sqlite") as connection, running_service(connection, workers=1) as running:
        yield running


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with running_api_server() as running:
        yield running


@pytest.fixture
def around(server: RunningServer, api_server: ApiServer, tmp_path: Path) -> Surroundings:
    return Surroundings(api_server, server.url, unique("cluster"), tmp_path)


def nodes(around: Surroundings) -> list[str]:
    """The names of the nodes that the service has."""
    answer = Service(around.url).call("GET", f"/ext/v1/clusters/{around.cluster}/nodes")
    return [node["name"] for node in answer.body["nodes"]] if answer.status == 200 else []


def shown(around: Surroundings, name: str) -> Any:
    return Service(around.url).must("GET", f"/ext/v1/clusters/{around.cluster}/nodes/{name}")


def cores(around: Surroundings, name: str) -> int:
    return sum(len(numa["children"]) for numa in shown(around, name)["tree"]["children"])


def pods_offered(around: Surroundings, name: str) -> int:
    found: int = shown(around, name)["resources"]["CUSTOM_PODS"]["capacity"]
    return found


def join(api_server: ApiServer, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A machine joins the cluster."""
    node, topology = node_manifests(name)
    api_server.put(topology)
    api_server.put(node)
    return node, topology


def offer_pods(node: dict[str, Any], number: int) -> dict[str, Any]:
    node["status"]["allocatable"]["pods"] = str(number)
    return node


def lists(api_server: ApiServer, path: str = "/api/v1/nodes") -> int:
    return api_server.calls["GET", path]


def test_once_makes_the_cluster_what_kubernetes_has(around, api_server):
    for number in range(5):
        join(api_server, f"host-{number}")
    first = around.once()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[-1] == "nodes 5, pods 0, rejected 0"
    assert nodes(around) == [f"host-{number}" for number in range(5)]
    assert cores(around, "host-3") == 32
    api_server.delete("Node", "host-1")
    api_server.delete("NodeResourceTopology", "host-1")
    again = around.once()
    assert again.stdout == "nodes 4, pods 0, rejected 0\n"
    assert nodes(around) == ["host-0", "host-2", "host-3", "host-4"]


def test_nodes_appear_change_and_vanish(around, api_server):
    node, topology = join(api_server, "host-0")
    with around.running() as sync:
        eventually(["host-0"], lambda: nodes(around))
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], lambda: nodes(around))
        api_server.put(offer_pods(node, 99))
        eventually(99, lambda: pods_offered(around, "host-0"))
        topology["zones"][0]["resources"][1]["allocatable"] = "1Gi"
        api_server.put(topology)
        eventually(
            1024,
            lambda: shown(around, "host-0")["tree"]["children"][0]["resources"]["MEMORY_MB"]["total"],
        )
        api_server.delete("NodeResourceTopology", "host-0")
        eventually(0, lambda: cores(around, "host-0"))
        api_server.delete("Node", "host-0")
        eventually(["host-1"], lambda: nodes(around))
        sync.end()
        assert "stopped: nodes 1, pods 0, rejected 0" in sync.said


def test_a_heartbeat_is_not_worth_a_call(around, api_server):
    node, _ = join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        imported_at = shown(around, "host-0")["imported_at"]
        node["status"]["conditions"][3]["lastHeartbeatTime"] = "2026-05-17T09:00:00Z"
        node["metadata"]["managedFields"] = [{"manager": "kubelet"}]
        api_server.put(node)
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], lambda: nodes(around))
    assert shown(around, "host-0")["imported_at"] == imported_at


def test_a_watch_goes_on_where_the_connection_broke(around, api_server):
    node, _ = join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        with api_server.away():
            api_server.put(offer_pods(node, 7))
            join(api_server, "host-1")
            api_server.delete("Node", "host-1")
            join(api_server, "host-2")
        eventually(["host-0", "host-2"], lambda: nodes(around))
        eventually(7, lambda: pods_offered(around, "host-0"))
    # What was missed came from the watch. A list of one node is one page.
    assert lists(api_server) == 1


def test_a_bookmark_saves_a_list(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        api_server.bookmark()
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], lambda: nodes(around))
        before = lists(api_server, "/api/v1/pods")
        with api_server.away():
            api_server.forget_before_bookmark()
        join(api_server, "host-2")
        eventually(["host-0", "host-1", "host-2"], lambda: nodes(around))
    assert lists(api_server, "/api/v1/pods") == before


@pytest.mark.parametrize("gone_by_status", [False, True])
def test_what_happened_unseen_is_found_by_listing_again(around, api_server, gone_by_status):
    node, _ = join(api_server, "host-0")
    join(api_server, "host-1")
    api_server.gone_by_status = gone_by_status
    with around.running() as sync:
        eventually(["host-0", "host-1"], lambda: nodes(around))
        with api_server.away():
            api_server.delete("Node", "host-1")
            join(api_server, "host-2")
            api_server.put(offer_pods(node, 8))
            api_server.forget()
        eventually(["host-0", "host-2"], lambda: nodes(around))
        eventually(8, lambda: pods_offered(around, "host-0"))
        assert "listing again" in sync.said


def test_a_list_whose_pages_expire_is_begun_again(around, api_server):
    for number in range(5):
        join(api_server, f"host-{number}")
    api_server.pages_that_expire = 1
    with around.running():
        eventually(5, lambda: len(nodes(around)))
    assert api_server.pages_that_expire == 0


def test_a_bad_manifest_is_named_and_does_not_stop_the_rest(around, api_server):
    node, topology = node_manifests("host-0")
    node["status"]["allocatable"]["cpu"] = "many"
    api_server.put(topology)
    api_server.put(node)
    join(api_server, "host-1")
    once = around.once()
    assert once.returncode == 1
    assert once.stdout.splitlines()[-1] == "nodes 1, pods 0, rejected 1"
    (line,) = once.stderr.splitlines()
    assert line.startswith("node host-0: rejected: ")
    assert "allocatable.cpu" in line
    with around.running() as sync:
        eventually(True, lambda: "rejected 1" in sync.said)
        node["status"]["conditions"] = []
        api_server.put(node)
        join(api_server, "host-2")
        eventually(["host-1", "host-2"], lambda: nodes(around))
        # Nothing that matters changed, so nobody was bothered again.
        assert sync.said.count("rejected: ") == 1
        node["status"]["allocatable"]["cpu"] = "64"
        api_server.put(node)
        eventually(["host-0", "host-1", "host-2"], lambda: nodes(around))
        assert "node host-0: well again" in sync.said


def test_a_conflict_is_tried_again_until_there_is_room(around, api_server):
    join(api_server, "host-0")
    assert around.once().returncode == 0
    service = Service(around.url)
    root = shown(around, "host-0")["tree"]["uuid"]
    consumer = "1a2b3c4d-0000-4000-8000-00000000000a"
    body = {"allocations": {root: {"resources": {"CUSTOM_PODS": 1}}}, "consumer_type": "INSTANCE"}
    labels = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    service.must("PUT", f"/allocations/{consumer}", {**body, **labels})
    with around.running() as sync:
        api_server.delete("Node", "host-0")
        eventually(True, lambda: f"consumer {consumer}" in sync.said)
        assert nodes(around) == ["host-0"]
        service.must("DELETE", f"/allocations/{consumer}")
        eventually([], lambda: nodes(around))


def test_a_machine_that_was_replaced_gets_a_new_tree(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        before = shown(around, "host-0")["tree"]["uuid"]
        node, _ = node_manifests("host-0")
        api_server.put(node)
        eventually(True, lambda: shown(around, "host-0")["tree"]["uuid"] != before)


def test_without_the_custom_resource_nodes_come_without_cores(around, api_server):
    api_server.unknown_kinds.add("NodeResourceTopology")
    join(api_server, "host-0")
    once = around.once()
    assert once.returncode == 0
    assert once.stderr.count("knows no NodeResourceTopology") == 1
    assert cores(around, "host-0") == 0
    with around.running() as sync:
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], lambda: nodes(around))
    assert sync.said.count("knows no NodeResourceTopology") == 1


def test_nothing_is_touched_while_a_list_is_missing(around, api_server):
    join(api_server, "host-0")
    assert around.once().returncode == 0
    api_server.fail_next("noderesourcetopologies", 500)
    failed = around.once()
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert "told to fail" in failed.stderr
    assert cores(around, "host-0") == 32
    api_server.fail_next("noderesourcetopologies", 500)
    api_server.delete("Node", "host-0")
    with around.running():
        eventually([], lambda: nodes(around))


def test_the_service_may_come_back_as_it_was_before(api_server, tmp_path):
    node, _ = join(api_server, "host-0")
    port = free_port()
    with database_url("sqlite") as connection:
        around = Surroundings(api_server, f"http://127.0.0.1:{port}", unique("cluster"), tmp_path)
        with around.running() as sync:
            eventually(True, lambda: "cannot be reached" in sync.said)
            with running_service(connection, workers=1, port=port):
                eventually(["host-0"], lambda: nodes(around))
            api_server.put(offer_pods(node, 5))
            join(api_server, "host-1")
            with running_service(connection, workers=1, port=port):
                eventually(["host-0", "host-1"], lambda: nodes(around))
                eventually(5, lambda: pods_offered(around, "host-0"))
        with database_url("sqlite") as empty, running_service(empty, workers=1, port=port):
            with pytest.raises(ServiceError):
                shown(around, "host-0")
            assert around.once().returncode == 0
            assert nodes(around) == ["host-0", "host-1"]


def test_a_cluster_that_was_lost_is_built_again(around, api_server):
    node, _ = join(api_server, "host-0")
    service = Service(around.url)
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        service.must("DELETE", f"/ext/v1/clusters/{around.cluster}/nodes/host-0")
        service.must("DELETE", f"/ext/v1/clusters/{around.cluster}")
        api_server.put(offer_pods(node, 3))
        eventually(["host-0"], lambda: nodes(around))


def refused(around: Surroundings, *arguments: str) -> str:
    """The one line of a command that cannot work."""
    finished = around.once(*arguments)
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    return line


@pytest.mark.parametrize("text", ["[", "[]", "clusters: 5", ""])
def test_a_kubeconfig_of_no_use_is_named(around, tmp_path, text):
    bad = tmp_path / "bad"
    bad.write_text(text)
    assert str(bad) in refused(around, "--kubeconfig", str(bad))


def test_what_cannot_work_is_said_in_a_line(around, api_server):
    assert "no-such-file" in refused(around, "--kubeconfig", "no-such-file")
    assert "elsewhere" in refused(around, "--context", "elsewhere")
    api_server.fail_next("/api/v1/nodes", 403)
    assert refused(around).endswith("told to fail (403)")
    with api_server.away():
        assert "cannot be reached" in refused(around)


def test_a_token_that_was_replaced_in_its_file_is_read_again(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], lambda: nodes(around))
        with api_server.away():
            api_server.token = "the-next-one"
            write_kubeconfig(around.kubeconfig, ("lab", api_server.url), token="the-next-one")
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], lambda: nodes(around))
