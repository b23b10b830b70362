"""Many claim into the same groups while workers are killed: rules hold in every state that can be read."""

from __future__ import annotations

import json
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
# So many groups under each of the rules.
GROUPS = 4
ANCHORS = 2
_HELD = sa.text(
    """
    SELECT consumers.group_name, consumers.uuid, resource_providers.uuid FROM consumers
      JOIN allocations ON allocations.consumer_id = consumers.uuid
      JOIN resource_providers ON resource_providers.id = allocations.resource_provider_id
     WHERE consumers.group_name IS NOT NULL
    """
)
_HISTORY = sa.text("SELECT consumer_id, after FROM audit_records WHERE kind = 'allocations' ORDER BY id")


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
        self.groups = [f"{rule}-{number}" for rule in self.rules for number in range(GROUPS)]
        # Consumers that others move about, while claims have to be with them.
        self.anchors = [str(uuid.uuid4()) for _ in range(ANCHORS)]
        for anchor in self.anchors:
            assert client.claim(anchor, {self.hosts[0]: {"VCPU": 1}}).ok

    def claim_into(self, client: Claimant, group: str, members: int) -> requests.Response:
        rule = self.rules[group.partition("-")[0]]
        return self._claim(client, members, {**rule, "groups": [group]}, group=group)

    def claim_with(self, client: Claimant, anchor: str, members: int) -> requests.Response:
        return self._claim(client, members, {"kind": "together", "consumers": [anchor]})

    def move(self, client: Claimant, anchor: str, host: str) -> None:
        generation = client.call("GET", f"/allocations/{anchor}").json()["consumer_generation"]
        client.claim(anchor, {host: {"VCPU": 1}}, generation)

    @staticmethod
    def _claim(client: Claimant, members: int, rule: dict[str, object], **more: object) -> requests.Response:
        body = {
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
            "query": "resources=VCPU:1,MEMORY_MB:1",
            "atomic": True,
            "members": [{"count": members}],
            "rules": [rule],
            **more,
        }
        return client.call("POST", "/ext/v1/claims", body)

    def breaches(self, held: list[tuple[str, str, str]]) -> list[str]:
        """What is wrong with a state, written for obviousness."""
        by_group: dict[str, Counter[str]] = defaultdict(Counter)
        for group, consumer, host in sorted({(row[0], row[1], row[2]) for row in held}):
            by_group[group][host] += bool(consumer)
        found = []
        for group, on_hosts in by_group.items():
            rule = group.partition("-")[0]
            if rule == "apart" and max(on_hosts.values()) > 3:
                found.append(f"more than 3 on a host: {on_hosts}")
            if rule == "same" and len(on_hosts) > 1:
                found.append(f"not together: {on_hosts}")
            if rule == "even":
                found += self._uneven(on_hosts)
        return found

    def _uneven(self, on_hosts: Counter[str]) -> list[str]:
        zones = Counter(dict.fromkeys(range(ZONES), 0))
        for host, count in on_hosts.items():
            zones[self.hosts.index(host) % ZONES] += count
        found = []
        if max(zones.values()) - min(zones.values()) > 1:
            found.append(f"not even: {zones}")
        if zones.total() % 2:
            found.append("half of a claim")
        return found

    @staticmethod
    def strays(history: list[tuple[str, str]], followers: dict[str, str]) -> list[str]:
        """Who was claimed where its anchor was not, by the order in which consumers were written."""
        at: dict[str, list[str]] = {}
        found = []
        for consumer, after in history:
            hosts = sorted(json.loads(after or "{}").get("allocations", {}))
            if consumer in followers and hosts and hosts != at[followers[consumer]]:
                found.append(f"{consumer} is at {hosts}, its anchor at {at[followers[consumer]]}")
            at[consumer] = hosts
        return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_hold_in_every_state(backend: str) -> None:
    """Members come two at a time, all or none, and leave one by one; a claim that died leaves nobody.

    Others come to where a consumer is that is moved about meanwhile.
    """
    with database_url(backend) as connection, running_service(connection, workers=2) as server:
        _storm(Cloud(server.url), server, connection)


def _storm(cloud: Cloud, server: RunningServer, connection: str) -> None:
    over = threading.Event()
    found: list[str] = []
    acknowledged: list[str] = []
    refused: list[str] = []
    followers: dict[str, str] = {}

    def move() -> None:
        client, chance = Claimant(server.url), random.Random(CLIENTS)
        while not over.is_set():
            try:
                cloud.move(client, chance.choice(cloud.anchors), chance.choice(cloud.hosts))
            except (requests.RequestException, KeyError):
                # Its worker was killed.
                client = Claimant(server.url)

    def follow(client: Claimant, chance: random.Random) -> None:
        anchor = chance.choice(cloud.anchors)
        answer = cloud.claim_with(client, anchor, 2)
        if answer.status_code == 200:
            followers.update({each["consumer_uuid"]: anchor for each in answer.json()["members"]})
        else:
            assert answer.status_code in (409, 503), answer.text

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
            group = chance.choice(cloud.groups)
            try:
                if chance.random() < 0.3:
                    follow(client, chance)
                answer = cloud.claim_into(client, group, 2)
                if answer.status_code == 200:
                    mine = [each["consumer_uuid"] for each in answer.json()["members"]]
                    acknowledged.extend(mine)
                    if not group.startswith("even") and chance.random() < 0.6:
                        # Whoever leaves a spread makes it uneven, which no rule of others forbids.
                        for consumer in mine:
                            client.call("DELETE", f"/allocations/{consumer}")
                else:
                    assert answer.status_code in (409, 503), answer.text
                    refused.append(answer.text)
            except requests.RequestException:
                client = Claimant(server.url)

    with ThreadPoolExecutor(CLIENTS + 2) as pool:
        watching, moving = pool.submit(watch), pool.submit(move)
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
        moving.result()
    assert found == []
    database = Database(connection)
    with database.read() as reading:
        history = [(row[0], row[1]) for row in reading.execute(_HISTORY)]
    database.dispose()
    assert cloud.strays(history, followers) == []
    assert followers.keys() <= {consumer for consumer, _ in history}
    assert len(followers) > KILLS
    assert sum(consumer in cloud.anchors for consumer, _ in history) > ANCHORS + KILLS
    assert len(acknowledged) > CLIENTS
    assert all("no candidate" in each or "kept claiming" in each for each in refused)
