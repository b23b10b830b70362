"""Whenever a connection to the database dies no claim is lost, nobody sees a 500, all recovers by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.faults.cluster import Cluster, cluster
from tests.faults.ledger import await_recovery, make_providers, storm, violations
from tests.server import RunningServer, running_service
from tests.service import Service

_TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = 'placement' AND pid <> pg_backend_pid()"
)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def served(postgresql: Cluster) -> Iterator[RunningServer]:
    with running_service(postgresql.url(), workers=2) as running:
        yield running


def test_backends_terminated_and_the_server_restarted_again_and_again(
    postgresql: Cluster, served: RunningServer
):
    service = Service(served.url)
    providers = make_providers(service, 4)
    with storm([served.url], providers, clients=32) as ledger:
        for _ in range(3):
            for _ in range(10):
                postgresql.execute(_TERMINATE)
                time.sleep(0.2)
            postgresql.restart()
    await_recovery([service], providers[0])
    assert ledger.faults() == 0, (ledger.statuses, served.log.read_text()[-4000:])
    assert violations(service, providers, ledger) == []
    assert ledger.statuses["204"] > 0
