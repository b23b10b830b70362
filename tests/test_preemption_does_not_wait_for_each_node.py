"""The extender's preempt while the API server is of no use: tried once, and no longer than asked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.engine.domain import request_scope
from placement.engine.domain.errors import PlacementError
from placement.http.registry import Registry, registry_of
from placement.pods.services.extender import Extender
from placement.pods.services.preemption import ENOUGH_NODES, Victims
from placement.server.binders import KubeconfigBinders
from placement.storage.database import Database
from tests.api_server import ApiServer, write_kubeconfig
from tests.client import Client
from tests.conftest import application_of
from tests.kubernetes import cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

PODS = ("GET", "/api/v1/pods")
# More CPUs than any of the nodes has, so that their pods are asked about on each of them.
URGENT = pod_manifest("32", uid="uid-urgent", phase="Pending")


@pytest.fixture
def registry(
    database: Database, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registry]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", ("edge", api_server.url))
    with application_of(database, binders=KubeconfigBinders(str(kubeconfig))) as application:
        cluster_of(Client(application.test_client()), "host-0", "host-1", "host-2")
        yield registry_of(application)
    request_scope.set_deadline(math.inf)
    request_scope.watch_caller(None)


def preempt(registry: Registry, nodes: int = 3) -> dict[str, Victims]:
    proposed = {f"host-{number}": Victims([]) for number in range(nodes)}
    return registry[Extender].preempt("edge", URGENT, proposed)


def test_an_api_server_that_fails_is_not_asked_for_the_next_node(registry, api_server):
    api_server.fail_next(PODS[1], 503)
    assert preempt(registry) == {}
    assert api_server.calls[PODS] == 1
    # The next call tries again.
    assert preempt(registry) == {}
    assert api_server.calls[PODS] == 1 + 3


def test_no_more_nodes_are_asked_about_than_are_enough(registry, api_server):
    assert preempt(registry, ENOUGH_NODES + 20) == {}
    assert api_server.calls[PODS] == ENOUGH_NODES


def test_nothing_is_asked_when_time_is_up(registry, api_server, tmp_path):
    request_scope.set_deadline(time.monotonic())
    with pytest.raises(PlacementError, match="time is up"):
        KubeconfigBinders(str(tmp_path / "kubeconfig")).of("edge").pod("default", "web-0")
    assert not api_server.calls


def test_nobody_is_looked_for_when_the_scheduler_is_gone(registry, api_server):
    request_scope.watch_caller(lambda: True)
    assert preempt(registry) == {}
    assert api_server.calls[PODS] == 0
