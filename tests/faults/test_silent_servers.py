"""A database that says nothing any more holds nobody up for good: there is an answer, and all recovers."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Semaphore
from typing import Any

import pytest

from placement.storage import schema
from placement.storage.database import Database
from placement.storage.feed import Feed
from placement.storage.history import Horizon
from tests.faults.cluster import Cluster, cluster
from tests.faults.ledger import await_recovery, claim_body, make_providers, storm, violations
from tests.faults.relay import Relay, relay_to
from tests.patience import eventually
from tests.probes import figure
from tests.server import RunningServer, running_service
from tests.service import Service

_SEARCH = "/allocation_candidates?resources=VCPU:1&limit=5"
# A request may take so long by its settings; then come graces, and the patience of a busy machine.
_REQUEST_SECONDS = 8


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def relay(postgresql: Cluster) -> Iterator[Relay]:
    with relay_to(postgresql.port) as made:
        yield made


@pytest.fixture
def served(postgresql: Cluster, relay: Relay) -> Iterator[RunningServer]:
    environment = {"OS_API__REQUEST_TIMEOUT": str(_REQUEST_SECONDS)}
    url = postgresql.url(port=relay.port)
    with running_service(url, workers=1, environment=environment) as running:
        yield running


def test_connections_that_go_silent_are_given_up(relay: Relay, served: RunningServer):
    """New connections work, and those there are never answer again."""
    service = Service(served.url)
    providers = make_providers(service, 3)
    with storm([served.url], providers, clients=12) as ledger:
        time.sleep(2)
        relay.freeze()
        # The storm ends when every client has its answer.
        time.sleep(2)
    await_recovery([service], providers[0])
    assert "None" not in ledger.statuses
    assert ledger.faults() == 0, ledger.statuses
    assert violations(service, providers, ledger) == []


def test_a_search_is_answered_though_all_connections_are_silent_for_ever(postgresql: Cluster, relay: Relay):
    """The request has time enough for each of them to be waited for, one after the other."""
    environment = {"OS_API__REQUEST_TIMEOUT": "60"}
    with running_service(postgresql.url(port=relay.port), workers=1, environment=environment) as served:
        service = Service(served.url)
        make_providers(service, 1)
        assert service.call("GET", _SEARCH).status == 200

        def are_several_idle() -> bool:
            with ThreadPoolExecutor() as threads:
                list(threads.map(lambda _: service.call("GET", "/resource_providers"), range(8)))
            return figure(served.url, "placement_database_connections", state="idle") > 2

        # Looks keep a connection, and other threads of the service may want one.
        eventually(True, are_several_idle)
        relay.freeze()
        assert service.call("GET", _SEARCH).status == 200


@pytest.fixture
def database(postgresql: Cluster, relay: Relay) -> Iterator[Database]:
    made = Database(postgresql.url(port=relay.port) + "?connect_timeout=2")
    schema.upgrade(made)
    yield made
    made.dispose()


def looking(feed: Feed) -> tuple[int, Horizon]:
    """Return the process of the server that a feed looks through, and where it looks from."""
    with feed.one_state() as connection:
        driver: Any = connection.connection.dbapi_connection
        return driver.get_backend_pid(), feed.horizon(connection)


def test_looks_are_waited_for_while_no_other_statement_is_answered(
    database: Database, relay: Relay, monkeypatch: pytest.MonkeyPatch
):
    """A server that answers nobody is slow; new connections to it would make it slower."""
    answers: list[bool] = []
    is_answering = Database.is_answering

    def noting(asked: Database) -> bool:
        answers.append(is_answering(asked))
        return answers[-1]

    monkeypatch.setattr(Database, "is_answering", noting)
    with closing(Feed(database)) as feed, ThreadPoolExecutor() as threads:
        process, horizon = looking(feed)
        relay.refuses = True
        relay.freeze()
        look = threads.submit(feed.look, horizon)
        eventually(True, lambda: len(answers) > 1)
        relay.thaw()
        look.result()
        relay.refuses = False
        assert looking(feed)[0] == process
    assert not any(answers)


def test_silent_looks_are_doubted_one_at_a_time(
    database: Database, relay: Relay, monkeypatch: pytest.MonkeyPatch
):
    doubted, may_go_on = Semaphore(0), Semaphore(0)
    is_answering = Database.is_answering

    def held(asked: Database) -> bool:
        doubted.release()
        may_go_on.acquire()
        return is_answering(asked)

    monkeypatch.setattr(Database, "is_answering", held)
    with closing(Feed(database)) as one, closing(Feed(database)) as other, ThreadPoolExecutor() as threads:
        found = [(feed, *looking(feed)) for feed in (one, other)]
        relay.freeze()
        looks = [threads.submit(feed.look, horizon) for feed, _, horizon in found]
        doubted.acquire()
        # The other look has no answer either, and the watch passes by several times.
        assert not doubted.acquire(timeout=4)
        may_go_on.release(2)
        for look in looks:
            look.result()
        assert all(looking(feed)[0] != process for feed, process, _ in found)


def test_connections_dropped_and_delayed(relay: Relay, served: RunningServer):
    service = Service(served.url)
    providers = make_providers(service, 3)
    with storm([served.url], providers, clients=12) as ledger:
        for delay in (0.0, 0.05, 0.0):
            relay.delay = delay
            time.sleep(1)
            relay.drop()
        time.sleep(1)
    await_recovery([service], providers[0])
    assert ledger.faults() == 0, ledger.statuses
    assert violations(service, providers, ledger) == []


def test_a_server_that_is_stopped_and_goes_on(postgresql: Cluster, served: RunningServer):
    """It acknowledges what it is sent, and takes connections, but no process of it runs."""
    service = Service(served.url)
    providers = make_providers(service, 2)
    assert service.call("GET", _SEARCH).status == 200
    postgresql.signal_all(signal.SIGSTOP)
    try:
        statuses = [service.call("GET", _SEARCH).status]
        statuses.append(service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(providers[0])).status)
        statuses.append(service.call("GET", "/resource_providers").status)
        assert service.call("GET", "/").status == 200
    finally:
        postgresql.signal_all(signal.SIGCONT)
    assert statuses == [503, 503, 503]
    await_recovery([service], providers[0])


def test_writes_do_not_try_again_and_again_to_reach_what_does_not_answer(relay: Relay, served: RunningServer):
    service = Service(served.url)
    (provider,) = make_providers(service, 1)
    relay.refuses = True
    relay.drop()
    answer = service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(provider))
    assert answer.status == 503
    assert "cannot be reached" in str(answer.body)
    # On a connection that is gone, and once more: each attempt to connect costs the time allowed for it.
    assert figure(served.url, "placement_transaction_retries_total", reason="unreachable") <= 1
    relay.refuses = False
    relay.drop()
    await_recovery([service], provider)


def test_a_row_that_somebody_holds_stalls_nobody_beyond_the_time_of_a_request(
    postgresql: Cluster, served: RunningServer
):
    service = Service(served.url)
    held, free = make_providers(service, 2)
    other = postgresql.connected()
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM resource_providers WHERE uuid = %s FOR UPDATE", (held,))
    answers: list[tuple[int, float]] = []

    def claim() -> None:
        begun = time.monotonic()
        answer = service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(held))
        answers.append((answer.status, time.monotonic() - begun))

    claims = [threading.Thread(target=claim) for _ in range(40)]
    for thread in claims:
        thread.start()
    for thread in claims:
        thread.join(240)
    assert {status for status, _ in answers} == {503}
    assert len(answers) == 40
    # Far less than the ten attempts of ten seconds that there would be time for without a deadline.
    assert min(seconds for _, seconds in answers) < 60
    other.close()
    assert service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(free)).status == 204
    # Nobody who was told that nothing was changed got something after all.
    assert service.must("GET", f"/resource_providers/{held}/allocations")["allocations"] == {}
