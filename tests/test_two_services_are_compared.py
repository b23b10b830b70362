"""`placement verify` finds what two running services do not agree about, and nothing else."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from placement.client.client import Client
from tests.commands import run
from tests.server import database_url, running_service

CONSUMER = str(uuid.uuid4())
AGGREGATE = str(uuid.uuid4())


@pytest.fixture(scope="module")
def services() -> Iterator[tuple[Client, Client, str, str]]:
    """Two services that hold the same, as clients and as URLs."""
    with ExitStack() as stack:
        urls = [stack.enter_context(database_url("sqlite")) for _ in range(2)]
        first = stack.enter_context(running_service(urls[0], workers=1))
        fill(Client(first.url, "admin"))
        # What SQLite has not yet written into the file itself stays beside it.
        for ending in ("", "-wal"):
            shutil.copy(*(url.removeprefix("sqlite:///") + ending for url in urls))
        second = stack.enter_context(running_service(urls[1], workers=1))
        yield Client(first.url, "admin"), Client(second.url, "admin"), first.url, second.url


def fill(client: Client) -> None:
    for number in range(3):
        own = provider(number)
        client.post("/resource_providers", {"name": f"host-{number}", "uuid": own})
        inventories = {"VCPU": {"total": 8}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        client.put(f"/resource_providers/{own}/inventories", body)
    claim(client, CONSUMER, 0, 2)


def provider(number: int) -> str:
    return f"{number}0000000-0000-4000-8000-000000000000"


def claim(client: Client, consumer: str, number: int, amount: int) -> None:
    body = {
        "allocations": {provider(number): {"resources": {"VCPU": amount}}},
        "project_id": "red",
        "user_id": "rosa",
        "consumer_type": "INSTANCE",
        "consumer_generation": None,
    }
    client.put(f"/allocations/{consumer}", body)


def change(client: Client, newcomer: str, more: str) -> None:
    """Add a consumer to the second provider, a trait and one more provider."""
    claim(client, newcomer, 1, 3)
    client.put("/traits/CUSTOM_ODD", None)
    client.post("/resource_providers", {"name": "more", "uuid": more})


def change_back(client: Client, newcomer: str, more: str) -> None:
    client.delete(f"/allocations/{newcomer}")
    client.delete("/traits/CUSTOM_ODD")
    client.delete(f"/resource_providers/{more}")


def test_equal_ones_differ_in_nothing(services: tuple[Client, Client, str, str]):
    found = run("verify", *services[2:])
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.endswith("3 providers, 3 providers read, 1 consumers read: no difference.\n")


def test_each_difference_is_told(services: tuple[Client, Client, str, str]):
    first, other, *urls = services
    newcomer, more = str(uuid.uuid4()), str(uuid.uuid4())
    try:
        change(other, newcomer, more)
        found, rows = run("verify", *urls), run("verify", *urls, "-o", "json")
    finally:
        # Generations only grow, so the first has to go through the same before both are equal again.
        change(first, newcomer, more)
        for client in (first, other):
            change_back(client, newcomer, more)
    assert found.returncode == 1
    *told, summary = found.stdout.splitlines()
    assert told[:2] == ["trait CUSTOM_ODD: is only in B", f"provider more ({more}): is only in B"]
    changed = f"provider host-1 ({provider(1)}):"
    assert f"{changed} usages VCPU is 0 in A and 3 in B" in told
    assert f"{changed} allocations {newcomer} resources VCPU is only in B, 3" in told
    assert any(line.startswith(f"{changed} generation is ") for line in told)
    assert f"consumer {newcomer}: resources {provider(1)} VCPU is only in B, 3" in told
    assert not any(provider(0) in line or provider(2) in line for line in told)
    assert summary.endswith(f": {len(told)} differences.")
    assert (rows.returncode, rows.stderr.splitlines()[-1]) == (1, summary)
    usage = {"kind": "provider", "uuid": provider(1), "name": "host-1", "what": "usages VCPU", "a": 0, "b": 3}
    assert usage in json.loads(rows.stdout)


def test_a_sample_reads_a_part(services: tuple[Client, Client, str, str]):
    assert " 1 providers read" in run("verify", *services[2:], "--sample", "1").stdout


def test_a_service_that_is_not_there_is_told(services: tuple[Client, Client, str, str]):
    found = run("verify", services[2], "http://127.0.0.1:1")
    assert found.returncode == 1
    assert "http://127.0.0.1:1 cannot be reached" in found.stderr
