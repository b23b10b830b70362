"""Pods and instances of flavors on the same core trees: what one holds, no other gets."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from placement.numa.cpuset import parse_cpu_list
from placement.storage.database import Database
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.pod_invariants import check, nothing_is_held
from tests.server import RunningServer

CLIENTS = 6
CALLS = 30
NODES = ("n1", "n2", "n3")
# Each node has eight cores of two threads.
THREADS = 2
CLUSTER = "/ext/v1/clusters/edge"
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
FLAVORS = (
    {},
    {"hw:cpu_thread_policy": "require"},
    {"hw:cpu_thread_policy": "isolate"},
    {"hw:emulator_threads_policy": "isolate"},
    {"hw:numa_nodes": "2"},
)
BINDINGS = (None, {"requiredCPUBindPolicy": "FullPCPUs"}, {"preferredCPUBindPolicy": "SpreadByPCPUs"})


class Caller:
    """One client with a connection of its own; it places and ends pods and instances at random."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self.url = url
        self.random = random.Random(seed)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers.update(HEADERS)
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.instances: list[str] = []

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        answer = self.session.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE_SECONDS)
        self.statuses[method, answer.status_code] += 1
        return answer

    def claim(self, vcpus: int, **specs: str) -> requests.Response:
        consumer = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        flavor = {
            "vcpus": vcpus,
            "memory_mb": 256 * vcpus,
            "extra_specs": {"hw:cpu_policy": "dedicated", **specs},
        }
        asked = {"flavor": flavor, "cluster": "edge"}
        body = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
        answer = self.call("POST", "/ext/v1/claims", {**body, **asked})
        if answer.ok:
            self.instances.append(consumer)
        return answer

    def step(self, pods: list[str]) -> None:
        dice = self.random.random()
        path = f"{CLUSTER}/pods/default/{self.random.choice(pods)}"
        if dice < 0.4:
            cpu, spec = str(self.random.randint(1, 6)), self.random.choice(BINDINGS)
            self.call("PUT", path, pod_manifest(cpu=cpu, memory="1Gi", spec=spec))
        elif dice < 0.5:
            self.call("DELETE", path)
        elif dice < 0.9:
            self.claim(2 * self.random.randint(1, 4), **self.random.choice(FLAVORS))
        elif self.instances:
            self.call("DELETE", f"/allocations/{self.instances.pop()}")


def prepare(url: str) -> Caller:
    caller = Caller(url)
    assert caller.session.put(f"{url}{CLUSTER}", timeout=PATIENCE_SECONDS).ok
    for name in NODES:
        answer = caller.session.put(
            f"{url}{CLUSTER}/nodes/{name}", json=node_manifests(name), timeout=PATIENCE_SECONDS
        )
        assert answer.ok
    return caller


def check_cpus(caller: Caller, instances: list[str]) -> None:
    """No CPU is in two lists, and on no core do pods and instances have more than its threads together."""
    pods: list[dict[str, Any]] = caller.session.get(f"{caller.url}{CLUSTER}/pods").json()["pods"]
    owned = Counter((pod["node"], cpu) for pod in pods for cpu in parse_cpu_list(pod["cpuset"]))
    assert all(count == 1 for count in owned.values())
    cores = Counter((node, cpu // THREADS) for node, cpu in owned)
    providers = caller.session.get(f"{caller.url}/resource_providers").json()["resource_providers"]
    names = {provider["uuid"]: provider["name"] for provider in providers}
    for consumer in instances:
        held = caller.session.get(f"{caller.url}/allocations/{consumer}").json()["allocations"]
        for provider, entry in held.items():
            if "PCPU" in entry["resources"]:
                _, node, core = names[provider].split("/")
                cores[node, int(core.split("-")[-1])] += entry["resources"]["PCPU"]
    assert cores
    assert max(cores.values()) <= THREADS


def end_all(caller: Caller, instances: list[str], database: Database) -> None:
    for pod in caller.session.get(f"{caller.url}{CLUSTER}/pods").json()["pods"]:
        assert caller.call("DELETE", f"{CLUSTER}/pods/default/{pod['name']}").status_code == 204
    for consumer in instances:
        assert caller.call("DELETE", f"/allocations/{consumer}").status_code == 204
    assert nothing_is_held(database)


def test_pods_and_instances_come_and_go_side_by_side(two_workers: RunningServer, database: Database) -> None:
    caller = prepare(two_workers.url)
    callers = [Caller(two_workers.url, seed) for seed in range(CLIENTS)]

    def storm(each: Caller) -> None:
        for _ in range(CALLS):
            each.step([f"pod-{number}" for number in range(12)])

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(storm, callers))
    statuses = sum((each.statuses for each in callers), Counter())
    assert {status for _, status in statuses} <= {200, 201, 204, 404, 409}, statuses
    assert statuses["PUT", 201]
    assert statuses["POST", 201] > CLIENTS
    instances = [consumer for each in callers for consumer in each.instances]
    check_cpus(caller, instances)
    check(database, "edge")
    end_all(caller, instances, database)


def test_every_step_leaves_each_cpu_with_one_owner(two_workers: RunningServer, database: Database) -> None:
    caller = prepare(two_workers.url)
    caller.random.seed(7)
    caller.claim(4)
    for _ in range(40):
        caller.step(["a", "b", "c", "d", "e", "f"])
        check_cpus(caller, caller.instances)
        check(database, "edge")
    end_all(caller, caller.instances, database)


def test_exactly_as_many_cores_are_given_as_there_are(two_workers: RunningServer, database: Database) -> None:
    """Twenty-four cores, and forty who want one each: every other one a pod."""
    caller = prepare(two_workers.url)

    def place(number: int) -> tuple[int, list[str]]:
        each = Caller(two_workers.url, number)
        if number % 2:
            path = f"{CLUSTER}/pods/default/p{number}"
            return each.call("PUT", path, pod_manifest(cpu="2", memory="1Gi")).status_code, []
        return each.claim(2, **{"hw:cpu_thread_policy": "require"}).status_code, each.instances

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(place, range(40)))
    assert Counter(status for status, _ in answers) == {201: 24, 409: 16}
    check_cpus(caller, [consumer for _, instances in answers for consumer in instances])
    check(database, "edge")
