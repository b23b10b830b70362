"""An identity service that does not answer costs those nothing whose tokens are known already."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import requests
from oslo_config import cfg

from placement.engine.domain.waiting_room import Full, WaitingRoom
from placement.http.strategies.keystone import Keystone
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of, configured, with_options
from tests.identity_service import IdentityService, project_token
from tests.server import RunningServer, database_url, running_service

KNOWN, OTHER = "known-caller", "other-caller"
PATIENCE = 60


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityService]:
    tokens = {KNOWN: project_token("admin"), OTHER: project_token("service", user="other")}
    with IdentityService(tokens).running() as service:
        yield service


@pytest.fixture(scope="module")
def server(identity: IdentityService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One worker that would wait for an answer for ten minutes."""
    file = tmp_path_factory.mktemp("configuration") / "placement.conf"
    file.write_text(f"[api]\nauth_strategy = keystone\n{identity.text()}http_connect_timeout = 600\n")
    with (
        database_url("sqlite") as url,
        running_service(url, workers=1, arguments=["--config-file", str(file)]) as running,
    ):
        yield running


def ask(server: RunningServer, token: str) -> requests.Response:
    session = requests.Session()
    session.trust_env = False
    return session.get(f"{server.url}/resource_providers", headers={"X-Auth-Token": token}, timeout=PATIENCE)


def test_whom_it_knows_it_answers_while_the_identity_service_hangs(
    identity: IdentityService, server: RunningServer
):
    assert ask(server, KNOWN).status_code == 200
    answers: list[requests.Response] = []
    with ThreadPoolExecutor(40) as callers:
        with identity.hanging():
            strangers = [callers.submit(ask, server, f"stranger-{number}") for number in range(40)]
            # All but a few get their answer although nobody knows yet who they are.
            deadline = time.monotonic() + PATIENCE
            while sum(one.done() for one in strangers) < 36 and time.monotonic() < deadline:
                assert ask(server, KNOWN).status_code == 200
            refused = [one.result() for one in strangers if one.done()]
            assert len(refused) == 36
            assert [ask(server, KNOWN).status_code for _ in range(20)] == [200] * 20
            # Who is not known yet is told at once, too.
            answers.append(ask(server, OTHER))
        late = [one.result() for one in strangers]
    for answer in (*refused, *answers):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        (error,) = answer.json()["errors"]
        assert "identity service" in error["detail"]
    assert sorted({answer.status_code for answer in late}) == [401, 503]
    assert ask(server, OTHER).status_code == 200


def test_a_token_is_asked_about_once(identity: IdentityService, server: RunningServer):
    assert ask(server, KNOWN).status_code == 200
    before = identity.asked.count(KNOWN)
    assert [ask(server, KNOWN).status_code for _ in range(5)] == [200] * 5
    assert identity.asked.count(KNOWN) == before


@pytest.fixture
def configuration() -> Iterator[cfg.ConfigOpts]:
    """For an identity service that takes connections and says nothing, not even to a login."""
    configuration = configured()
    silent = IdentityService({})
    silent.configure(configuration)
    yield configuration
    silent.close()


@pytest.mark.parametrize("is_down", [False, True])
def test_an_identity_service_that_is_down_or_silent_is_503(
    embedded_database: Database, configuration: cfg.ConfigOpts, is_down: bool
):
    if is_down:
        configuration.set_override("auth_url", "http://127.0.0.1:1/v3", group="keystone_authtoken")
    configuration.set_override("http_connect_timeout", 1, group="keystone_authtoken")
    settings = with_options(configuration, auth_strategy="keystone")
    with application_of(embedded_database, settings) as application:
        api = Client(application.test_client())
        answer = api.as_("stranger").get("/resource_providers")
        assert answer.status_code == 503
        assert "identity service" in detail(answer)
        assert answer.headers["Retry-After"] == "1"
        assert api.as_(None).get("/").status_code == 200


def test_waiting_for_an_answer_has_an_end(configuration: cfg.ConfigOpts):
    Keystone(configuration)
    assert configuration.keystone_authtoken.http_connect_timeout == 5
    assert configuration.keystone_authtoken.http_request_max_retries == 1


# -- the bound -------------------------------------------------------------------------------------------


@contextmanager
def occupied(room: WaitingRoom) -> Iterator[threading.Event]:
    """Somebody is in the room until the event is set, at the latest until the block ends."""
    entered, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with room.entered():
            entered.set()
            leave.wait(PATIENCE)

    first = threading.Thread(target=occupy)
    first.start()
    assert entered.wait(PATIENCE)
    yield leave
    leave.set()
    first.join(PATIENCE)


def test_a_room_that_moves_on_lets_others_wait():
    room = WaitingRoom(1)
    with occupied(room) as leave:
        threading.Timer(0.1, leave.set).start()
        with room.entered():
            assert leave.is_set()


def test_a_room_that_does_not_move_on_turns_away():
    room = WaitingRoom(1)
    with occupied(room):
        for _ in range(3):
            with pytest.raises(Full), room.entered():
                pass
    with room.entered():
        pass
