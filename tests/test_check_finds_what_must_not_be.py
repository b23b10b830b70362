"""`placement db check` finds each kind of damage, says of whom, and mends what needs no decision."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from placement.server import checks
from placement.server.invariants.invariant import InvariantViolation
from placement.server.online_migrations import MigrationOwner
from tests import commands
from tests.client import Client
from tests.conftest import application_at
from tests.kubernetes import CLUSTER, node_manifests, pod_manifest
from tests.reservations import reservation
from tests.server import BACKENDS, database_url

UID = "6f0c0000-0000-4000-8000-00000000000"
GUEST = "b43dbd27-06a5-4dc9-a073-feda931c578a"
OWNER = MigrationOwner("p", "u")
# Ids that nobody has.
NONE, GONE = 987654, "00000000-0000-4000-8000-00000000dead"
_HOST = "(SELECT id FROM resource_providers WHERE name = 'host')"
_CHILD = "(SELECT id FROM resource_providers WHERE name = 'child')"
_CORE = "(SELECT id FROM resource_providers WHERE name = 'edge/n1/core-0-0')"
_N1 = "(SELECT id FROM nodes WHERE name = 'n1')"
_OTHER = "(SELECT id FROM clusters WHERE name = 'other')"
_VCPU, _PCPU, _DISK = (
    f"(SELECT id FROM resource_classes WHERE name = '{name}')" for name in ("VCPU", "PCPU", "DISK_GB")
)
_COLUMNS = "resource_provider_id, consumer_id, resource_class_id, used"
_ALLOCATE = f"INSERT INTO allocations ({_COLUMNS}) VALUES ({{}}, '{{}}', {{}}, {{}})"
# Damage: statements, the invariant that finds it, and what it says.
DAMAGE: dict[str, tuple[Sequence[str], str, str]] = {
    "use": ([f"UPDATE inventories SET used = 7 WHERE resource_provider_id = {_HOST}"],
        "used-is-what-is-allocated", "(host): 7 VCPU are kept as used, its allocations are 3"),
    "use of nothing": ([f"UPDATE inventories SET used = 1 WHERE resource_provider_id = {_CHILD}"],
        "used-is-what-is-allocated", "(child): 1 SRIOV_NET_VF are kept as used, its allocations are 0"),
    "capacity": ([f"UPDATE inventories SET total = 2 WHERE resource_provider_id = {_HOST}"],
        "capacity-suffices", "(host): 3 VCPU are allocated, its capacity is 2"),
    "holder": ([_ALLOCATE.format(_CHILD, GONE, _DISK, 1)], "allocations-refer-to-consumer_id",
        f"({GONE}): its consumer_id {GONE} is not in consumers"),
    "provider of an allocation": ([_ALLOCATE.format(NONE, GUEST, _VCPU, 1)],
        "allocations-refer-to-resource_provider_id",
        f"({GUEST}): its resource_provider_id {NONE} is not in resource_providers"),
    "class of an allocation": ([_ALLOCATE.format(_HOST, GUEST, NONE, 1)],
        "allocations-refer-to-resource_class_id",
        f"({GUEST}): its resource_class_id {NONE} is not in resource_classes"),
    "inventory of an allocation": ([_ALLOCATE.format(_CHILD, GUEST, _DISK, 5)],
        "allocations-have-an-inventory", f"consumer {GUEST}: it holds 5 DISK_GB of provider"),
    "amount": ([f"UPDATE allocations SET used = 0 WHERE consumer_id = '{GUEST}'",
        f"UPDATE inventories SET used = 0 WHERE resource_provider_id = {_HOST}"], "allocations-are-positive",
        f"consumer {GUEST}: it holds 0 VCPU"),
    "idle": ([f"DELETE FROM allocations WHERE consumer_id = '{GUEST}'"], "consumers-hold-something",
        f"consumer {GUEST}: it holds nothing and is not a pod"),
    "project": ([f"UPDATE consumers SET project_id = {NONE} WHERE uuid = '{GUEST}'"],
        "consumers-refer-to-project_id", f"({GUEST}): its project_id {NONE} is not in projects"),
    "parent": ([f"UPDATE resource_providers SET parent_provider_id = {NONE} WHERE name = 'child'"],
        "resource_providers-refer-to-parent_provider_id",
        f"its parent_provider_id {NONE} is not in resource_providers"),
    "root that is gone": ([f"UPDATE resource_providers SET root_provider_id = {NONE} WHERE name = 'child'"],
        "resource_providers-refer-to-root_provider_id",
        f"its root_provider_id {NONE} is not in resource_providers"),
    "root of another tree": (
        [f"UPDATE resource_providers SET root_provider_id = {_CORE} WHERE name = 'child'"],
        "roots-are-right", "(child): its root is"),
    "no root": (
        ["UPDATE resource_providers SET root_provider_id = NULL WHERE name IN ('child', 'grandchild')"],
        "roots-are-right", "(grandchild): its root is"),
    "loop": (["UPDATE resource_providers SET parent_provider_id = "
        "(SELECT id FROM resource_providers WHERE name = 'grandchild') WHERE name = 'child'"],
        "trees-have-a-root", "(child): its parents form a loop"),
    "trait": (
        [f"INSERT INTO resource_provider_traits (resource_provider_id, trait_id) VALUES ({_HOST}, {NONE})"],
        "resource_provider_traits-refer-to-trait_id", f"trait_id {NONE} is not in traits"),
    "aggregate": (
        ["INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) "
        f"VALUES ({NONE}, (SELECT min(id) FROM placement_aggregates))"],
        "resource_provider_aggregates-refer-to-resource_provider_id",
        f"resource_provider_id {NONE} is not in resource_providers"),
    "provider of a node": (["UPDATE resource_providers SET cluster_id = NULL WHERE name LIKE 'edge/n1%'"],
        "nodes-are-roots-of-their-cluster", "node n1 of cluster edge: its provider"),
    "node of a provider": ([f"DELETE FROM logical_cpus WHERE node_id = {_N1}",
        f"DELETE FROM pods WHERE node_id = {_N1}", "DELETE FROM nodes WHERE name = 'n1'"],
        "clusters-have-nodes-for-their-providers",
        "(edge/n1): a cluster made it for a node that is not there"),
    "cluster of a tree": (
        [f"UPDATE resource_providers SET cluster_id = {_OTHER} WHERE name = 'edge/n1/core-0-0'"],
        "trees-are-of-one-cluster", "(edge/n1/core-0-0): it is of another cluster than its root"),
    "aggregate of a cluster": (
        ["DELETE FROM resource_provider_aggregates WHERE resource_provider_id = "
        f"(SELECT resource_provider_id FROM nodes WHERE id = {_N1})"],
        "nodes-are-found-in-their-cluster", "node n1 of cluster edge: its provider is not in the aggregate"),

    "node of a pod": ([f"UPDATE pods SET cluster_id = {_OTHER} WHERE name = 'bound'"],
        "pods-are-on-nodes-of-their-cluster", "pod default/bound: its node n1 is of another cluster"),
    "owner of a CPU": ([f"UPDATE logical_cpus SET consumer_id = '{GUEST}' WHERE node_id = {_N1} AND cpu = 0"],
        "owners-of-cpus-are-of-their-cluster", f"node n1: its CPU 0 belongs to consumer {GUEST}"),
    "CPUs of an instance": ([_ALLOCATE.format(_CORE, GUEST, _PCPU, 2),
        f"UPDATE inventories SET used = 4 WHERE resource_provider_id = {_CORE}"], "cores-are-held-once",
        "(edge/n1/core-0-0): 4 of its 2 CPUs are held, so one has two owners"),
    "threads": ([f"DELETE FROM logical_cpus WHERE node_id = {_N1} AND cpu = 0"],
        "threads-that-pods-hold-are-theirs",
        f"consumer {UID}1: it holds 4 threads of cores of node n1 and owns 3 CPUs there"),
    "CPU of another pod": (
        [f"UPDATE logical_cpus SET exclusive_level = 'PCPULevel' WHERE node_id = {_N1} AND cpu = 0"],
        "pods-hold-what-follows-from-them",
        f"CPU 0 is consumer {UID}1's (PCPULevel); by its pods it is consumer {UID}1's"),
    "pod that is gone": (["DELETE FROM pods WHERE name = 'bound'"], "pods-hold-what-follows-from-them",
        f"node n1 of cluster edge: CPU 0 is consumer {UID}1's; by its pods it is free"),
}  # fmt: skip
MENDED = {
    *("use", "use of nothing", "holder", "idle", "root that is gone", "root of another tree", "no root"),
    *("trait", "aggregate"),
}  # fmt: skip


def furnish(url: str) -> None:
    """A tree with a guest, and a cluster with pods and a reservation."""
    with application_at(url) as application:
        api = Client(application.test_client())
        host = api.provider("host", VCPU=10)
        child = api.provider("child", parent=host, SRIOV_NET_VF=4)
        api.provider("grandchild", parent=child)
        assert api.claim({host: {"VCPU": 3}}, GUEST).status_code == 204
        for cluster in (CLUSTER, "/ext/v1/clusters/other"):
            assert api.put(cluster).status_code == 201
        assert api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1")).status_code == 201
        bound = pod_manifest("4", uid=f"{UID}1", node="n1", status={"cpuset": "0-3"})
        assert api.put(f"{CLUSTER}/pods/default/bound", bound).status_code == 201
        shared = pod_manifest("1", uid=f"{UID}2", qos="LS", priority=None)
        assert api.put(f"{CLUSTER}/pods/default/shared", shared).status_code == 201
        assert api.put(f"{CLUSTER}/reservations/kept", reservation()).status_code == 201


@pytest.fixture(scope="module", params=BACKENDS)
def furnished(request: pytest.FixtureRequest) -> Iterator[str]:
    with database_url(request.param) as url:
        furnish(url)
        yield url


@contextmanager
def unguarded(url: str) -> Iterator[sa.Connection]:
    """A connection inside a transaction whose keys refuse nothing."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        else:
            connection.exec_driver_sql("SET session_replication_role = replica")
        yield connection


def found_after(url: str, statements: Sequence[str]) -> list[InvariantViolation]:
    """What is found in a database with this damage, which is undone then."""
    with unguarded(url) as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
        found = list(checks.violations(connection, MigrationOwner("p", "u")))
        if all(one.is_warning for one in found):
            found += checks.pod_violations(connection)
        connection.rollback()
    return found


def test_nothing_is_found_where_nothing_is_wrong(furnished: str):
    assert found_after(furnished, []) == []


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found(furnished: str, kind: str):
    statements, invariant, said = DAMAGE[kind]
    found = found_after(furnished, statements)
    assert [one for one in found if one.invariant == invariant and said in one.sentence], found
    assert all(one.is_warning for one in found) == (kind == "capacity")
    assert any(one.remedy for one in found) == (kind in MENDED)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_needs_no_decision_is_mended(backend: str):
    """All of it at once, and what a search shows afterwards is what is stored."""
    with database_url(backend) as url:
        furnish(url)
        with application_at(url) as application:
            api = Client(application.test_client())
            host = api.get("/resource_providers?name=host").json["resource_providers"][0]["uuid"]
            assert shown(api, host) == 3
            with unguarded(url) as connection:
                for kind in sorted(MENDED - {"idle", "root of another tree"}):
                    for statement in DAMAGE[kind][0]:
                        connection.execute(sa.text(statement))
                connection.commit()
            before = checks.check(url, OWNER)
            assert len(before.errors) >= 7
            assert not before.are_pods_compared
            checks.repair(url, OWNER)
            # The holder without record holds of a class that its provider has not: that needs a person.
            (left,) = checks.check(url, OWNER).violations
            assert left.invariant == "allocations-have-an-inventory"
            assert shown(api, host) == 3
            assert api.used_by(GONE) != {}
            assert api.delete(f"/allocations/{GONE}").status_code == 204
            assert checks.check(url, OWNER) == ([], True)


def shown(api: Client, host: str) -> int:
    summaries = api.get("/allocation_candidates?resources=VCPU:1").json["provider_summaries"]
    return int(summaries[host]["resources"]["VCPU"]["used"])


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("db", "check", "--database", url, *arguments)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_command_says_first_and_does_what_it_said(backend: str):
    with database_url(backend) as url:
        furnish(url)
        (line,) = run(url).stdout.splitlines()
        assert line == "Everything holds."
        with unguarded(url) as connection:
            for statement in DAMAGE["use"][0]:
                connection.execute(sa.text(statement))
            connection.commit()
        rehearsed = run(url, "--repair")
        assert rehearsed.returncode == 1
        assert "--repair --yes would keep 3 as used" in rehearsed.stdout
        listed = run(url, "-f", "json")
        assert listed.returncode == 1
        (row,) = json.loads(listed.stdout)
        assert (row["severity"], row["invariant"]) == ("error", "used-is-what-is-allocated")
        assert row["repair"] == "keep 3 as used"
        done = run(url, "--repair", "--yes")
        assert (done.returncode, done.stdout) == (0, "Everything holds.\n")
        assert done.stderr.startswith("repaired: provider ")
        assert run(url, "--yes").returncode == 1
        # A warning fails nobody.
        with unguarded(url) as connection:
            connection.execute(sa.text(DAMAGE["capacity"][0][0]))
            connection.commit()
        told = run(url)
        assert told.returncode == 0
        assert told.stdout.splitlines()[-1] == "0 errors, 1 warnings; 0 can be repaired with --repair."


def test_a_schema_of_another_release_is_not_checked():
    with database_url("sqlite", migrated=False) as url:
        told = run(url)
        assert told.returncode == 1
        assert "placement db upgrade" in told.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_stay_pods_and_keep_their_cpus(backend: str):
    """One whose consumer is gone, be it the owner of CPUs or not, is of its cluster again."""
    with database_url(backend) as url:
        furnish(url)
        with unguarded(url) as connection:
            connection.execute(sa.text("DELETE FROM consumers WHERE cluster_id IS NOT NULL"))
            connection.commit()
        damaged = checks.check(url, OWNER).errors
        assert {one.remedy for one in damaged if "logical_cpus" in one.sentence} == {""}
        checks.repair(url, OWNER)
        assert checks.check(url, OWNER) == ([], True)


def test_a_node_that_cannot_be_read_is_named_and_hides_no_other(furnished: str):
    unreadable = {"kind": "Node", "metadata": {"name": "n2"}, "status": {"allocatable": {"cpu": "many"}}}
    with application_at(furnished) as application:
        api = Client(application.test_client())
        assert api.put(f"{CLUSTER}/nodes/n2", node_manifests("n2")).status_code in (200, 201)
    manifest = f"UPDATE nodes SET manifest = '{json.dumps(unreadable)}' WHERE name = 'n2'"
    found = found_after(furnished, [manifest, *DAMAGE["pod that is gone"][0]])
    assert any("node n2 of cluster edge cannot be read" in one.sentence for one in found), found
    assert any("node n1 of cluster edge: CPU 0" in one.sentence for one in found), found
