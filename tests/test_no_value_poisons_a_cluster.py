"""No amount in a manifest, and no row that cannot be read, keeps a cluster from being read and changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from placement.storage import json_text
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import CLUSTER, RESERVATION, SPEC, cluster_of, node_manifests, pod_manifest
from tests.odd_values import QUANTITIES, health, requests, scene, send
from tests.reservations import WEB, reservation

PODS = f"{CLUSTER}/pods/default"
LARGEST = 2**63 - 1


@pytest.fixture
def cluster(api: Client) -> Client:
    scene(api)
    return api


def restarted(database: Database) -> Client:
    """Another process, which knows nothing but what is stored."""
    return Client(build(database, compatible()).test_client())


def test_a_running_pod_of_any_quantity_leaves_its_cluster_well(cluster: Client, database: Database):
    for number, quantity in enumerate(QUANTITIES):
        for resource in ("cpu", "example.com/gpu"):
            manifest = pod_manifest(None, None, qos=None, priority=None, node="n1", uid=f"odd-{number}")
            asked = {resource: quantity}
            manifest["spec"]["containers"] *= 3
            manifest["spec"]["containers"][0]["resources"] = {"requests": asked}
            answer = cluster.put(f"{PODS}/odd-{number}", manifest)
            assert answer.status_code in (200, 201, 400), (quantity, answer.text)
            new = {**manifest, "spec": {**manifest["spec"], "nodeName": ""}}
            new["metadata"] = {**manifest["metadata"], "name": "asked", "uid": "asked"}
            for path in (f"{CLUSTER}/pods/preview", f"{CLUSTER}/pods/translation"):
                assert cluster.post(path, new).status_code < 500, (quantity, resource, path)
            assert cluster.put(f"{PODS}/asked", new).status_code < 500
            cluster.delete(f"{PODS}/asked")
    assert health(cluster) == {}
    again = restarted(database)
    assert health(again) == {}
    for number, _ in enumerate(QUANTITIES):
        assert again.delete(f"{PODS}/odd-{number}").status_code in (204, 404)
    assert again.delete(f"{PODS}/first").status_code == 204
    assert again.delete(f"{CLUSTER}/nodes/n1").status_code == 204


def test_what_is_more_than_can_be_counted_is_named_and_takes_all_there_is(cluster: Client):
    odd = pod_manifest("1e320", "1e320", qos=None, priority=None, node="n1", uid="odd")
    answer = cluster.put(f"{PODS}/odd", odd)
    (cpu, memory) = (each for each in answer.json["warnings"] if "requests" in each)
    assert cpu.endswith("requests.cpu: '1e320' is too large; 9.22e+15 counts")
    assert memory.endswith("requests.memory: '1e320' is too large; 9.22e+18 counts")
    asked = pod_manifest("1", qos=None, priority=None)
    asked["metadata"]["name"] = "asked"
    found = cluster.post(f"{CLUSTER}/pods/preview", asked).json
    assert [node["name"] for node in found["nodes"]] == ["n2"]


def test_many_vast_pods_add_up_to_no_more_than_json_holds(cluster: Client):
    for number in range(5):
        odd = pod_manifest("1e19", "1e19", qos=None, priority=None, node="n1", uid=f"odd-{number}")
        assert cluster.put(f"{PODS}/odd-{number}", odd).status_code == 201
    assert health(cluster) == {}


@pytest.mark.parametrize("quantity", ["1e19", "1e300", "1e320", "9E"])
def test_nodes_offer_what_an_inventory_holds(cluster: Client, quantity: str):
    zones = {0: {"cpu": quantity, "memory": quantity}, 1: {"cpu": "8", "memory": quantity}}
    manifests = node_manifests("n1", zones=zones, cpu=quantity, memory=quantity, pods=quantity)
    ratio = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1e308,"memory":1e300}'}
    manifests["node"]["metadata"]["annotations"] |= ratio
    answer = cluster.put(f"{CLUSTER}/nodes/n1", manifests)
    assert answer.status_code == 200, answer.text
    assert [each for each in answer.json["warnings"] if "more than" in each]
    assert health(cluster) == {}


@pytest.mark.parametrize(
    "zones", [[None], [{"type": "Node", "name": "node-0", "resources": [None]}], [{"resources": 5}]]
)
def test_a_topology_with_nothing_in_a_zone_is_taken_or_refused(cluster: Client, zones: Any):
    manifests = node_manifests("n1")
    manifests["nodeResourceTopology"]["zones"] = zones
    assert cluster.put(f"{CLUSTER}/nodes/n1", manifests).status_code in (200, 400)
    assert health(cluster) == {}


def test_every_kind_of_request_is_taken_as_it_stands(cluster: Client):
    for request in requests():
        assert send(cluster, request, request.body) < 300, request


DAMAGED = (
    # What the release before wrote of a request of 1e320 CPUs.
    '{"told":{},"qos":"","consumer":"CONSUMER","record":{"consumer":"CONSUMER","requests":{"cpu":1'
    + "0" * 323,
    '{"record":{"consumer":"CONSUMER","requests":{"cpu":"many"}}}',
    '{"record":{"consumer":"CONSUMER","requests":{"cpu":1e400}}}',
    '{"record":{"consumer":"CONSUMER","requests":{"cpu":-5,"memory":1e300},"labels":{"a":1}}}',
    '{"record":{"consumer":7,"membership":{"gang":"g","least":"x"},"amounts":{"a":{"cpu":1}}}}',
    '{"told":{"cpuset":"\\ud800","phase":"\\udfff","warnings":["\\ud800"]},"record":{"consumer":"CONSUMER"}}',
    '{"told":{"phase":"\\u0000"},"qos":"\\u0000"}',
    "[1,2]",
    "null",
    "7",
    '"text"',
)
NOT_JSON = ("", "{", '{"record":NaN', "garbage", "[" * 3000)


def damage(database: Database, column: str, text: str, table: str = "pods", name: str = "first") -> None:
    with database.write() as transaction:
        given = {"text": text, "name": name}
        transaction.execute(sa.text(f"UPDATE {table} SET {column} = :text WHERE name = :name"), given)


def check_first_is_alone_in_harm(database: Database) -> None:
    api = restarted(database)
    assert health(api) == {}
    listed = {pod["name"] for pod in api.get(f"{CLUSTER}/pods").json["pods"]}
    assert listed == {"first", "second"}
    # What it has of CPUs stays taken, and other pods come and go.
    taken = {cpu["cpu"]: cpu["owner"] for cpu in api.get(f"{CLUSTER}/nodes/n1").json["cpus"]}
    assert api.get(f"{PODS}/first").status_code == 200
    owned = [cpu for cpu, owner in taken.items() if owner == "pod"]
    third = api.put(f"{PODS}/third", pod_manifest("2", uid="third"))
    assert third.status_code == 201, third.text
    if third.json["node"] == "n1":
        assert not set(owned) & {int(cpu) for cpu in third.json["cpuset"].replace("-", ",").split(",")}
    assert api.delete(f"{PODS}/third").status_code == 204
    assert api.delete(f"{PODS}/second").status_code == 204
    assert api.delete(f"{PODS}/first").status_code == 204
    for node in ("n1", "n2"):
        assert api.delete(f"{CLUSTER}/nodes/{node}").status_code == 204


@pytest.fixture
def two(api: Client) -> Client:
    scene(api)
    assert api.put(f"{PODS}/second", pod_manifest("2", uid="second")).status_code == 201
    return api


@pytest.mark.parametrize("text", DAMAGED)
@pytest.mark.parametrize("column", ["status", "manifest"])
def test_a_row_that_cannot_be_read_harms_its_own_pod_alone(
    two: Client, database: Database, column: str, text: str
):
    if text.startswith('{"told":{},'):
        text += '},"labels":{}}}'
    consumer = two.get(f"{PODS}/first").json["consumer_uuid"]
    damage(database, column, text.replace("CONSUMER", consumer))
    check_first_is_alone_in_harm(database)


@pytest.mark.one_database
@pytest.mark.parametrize("text", NOT_JSON)
@pytest.mark.parametrize("column", ["status", "manifest"])
def test_a_row_that_is_not_json_harms_its_own_pod_alone(
    two: Client, database: Database, column: str, text: str
):
    damage(database, column, text)
    check_first_is_alone_in_harm(database)


TERMS = (
    '{"told":{},"record":{"consumer":"x","keeps":{"owners":[],"since":"yesterday"}}}',
    '{"told":{},"record":{"consumer":"x","keeps":{"owners":[{"labelSelector":5}],"since":"2026-01-31"}}}',
    '{"told":{},"record":{"consumer":"x","keeps":{"owners":[],"since":"2026-01-31",'
    '"expires_at":"2026-01-31T00:00:00+00:00"}}}',
    '{"told":{},"record":{"consumer":"x","keeps":{"owners":[],"since":"2026-01-31","order":"first"}}}',
    '{"told":{},"record":{"consumer":"x","keeps":{"owners":[],"since":"2026-01-31","labels":[1]}}}',
)


@pytest.mark.parametrize("text", [*DAMAGED[1:], *TERMS])
@pytest.mark.parametrize("column", ["status", "manifest"])
def test_a_reservation_that_cannot_be_read_harms_itself_alone(
    cluster: Client, database: Database, column: str, text: str
):
    kept, other = (f"{CLUSTER}/reservations/{name}" for name in ("kept", "other"))
    consumer = cluster.put(kept, reservation("kept", ttl="1h")).json["consumer_uuid"]
    assert cluster.put(other, reservation("other", "2")).status_code == 201
    damage(database, column, text.replace("CONSUMER", consumer), name="kept")
    api = restarted(database)
    assert health(api) == {}
    assert {each["name"] for each in api.get(f"{CLUSTER}/reservations").json["reservations"]} == {
        "kept",
        "other",
    }
    assert api.get(kept).status_code == 200
    if column == "status":
        # Nothing is granted on terms that are not known.
        assert api.get(kept).json["owners"] == []
        assert api.get(kept).json["unreadable"]
        assert api.put(kept, reservation("kept", ttl="1h")).status_code == 409
    owner = pod_manifest("2", labels=WEB, uid="owner")
    placed = api.put(f"{PODS}/owner", owner)
    assert placed.status_code == 201, placed.text
    assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", labels={"a": "b"})).status_code == 200
    for path in (kept, other, f"{PODS}/owner", f"{PODS}/first", f"{CLUSTER}/nodes/n1"):
        assert api.delete(path).status_code == 204, path
    assert api.put(kept, reservation("kept", ttl="1h")).status_code == 201


def test_the_check_names_rows_that_cannot_be_read_until_they_are_deleted(cluster: Client, database: Database):
    def named() -> list[str]:
        found = checks.check(url, MigrationOwner("p", "u")).violations
        return sorted(each.sentence for each in found if each.invariant == "rows-of-pods-can-be-read")

    url = database.engine.url.render_as_string(hide_password=False)
    kept, over = (f"{CLUSTER}/reservations/{name}" for name in ("kept", "over"))
    assert cluster.put(kept, reservation("kept")).status_code == 201
    assert cluster.put(over, reservation("over", "1", allocateOnce=True)).status_code == 201
    owner = pod_manifest("1", labels=WEB)
    assert cluster.put(f"{PODS}/owner", owner).status_code == 201
    for column in ("status", "manifest"):
        assert named() == []
        for name in ("first", "kept", "over"):
            damage(database, column, "null", name=name)
        end = "of cluster edge: its row cannot be read; delete it"
        assert named() == [
            f"pod default/first {end}, or send it again",
            f"reservation kept {end}, and make it again",
            f"reservation over {end}, and make it again",
        ]
        for path in (f"{PODS}/first", kept, over):
            assert cluster.delete(path).status_code == 204
        assert checks.check(url, MigrationOwner("p", "u")).violations == []
        assert cluster.put(f"{PODS}/first", pod_manifest("2", uid="first")).status_code == 201
        for name, path in (("kept", kept), ("over", over)):
            assert cluster.put(path, reservation(name, "1")).status_code == 201


@pytest.mark.one_database
@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"metadata":1,"status":[]}', '{"spec":NaN}'])
@pytest.mark.parametrize("column", ["manifest", "topology_manifest"])
def test_a_node_that_cannot_be_read_takes_nothing_and_can_be_deleted(
    two: Client, database: Database, column: str, text: str
):
    damage(database, column, text, "nodes", "n2")
    api = restarted(database)
    assert api.get(f"{CLUSTER}/pods").status_code == 200
    assert api.get(f"{CLUSTER}/nodes").status_code == 200
    third = api.put(
        f"{PODS}/third", pod_manifest("2", uid="third", spec={"preferredCPUBindPolicy": "FullPCPUs"})
    )
    assert third.json.get("node") == "n1", third.text
    assert SPEC in third.json["annotations"]
    for pod in ("first", "second", "third"):
        if api.get(f"{PODS}/{pod}").json["node"] == "n1":
            assert api.delete(f"{PODS}/{pod}").status_code == 204
    assert api.put(f"{CLUSTER}/nodes/n2", node_manifests("n2")).status_code == 200
    assert api.delete(f"{PODS}/second").status_code in (204, 404)


def test_the_text_of_rows_is_read_by_what_wrote_it():
    for value in ({"a": [1, 2**63 - 1, 1.5, None, "\U0001f600"]}, "x", None, [], {"1": {"2": 3}}):
        assert json_text.read(json_text.written(value)) == value
        assert json.loads(json_text.written(value)) == value
    mended: Any = json_text.read('{"a":1' + "0" * 400 + ',"b":"\\ud800x","c":1e999,"d":NaN}')
    assert mended == {"a": LARGEST, "b": "\ufffdx", "c": LARGEST, "d": None}
    assert json_text.read("garbage") == {}


def test_a_cluster_of_nodes_that_are_not_read_is_still_a_cluster(api: Client, database: Database):
    cluster_of(api, "n1")
    damage(database, "manifest", "null", "nodes", "n1")
    again = restarted(database)
    assert again.get(f"{CLUSTER}/nodes").status_code == 200
    asked = pod_manifest("1")
    asked["metadata"]["name"] = "asked"
    assert again.post(f"{CLUSTER}/pods/preview", asked).json["fitting"] == 0
    assert again.delete(f"{CLUSTER}/nodes/n1").status_code == 204


UNREADABLE_NODES = [
    "{",
    "[1]",
    "null",
    "[]",
    '{"metadata":1,"status":[]}',
    '{"metadata":{"name":7,"uid":[]}}',
    "{}",
]


@pytest.fixture
def known_by_uid(api: Client) -> dict[str, Any]:
    """A node with a uid, as all nodes of Kubernetes have it, and two pods."""
    manifests = node_manifests("n1")
    manifests["node"]["metadata"]["uid"] = "1a2b3c4d-0000-4000-8000-000000000001"
    assert api.put(CLUSTER, {}).status_code in (200, 201)
    assert api.put(f"{CLUSTER}/nodes/n1", manifests).status_code == 201
    for name in ("first", "second"):
        assert api.put(f"{PODS}/{name}", pod_manifest("2", uid=name)).status_code == 201
    return manifests


@pytest.mark.one_database
@pytest.mark.parametrize("text", UNREADABLE_NODES)
@pytest.mark.parametrize("uid", ["1a2b3c4d-0000-4000-8000-000000000001", "another"])
def test_pods_are_released_from_a_node_that_cannot_be_read(
    api: Client, database: Database, known_by_uid: dict[str, Any], text: str, uid: str
):
    kept = api.get(f"{PODS}/second").json["cpuset"]
    damage(database, "manifest", text, "nodes", "n1")
    again = restarted(database)
    released = again.delete(f"{PODS}/first")
    assert released.status_code == 204, released.text
    # The other one has what it had when the node comes again, also as another one.
    known_by_uid["node"]["metadata"]["uid"] = uid
    assert again.put(f"{CLUSTER}/nodes/n1", known_by_uid).status_code in (200, 201)
    assert again.get(f"{PODS}/second").json["cpuset"] == kept
    assert again.delete(f"{PODS}/second").status_code == 204
    assert again.delete(f"{CLUSTER}/nodes/n1").status_code == 204


@pytest.mark.one_database
@pytest.mark.parametrize("text", UNREADABLE_NODES)
def test_a_node_that_cannot_be_read_is_closed_while_it_is_in_use(
    api: Client, database: Database, known_by_uid: dict[str, Any], text: str
):
    damage(database, "manifest", text, "nodes", "n1")
    again = restarted(database)
    for _ in range(2):
        answer = again.delete(f"{CLUSTER}/nodes/n1?closes=true")
        assert answer.status_code == 409, answer.text
    tolerant = pod_manifest(None, None, qos=None, priority=None, tolerations=[{"operator": "Exists"}])
    assert again.post(f"{CLUSTER}/pods/preview", tolerant).json["fitting"] == 0
    (listed,) = again.get(f"{CLUSTER}/nodes?include=state").json["nodes"]
    assert "closed" in listed["closed"]
    for name in ("first", "second"):
        assert again.delete(f"{PODS}/{name}").status_code == 204
    assert again.delete(f"{CLUSTER}/nodes/n1?closes=true").status_code == 204


@pytest.mark.one_database
@pytest.mark.parametrize("column", ["manifest", "topology_manifest"])
@pytest.mark.parametrize("text", ["[]", "null", "7", "{"])
def test_a_former_manifest_that_cannot_be_read_withholds_nothing(
    api: Client, database: Database, known_by_uid: dict[str, Any], column: str, text: str
):
    damage(database, column, text, "nodes", "n1")
    for manifest in known_by_uid.values():
        manifest["metadata"].setdefault("annotations", {})[RESERVATION] = json.dumps({"reservedCPUs": "0-"})
    answer = restarted(database).put(f"{CLUSTER}/nodes/n1", known_by_uid)
    assert answer.status_code == 200, answer.text
    assert answer.json["warnings"]
