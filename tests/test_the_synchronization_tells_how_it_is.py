"""`placement sync kubernetes --health-port`: health and figures on a port of its own."""

from __future__ import annotations

from tests.patience import eventually
from tests.probes import figure, probed
from tests.server import free_port
from tests.synchronizing import Surroundings, join, pod_manifest


def test_the_synchronization_tells_its_health_and_what_it_did(around: Surroundings):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    join(around.api_server, "machine")
    around.api_server.put(pod_manifest("web", "machine"))
    with around.running("--health-port", str(port)) as running:
        eventually({"default/web": "machine"}, around.pods)
        eventually(200, lambda: probed(url, "/readyz")[0])
        assert probed(url, "/livez") == (200, "ok")
        assert probed(url, "/healthcheck") == (200, "OK")
        assert probed(url, "/healthcheck", Accept="text/plain;q=1.2.3") == (200, "OK")
        assert probed(url, "/healthcheck", "HEAD") == (204, "")
        assert probed(url, "/readyz", "HEAD") == (200, "")
        said = probed(url, "/readyz?verbose")[1]
        for name in ("kubernetes-watched", "service-answers", "caught-up"):
            assert f"[+]{name} ok" in said
        assert probed(url, "/somewhere")[0] == 404
        eventually(1.0, lambda: figure(url, "placement_sync_objects", kind="pods"))
        assert figure(url, "placement_sync_objects", kind="nodes") == 1
        assert figure(url, "placement_sync_objects", kind="reservations") == 0
        assert figure(url, "placement_sync_writes_total", kind="Node", outcome="accepted") >= 1
        assert figure(url, "placement_sync_writes_total", kind="Pod", outcome="accepted") == 1
        assert figure(url, "placement_sync_rejected") == 0
        assert 0 <= figure(url, "placement_sync_lag_seconds") < 60
        assert "Traceback" not in running.said


def test_a_health_port_that_somebody_has_is_named(around: Surroundings):
    port = around.url.rpartition(":")[2]
    finished = around.once("--health-port", port)
    assert finished.returncode == 1
    assert f"--health-port {port}: Address already in use" in finished.stderr


def test_watches_that_are_on_again_are_well_though_nothing_happens(around: Surroundings):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    join(around.api_server, "machine")
    with around.running("--health-port", str(port)):
        eventually(1, lambda: len(around.nodes()))
        eventually(200, lambda: probed(url, "/readyz")[0])
        with around.api_server.away():
            eventually(503, lambda: probed(url, "/readyz")[0])
            assert "[-]kubernetes-watched failed" in probed(url, "/readyz?verbose")[1]
        eventually(200, lambda: probed(url, "/readyz")[0])
