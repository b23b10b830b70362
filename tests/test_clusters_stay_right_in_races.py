"""Two writers of one cluster: nobody is told that what another wrote is his own, and nobody waits in vain.

On PostgreSQL only, for SQLite lets one writer in at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from placement.pods.services import clusters, nodes
from tests.kubernetes import CLUSTER, node_manifests

pytestmark = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)


def once_around(
    step: Callable[..., Any],
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Callable[..., Any]:
    """The step, with something beside it when it is taken for the first time."""
    calls = []

    def run(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            before()
        result = step(*arguments)
        if len(calls) == 1:
            after()
        return result

    return run


def test_the_second_of_two_first_writers_replaces_the_settings(api, other, monkeypatch):
    def creates() -> None:
        assert other.put(CLUSTER, {"description": "other"}).status_code == 201

    # It looked and found no cluster; then another was faster.
    lock = once_around(clusters.clusters.lock, after=creates)
    monkeypatch.setattr(clusters.clusters, "lock", lock)
    answer = api.put(CLUSTER, {"description": "mine"})
    assert answer.status_code == 200
    assert answer.json["description"] == "mine"
    assert other.get(CLUSTER).json["description"] == "mine"


def test_a_node_is_imported_into_the_cluster_that_is_there_by_then(api, other, monkeypatch):
    assert api.put(CLUSTER).status_code == 201

    def recreates() -> None:
        assert other.delete(CLUSTER).status_code == 204
        assert other.put(CLUSTER, {"nodeLabels": ["disk"]}).status_code == 201

    # The cluster was read, and is another one when the node is written.
    reading = once_around(nodes.import_node, before=recreates)
    monkeypatch.setattr(nodes, "import_node", reading)
    answer = api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", labels={"disk": "ssd"}))
    assert answer.status_code == 201, answer.text
    host = other.get(f"{CLUSTER}/nodes/n1").json["tree"]["uuid"]
    traits = other.get(f"/resource_providers/{host}/traits").json["traits"]
    assert any("DISK" in trait for trait in traits)
