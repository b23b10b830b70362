"""On a real Kubernetes: workers die while gangs are bound; in the end all are, or none has a place."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from placement.engine.numa.cpus import parse_cpu_list
from placement.storage.database import Database
from tests.faults.around_kubernetes import CLUSTER, Lab, lab
from tests.faults.relay import relay_to
from tests.kubernetes import STATUS
from tests.patience import eventually
from tests.pod_invariants import check, loaded
from tests.real_kubernetes import ControlPlane
from tests.service import ServiceError
from tests.synchronizing import pod_manifest

NODES = [f"host-{number}" for number in range(3)]
MEMBERS = 6
CPUS = 4
GANG = "gang.scheduling.koordinator.sh"
# What the service and the API server say to each other takes so long, so that Bindings are seen one by one.
DELAY_SECONDS = 0.02


class Seen(NamedTuple):
    """How many pods have places, how many of them wait for others, and how many are bound."""

    placed: int
    waiting: int
    bound: int


@pytest.fixture
def around(kubernetes: ControlPlane, connection_url: str, tmp_path: Path) -> Iterator[Lab]:
    with relay_to(urlsplit(kubernetes.url).port or 0) as relay:
        distant = replace(kubernetes, url=f"https://127.0.0.1:{relay.port}")
        with lab(distant, connection_url, tmp_path) as found:
            for name in NODES:
                found.add_node(name)
            relay.delay = DELAY_SECONDS
            # Looking need not be slow.
            yield replace(found, kubernetes=kubernetes)


def create_members(around: Lab, gang: str, number: int, waiting_time: str = "600s") -> list[dict[str, Any]]:
    """So many of the `MEMBERS` that the gang needs, as Kubernetes has them."""
    said = {"name": gang, "min-available": str(MEMBERS), "waiting-time": waiting_time}
    annotations = {f"{GANG}/{key}": text for key, text in said.items()}
    return [around.create_pod(f"{gang}-{member}", CPUS, annotations) for member in range(number)]


@contextmanager
def scheduled(around: Lab, pods: list[dict[str, Any]]) -> Iterator[None]:
    """During the block each pod is filtered and bound again and again, to any node that fits, until it is."""
    over = threading.Event()

    def schedule(pod: dict[str, Any]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        chance = random.Random(name)
        while not over.is_set() and not is_bound(around.kubernetes.pod(name)):
            # Of a worker that is killed there is no answer.
            with suppress(ServiceError):
                asked = {"Pod": pod, "NodeNames": NODES}
                fitting = around.service("POST", "/extender/filter", asked)["NodeNames"]
                around.bind(name, uid, chance.choice(fitting))
            time.sleep(chance.uniform(0.02, 0.2))

    with ThreadPoolExecutor(len(pods)) as pool:
        running = [pool.submit(schedule, pod) for pod in pods]
        try:
            yield
        finally:
            over.set()
        for future in running:
            future.result()


def look(around: Lab, database: Database) -> Seen:
    """How it stands just now, with one gang at a time, if nothing is as it must not be."""
    # What is bound stays bound, so what is read after it has to fit.
    bound = {
        pod["metadata"]["name"]: (pod["spec"]["nodeName"], cpus_of(pod))
        for pod in around.kubernetes.pods()
        if is_bound(pod)
    }
    states = loaded(database, CLUSTER).values()
    placed = {pod.name: (state.name, set(pod.holding.cpus)) for state in states for pod in state.pods}
    owned = Counter((node, cpu) for node, cpus in placed.values() for cpu in cpus)
    assert not [place for place, owners in owned.items() if owners > 1]
    assert {name: placed.get(name) for name in bound} == bound
    waiting = sum(len(state.waiting) for state in states)
    assert not bound or (len(placed), waiting) == (MEMBERS, 0), (placed, waiting, bound)
    return Seen(len(placed), waiting, len(bound))


def is_bound(pod: dict[str, Any]) -> bool:
    """Whether Kubernetes has the pod on a node."""
    return bool(pod["spec"].get("nodeName"))


def cpus_of(pod: dict[str, Any]) -> set[int]:
    """The CPUs that a pod was told with its Binding."""
    return set(parse_cpu_list(json.loads(pod["metadata"]["annotations"][STATUS])["cpuset"]))


def kill_workers(around: Lab) -> None:
    """Whoever is at work on something ends in the midst of it; others come instead."""
    for worker in around.server.workers():
        os.kill(worker, signal.SIGKILL)


def test_a_gang_whose_workers_are_killed_between_bindings_is_bound_when_these_are_repeated(
    around: Lab, database: Database
) -> None:
    halves = 0
    with around.synchronized(len(NODES)) as sync:
        for kill_at in (1, MEMBERS // 2, MEMBERS - 1):
            pods = create_members(around, f"gang-{kill_at}", MEMBERS)
            with scheduled(around, pods):
                eventually(True, lambda least=kill_at: look(around, database).placed >= least)
                kill_workers(around)
                eventually(True, lambda least=kill_at: look(around, database).bound >= least)
                kill_workers(around)
                halves += look(around, database).bound < MEMBERS
                eventually(Seen(MEMBERS, 0, MEMBERS), lambda: look(around, database))
            for pod in pods:
                around.kubernetes.delete_pod(pod["metadata"]["name"])
            eventually(Seen(0, 0, 0), lambda: look(around, database))
        sync.end()
    # Otherwise no worker was killed between two Bindings.
    assert halves
    check(database, CLUSTER)


def test_a_gang_that_stays_too_small_has_nothing_when_its_time_is_over_though_workers_were_killed(
    around: Lab, database: Database
) -> None:
    with around.synchronized(len(NODES)):
        pass
    with scheduled(around, create_members(around, "small", MEMBERS - 1, waiting_time="5s")):
        for kill_at in (1, MEMBERS - 1):
            eventually(True, lambda least=kill_at: look(around, database).waiting >= least)
            kill_workers(around)
    seen = look(around, database)
    assert seen == (seen.waiting, seen.waiting, 0)
    others = [pod_manifest(f"other-{node}", cpus=16) for node in NODES]
    asked = {"pod": others[0], "nodeNames": NODES}
    eventually(len(NODES), lambda: around.service("POST", "/pods/preview", asked)["fitting"])
    for other in others:
        around.service("PUT", f"/pods/default/{other['metadata']['name']}", other)
    assert around.claims().keys() == {other["metadata"]["name"] for other in others}
    check(database, CLUSTER)
