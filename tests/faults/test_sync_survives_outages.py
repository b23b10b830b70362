"""`placement sync kubernetes`: broken connections, forgotten versions, restarts of everything."""

from __future__ import annotations

import pytest

from tests.api_server import ApiServer, write_kubeconfig
from tests.client import unique
from tests.server import database_url, free_port, running_service
from tests.service import Service, ServiceError
from tests.synchronizing import Surroundings, eventually, join, offer_pods, pod_manifest


def lists(api_server: ApiServer, path: str = "/api/v1/nodes") -> int:
    return api_server.calls["GET", path]


def refused(around: Surroundings, *arguments: str) -> str:
    """The one line of a command that cannot work."""
    finished = around.once(*arguments)
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    return line


def test_a_watch_goes_on_where_the_connection_broke(around, api_server):
    node, _ = join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], around.nodes)
        with api_server.away():
            api_server.put(offer_pods(node, 7))
            join(api_server, "host-1")
            api_server.delete("Node", "host-1")
            join(api_server, "host-2")
        eventually(["host-0", "host-2"], around.nodes)
        eventually(7, lambda: around.pods_offered("host-0"))
    # What was missed came from the watch. A list of one node is one page.
    assert lists(api_server) == 1


def test_a_bookmark_saves_a_list(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], around.nodes)
        api_server.bookmark()
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)
        before = lists(api_server, "/api/v1/pods")
        with api_server.away():
            api_server.forget_before_bookmark()
        join(api_server, "host-2")
        eventually(["host-0", "host-1", "host-2"], around.nodes)
    assert lists(api_server, "/api/v1/pods") == before


@pytest.mark.parametrize("gone_by_status", [False, True])
def test_what_happened_unseen_is_found_by_listing_again(around, api_server, gone_by_status):
    node, _ = join(api_server, "host-0")
    join(api_server, "host-1")
    api_server.gone_by_status = gone_by_status
    with around.running() as sync:
        eventually(["host-0", "host-1"], around.nodes)
        with api_server.away():
            api_server.delete("Node", "host-1")
            join(api_server, "host-2")
            api_server.put(offer_pods(node, 8))
            api_server.forget()
        eventually(["host-0", "host-2"], around.nodes)
        eventually(8, lambda: around.pods_offered("host-0"))
        eventually(True, lambda: "listing again" in sync.said)


def test_a_list_whose_pages_expire_is_begun_again(around, api_server):
    for number in range(5):
        join(api_server, f"host-{number}")
    api_server.pages_that_expire = 1
    with around.running():
        eventually(5, lambda: len(around.nodes()))
    assert api_server.pages_that_expire == 0


def test_nothing_is_touched_while_a_list_is_missing(around, api_server):
    join(api_server, "host-0")
    assert around.once().returncode == 0
    api_server.fail_next("noderesourcetopologies", 500)
    failed = around.once()
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert "told to fail" in failed.stderr
    assert around.cores("host-0") == 32
    api_server.fail_next("noderesourcetopologies", 500)
    api_server.delete("Node", "host-0")
    with around.running():
        eventually([], around.nodes)


def test_the_service_may_come_back_as_it_was_before(api_server, tmp_path):
    node, _ = join(api_server, "host-0")
    port = free_port()
    with database_url("sqlite") as connection:
        around = Surroundings(api_server, f"http://127.0.0.1:{port}", unique("cluster"), tmp_path)
        with around.running() as sync:
            eventually(True, lambda: "cannot be reached" in sync.said)
            with running_service(connection, workers=1, port=port):
                eventually(["host-0"], around.nodes)
            api_server.put(offer_pods(node, 5))
            join(api_server, "host-1")
            with running_service(connection, workers=1, port=port):
                eventually(["host-0", "host-1"], around.nodes)
                eventually(5, lambda: around.pods_offered("host-0"))
        with database_url("sqlite") as empty, running_service(empty, workers=1, port=port):
            with pytest.raises(ServiceError):
                around.shown("host-0")
            assert around.once().returncode == 0
            assert around.nodes() == ["host-0", "host-1"]


def test_a_cluster_that_was_lost_is_built_again(around, api_server):
    node, _ = join(api_server, "host-0")
    service = Service(around.url)
    with around.running():
        eventually(["host-0"], around.nodes)
        service.must("DELETE", f"/ext/v1/clusters/{around.cluster}/nodes/host-0")
        service.must("DELETE", f"/ext/v1/clusters/{around.cluster}")
        api_server.put(offer_pods(node, 3))
        eventually(["host-0"], around.nodes)


def test_a_token_that_was_replaced_in_its_file_is_read_again(around, api_server):
    join(api_server, "host-0")
    with around.running():
        eventually(["host-0"], around.nodes)
        with api_server.away():
            api_server.token = "the-next-one"
            write_kubeconfig(around.kubeconfig, ("lab", api_server.url), token="the-next-one")
        join(api_server, "host-1")
        eventually(["host-0", "host-1"], around.nodes)


def test_a_kubernetes_that_was_restored_from_a_backup_is_listed_again(around, api_server):
    """Versions begin anew below the one that is watched from, so that no event tells of it."""
    join(api_server, "host-0")
    with around.running() as sync:
        eventually(["host-0"], around.nodes)
        kept = api_server.version
        for name in ("host-1", "host-2"):
            join(api_server, name)
        eventually(["host-0", "host-1", "host-2"], around.nodes)
        with api_server.away():
            api_server.restore(kept)
        eventually(["host-0"], around.nodes)
        join(api_server, "host-3")
        eventually(["host-0", "host-3"], around.nodes)
        assert "listing again" in sync.said


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


def test_pods_follow_over_restarts_of_the_service(api_server, tmp_path):
    join(api_server, "host-0")
    join(api_server, "host-1")
    port = free_port()
    api_server.put(pod_manifest("a", "host-0"))
    api_server.put(pod_manifest("b", "host-0"))
    with database_url("sqlite") as connection:
        around = Surroundings(api_server, f"http://127.0.0.1:{port}", unique("cluster"), tmp_path)
        with around.running():
            with running_service(connection, workers=1, port=port):
                eventually({"default/a", "default/b"}, lambda: set(around.pods()))
            api_server.delete("Pod", "a", "default")
            api_server.put(pod_manifest("c", "host-1"))
            with running_service(connection, workers=1, port=port):
                eventually({"default/b", "default/c"}, lambda: set(around.pods()))
