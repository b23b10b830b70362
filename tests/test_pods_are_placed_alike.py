"""Pods that are written in one round trip are written as step by step, and refused where they would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from placement.app import build
from placement.common.clock import utcnow
from placement.engine.domain import request_scope
from placement.http.registry import registry_of
from placement.pods.store import statements
from placement.pods.store.cache import ClusterCache
from placement.storage import tables
from placement.storage.backends.backend import SingleWrite, Stamped
from placement.storage.database import Database
from placement.storage.failures import TryAgain
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import ALLOCS, KUBELET, NUMA_POLICY, node_manifests, pod_manifest
from tests.pod_invariants import check, check_image
from tests.server import database_url

CLUSTER = "/ext/v1/clusters/edge"
PODS = f"{CLUSTER}/pods/default"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d{:02}"
Arrival = dict[str, Any]
"""The values of a pod that is placed at once, by the names of the arguments."""
OUTSIDE = ("id", "created_at", "updated_at", "revision", "usage_revision", "content_revision", "uuid")


class Service:
    """An application on a PostgreSQL database of its own that notes what was placed at once, and how."""

    def __init__(self, url: str, *, at_once: bool) -> None:
        self.database = Database(url)
        self.application = build(self.database, compatible())
        self.api = Client(self.application.test_client())
        self.sent: list[tuple[Arrival, bool]] = []
        place, self._at_once = statements.place_at_once, at_once

        def noted(database: Database, now: Any, **arrival: Any) -> Stamped | None:
            written = place(database, now, **arrival) if at_once else None
            self.sent.append((arrival, written is not None))
            return written

        self.place = noted
        assert self.api.put(CLUSTER).status_code == 201

    def import_node(self, name: str, **given: Any) -> None:
        answer = self.api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, **given))
        assert answer.status_code in (200, 201), answer.text

    def put(self, name: str, **given: Any) -> int:
        """The status of placing a pod; what is known of the nodes is what is stored, whatever it is."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statements, "place_at_once", self.place)
            status = self.api.put(f"{PODS}/{name}", pod_manifest(**given)).status_code
        fresh = check(self.database, "edge")
        check_image(fresh, registry_of(self.application)[ClusterCache], "edge")
        return int(status)

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        """What is stored, but for what is another each time."""
        columns = [column for column in table.c if column.name not in OUTSIDE]
        with self.database.read() as connection:
            rows = [dict(row._mapping) for row in connection.execute(sa.select(*columns))]
        return sorted(rows, key=repr)


@contextmanager
def running(*, at_once: bool) -> Iterator[Service]:
    with database_url("postgresql") as url:
        service = Service(url, at_once=at_once)
        yield service
        service.database.dispose()


@pytest.fixture
def service() -> Iterator[Service]:
    with running(at_once=True) as service:
        yield service


@pytest.fixture
def services(service: Service) -> Iterator[tuple[Service, Service]]:
    with running(at_once=False) as by_steps:
        yield service, by_steps


PODS_TO_COME: list[dict[str, Any]] = [
    {"qos": "LSR", "cpu": "4"},
    {"qos": "LSE", "cpu": "2", "spec": {"preferredCPUExclusivePolicy": "PCPULevel"}},
    {"qos": "LS", "priority": None, "cpu": "1500m", "numa": {"numaTopologyPolicy": "SingleNUMANode"}},
    {"qos": None, "priority": None, "cpu": "250m", "memory": "100M"},
    {"qos": "LSR", "cpu": "3", "spec": {"requiredCPUBindPolicy": "SpreadByPCPUs"}},
    {"qos": "LSR", "cpu": "8"},
    {"qos": "LSR", "cpu": "6"},
    {"qos": "LSR", "cpu": "40"},
]


def test_what_is_stored_is_the_same(services: tuple[Service, Service]):
    at_once, by_steps = services
    statuses = []
    for service in services:
        service.import_node("n1")
        service.import_node("n2", labels={NUMA_POLICY: "Restricted"})
        coming = enumerate(PODS_TO_COME)
        statuses.append([service.put(f"p{at}", uid=UID.format(at), **pod) for at, pod in coming])
    assert statuses[0] == statuses[1]
    assert set(statuses[0]) == {201, 409}, "some fit and some do not, or this would show nothing"
    assert [done for _, done in at_once.sent] == [True] * statuses[0].count(201)
    assert not any(done for _, done in by_steps.sent)
    for name in ("pods", "allocations", "logical_cpus", "consumers", "inventories", "providers"):
        table = getattr(tables, name)
        assert at_once.rows(table) == by_steps.rows(table), name


def test_pods_that_kubelet_reports_first_come_step_by_step(service: Service):
    given = {"namespace": "default", "name": "p1", "uid": UID.format(1), "cpuset": "0-3"}
    nrt = {ALLOCS: [{**given, "managedByKubelet": True}], KUBELET: {"policy": "static"}}
    service.import_node("n1", nrt=nrt)
    assert service.put("p1", uid=UID.format(1), qos="LSR", cpu="4") == 201
    assert service.sent == []
    assert service.put("p2", uid=UID.format(2), qos="LSR", cpu="4") == 201
    assert [done for _, done in service.sent] == [True]


FOREIGN = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize("moved", [False, True])
def test_what_others_wrote_meanwhile_is_not_forgotten(
    service: Service, monkeypatch: pytest.MonkeyPatch, moved: bool
):
    """They change a NUMA node after the look and before the pod, so that its stamp hides theirs."""
    service.import_node("n1", labels={NUMA_POLICY: "Restricted"})
    tree = service.api.get(f"{CLUSTER}/nodes/n1").json["tree"]
    first, second = (numa["uuid"] for numa in tree["children"])
    assert service.api.claim({first: {"CUSTOM_CPU_MILLI": 7}}, FOREIGN).status_code == 204
    assert service.put("p1", uid=UID.format(1), qos="LSR", cpu="2") == 201
    place = service.place

    def meanwhile(*arguments: Any, **arrival: Any) -> Stamped | None:
        held = {second if moved else first: {"CUSTOM_CPU_MILLI": 7}}
        generation = service.api.get(f"/allocations/{FOREIGN}").json["consumer_generation"]
        answer = service.api.put(f"/allocations/{FOREIGN}", Client.allocations(held, generation))
        assert answer.status_code == 204, answer.text
        return place(*arguments, **arrival)

    monkeypatch.setattr(service, "place", meanwhile)
    service.put("p2", uid=UID.format(2), qos="LSR", cpu="10" if moved else "2")
    assert [done for _, done in service.sent] == [True, True]


def changes_of(first: Arrival, second: Arrival) -> dict[str, dict[str, Any]]:
    """What would be another of the second pod, which comes after the first, with one thing that cannot be."""
    values, consumer, amounts = second["values"], second["consumer"], second["amounts"]
    return {
        "nothing": {},
        "a pod of that name": {"values": values._replace(name=first["values"].name)},
        "a pod of that uid": {"values": values._replace(uid=first["values"].uid)},
        "a consumer of that uuid": {"consumer": first["consumer"]},
        "another stamp": {"host_revision": second["host_revision"] - 1},
        "another use": {"used_in_tree": second["used_in_tree"] - 1},
        "a CPU that is somebody's": {"levels": first["levels"]},
        "no such project": {"consumer": consumer._replace(project="nobody")},
        "a provider that is gone": {
            "amounts": [replace(amounts[0], provider_uuid=UID.format(8)), *amounts[1:]]
        },
        "too much": {"amounts": [replace(each, amount=10**9) for each in amounts]},
    }


def test_what_cannot_be_is_not_done_at_all(services: tuple[Service, Service]):
    service, second = services[0], to_come(services)
    (first, _) = service.sent[-1]
    changes = changes_of(first, second)
    before = {table.name: service.rows(table) for table in tables.metadata.sorted_tables}
    # What can be comes last.
    for what in reversed(changes):
        written = statements.place_at_once(service.database, utcnow(), **{**second, **changes[what]})
        assert (written is not None) == (what == "nothing"), what
        after = {table.name: service.rows(table) for table in tables.metadata.sorted_tables}
        assert (after == before) == (what != "nothing"), what


def test_the_log_of_the_database_has_why_a_pod_was_refused(
    services: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch
):
    service, second = services[0], to_come(services)
    (first, _) = service.sent[-1]
    changes, logged = changes_of(first, second), list[str]()
    send = SingleWrite.send

    def noting(*given: Any) -> Any:
        try:
            return send(*given)
        except Exception as error:
            logged.append(str(error))
            raise

    monkeypatch.setattr(SingleWrite, "send", noting)
    taken = "its name, its uid or a CPU of its own is taken"
    reasons = {
        "a pod of that name": taken,
        "a pod of that uid": taken,
        "a CPU that is somebody's": taken,
        "a consumer of that uuid": "its consumer exists, or a name of it does not",
        "no such project": "its consumer exists, or a name of it does not",
        "another stamp": "its node or its cluster has changed",
        "another use": "its node or its cluster has changed",
        "too much": "0 of ",
    }
    for what, reason in reasons.items():
        assert statements.place_at_once(service.database, utcnow(), **{**second, **changes[what]}) is None
        assert f'"pod refused: {reason}' in logged[-1], what


def to_come(services: tuple[Service, Service]) -> Arrival:
    """A second pod, as it could be written by the first service, which has only one yet."""
    service, ahead = services
    for each in services:
        each.import_node("n1")
        assert each.put("p1", uid=UID.format(1), qos="LSR", cpu="4") == 201
    assert ahead.put("p2", uid=UID.format(2), qos="LSR", cpu="4") == 201
    arrival, _ = ahead.sent[-1]
    with service.database.read() as connection:
        revision = sa.cast(tables.providers.c.revision, sa.Text)
        stamp = connection.execute(sa.select(revision).where(tables.providers.c.id == arrival["host_id"]))
        return {**arrival, "host_revision": int(stamp.scalar_one())}


def test_who_has_little_time_left_has_a_pod_written_in_one_round_trip_too(
    services: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch
):
    service, arrival = services[0], to_come(services)
    sent: list[str] = []
    send = SingleWrite.send
    monkeypatch.setattr(SingleWrite, "send", lambda *given: sent.append(given[1]) or send(*given))
    with request_scope.within(10):
        assert statements.place_at_once(service.database, utcnow(), **arrival) is not None
    (statement,) = sent
    assert "EXECUTE placement_place_at_once" in statement
    assert "SET LOCAL lock_timeout" in statement
    # The next one on this connection is bound as usual.
    with service.database.read() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "10s"


def test_who_has_little_time_left_waits_no_longer_for_others(services: tuple[Service, Service]):
    service, arrival = services[0], to_come(services)
    with service.database.write() as other:
        other.execute(sa.select(tables.providers.c.id).with_for_update())
        # Were it this process that gives up, nobody would know whether the pod is written.
        with request_scope.within(0.5), pytest.raises(TryAgain):
            statements.place_at_once(service.database, utcnow(), **arrival)
