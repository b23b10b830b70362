"""Who decides while no other pod may come needs no second connection, however few the pool has."""

from __future__ import annotations

from typing import Any

import pytest

from placement.app import build
from placement.providers.statements import clusters
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, cluster_of, node_manifests, pod_manifest
from tests.pod_rules import ruled_pod
from tests.server import BACKENDS, database_url
from tests.statements import Counter

GANG, LEAST = (f"gang.scheduling.koordinator.sh/{key}" for key in ("name", "min-available"))


def member() -> dict[str, Any]:
    """A pod that is a gang by itself."""
    pod = pod_manifest("4", uid="uid-member")
    pod["metadata"] |= {"name": "member", "namespace": "default"}
    pod["metadata"]["annotations"] |= {GANG: "g", LEAST: "1"}
    return pod


@pytest.mark.parametrize("together", [False, True], ids=["alone", "many in a call"])
def test_a_member_of_a_gang_is_placed_with_one_connection_beside_that_of_looks(
    together: bool, monkeypatch: pytest.MonkeyPatch
):
    with database_url("postgresql") as url:
        # One is for looks, and one for the transaction.
        narrow, other = Database(url, pool_size=2, max_overflow=0, pool_timeout=1), Database(url)
        here, there = (Client(build(each, compatible()).test_client()) for each in (narrow, other))
        cluster_of(there, "host-0", "host-1")
        assert here.post(f"{CLUSTER}/pods/preview", pod_manifest("1")).status_code == 200
        lock_alone = clusters.lock_alone

        def overtaken(transaction: Any, id_: int) -> None:
            """Nodes have changed when the lock is held, so that they are read within the transaction."""
            if not there.get(f"{CLUSTER}/pods").json["pods"]:
                assert there.put(f"{CLUSTER}/pods/default/first", pod_manifest("8")).status_code == 201
            lock_alone(transaction, id_)

        monkeypatch.setattr(clusters, "lock_alone", overtaken)
        if together:
            pods = {"apiVersion": "v1", "kind": "List", "items": [member()]}
            (outcome,) = here.post(f"{CLUSTER}/pods", pods).json["pods"]
            status = outcome["status"]
        else:
            status = here.put(f"{CLUSTER}/pods/default/member", member()).status_code
        assert status == 201
        for each in (narrow, other):
            each.dispose()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_look_tells_of_pods_that_keep_others_off_without_another_statement(backend: str):
    with database_url(backend) as url:
        database = Database(url)
        counter = Counter(database.engine)
        api = Client(build(database, compatible()).test_client())
        assert api.put(CLUSTER).status_code == 201
        assert api.put(f"{CLUSTER}/nodes/host-0", node_manifests("host-0")).status_code == 201
        picky = ruled_pod("picky", {"apart": [["kubernetes.io/hostname", {"app": "web"}]]})
        assert api.put(f"{CLUSTER}/pods/default/picky", picky).status_code == 201

        def statements() -> int:
            before = counter.count
            assert api.post(f"{CLUSTER}/pods/preview", pod_manifest("1")).status_code == 200
            return counter.count - before

        # What was written is read, then there is nothing new: the look alone.
        statements()
        assert statements() == 1
        database.dispose()
