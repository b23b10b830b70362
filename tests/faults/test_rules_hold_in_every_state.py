"""Many claim into the same groups while workers are killed: rules hold in every state that can be read."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
import sqlalchemy as sa

from placement.storage.database import Database
from tests.claimants import CLIENTS, Claimant, providers
from tests.patience import eventually
from tests.server import BACKENDS, RunningServer, database_url, running_service

KILLS = 3
HOSTS, ZONES = 12, 3
ROUNDS = 8
_HELD = sa.text(
    """
    SELECT consumers.group_name, consumers.uuid, resource_providers.uuid FROM consumers
      JOIN allocations ON allocations.consumer_id = consumers.uuid
      JOIN resource_providers ON resource_providers.id = allocations.resource_provider_id
     WHERE consumers.group_name IS NOT NULL
    """
)


class Cloud:
    """Hosts in zones, and groups with rules about them."""

    def __init__(self, url: str) -> None:
        client = Claimant(url)
        self.url = url
        self.hosts = providers(client, 1000, HOSTS)
        self.zones = [str(uuid.uuid4()) for _ in range(ZONES)]
        for number, host in enumerate(self.hosts):
            body = {"aggregates": [self.zones[number % ZONES]], "resource_provider_generation": 1}
            assert client.call("PUT", f"/resource_providers/{host}/aggregates", body).ok
        spread = {"kind": "spread", "per": "aggregate", "aggregates": self.zones}
        self.rules = {
            "apart": {"kind": "at_most", "count": 3},
            "same": {"kind": "together"},
            "even": spread,
            "soft": {"kind": "at_most", "weight": 1},
        }

    def claim(self, client: Claimant, group: str, members: int) -> requests.Response:
        body = {
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
            "query": "resources=VCPU:1,MEMORY_MB:1",
            "atomic": True,
            "group": group,
            "members": [{"count": members}],
            "rules": [{**self.rules[group], "groups": [group]}],
        }
        return client.call("POST", "/ext/v1/claims", body)

    def breaches(self, held: list[tuple[str, str, str]]) -> list[str]:
        """What is wrong with a state, written for obviousness."""
        by_group: dict[str, Counter[str]] = defaultdict(Counter)
        for group, consumer, host in sorted({(row[0], row[1], row[2]) for row in held}):
            by_group[group][host] += bool(consumer)
        found = []
        if max(by_group["apart"].values(), default=0) > 3:
            found.append(f"more than 3 on a host: {by_group['apart']}")
        if len(by_group["same"]) > 1:
            found.append(f"not together: {by_group['same']}")
        zones = Counter(dict.fromkeys(range(ZONES), 0))
        for host, count in by_group["even"].items():
            zones[self.hosts.index(host) % ZONES] += count
        if max(zones.values()) - min(zones.values()) > 1:
            found.append(f"not even: {zones}")
        if zones.total() % 2:
            found.append("half of a claim")
        return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_hold_in_every_state(backend: str) -> None:
    """Members come two at a time, all or none, and leave one by one; a claim that died leaves nobody."""
    with database_url(backend) as connection, running_service(connection, workers=2) as server:
        _storm(Cloud(server.url), server, connection)


def _storm(cloud: Cloud, server: RunningServer, connection: str) -> None:
    over = threading.Event()
    found: list[str] = []
    acknowledged: list[str] = []
    refused: list[str] = []

    def watch() -> int:
        looks, database = 0, Database(connection)
        while not over.is_set():
            with database.read() as reading:
                held = [tuple(row) for row in reading.execute(_HELD)]
            found.extend(cloud.breaches(held))
            looks += 1
        database.dispose()
        return looks

    def work(number: int) -> None:
        client, chance = Claimant(server.url), random.Random(number)
        for _ in range(ROUNDS):
            group = chance.choice(sorted(cloud.rules))
            try:
                answer = cloud.claim(client, group, 2)
                if answer.status_code == 200:
                    mine = [each["consumer_uuid"] for each in answer.json()["members"]]
                    acknowledged.extend(mine)
                    if group != "even" and chance.random() < 0.6:
                        # Whoever leaves a spread makes it uneven, which no rule of others forbids.
                        for consumer in mine:
                            client.call("DELETE", f"/allocations/{consumer}")
                else:
                    assert answer.status_code in (409, 503), answer.text
                    refused.append(answer.text)
            except requests.RequestException:
                client = Claimant(server.url)

    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        watching = pool.submit(watch)
        running = [pool.submit(work, number) for number in range(CLIENTS)]
        for number in range(KILLS):
            wanted = (number + 1) * CLIENTS
            eventually(
                True,
                lambda wanted=wanted: len(acknowledged) >= wanted or all(each.done() for each in running),
            )
            eventually(2, lambda: len(server.workers()))
            os.kill(random.choice(server.workers()), signal.SIGKILL)
        for future in running:
            future.result()
        over.set()
        assert watching.result() > KILLS
    assert found == []
    assert len(acknowledged) > CLIENTS
    assert all("no candidate" in each or "kept claiming" in each for each in refused)
