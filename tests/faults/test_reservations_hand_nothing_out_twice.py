"""Many clients use one reservation at once: each CPU and each amount of it goes to one of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from placement.app import build
from placement.engine.numa.cpus import parse_cpu_list
from placement.engine.numa.host import summed
from placement.http.registry import registry_of
from placement.pods.state.node_info import NodeInfo
from placement.storage.database import Database
from tests.claimants import Caller
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import node_manifests, pod_manifest
from tests.pod_invariants import check, nothing_is_held
from tests.reservations import AFFINITY, ALLOCATED, IGNORED, WEB, reservation
from tests.server import RunningServer

CLIENTS = 8
CALLS = 30
CLUSTER = "/ext/v1/clusters/edge"
KEPT = ("kept-0", "kept-1", "kept-2")
MUST = {AFFINITY: json.dumps({"reservationSelector": {}})}


class Tenant(Caller):
    """Places and deletes pods and reservations of one cluster."""

    root = CLUSTER

    def prepare(self, nodes: int) -> None:
        assert self.call("PUT", "").ok
        for number in range(nodes):
            assert self.call("PUT", f"/nodes/n{number}", node_manifests(f"n{number}")).ok

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/pods").json()["pods"]
        return found

    def end_all(self) -> None:
        for pod in self.pods():
            assert self.call("DELETE", f"/pods/default/{pod['name']}").status_code == 204
        for kept in self.call("GET", "/reservations").json()["reservations"]:
            assert self.call("DELETE", f"/reservations/{kept['name']}").status_code == 204

    def storm(self, names: list[str]) -> None:
        """Random calls about these pods and the reservations of all."""
        for _ in range(CALLS):
            method, path, body = any_call(self.random, names, ignoring=True)
            self.call(method, path, body)


def any_call(dice: random.Random, names: list[str], *, ignoring: bool) -> tuple[str, str, Any]:
    """A call about a pod or a reservation: most of them by owners, some by pods that ignore reservations."""
    pod, kept = f"/pods/default/{dice.choice(names)}", f"/reservations/{dice.choice(KEPT)}"
    numa = dice.choice([None, None, {"numaTopologyPolicy": "SingleNUMANode"}])
    qos, priority = dice.choice([("LSR", 9500), ("LSR", 9500), ("LS", None)])
    sort = {"numa": numa, "qos": qos, "priority": priority}
    drawn = dice.random()
    if drawn < 0.25:
        template = pod_manifest(str(dice.randint(2, 9)), memory="6Gi", **sort)
        policy = dice.choice(["Default", "Aligned", "Restricted"])
        body = reservation(kept[14:], template=template, allocatePolicy=policy)
        body["spec"]["allocateOnce"] = dice.random() < 0.3
        return "PUT", kept, body
    if drawn < 0.33:
        return "DELETE", kept, None
    if drawn < 0.5:
        return "DELETE", pod, None
    labels = dice.choice([WEB, WEB, WEB, {}, {IGNORED: "true"} if ignoring else {}])
    body = pod_manifest(str(dice.randint(1, 5)), memory="2Gi", labels=labels, **sort)
    if labels is WEB and dice.random() < 0.3:
        body["metadata"]["annotations"] |= MUST
    return "PUT", pod, body


def check_shares(states: dict[int, NodeInfo], *, ignored: bool = False) -> int:
    """Everybody has all he asked for, and no CPU is two pods'; how many pods take from reservations.

    Where reservations are ignored, they keep less than they should.
    """
    owners = 0
    for state in states.values():
        handed = Counter(cpu for holder in state.holders for cpu in holder.holding.cpus)
        assert not [cpu for cpu, count in handed.items() if count > 1]
        holders = state.pods if ignored else state.holders
        for holder in holders:
            shares = {place.resource_class: amount for place, amount in _of_host(state, holder.consumer)}
            assert shares.get("CUSTOM_NODE_CPU_MILLI", 0) == holder.requests.get("cpu", 0)
            assert shares.get("CUSTOM_NODE_MEMORY_MB", 0) << 20 == holder.requests.get("memory", 0)
        # Who is not aligned does not look at NUMA nodes, and an owner gets what its reservation has there.
        aligned = (pod.holding.amounts for pod in state.pods if not pod.reservation)
        for numa, amounts in summed(aligned).items():
            capacity = state.host.state.capacity[numa]
            assert all(amount <= capacity[name] for name, amount in amounts.items())
        owners += sum(1 for pod in state.pods if pod.reservation)
    return owners


def _of_host(state: NodeInfo, consumer: str) -> list[tuple[Any, int]]:
    return [(place, amount) for place, amount in state.accounts.shares[consumer].items() if not place.path]


def test_storms_on_reservations_hand_nothing_out_twice(
    two_workers: RunningServer, database: Database
) -> None:
    caller = Tenant(two_workers.url)
    caller.prepare(nodes=2)
    callers = [Tenant(two_workers.url, seed) for seed in range(CLIENTS)]
    names = [[f"own-{seed}", "common-0", "common-1"] for seed in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda pair: pair[0].storm(pair[1]), zip(callers, names, strict=True)))
    statuses = sum((each.statuses for each in callers), Counter())
    assert {status for _, status in statuses} <= {200, 201, 204, 400, 404, 409}, statuses
    assert statuses["PUT", 201] > CLIENTS
    check_shares(check(database, "edge"), ignored=True)
    caller.end_all()
    assert nothing_is_held(database)
    assert caller.call("DELETE", "/nodes/n1").status_code == 204

    # A reservation that is allocated once has one owner.
    kept = {f"kept-{number}" for number in range(4)}
    for name in kept:
        assert caller.call("PUT", f"/reservations/{name}", reservation(name)).status_code == 201
    owners = [pod_manifest("4", labels=WEB)] * 3 * CLIENTS
    assert at_once(two_workers.url, owners) == {201: 4, 409: 3 * CLIENTS - 4}
    assert {json.loads(pod["annotations"][ALLOCATED])["name"] for pod in caller.pods()} == kept
    assert check_shares(check(database, "edge")) == 4
    caller.end_all()

    # Twelve CPUs are kept, four have somebody else: six of many owners that want a core get one.
    body = reservation(template=pod_manifest("12", memory="12Gi"), allocateOnce=False)
    assert caller.call("PUT", "/reservations/kept", body).status_code == 201
    assert caller.call("PUT", "/pods/default/other", pod_manifest("4")).status_code == 201
    pods = [pod_manifest("2", memory="1Gi", labels=WEB if number % 4 else {}) for number in range(24)]
    assert at_once(two_workers.url, pods) == {201: 6, 409: 18}
    handed = [cpu for pod in caller.pods() for cpu in parse_cpu_list(pod["cpuset"])]
    assert sorted(handed) == list(range(16))
    assert check_shares(check(database, "edge")) == 6
    left = caller.call("GET", "/reservations/kept").json()["left"]
    assert (left["cpuset"], left["resources"]) == ("", {"memory": str(6 * 2**30)})


def at_once(url: str, pods: list[dict[str, Any]]) -> Counter[int]:
    """The statuses of placing these pods through many clients."""

    def place(number: int) -> int:
        return Tenant(url).call("PUT", f"/pods/default/p{number}", pods[number]).status_code

    with ThreadPoolExecutor(CLIENTS) as pool:
        return Counter(pool.map(place, range(len(pods))))


@pytest.mark.parametrize(("seed", "ignoring"), [(2, True), (46, False)])
def test_one_by_one_everything_is_where_it_belongs_after_every_call(
    database: Database, seed: int, ignoring: bool
) -> None:
    application = build(database, compatible())
    api = Client(application.test_client())
    dice, owners = random.Random(seed), 0
    try:
        assert api.put(CLUSTER).status_code == 201
        for number in range(2):
            api.put(f"{CLUSTER}/nodes/n{number}", node_manifests(f"n{number}"))
        for _ in range(100):
            method, path, body = any_call(dice, ["a", "b", "c", "d"], ignoring=ignoring)
            answer = api.call(method, f"{CLUSTER}{path}", body)
            assert answer.status_code in (200, 201, 204, 400, 404, 409), answer.text
            owners += check_shares(check(database, "edge"), ignored=ignoring)
        assert owners
    finally:
        registry_of(application).close()
