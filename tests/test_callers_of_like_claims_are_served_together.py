"""Callers who claim the best of one query at the same time: each is answered as if it were alone.

No more is given than there is, each is recorded as who made its claim, and what cannot be given to all of
them at once each asks for by itself.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from werkzeug.test import TestResponse

from placement.domain.errors import CapacityExceeded, Unavailable
from placement.services.placement.claims import Claims
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.failures import OutcomeUnknown
from tests.client import Client, code
from tests.patience import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


class Callers:
    """Callers of the service in threads; the first is held up when it claims, so that the others gather."""

    def __init__(self, application: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
        self.application = application
        self.gathering = application.extensions["placement_use_cases"].best_fit._gathering
        monkeypatch.setattr(self.gathering, "_patience_seconds", PATIENCE_SECONDS)
        self.pool = ThreadPoolExecutor(16)
        self.is_there, self.may_go = threading.Event(), threading.Event()
        self.served: list[tuple[int, bool]] = []
        # What is done just before all those gathered are claimed for.
        self.meanwhile: Callable[[], None] = lambda: None
        self.afterwards: Callable[[], None] = lambda: None
        real_replace, real_together = Claims.replace, Claims.take_together

        def replace(claims: Claims, *given: Any, **more: Any) -> None:
            self.is_there.set()
            assert self.may_go.wait(PATIENCE_SECONDS)
            real_replace(claims, *given, **more)

        def take_together(claims: Claims, wanted: Sequence[Any], initiators: Sequence[Any]) -> bool:
            self.meanwhile()
            taken = real_together(claims, wanted, initiators)
            self.served.append((len(wanted), taken))
            self.afterwards()
            return taken

        monkeypatch.setattr(Claims, "replace", replace)
        monkeypatch.setattr(Claims, "take_together", take_together)

    def call(self, consumer: str, query: str = "resources=VCPU:1") -> Future[TestResponse]:
        body = {"consumer_uuid": consumer, **OWNER, "query": query}
        api = Client(self.application.test_client())
        tagged = {"X_OpenStack_Request_Id": f"req-{consumer}"}
        return self.pool.submit(lambda: api.post("/ext/v1/claims", body, **tagged))

    def all_at_once(self, *consumers: str, query: str = "resources=VCPU:1") -> list[TestResponse]:
        """The first is at work while the others come, one after another."""
        asked = [self.call(consumers[0], query)]
        assert self.is_there.wait(PATIENCE_SECONDS)
        for number, consumer in enumerate(consumers[1:], 1):
            asked.append(self.call(consumer, query))
            eventually(number, lambda: sum(map(len, self.gathering._waiting.values())))
        self.may_go.set()
        return [each.result(PATIENCE_SECONDS) for each in asked]


@pytest.fixture
def callers(application: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    made = Callers(application, monkeypatch)
    yield made
    made.may_go.set()
    made.pool.shutdown()


def names(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def statuses(answers: Sequence[TestResponse]) -> list[int]:
    return [answer.status_code for answer in answers]


def recorded(database: Database) -> dict[str, set[str]]:
    """Under which ids of callers the consumers were claimed."""
    records = tables.audit_records.c
    with database.read() as connection:
        rows = connection.execute(
            sa.select(records.consumer_id, records.global_request_id).where(records.kind == "allocations")
        )
        found: dict[str, set[str]] = {}
        for consumer, caller in rows:
            found.setdefault(consumer, set()).add(caller)
        return found


def test_all_that_there_is_is_given_in_one_statement_and_nothing_more(api, callers):
    small, large = api.provider("small", VCPU=2), api.provider("large", VCPU=4)
    everybody = names(8)
    answers = callers.all_at_once(*everybody)
    assert sorted(statuses(answers)) == [201] * 6 + [409] * 2
    assert callers.served == [(5, True)]
    assert (api.used(small), api.used(large)) == ({"VCPU": 2}, {"VCPU": 4})
    for consumer, answer in zip(everybody, answers, strict=True):
        if answer.status_code == 201:
            assert (answer.json["consumer_uuid"], answer.json["consumer_generation"]) == (consumer, 1)
            (host,) = answer.json["allocations"]
            assert api.used_by(consumer) == {host: {"VCPU": 1}}
            assert answer.json["mappings"] == {"": [host]}
        else:
            assert code(answer) == "no_candidate"
            assert api.used_by(consumer) == {}


def test_each_is_recorded_as_who_claimed(api, callers, database):
    api.provider("host", VCPU=8)
    everybody = names(4)
    assert statuses(callers.all_at_once(*everybody)) == [201] * 4
    assert callers.served == [(3, True)]
    assert recorded(database) == {consumer: {f"req-{consumer}"} for consumer in everybody}


def test_what_others_took_meanwhile_each_looks_for_by_itself(api, callers):
    hosts = [api.provider(name, VCPU=3) for name in ("first", "second")]
    callers.meanwhile = lambda: others_take(api, hosts[1], 2)
    answers = callers.all_at_once(*names(5))
    assert sorted(statuses(answers)) == [201] * 4 + [409]
    assert callers.served == [(4, False)]
    assert [api.used(host) for host in hosts] == [{"VCPU": 3}] * 2


def others_take(api: Client, host: str, amount: int) -> None:
    assert api.claim({host: {"VCPU": amount}}).status_code == 204


@pytest.mark.parametrize("meanwhile", [CapacityExceeded("gone"), Unavailable("no connection")])
def test_a_failure_of_the_common_claim_is_nobodys(api, callers, meanwhile):
    host = api.provider("host", VCPU=8)
    callers.meanwhile = raising(meanwhile)
    assert statuses(callers.all_at_once(*names(4))) == [201] * 4
    assert callers.served == []
    assert api.used(host) == {"VCPU": 4}


def test_where_the_outcome_is_unknown_each_finds_what_was_written(api, callers):
    host = api.provider("host", VCPU=8)
    callers.afterwards = raising(OutcomeUnknown("lost while committing"))
    assert statuses(callers.all_at_once(*names(4))) == [201, 200, 200, 200]
    assert callers.served == [(3, True)]
    assert api.used(host) == {"VCPU": 4}


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_consumer_that_is_there_already_keeps_what_it_holds(api, callers):
    """Also one that asks twice at the same time."""
    host = api.provider("host", VCPU=8)
    first, there, twin = names(3)
    callers.may_go.set()
    assert callers.call(there).result(PATIENCE_SECONDS).status_code == 201
    callers.may_go.clear()
    callers.is_there.clear()
    answers = callers.all_at_once(first, there, twin, twin)
    assert sorted(statuses(answers)) == [200, 200, 201, 201]
    assert statuses(answers)[:2] == [201, 200]
    assert answers[2].json == answers[3].json
    assert callers.served == [(3, False)]
    assert api.used(host) == {"VCPU": 3}


def test_who_asks_for_something_else_waits_for_nobody(api, callers):
    api.provider("host", VCPU=8, MEMORY_MB=8)
    first = callers.call(names(1)[0])
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.is_there.clear()
    other = callers.call(names(1)[0], "resources=MEMORY_MB:1")
    # It has come as far as to its claim, too.
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.may_go.set()
    assert statuses([each.result(PATIENCE_SECONDS) for each in (first, other)]) == [201, 201]
    assert callers.served == []
