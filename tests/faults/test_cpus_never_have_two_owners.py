"""Many clients place, report and delete pods and send nodes again, through two workers at once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import requests

from placement.engine.numa.cpus import parse_cpu_list
from placement.storage.database import Database
from tests.claimants import Caller
from tests.kubernetes import node_manifests, pod_manifest
from tests.pod_invariants import check, nothing_is_held
from tests.server import RunningServer

CLIENTS = 8
CALLS = 40
NODES = ("n1", "n2", "n3")
CLUSTER = "/ext/v1/clusters/edge"
SPECS = (
    None,
    {"requiredCPUBindPolicy": "FullPCPUs"},
    {"preferredCPUBindPolicy": "SpreadByPCPUs"},
)


class Tenant(Caller):
    """Places and deletes pods, and sends nodes again."""

    def send_node(self, name: str) -> requests.Response:
        annotations = {"note": str(self.random.randint(0, 9))}
        return self.call("PUT", f"{CLUSTER}/nodes/{name}", node_manifests(name, annotations=annotations))

    def storm(self, pods: list[str]) -> None:
        """Random calls about these pods and all nodes."""
        for _ in range(CALLS):
            path = f"{CLUSTER}/pods/default/{self.random.choice(pods)}"
            dice = self.random.random()
            if dice < 0.55:
                cpu = str(self.random.randint(1, 6))
                numa = {"numaTopologyPolicy": "SingleNUMANode"} if dice < 0.15 else None
                manifest = pod_manifest(cpu=cpu, memory="1Gi", spec=self.random.choice(SPECS), numa=numa)
                self.call("PUT", path, manifest)
            elif dice < 0.7:
                manifest = pod_manifest(cpu="1", qos="LS", priority=None)
                self.call("PUT", path, manifest)
            elif dice < 0.9:
                self.call("DELETE", path)
            else:
                self.send_node(self.random.choice(NODES))


def prepare(url: str) -> Tenant:
    caller = Tenant(url)
    assert caller.call("PUT", CLUSTER).ok
    for name in NODES:
        assert caller.send_node(name).ok
    return caller


def placed(caller: Tenant) -> list[dict]:
    return caller.call("GET", f"{CLUSTER}/pods").json()["pods"]


def check_owners(pods: list[dict]) -> None:
    """No CPU of a node is in two lists."""
    owned: Counter[tuple[str, int]] = Counter(
        (pod["node"], cpu) for pod in pods for cpu in parse_cpu_list(pod["cpuset"])
    )
    assert not [place for place, count in owned.items() if count > 1]


def at_once(url: str, pods: int, name: str, cpu: str) -> list[requests.Response]:
    """The answers to so many placements by many clients; {} in the name is their number."""

    def place(number: int) -> requests.Response:
        path = f"{CLUSTER}/pods/default/{name.format(number)}"
        return Tenant(url).call("PUT", path, pod_manifest(cpu=cpu, memory="1Gi"))

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(place, range(pods)))


def end_all(caller: Tenant, database: Database) -> None:
    for pod in placed(caller):
        assert caller.call("DELETE", f"{CLUSTER}/pods/default/{pod['name']}").status_code == 204
    assert nothing_is_held(database)


def test_in_storms_no_cpu_has_two_owners(two_workers: RunningServer, database: Database) -> None:
    caller = prepare(two_workers.url)
    callers = [Tenant(two_workers.url, seed) for seed in range(CLIENTS)]
    # Half of the pods are contended: several clients place and delete the same ones.
    names = [
        [f"own-{seed}-{n}" for n in range(4)] + [f"common-{n}" for n in range(4)] for seed in range(CLIENTS)
    ]
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda pair: pair[0].storm(pair[1]), zip(callers, names, strict=True)))
    statuses = sum((each.statuses for each in callers), Counter())
    assert {status for _, status in statuses} <= {200, 201, 204, 400, 404, 409}, statuses
    assert statuses["PUT", 201] > CLIENTS
    pods = placed(caller)
    check_owners(pods)
    check(database, "edge")
    end_all(caller, database)

    # Three nodes of eight cores each: of forty pods that want a core, twenty-four get one.
    answers = at_once(two_workers.url, 40, "p{}", "2")
    assert Counter(answer.status_code for answer in answers) == {201: 24, 409: 16}
    pods = placed(caller)
    check_owners(pods)
    assert Counter(pod["node"] for pod in pods) == dict.fromkeys(NODES, 8)
    check(database, "edge")
    end_all(caller, database)

    # Many who place the same pod are told one place.
    answers = at_once(two_workers.url, CLIENTS, "web", "4")
    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: CLIENTS - 1}
    assert len({(answer.json()["node"], answer.json()["cpuset"]) for answer in answers}) == 1
    end_all(caller, database)
