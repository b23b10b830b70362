"""A write through one worker process is visible to the very next search through another."""

from __future__ import annotations

import uuid

import pytest
import requests

from tests.claimants import Claimant, providers
from tests.server import RunningServer, database_url, running_service

TRAIT = "CUSTOM_HERE_TODAY"
QUERY = "/allocation_candidates?resources=VCPU:1&limit=1000"


def found(client: Claimant) -> set[str]:
    answer = client.call("GET", QUERY)
    assert answer.status_code == 200, answer.text
    return {
        provider for element in answer.json()["allocation_requests"] for provider in element["allocations"]
    }


def named(client: Claimant) -> requests.Response:
    """The answer to a search for a trait that there may not be."""
    return client.call("GET", f"/allocation_candidates?resources=VCPU:1&required={TRAIT}")


@pytest.mark.parametrize(("backend", "turns"), [("sqlite", 8), ("postgresql", 8)])
def test_next_search_of_another_process_knows_the_write(backend: str, turns: int) -> None:
    """Two services on one database, one worker each: whoever writes, the other one knows at once."""
    with (
        database_url(backend) as connection_url,
        running_service(connection_url, workers=1) as one,
        running_service(connection_url, workers=1) as other,
    ):
        clients = [Claimant(one.url), Claimant(other.url)]
        for client in clients:
            assert found(client) == set()
        known: set[str] = set()
        for turn in range(turns):
            writer, reader = clients[turn % 2], clients[1 - turn % 2]
            (host,) = providers(writer, 1, 1)
            known.add(host)
            assert found(reader) == known
            consumer = str(uuid.uuid4())
            assert writer.claim(consumer, {host: {"VCPU": 1}}).status_code == 204
            assert found(reader) == known - {host}
            assert writer.call("DELETE", f"/allocations/{consumer}").status_code == 204
            assert found(reader) == known
            if turn % 3 == 0:
                assert writer.call("DELETE", f"/resource_providers/{host}").status_code == 204
                known.discard(host)
                assert found(reader) == known
            assert named(reader).status_code == 400
            assert writer.call("PUT", f"/traits/{TRAIT}").status_code == 201
            assert named(reader).status_code == 200
            assert writer.call("DELETE", f"/traits/{TRAIT}").status_code == 204
            assert named(reader).status_code == 400


def test_two_workers_of_one_service_agree(two_workers: RunningServer) -> None:
    writer = Claimant(two_workers.url)
    known: set[str] = set()
    for _ in range(20):
        (host,) = providers(writer, 1, 1)
        known.add(host)
        # A new connection each time: either worker may take it.
        assert all(found(Claimant(two_workers.url)) == known for _ in range(4))
