"""Rows of pods are read whichever release wrote them, and one that cannot be read spoils no list."""

from __future__ import annotations

import json
from typing import Any

import alembic.command
import pytest
import sqlalchemy as sa

from placement.app import build
from placement.pods.store.rows import FORMAT
from placement.storage import schema
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, SPEC, STATUS, cluster_of, pod_manifest
from tests.server import BACKENDS, database_url

UID = "6f0c0000-0000-4000-8000-00000000000"

# Rows as the first release left them, by name of pod.
FIRST_FORM: dict[str, dict[str, Any]] = {
    "placed": {
        "qos": "LSR",
        "consumer": f"{UID}1",
        "told": {
            "kubernetes_qos": "Guaranteed",
            "scheduled": True,
            "cpuset": "0-3",
            "annotations": {STATUS: '{"cpuset":"0-3"}', SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}'},
            "containers": ["main"],
            "lifts_cfs_quota": True,
            "score": 85,
        },
        "record": {
            "consumer": f"{UID}1",
            "qos": "LSR",
            "requests": {"cpu": 4000, "memory": 1073741824},
            "cpus": "0-3",
        },
    },
    "reported": {
        "qos": "LSR",
        "consumer": f"{UID}2",
        "told": {
            "kubernetes_qos": "Guaranteed",
            "phase": "Running",
            "cpuset": "8-9",
            "annotations": {STATUS: '{"cpuset": "8-9"}'},
            "containers": ["main"],
            "lifts_cfs_quota": True,
        },
        "record": {
            "consumer": f"{UID}2",
            "qos": "LSR",
            "requests": {"cpu": 2000, "memory": 1073741824},
            "cpus": "8-9",
        },
    },
    "ended": {
        "qos": "LSR",
        "consumer": f"{UID}3",
        "told": {"kubernetes_qos": "Guaranteed", "phase": "Succeeded", "containers": ["main"]},
    },
}


@pytest.fixture
def cluster(api: Client) -> Client:
    cluster_of(api, "n1")
    for name, manifest in (
        ("placed", pod_manifest("4", uid=f"{UID}1")),
        ("reported", pod_manifest("2", uid=f"{UID}2", node="n1", status={"cpuset": "8-9"}, phase="Running")),
        ("ended", pod_manifest("2", uid=f"{UID}3", node="n1", phase="Succeeded")),
    ):
        assert api.put(f"{CLUSTER}/pods/default/{name}", manifest).status_code == 201
    return api


def write(database: Database, name: str, status: object, form: int) -> None:
    """As some release would leave the row."""
    with database.write() as transaction:
        transaction.execute(
            sa.text("UPDATE pods SET status = :status, format = :form WHERE name = :name"),
            {"status": json.dumps(status), "form": form, "name": name},
        )


def stored(database: Database, name: str) -> dict[str, Any]:
    with database.read() as connection:
        text = connection.execute(
            sa.text("SELECT status, format FROM pods WHERE name = :name"), {"name": name}
        ).one()
    status = json.loads(text[0]) if isinstance(text[0], str) else text[0]
    return {"form": text[1], **status}


def restarted(database: Database) -> Client:
    """Another process, which knows nothing but what is stored."""
    return Client(build(database, compatible()).test_client())


def pods(api: Client) -> dict[str, Any]:
    answer = api.get(f"{CLUSTER}/pods")
    assert answer.status_code == 200
    return {pod["name"]: pod for pod in answer.json["pods"]}


def test_rows_of_the_first_release_say_the_same(cluster, database):
    before = pods(cluster)
    for name, status in FIRST_FORM.items():
        now = stored(database, name)
        if "record" in status:
            # What this release says beside what the first one did.
            assert now["record"].pop("labels") == {"koordinator.sh/qosClass": "LSR"}
            assert now["record"].pop("ports") == []
        assert now == {**status, "form": FORMAT}
        write(database, name, status, 1)
    again = restarted(database)
    assert pods(again) == before
    assert again.put(f"{CLUSTER}/pods/default/next", pod_manifest("8")).json["cpuset"] == "4-5,10-15"


def test_members_of_gangs_count_whose_rows_do_not_say_so(cluster, database):
    def member(name: str, **others: Any) -> dict[str, Any]:
        pod = pod_manifest("2", uid=f"uid-{name}", **others)
        pod["metadata"]["annotations"] |= {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
        return pod

    running = member("a", node="n1", phase="Running", status={"cpuset": "10-11"})
    assert cluster.put(f"{CLUSTER}/pods/default/a", running).status_code == 201
    status = stored(database, "a")
    for name in ("labels", "membership"):
        del status["record"][name]
    write(database, "a", status, 1)
    again = restarted(database)
    assert again.put(f"{CLUSTER}/pods/default/b", member("b")).status_code == 201


def test_names_of_a_newer_release_are_left_alone(cluster, database):
    before = pods(cluster)
    newer = json.loads(json.dumps(FIRST_FORM["reported"]))
    newer |= {"devices": ["gpu-0"]}
    newer["told"] |= {"fine_print": "new"}
    newer["record"] |= {"devices": {"gpu": 1}}
    write(database, "reported", newer, FORMAT + 1)
    again = restarted(database)
    assert pods(again) == before
    manifest = pod_manifest("2", uid=f"{UID}2", node="n1", status={"cpuset": "8-9"}, phase="Running")
    assert again.put(f"{CLUSTER}/pods/default/reported", manifest).status_code == 200
    left = stored(database, "reported")
    assert left["devices"] == ["gpu-0"]
    assert left["told"]["fine_print"] == "new"


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {},
        {"told": 1, "consumer": 2, "qos": 3, "record": 4},
        {**FIRST_FORM["reported"], "told": {"containers": 1, "annotations": 2, "score": "x"}},
        {**FIRST_FORM["reported"], "record": {"consumer": f"{UID}2", "cpus": "many", "level": "new"}},
    ],
)
def test_a_row_that_cannot_be_read_spoils_no_list(cluster, database, status):
    before = pods(cluster)
    write(database, "reported", status, 1)
    again = restarted(database)
    found = pods(again)
    assert found.keys() == before.keys()
    assert (found["placed"], found["ended"]) == (before["placed"], before["ended"])
    assert again.get(f"{CLUSTER}/pods/default/reported").status_code == 200
    node = again.get(f"{CLUSTER}/nodes/n1")
    assert node.status_code == 200
    # Nobody gets what it has, whatever becomes of the node.
    answer = again.put(f"{CLUSTER}/pods/default/other", pod_manifest("1", qos="LS", priority=None))
    assert answer.status_code == 201
    owners = {cpu["cpu"]: cpu["owner"] for cpu in again.get(f"{CLUSTER}/nodes/n1").json["cpus"]}
    assert [owners[cpu] for cpu in (8, 9)] == ["pod", "pod"]
    used = again.get(f"{CLUSTER}/nodes/n1").json["resources"]["CUSTOM_NODE_CPU_MILLI"]["used"]
    assert used == 4000 + 2000 + 1000
    # Reporting it again, or releasing it, puts it right.
    manifest = pod_manifest("2", uid=f"{UID}2", node="n1", status={"cpuset": "8-9"}, phase="Running")
    assert again.put(f"{CLUSTER}/pods/default/reported", manifest).status_code == 200
    assert pods(again)["reported"] == before["reported"]
    assert again.put(f"{CLUSTER}/pods/default/next", pod_manifest("2")).status_code == 201


# A cluster as the first release left it.
_CLUSTER_ROWS = (
    "INSERT INTO placement_aggregates (uuid, created_at) VALUES (:uuid, CURRENT_TIMESTAMP)",
    "INSERT INTO clusters (name, uuid, aggregate_id, settings, created_at) "
    "SELECT 'edge', :uuid, id, '{}', CURRENT_TIMESTAMP FROM placement_aggregates",
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_migration_keeps_rows_and_lets_the_former_release_go_on_writing(backend):
    insert = (
        "INSERT INTO pods (cluster_id, namespace, name, uid, manifest, status, created_at) "
        "VALUES ((SELECT id FROM clusters), 'default', :name, :uid, :manifest, :status, CURRENT_TIMESTAMP)"
    )
    manifest = pod_manifest("2", uid=f"{UID}3", node="n1", phase="Succeeded")
    values = {"manifest": json.dumps(manifest), "status": json.dumps(FIRST_FORM["ended"])}
    with database_url(backend, migrated=False) as url:
        # The former release kept no records.
        database = Database(url, audits=False)
        schema.upgrade(database, "0001")
        with database.write() as transaction:
            for statement in _CLUSTER_ROWS:
                transaction.execute(sa.text(statement), {"uuid": f"{UID}9"})
            transaction.execute(sa.text(insert), {"name": "ended", "uid": f"{UID}3", **values})
        schema.upgrade(database)
        with database.write() as transaction:
            transaction.execute(sa.text(insert), {"name": "later", "uid": f"{UID}4", **values})
        assert [stored(database, name)["form"] for name in ("ended", "later")] == [1, 1]
        assert pods(restarted(database))["ended"]["phase"] == "Succeeded"
        alembic.command.downgrade(schema.configuration(database), "0001")
        schema.upgrade(database)
        assert set(pods(restarted(database))) == {"ended", "later"}
        database.dispose()
