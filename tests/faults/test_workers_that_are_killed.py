"""Workers are killed while many clients claim: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import requests

from tests.claimants import CLIENTS, Claimant, bulk_outcomes, providers, recorded_use
from tests.patience import eventually
from tests.server import RunningServer

KILLS = 4


def test_killing_workers_in_a_storm_leaves_a_consistent_database(two_workers: RunningServer) -> None:
    """Every acknowledged claim is there; one whose worker died can be repeated; use equals allocations.

    All members of a claim for all or none hold something or none.
    """
    setting = Claimant(two_workers.url)
    hosts = providers(setting, 100_000)
    over = threading.Event()
    acknowledged: list[list[str]] = []
    doubtful: list[list[str]] = []

    def claim(client: Claimant, consumers: list[str]) -> None:
        """Claim as one if there is one, else as members of a claim for all or none."""
        if len(consumers) == 1:
            answer = client.claim(consumers[0], {random.choice(hosts): {"VCPU": 1, "MEMORY_MB": 1}})
            assert answer.status_code == 204, answer.text
        else:
            assert bulk_outcomes(client, members(consumers), atomic=True) == [201] * len(consumers)

    def work(client_number: int) -> None:
        client = Claimant(two_workers.url)
        while not over.is_set():
            consumers = [str(uuid.uuid4()) for _ in range((1, 20)[client_number % 2])]
            try:
                claim(client, consumers)
            except requests.RequestException:
                client = Claimant(two_workers.url)
                doubtful.append(consumers)
                continue
            acknowledged.append(consumers)

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

    eventually(2, lambda: len(two_workers.workers()))
    for consumers in doubtful:
        held = {holds(setting, consumer) for consumer in consumers}
        assert len(held) == 1
        if len(consumers) > 1:
            again = bulk_outcomes(setting, members(consumers), atomic=True)
            assert again == [200 if held == {True} else 201] * len(consumers)
        elif held == {False}:
            claim(setting, consumers)
    used = [recorded_use(setting, host) for host in hosts]
    assert all(one == other for one, other in used)
    everybody = sum(map(len, (*acknowledged, *doubtful)))
    assert sum(one["VCPU"] for one, _ in used) == everybody
    assert len(acknowledged) > CLIENTS


def members(consumers: list[str]) -> list[dict[str, str]]:
    return [{"consumer_uuid": consumer} for consumer in consumers]


def holds(client: Claimant, consumer: str) -> bool:
    return bool(client.call("GET", f"/allocations/{consumer}").json()["allocations"])
