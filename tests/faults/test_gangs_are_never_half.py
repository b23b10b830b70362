"""Workers are killed while many clients place gangs: of each gang all members it needs are there, or none."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from placement.storage.database import Database
from tests.claimants import Caller
from tests.kubernetes import node_manifests
from tests.patience import eventually
from tests.pod_invariants import check
from tests.pod_rules import ruled_pod
from tests.server import RunningServer

CLIENTS = 6
KILLS = 3
MEMBERS = 3
CLUSTER = "/ext/v1/clusters/edge"
HOSTNAME = "kubernetes.io/hostname"
GANG = "gang.scheduling.koordinator.sh"


def gang(name: str, *, fits: bool) -> list[dict[str, Any]]:
    """Members that must not share a node; if they do not fit, that is found out with the last of them."""
    said = {"labels": {"gang": name}, "apart": [[HOSTNAME, {"gang": name}]]}
    pods = [ruled_pod(f"{name}-{number}", said) for number in range(MEMBERS)]
    for pod in pods:
        pod["metadata"]["annotations"] |= {f"{GANG}/name": name, f"{GANG}/min-available": str(MEMBERS)}
    if not fits:
        pods[-1]["spec"]["nodeSelector"] = {"nowhere": "true"}
    return pods


def put(caller: Caller, pods: list[dict[str, Any]]) -> set[int]:
    answer = caller.call("POST", f"{CLUSTER}/pods", {"apiVersion": "v1", "kind": "List", "items": pods})
    assert answer.status_code == 200, answer.text
    return {each["status"] for each in answer.json()["pods"]}


def nodes_of_gangs(caller: Caller) -> dict[str, Counter[str]]:
    """On which nodes the members of each gang are, as of one moment."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in caller.call("GET", f"{CLUSTER}/pods?limit=1000").json()["pods"]:
        found[pod["name"].rpartition("-")[0]][pod["node"]] += 1
    return found


def test_killing_workers_in_a_storm_of_gangs(two_workers: RunningServer, database: Database) -> None:
    setting = Caller(two_workers.url)
    assert setting.call("PUT", CLUSTER).ok
    for name in ("n0", "n1", "n2", "n3"):
        manifests = node_manifests(name, pods="1000")
        assert setting.call("PUT", f"{CLUSTER}/nodes/{name}", manifests).ok
    over = threading.Event()
    acknowledged: list[str] = []
    refused: list[str] = []
    doubtful: list[str] = []

    def work(client_number: int) -> None:
        caller, chance = Caller(two_workers.url), random.Random(client_number)
        for number in range(40):
            if over.is_set():
                break
            name, fits = f"g{client_number}x{number}", chance.random() < 0.7
            try:
                statuses = put(caller, gang(name, fits=fits))
            except requests.RequestException:
                caller = Caller(two_workers.url)
                doubtful.append(name)
                continue
            assert statuses == ({201} if fits else {409})
            (acknowledged if fits else refused).append(name)

    def check_gangs() -> None:
        for name, nodes in nodes_of_gangs(Caller(two_workers.url)).items():
            assert nodes.total() == MEMBERS, (name, nodes)
            assert set(nodes.values()) == {1}, (name, nodes)

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(work, number) for number in range(CLIENTS)]
        for _ in range(KILLS):
            wanted = len(acknowledged) + CLIENTS
            eventually(
                True,
                lambda wanted=wanted: len(acknowledged) >= wanted or any(each.done() for each in running),
            )
            eventually(2, lambda: len(two_workers.workers()))
            os.kill(random.choice(two_workers.workers()), signal.SIGKILL)
            eventually(2, lambda: len(two_workers.workers()))
            check_gangs()
        over.set()
        for future in running:
            future.result()
    check_gangs()
    there = nodes_of_gangs(setting)
    assert set(acknowledged) <= set(there) <= {*acknowledged, *doubtful}
    assert len(acknowledged) > CLIENTS
    assert refused
    check(database, "edge")
