"""Pods and instances of flavors on the same core trees: what one holds, no other gets."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from placement.engine.numa.cpus import parse_cpu_list
from placement.storage.database import Database
from tests.claimants import Caller
from tests.kubernetes import node_manifests, pod_manifest
from tests.machines import ServiceMachine, of_many_steps
from tests.patience import PATIENCE_SECONDS
from tests.pod_invariants import check, nothing_is_held
from tests.server import RunningServer

CLIENTS = 6
CALLS = 30
NODES = ("n1", "n2", "n3")
# Each node has two NUMA nodes of four cores of two threads.
THREADS, CORES = 2, 4
CLUSTER = "/ext/v1/clusters/edge"
FLAVORS = (
    {},
    {"hw:cpu_thread_policy": "require"},
    {"hw:cpu_thread_policy": "isolate"},
    {"hw:emulator_threads_policy": "isolate"},
    {"hw:numa_nodes": "2"},
)
Get = Callable[[str], Any]
BINDINGS = (None, {"requiredCPUBindPolicy": "FullPCPUs"}, {"preferredCPUBindPolicy": "SpreadByPCPUs"})


def claim_of(consumer: str, vcpus: int, specs: Mapping[str, str]) -> dict[str, Any]:
    """The body of a claim for a flavor with dedicated CPUs."""
    flavor = {
        "vcpus": vcpus,
        "memory_mb": 256 * vcpus,
        "extra_specs": {"hw:cpu_policy": "dedicated", **specs},
    }
    claimant = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    return {**claimant, "flavor": flavor, "cluster": "edge"}


class Tenant(Caller):
    """Places and ends pods and instances at random."""

    def __init__(self, url: str, seed: int = 0) -> None:
        super().__init__(url, seed)
        self.instances: list[str] = []

    def read(self, path: str) -> Any:
        return self.session.get(f"{self.url}{path}", timeout=PATIENCE_SECONDS).json()

    def claim(self, vcpus: int, **specs: str) -> requests.Response:
        consumer = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        answer = self.call("POST", "/ext/v1/claims", claim_of(consumer, vcpus, specs))
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


def prepare(url: str) -> Tenant:
    caller = Tenant(url)
    assert caller.session.put(f"{url}{CLUSTER}", timeout=PATIENCE_SECONDS).ok
    for name in NODES:
        answer = caller.session.put(
            f"{url}{CLUSTER}/nodes/{name}", json=node_manifests(name), timeout=PATIENCE_SECONDS
        )
        assert answer.ok
    return caller


def check_cpus(get: Get, instances: list[str]) -> None:
    """No CPU is in two lists, no core gives pods and instances more than its threads together.

    What an instance has of cores is below the NUMA nodes that give its memory, and in no pool of pods.
    """
    pods = get(f"{CLUSTER}/pods")["pods"]
    owned = Counter((pod["node"], cpu) for pod in pods for cpu in parse_cpu_list(pod["cpuset"]))
    assert all(times == 1 for times in owned.values())
    cores = Counter((node, cpu // THREADS) for node, cpu in owned)
    names = {each["uuid"]: each["name"] for each in get("/resource_providers")["resource_providers"]}
    foreign = set()
    for consumer in instances:
        held = get(f"/allocations/{consumer}")["allocations"]
        memory, given = set(), Counter()
        for provider, entry in held.items():
            _, node, place = names[provider].split("/")
            number = int(place.split("-")[-1])
            if "MEMORY_MB" in entry["resources"]:
                memory.add((node, number))
            given[node, number] += entry["resources"].get("PCPU", 0)
        assert {(node, core // CORES) for node, core in +given} == memory
        cores += given
        foreign |= set(+given)
    assert max(cores.values(), default=0) <= THREADS
    for node in NODES:
        shown = get(f"{CLUSTER}/nodes/{node}")
        pools = (parse_cpu_list(pool["cpuset"]) for pool in shown["ls_pools"] + shown["be_pools"])
        assert not foreign & {(node, cpu // THREADS) for cpus in pools for cpu in cpus}


def end_all(caller: Tenant, instances: list[str], database: Database) -> None:
    for pod in caller.session.get(f"{caller.url}{CLUSTER}/pods").json()["pods"]:
        assert caller.call("DELETE", f"{CLUSTER}/pods/default/{pod['name']}").status_code == 204
    for consumer in instances:
        assert caller.call("DELETE", f"/allocations/{consumer}").status_code == 204
    assert nothing_is_held(database)


def test_pods_and_instances_come_and_go_side_by_side(two_workers: RunningServer, database: Database) -> None:
    caller = prepare(two_workers.url)
    callers = [Tenant(two_workers.url, seed) for seed in range(CLIENTS)]

    def storm(each: Tenant) -> None:
        for _ in range(CALLS):
            each.step([f"pod-{number}" for number in range(12)])

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(storm, callers))
    statuses = sum((each.statuses for each in callers), Counter())
    assert {status for _, status in statuses} <= {200, 201, 204, 404, 409}, statuses
    assert statuses["PUT", 201]
    assert statuses["POST", 201] > CLIENTS
    instances = [consumer for each in callers for consumer in each.instances]
    check_cpus(caller.read, instances)
    check(database, "edge")
    end_all(caller, instances, database)

    # Twenty-four cores, and forty who want one each: every other one a pod.
    def place(number: int) -> tuple[int, list[str]]:
        each = Tenant(two_workers.url, number)
        if number % 2:
            path = f"{CLUSTER}/pods/default/p{number}"
            return each.call("PUT", path, pod_manifest(cpu="2", memory="1Gi")).status_code, []
        return each.claim(2, **{"hw:cpu_thread_policy": "require"}).status_code, each.instances

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(place, range(40)))
    assert Counter(status for status, _ in answers) == {201: 24, 409: 16}
    check_cpus(caller.read, [consumer for _, claimed in answers for consumer in claimed])
    check(database, "edge")


class Tenants(ServiceMachine):
    """Pods and instances come and go on the same nodes, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        # What was claimed, by consumer: the body and the answer.
        self.instances: dict[str, tuple[dict[str, Any], Any]] = {}
        assert self.api.put(CLUSTER).status_code == 201
        for name in NODES:
            assert self.api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name)).status_code == 201

    @rule(
        name=st.sampled_from("abcdefgh"),
        cpu=st.integers(1, 6),
        qos=st.sampled_from(["LSE", "LSR", "LSR", "LS"]),
        spec=st.sampled_from(BINDINGS),
    )
    def place(self, name: str, cpu: int, qos: str, spec: dict[str, str] | None) -> None:
        priority = None if qos == "LS" else 9500
        manifest = pod_manifest(cpu=str(cpu), memory="1Gi", qos=qos, priority=priority, spec=spec)
        answer = self.api.put(f"{CLUSTER}/pods/default/{name}", manifest)
        assert answer.status_code in (200, 201, 400, 409), answer.text

    @rule(name=st.sampled_from("abcdefgh"))
    def delete(self, name: str) -> None:
        assert self.api.delete(f"{CLUSTER}/pods/default/{name}").status_code in (204, 404)

    @rule(half=st.integers(1, 5), specs=st.sampled_from(FLAVORS), consumer=st.uuids(version=4))
    def claim(self, half: int, specs: dict[str, str], consumer: uuid.UUID) -> None:
        body = claim_of(str(consumer), 2 * half, specs)
        answer = self.api.post("/ext/v1/claims", body)
        assert answer.status_code in (201, 409), answer.text
        if answer.status_code == 201:
            self.instances[str(consumer)] = (body, answer.json)

    @precondition(lambda self: self.instances)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        body, before = self.instances[data.draw(st.sampled_from(sorted(self.instances)))]
        answer = self.api.post("/ext/v1/claims", body)
        assert (answer.status_code, answer.json["allocations"]) == (200, before["allocations"])

    @precondition(lambda self: self.instances)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(sorted(self.instances)))
        assert self.api.delete(f"/allocations/{consumer}").status_code == 204
        del self.instances[consumer]

    @invariant()
    def each_cpu_has_one_owner(self) -> None:
        check_cpus(lambda path: self.api.get(path).json, list(self.instances))
        check(self.database, "edge")

    def release_everything(self) -> None:
        for pod in self.api.get(f"{CLUSTER}/pods").json["pods"]:
            self.delete(pod["name"])
        for consumer in self.instances:
            assert self.api.delete(f"/allocations/{consumer}").status_code == 204


class TenantsOnPostgresql(Tenants):
    """The same on PostgreSQL."""

    backend = "postgresql"


TestTenants = Tenants.TestCase
TestTenantsOnPostgresql = TenantsOnPostgresql.TestCase
TestTenants.settings = TestTenantsOnPostgresql.settings = of_many_steps(4)
