"""Workers are killed while many clients claim: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import requests

from tests.claimants import CLIENTS, Claimant, bulk_outcomes, providers, recorded_use
from tests.patience import eventually
from tests.server import RunningServer

KILLS = 4


def test_killing_workers_in_a_storm_leaves_a_consistent_database(two_workers: RunningServer) -> None:
    """Every acknowledged claim is there; one whose worker died can be repeated; use equals allocations."""
    setting = Claimant(two_workers.url)
    hosts = providers(setting, 100_000)
    over = threading.Event()
    acknowledged: list[str] = []
    doubtful: list[tuple[str, str]] = []

    def work(client_number: int) -> None:
        client, chance = Claimant(two_workers.url), random.Random(client_number)
        while not over.is_set():
            consumer, host = str(uuid.uuid4()), chance.choice(hosts)
            try:
                answer = client.claim(consumer, {host: {"VCPU": 1, "MEMORY_MB": 1}})
            except requests.RequestException:
                client = Claimant(two_workers.url)
                doubtful.append((consumer, host))
                continue
            assert answer.status_code == 204, answer.text
            acknowledged.append(consumer)

    def await_claims(more: int) -> None:
        wanted = len(acknowledged) + more
        eventually(True, lambda: len(acknowledged) >= wanted or any(future.done() for future in running))

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(work, number) for number in range(CLIENTS)]
        for _ in range(KILLS):
            await_claims(CLIENTS)
            # The master replaces a worker that ended, but not before it has noticed.
            eventually(2, lambda: len(two_workers.workers()))
            os.kill(random.choice(two_workers.workers()), signal.SIGKILL)
        await_claims(CLIENTS)
        over.set()
        for future in running:
            future.result()

    for consumer, host in doubtful:
        again = setting.claim(consumer, {host: {"VCPU": 1, "MEMORY_MB": 1}})
        assert again.status_code == 204 or "expected 1 but got None" in again.text
    total: Counter[str] = Counter()
    for host in hosts:
        used, summed = recorded_use(setting, host)
        assert used == summed
        total += used
    assert total["VCPU"] == len(acknowledged) + len(doubtful)
    assert len(acknowledged) > CLIENTS


def test_killing_workers_in_a_storm_of_bulk_claims_leaves_no_half_of_any(two_workers: RunningServer) -> None:
    """All members of a claim for all or none hold something or none; repeating settles whose worker died."""
    setting = Claimant(two_workers.url)
    hosts = providers(setting, 100_000)
    over = threading.Event()
    acknowledged: list[list[dict[str, str]]] = []
    doubtful: list[list[dict[str, str]]] = []

    def work(_: int) -> None:
        client = Claimant(two_workers.url)
        while not over.is_set():
            members = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(20)]
            try:
                assert bulk_outcomes(client, members, atomic=True) == [201] * 20
            except requests.RequestException:
                client = Claimant(two_workers.url)
                doubtful.append(members)
                continue
            acknowledged.append(members)

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
        over.set()
        for future in running:
            future.result()

    eventually(2, lambda: len(two_workers.workers()))
    for members in doubtful:
        held = [
            bool(setting.call("GET", f"/allocations/{each['consumer_uuid']}").json()["allocations"])
            for each in members
        ]
        assert len(set(held)) == 1
        assert bulk_outcomes(setting, members, atomic=True) == [200 if held[0] else 201] * 20
    used = [recorded_use(setting, host) for host in hosts]
    assert all(one == other for one, other in used)
    everybody = sum(map(len, (*acknowledged, *doubtful)))
    assert sum(one["VCPU"] for one, _ in used) == everybody
