"""Claims that are written together to SQLite: each keeps its caller and its step, or none is written."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from placement.storage.database import Database
from tests.claimants import CLIENTS, Claimant, providers, recorded_use
from tests.crowds import recorded
from tests.server import RunningServer

pytestmark = pytest.mark.parametrize("connection_url", ["sqlite"], indirect=True)
EACH = 25
# Writes a group of claims, and is killed when it has run so many of its texts.
_KILLED = """
import os, signal, sys
from placement.allocations.new_claims import NewClaimWriter
from placement.allocations.replacement import attributes_of
from placement.allocations.statements.consumers import AttributeRegistry
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.request_scope import SERVICE_ITSELF
from placement.storage import json_text
from placement.storage.backends import sqlite_claims
from placement.storage.database import Database

url, host, last, *consumers = sys.argv[1:]
database = Database(url)
claims = [ConsumerClaim(each, {host: {"VCPU": 1}}, "p", "u", None, "TYPE") for each in consumers]
AttributeRegistry(database).register(attributes_of(claims))
run = []

class Killing:
    @staticmethod
    def written(rows):
        if len(run) == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
        run.append(rows)
        return json_text.written(rows)

sqlite_claims.json_text = Killing
written = NewClaimWriter(database).write(claims, [SERVICE_ITSELF] * len(claims))
sys.exit(0 if written else 1)
"""
_TEXTS = 5


def test_each_claim_keeps_its_caller_and_its_step_whoever_writes_it(
    two_workers: RunningServer, database: Database
) -> None:
    """Two workers have their claims written by whichever thread is at work."""
    setting = Claimant(two_workers.url)
    (host,) = providers(setting, CLIENTS * EACH, 1)
    before = setting.call("GET", f"/resource_providers/{host}").json()["generation"]

    def work(client_number: int) -> list[str]:
        client = Claimant(two_workers.url)
        consumers = [str(uuid.uuid4()) for _ in range(EACH)]
        for consumer in consumers:
            client.session.headers["X-OpenStack-Request-Id"] = f"req-{consumer}"
            assert client.claim(consumer, {host: {"VCPU": 1}}).status_code == 204
        return consumers

    with ThreadPoolExecutor(CLIENTS) as pool:
        consumers = [each for some in pool.map(work, range(CLIENTS)) for each in some]
    assert recorded(database) == {consumer: {f"req-{consumer}"} for consumer in consumers}
    after = setting.call("GET", f"/resource_providers/{host}").json()["generation"]
    assert after == before + len(consumers)
    used, summed = recorded_use(setting, host)
    assert used["VCPU"] == summed["VCPU"] == len(consumers)


@pytest.mark.parametrize("last", range(_TEXTS + 1))
def test_a_writer_that_is_killed_in_the_middle_of_a_group_leaves_nothing_of_it(
    two_workers: RunningServer, connection_url: str, last: int
) -> None:
    """The others go on at once; a group that was written is there as a whole."""
    setting = Claimant(two_workers.url)
    (host,) = providers(setting, 100, 1)
    consumers = [str(uuid.uuid4()) for _ in range(8)]
    command = [sys.executable, "-c", _KILLED, connection_url, host, str(last), *consumers]
    is_killed = last < _TEXTS
    assert subprocess.run(command, check=False).returncode == (-signal.SIGKILL if is_killed else 0)
    assert setting.claim(str(uuid.uuid4()), {host: {"VCPU": 1}}).status_code == 204
    used, summed = recorded_use(setting, host)
    assert used["VCPU"] == summed["VCPU"] == (1 if is_killed else 9)
    found = [setting.call("GET", f"/allocations/{each}").json()["allocations"] for each in consumers]
    assert [bool(each) for each in found] == [not is_killed] * len(consumers)
