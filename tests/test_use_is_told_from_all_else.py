"""Of many providers that only more or less is used of, only that is read; of all others everything."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement.providers import view
from placement.providers.statements import contents as memberships
from placement.providers.statements import providers
from placement.providers.view import ForestKeeper
from placement.storage import records, tables
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import BACKENDS
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, pod_manifest
from tests.server import database_url
from tests.unit.engine.forest.test_states import contents

AVX, SSD = "HW_CPU_X86_AVX", "STORAGE_DISK_SSD"


class Follower:
    """A process that takes over everything by columns, and counts of how many it read everything."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keeper, self._database = ForestKeeper(database), database
        self.read: list[int] = []
        monkeypatch.setattr(view, "_MANY", 0)
        altered = view.bulk.altered

        def noted(*given):
            found = altered(*given)
            self.read += found
            return found

        monkeypatch.setattr(view.bulk, "altered", noted)

    def agrees(self) -> bool:
        """Whether it knows the same as who loads everything anew."""
        self.read.clear()
        anew = ForestKeeper(self._database)
        try:
            return contents(self.keeper.current().forest) == contents(anew.current().forest)
        finally:
            anew.close()


@pytest.fixture
def follower(api: Client, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    found = Follower(database, monkeypatch)
    yield found
    found.keeper.close()


@pytest.fixture
def host(api: Client) -> str:
    """A provider of which something is used, so that its last stamp is of a claim."""
    found = api.provider("host", VCPU=10, DISK_GB=10)
    api.carry(found, AVX)
    api.join(found, str(uuid.uuid4()))
    used(api, found)
    return found


def used(api: Client, host: str, **labels: str) -> str:
    consumer = str(uuid.uuid4())
    assert api.claim({host: {"VCPU": 1}}, consumer, **labels).status_code == 204
    return consumer


def several(api: Client, host: str) -> None:
    allocations = {str(uuid.uuid4()): api.allocations({host: {"VCPU": 1}}) for _ in range(2)}
    assert api.at("1.39").post("/allocations", allocations).status_code == 204


def moved(api: Client, host: str) -> None:
    consumer = used(api, host)
    assert api.claim({host: {"VCPU": 2}}, consumer, generation=1).status_code == 204


def released(api: Client, host: str) -> None:
    assert api.delete(f"/allocations/{used(api, host)}").status_code == 204


@pytest.mark.parametrize("claim", [used, several, moved, released])
def test_of_what_is_claimed_nothing_but_the_use_is_read(api, host, follower, claim: Callable):
    assert follower.agrees()
    claim(api, host)
    assert follower.agrees()
    assert follower.read == []


def test_of_a_node_that_takes_a_pod_nothing_but_the_use_is_read(api, follower):
    cluster_of(api, "n1")
    assert follower.agrees()
    assert api.put(f"{CLUSTER}/pods/default/lsr", pod_manifest(cpu="4")).status_code == 201
    assert follower.agrees()
    assert follower.read == []


def other_traits(api: Client, host: str) -> None:
    api.carry(host, SSD)


def no_traits(api: Client, host: str) -> None:
    assert api.delete(f"/resource_providers/{host}/traits").status_code == 204


def other_aggregates(api: Client, host: str) -> None:
    api.join(host, str(uuid.uuid4()))


def other_aggregates_without_a_generation(api: Client, host: str) -> None:
    answer = api.at("1.1").put(f"/resource_providers/{host}/aggregates", [str(uuid.uuid4())])
    assert answer.status_code == 200


def other_inventories(api: Client, host: str) -> None:
    api.offer(host, VCPU=20, MEMORY_MB=5)


def another_inventory(api: Client, host: str) -> None:
    body = {"resource_provider_generation": api.generation(host), "resource_class": "MEMORY_MB", "total": 9}
    assert api.at("1.39").post(f"/resource_providers/{host}/inventories", body).status_code == 201


def another_total(api: Client, host: str) -> None:
    body = {"resource_provider_generation": api.generation(host), "total": 30}
    assert api.at("1.39").put(f"/resource_providers/{host}/inventories/VCPU", body).status_code == 200


def no_inventory(api: Client, host: str) -> None:
    assert api.delete(f"/resource_providers/{host}/inventories/DISK_GB").status_code == 204


def reshaped(api: Client, host: str) -> None:
    """Claims and inventories in one transaction."""
    entry = {
        "resource_provider_generation": api.generation(host),
        "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8}},
    }
    held = {str(uuid.uuid4()): api.allocations({host: {"MEMORY_MB": 1}})}
    body = {"inventories": {host: entry}, "allocations": held}
    assert api.at("1.39").post("/reshaper", body).status_code == 204


def another_parent(api: Client, host: str) -> None:
    body = {"name": "host", "parent_provider_uuid": api.provider("above")}
    assert api.at("1.39").put(f"/resource_providers/{host}", body).status_code == 200


WRITES = [
    other_traits,
    no_traits,
    other_aggregates,
    other_aggregates_without_a_generation,
    other_inventories,
    another_inventory,
    another_total,
    no_inventory,
    reshaped,
    another_parent,
]


@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_after_a_claim_is_read_and_once_is_enough(api, host, follower, write: Callable):
    assert follower.agrees()
    used(api, host)
    write(api, host)
    assert follower.agrees()
    used(api, host)
    assert follower.agrees()
    assert follower.read == []


@pytest.mark.one_database
@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_before_a_claim_is_read_after_it(api, host, follower, write: Callable):
    assert follower.agrees()
    write(api, host)
    used(api, host)
    assert follower.agrees()


def test_a_node_that_is_reported_anew_with_a_pod_on_it_is_read(api, follower):
    cluster_of(api, "n1")
    assert api.put(f"{CLUSTER}/pods/default/lsr", pod_manifest(cpu="4")).status_code == 201
    assert follower.agrees()
    add_nodes(api, "n1", pods="99")
    assert api.put(f"{CLUSTER}/pods/default/second", pod_manifest(cpu="2")).status_code == 201
    assert follower.agrees()


def test_what_the_release_before_writes_is_read(api, database, host, follower):
    """It stamps, and knows nothing of stamps of use."""
    assert follower.agrees()
    mine = tables.providers.c.uuid == host
    with database.write() as transaction:
        id_ = transaction.execute(sa.select(tables.providers.c.id).where(mine)).scalar_one()
        memberships.replace_members(transaction, memberships.TRAITS, id_, ())
        transaction.execute(sa.update(tables.providers).where(mine).values(revision=transaction.stamp))
    used(api, host)
    assert follower.agrees()
    assert follower.read == [id_]


def test_who_is_stamped_in_another_order_than_commits_hides_nothing(monkeypatch):
    """A transaction that began early writes traits late, of a provider that others wrote to meanwhile."""
    with database_url("postgresql") as url:
        database = Database(url)
        follower = Follower(database, monkeypatch)
        with database.write() as transaction:
            id_ = providers.insert(transaction, str(uuid.uuid4()), "host")
            trait = transaction.execute(sa.select(sa.func.min(tables.traits.c.id))).scalar_one()
        with database.write() as early:
            early.execute(sa.select(sa.cast(early.stamp, sa.Text)))
            with database.write() as late:
                providers.touch(late, [id_])
            assert follower.agrees()
            memberships.replace_members(early, memberships.TRAITS, id_, [trait])
            providers.touch(early, [id_])
        with database.write() as transaction:
            providers.lock_and_stamp(transaction, (), [id_])
        assert follower.agrees()
        assert follower.read == [id_]
        follower.keeper.close()
        database.dispose()


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_only_use_changed_no_traits_are_asked_for(backend, monkeypatch):
    with database_url(backend) as url:
        database = Database(url)
        with database.write() as transaction:
            ids = [providers.insert(transaction, str(uuid.uuid4()), f"host{n}") for n in range(3)]
        asked: list[str] = []
        with database.snapshot() as connection:
            sa.event.listen(
                connection, "before_cursor_execute", lambda _c, _k, statement, *_: asked.append(statement)
            )
            told = records.read_states(connection, database.backend, ids, lambda _: [])
        assert (told.traits, told.aggregates, told.altered) == ([], [], [])
        assert not any("traits" in each or "aggregates" in each for each in asked)
        database.dispose()
