"""Pods come and go while the primary dies and a standby takes over: no CPU ever has two owners."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from placement.engine.numa.cpus import parse_cpu_list
from placement.storage.database import Database
from tests.faults.cluster import Cluster, cluster, standby
from tests.faults.relay import relay_to
from tests.faults.test_the_history_is_proved import overtake, stop_following
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import eventually
from tests.pod_invariants import check
from tests.server import running_service
from tests.service import Service

CLUSTER = "/ext/v1/clusters/edge"
# Nobody places pods on the last one: what is lost there no later write brings to anybody's notice.
QUIET = "n4"
BUSY = {"pool": "busy"}
NODES = ("n1", "n2", "n3", QUIET)
CLIENTS = 6
NAMES_PER_CLIENT = 6
# Enough that every client has done some of everything.
STRETCH = 60
WORKERS = 2
# So that each worker is asked, though nobody knows which of them answers.
ASKED = 8
PUT_STATUSES = {200, 201, 409, 503}
DELETE_STATUSES = {204, 404, 503}
LEVEL = "preferredCPUExclusivePolicy"
SHAPES: tuple[dict[str, Any], ...] = (
    {"cpu": "2", "qos": "LSR"},
    {"cpu": "3", "qos": "LSR"},
    {"cpu": "4", "qos": "LSE"},
    {"cpu": "2", "qos": "LSR", "spec": {LEVEL: "PCPULevel", "preferredCPUBindPolicy": "SpreadByPCPUs"}},
    {"cpu": "1500m", "qos": "LS", "priority": None},
    {"cpu": "500m", "qos": "LS", "priority": None},
)


@pytest.fixture
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@dataclass
class Storm:
    """Clients with pods of their own, what they were told, and what that proves."""

    url: str
    # Whether pods are reported from where they were placed, as the synchronisation does.
    reports: bool
    over: threading.Event = field(default_factory=threading.Event)
    # Whoever begins now speaks to the promoted server, which loses nothing.
    promoted: threading.Event = field(default_factory=threading.Event)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    # By name: what the client was told last, None after a release; only where that is certain.
    certain: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    clients: list[Future[None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, number: int) -> None:
        """One client, until it is over."""
        service, chance = Service(self.url), random.Random(number)
        known: dict[str, dict[str, Any]] = {}
        while not self.over.is_set():
            name = f"pod-{number}-{chance.randrange(NAMES_PER_CLIENT)}"
            pod, step = known.get(name), chance.random()
            if pod is not None and step < 0.4:
                self._call(service, "DELETE", name)
                known.pop(name)
            elif self.reports and pod is not None and step < 0.6 and pod["placed"] is not None:
                self._call(service, "PUT", name, _reported(pod))
            else:
                pod = known.setdefault(
                    name, {"shape": chance.choice(SHAPES), "uid": str(uuid.uuid4()), "placed": None}
                )
                pod["placed"] = self._call(service, "PUT", name, _manifest(pod)) or pod["placed"]

    def _call(self, service: Service, method: str, name: str, body: Any = None) -> dict[str, Any] | None:
        """The answer to a PUT that succeeded."""
        proves = self.promoted.is_set()
        answer = service.call(method, f"{CLUSTER}/pods/default/{name}", body)
        with self._lock:
            self.statuses[method, answer.status] += 1
            if answer.status == 503:
                self.certain.pop(name, None)
            elif proves and answer.status != 409:
                self.certain[name] = answer.body if method == "PUT" else None
        return answer.body if method == "PUT" and answer.status in (200, 201) else None

    def _count(self, *wanted: int) -> int:
        with self._lock:
            return sum(count for (_, status), count in self.statuses.items() if status in wanted)

    def await_outage(self) -> None:
        """Until every client may have noticed that the database is away."""
        self._await(lambda: self._count(503) > CLIENTS)

    def await_progress(self) -> None:
        """Until the clients have got on."""
        wanted = self._count(200, 201, 204) + STRETCH
        self._await(lambda: self._count(200, 201, 204) >= wanted)

    def _await(self, reached: Callable[[], bool]) -> None:
        eventually(True, lambda: reached() or any(client.done() for client in self.clients))


def _manifest(pod: dict[str, Any]) -> dict[str, Any]:
    return pod_manifest(uid=pod["uid"], **pod["shape"], nodeSelector=BUSY)


def _reported(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as it runs where it was placed, which the promoted server may never have heard of."""
    placed = pod["placed"]
    status = {"cpuset": placed["cpuset"]} if placed["cpuset"] else None
    where = {"node": placed["node"], "phase": "Running", "nodeSelector": BUSY}
    return pod_manifest(uid=pod["uid"], **pod["shape"], status=status, **where)


@contextmanager
def storm(url: str, reports: bool) -> Iterator[Storm]:
    """Clients at work during the block."""
    found = Storm(url, reports)
    with ThreadPoolExecutor(CLIENTS) as pool:
        found.clients += [pool.submit(found.work, number) for number in range(CLIENTS)]
        try:
            yield found
        finally:
            found.over.set()
        for client in found.clients:
            client.result()


@pytest.mark.parametrize("reports", [False, True], ids=["nothing is reported", "what was lost is reported"])
def test_pods_and_cpus_after_a_standby_was_promoted_under_load(postgresql: Cluster, reports: bool):
    """A good while is lost, as the standby had ceased to follow."""
    with standby(postgresql) as replica, relay_to(postgresql.port) as relay:  # noqa: SIM117
        with running_service(postgresql.url(port=relay.port), workers=WORKERS) as server:
            service = Service(server.url)
            service.must("PUT", CLUSTER, {})
            for name in NODES:
                labels = {} if name == QUIET else BUSY
                service.must("PUT", f"{CLUSTER}/nodes/{name}", node_manifests(name, labels=labels))
            with storm(server.url, reports) as clients:
                clients.await_progress()
                stop_following(replica)
                lost = pod_manifest(node=QUIET, status={"cpuset": "0-3"}, phase="Running")
                service.must("PUT", f"{CLUSTER}/pods/default/lost", lost)
                # Every worker knows of it, and believes it until something tells otherwise.
                for _ in range(ASKED):
                    free(service)
                clients.await_progress()
                postgresql.kill()
                clients.await_outage()
                replica.promote()
                # Others use the ids up that lost transactions had, before anybody looks.
                overtake(replica)
                relay.lead_to(replica.port)
                clients.promoted.set()
                clients.await_progress()
            statuses = clients.statuses
            assert {status for method, status in statuses if method == "PUT"} <= PUT_STATUSES, statuses
            assert {status for method, status in statuses if method == "DELETE"} <= DELETE_STATUSES, statuses
            shown = listed(service)
            assert "lost" not in shown
            assert_what_was_told(clients, shown)
            assert_nothing_twice(shown, reports)
            owners = assert_owners(service, shown)
            assert_sums(service)
            assert_stored(replica, shown, owners)
            with running_service(replica.url(), workers=1) as fresh:
                expected = free(Service(fresh.url))
            assert [free(service) for _ in range(ASKED)] == [expected] * ASKED


def listed(service: Service) -> dict[str, Any]:
    """All pods, by name."""
    return {pod["name"]: pod for pod in service.must("GET", f"{CLUSTER}/pods")["pods"]}


def assert_what_was_told(clients: Storm, shown: dict[str, Any]) -> None:
    """What the promoted server was asked for and granted is there."""
    assert clients.certain
    for name, told in clients.certain.items():
        found = shown.get(name)
        if told is None:
            assert found is None, name
        else:
            assert found is not None, name
            assert (found["uid"], found["node"], found["cpuset"]) == (
                told["uid"],
                told["node"],
                told["cpuset"],
            )


def assert_nothing_twice(shown: dict[str, Any], reports: bool) -> None:
    """No CPU was given to two pods.

    A pod that runs is a fact. If it is reported after its place was lost and given away, it is recorded with
    its CPUs nevertheless, and shown beside their owner.
    """
    given = Counter(
        (pod["node"], cpu)
        for pod in shown.values()
        if pod["scheduled"] or not reports
        for cpu in parse_cpu_list(pod["cpuset"])
    )
    assert given
    assert not [place for place, count in given.items() if count > 1]


def assert_owners(service: Service, shown: dict[str, Any]) -> set[tuple[str, int, str]]:
    """Each CPU is shown with all pods that list it, one of them its owner; nodes count what is there.

    (node, CPU, consumer) of all owners.
    """
    owners = set()
    for node in NODES:
        there = [pod for pod in shown.values() if pod["node"] == node]
        told = service.must("GET", f"{CLUSTER}/nodes/{node}")
        for cpu in told["cpus"]:
            holders = {pod["name"] for pod in there if cpu["cpu"] in parse_cpu_list(pod["cpuset"])}
            assert (cpu["owner"] == "pod") == bool(holders)
            if holders:
                owner = cpu["pod"].removeprefix("default/")
                others = [label.removeprefix("default/") for label in cpu.get("shared_with", ())]
                assert sorted([owner, *others]) == sorted(holders)
                assert cpu["consumer_uuid"] == shown[owner]["consumer_uuid"]
                owners.add((node, cpu["cpu"], cpu["consumer_uuid"]))
        used = {name: entry["used"] for name, entry in told["resources"].items()}
        mine = [owner for owner in owners if owner[0] == node]
        assert (used["PCPU"], used["CUSTOM_PODS"]) == (len(mine), len(there))
    return owners


def assert_sums(service: Service) -> None:
    """Of every provider of the nodes that is used which is allocated."""
    for provider in service.must("GET", "/resource_providers")["resource_providers"]:
        path = f"/resource_providers/{provider['uuid']}"
        held: Counter[str] = Counter()
        for entry in service.must("GET", f"{path}/allocations")["allocations"].values():
            held.update(entry["resources"])
        used = service.must("GET", f"{path}/usages")["usages"]
        assert held == Counter(used), provider["name"]


def assert_stored(replica: Cluster, shown: dict[str, Any], owners: set[tuple[str, int, str]]) -> None:
    """The promoted database says what the service says, and its accounts follow from its pods."""
    rows = replica.execute(
        "SELECT nodes.name, cpu, consumer_id FROM logical_cpus JOIN nodes ON nodes.id = node_id",
        database="placement",
    )
    assert sorted(rows) == sorted(owners)
    database = Database(replica.url())
    try:
        states = check(database, "edge")
    finally:
        database.dispose()
    stored = {pod.name: (pod.uid, pod.holding.cpus) for state in states.values() for pod in state.pods}
    assert stored == {
        pod["name"]: (pod["uid"], frozenset(parse_cpu_list(pod["cpuset"]))) for pod in shown.values()
    }


def free(service: Service) -> list[Any]:
    """Whose CPUs are, where pods would go, and what candidates there are."""
    previews = [pod_manifest(**shape) for shape in SHAPES]
    found = service.must("GET", "/allocation_candidates?resources=PCPU:1")
    return [
        [service.must("GET", f"{CLUSTER}/nodes/{node}") for node in NODES],
        [service.must("POST", f"{CLUSTER}/pods/preview", preview) for preview in previews],
        found["provider_summaries"],
        sorted(sorted(request["allocations"]) for request in found["allocation_requests"]),
    ]
