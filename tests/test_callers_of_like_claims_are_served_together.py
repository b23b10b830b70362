"""Callers who claim the best of one query at the same time: each is answered as if it were alone.

No more is given than there is, each is recorded as who made its claim, and what cannot be given to all of
them at once each asks for by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement.allocations.best_fit import BestFit
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims
from placement.engine.domain.errors import CapacityExceeded, SearchTimeout, Unavailable
from placement.http.registry import registry_of
from placement.metrics.catalog import CLAIMS
from placement.storage.failures import OutcomeUnknown
from tests.client import Client, code
from tests.crowds import Crowd, names, raising, recorded, statuses
from tests.patience import PATIENCE_SECONDS

OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


class Callers(Crowd):
    """Callers who claim the best of a query."""

    def __init__(self, application: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(registry_of(application)[BestFit]._coalescer, monkeypatch)
        self.application = application
        self.served: list[tuple[int, bool]] = []
        # What happens just before those gathered are claimed for, and after it.
        self.meanwhile: Callable[[], None] = lambda: None
        self.afterwards: Callable[[], None] = lambda: None
        real_put, real_put_new = Claims.put, Claims.put_new

        def put(claims: Claims, *given: Any, **more: Any) -> None:
            self.work()
            real_put(claims, *given, **more)

        def put_new(claims: Claims, wanted: Sequence[Any], initiators: Sequence[Any]) -> bool:
            self.meanwhile()
            taken = real_put_new(claims, wanted, initiators)
            self.served.append((len(wanted), taken))
            self.afterwards()
            return taken

        monkeypatch.setattr(Claims, "put", put)
        monkeypatch.setattr(Claims, "put_new", put_new)

    def claim(self, consumer: str, query: str = "resources=VCPU:1", **owner: str) -> TestResponse:
        body = {"consumer_uuid": consumer, **OWNER, "query": query, **owner}
        api = Client(self.application.test_client())
        return api.post("/ext/v1/claims", body, X_OpenStack_Request_Id=f"req-{consumer}")

    def claim_at_once(self, *consumers: str) -> list[TestResponse]:
        return self.all_at_once([partial(self.claim, consumer) for consumer in consumers])


@pytest.fixture
def callers(application: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    made = Callers(application, monkeypatch)
    yield made
    made.end()


def test_all_that_there_is_is_given_in_one_statement_and_nothing_more(api, callers):
    small, large = api.provider("small", VCPU=2), api.provider("large", VCPU=4)
    everybody = names(8)
    answers = callers.claim_at_once(*everybody)
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
    assert statuses(callers.claim_at_once(*everybody)) == [201] * 4
    assert callers.served == [(3, True)]
    assert recorded(database) == {consumer: {f"req-{consumer}"} for consumer in everybody}


def others_take(api: Client, host: str, amount: int) -> None:
    assert api.claim({host: {"VCPU": amount}}).status_code == 204


def test_what_others_took_meanwhile_each_looks_for_by_itself(api, callers):
    hosts = [api.provider(name, VCPU=3) for name in ("first", "second")]
    callers.meanwhile = lambda: others_take(api, hosts[1], 2)
    answers = callers.claim_at_once(*names(5))
    assert sorted(statuses(answers)) == [201] * 4 + [409]
    assert callers.served == [(4, False)]
    assert [api.used(host) for host in hosts] == [{"VCPU": 3}] * 2


@pytest.mark.parametrize("meanwhile", [CapacityExceeded("gone"), Unavailable("no connection")])
def test_a_failure_of_the_common_claim_is_nobodys(api, callers, meanwhile):
    host = api.provider("host", VCPU=8)
    callers.meanwhile = raising(meanwhile)
    assert statuses(callers.claim_at_once(*names(4))) == [201] * 4
    assert callers.served == []
    assert api.used(host) == {"VCPU": 4}


def test_where_the_outcome_is_unknown_each_finds_what_was_written(api, callers):
    host = api.provider("host", VCPU=8)
    callers.afterwards = raising(OutcomeUnknown("lost while committing"))
    assert statuses(callers.claim_at_once(*names(4))) == [201, 200, 200, 200]
    assert callers.served == [(3, True)]
    assert api.used(host) == {"VCPU": 4}


def test_a_consumer_that_is_there_already_keeps_what_it_holds(api, callers):
    """Also one that asks twice at the same time."""
    host = api.provider("host", VCPU=8)
    first, there, twin = names(3)
    callers.may_go.set()
    assert callers.claim(there).status_code == 201
    callers.may_go.clear()
    callers.is_there.clear()
    answers = callers.claim_at_once(first, there, twin, twin)
    assert sorted(statuses(answers)) == [200, 200, 201, 201]
    assert statuses(answers)[:2] == [201, 200]
    assert answers[2].json == answers[3].json
    assert callers.served == [(3, False)]
    assert api.used(host) == {"VCPU": 3}


def test_who_they_claim_for_stays_theirs(api, callers):
    api.provider("host", VCPU=8)
    owners = {
        name: {"project_id": f"project-{at}", "user_id": f"user-{at}", "consumer_type": f"TYPE_{at}"}
        for at, name in enumerate(names(4))
    }
    answers = callers.all_at_once([partial(callers.claim, name, **owners[name]) for name in owners])
    assert statuses(answers) == [201] * 4
    assert callers.served == [(3, True)]
    for (name, owner), answer in zip(owners.items(), answers, strict=True):
        assert {each: answer.json[each] for each in owner} == owner
        stored = api.get(f"/allocations/{name}").json
        assert {each: stored[each] for each in owner} == owner


def test_each_counts_as_one_that_won(api, callers):
    api.provider("host", VCPU=8)
    before = won()
    callers.claim_at_once(*names(4))
    assert callers.served == [(3, True)]
    assert won() - before == 4


def won() -> float:
    return CLAIMS.labels("consumer", "won")._value.get()


def test_where_nothing_fits_one_search_tells_all(api, callers, monkeypatch):
    host = api.provider("host", VCPU=1)
    searches = counted_searches(monkeypatch)
    answers = callers.claim_at_once(*names(6))
    assert statuses(answers) == [201] + [409] * 5
    assert {code(answer) for answer in answers[1:]} == {"no_candidate"}
    assert len(searches) == 2
    assert api.used(host) == {"VCPU": 1}


def test_a_search_that_takes_too_long_is_not_repeated_for_each_who_waits(api, callers, monkeypatch):
    api.provider("host", VCPU=8)
    searches = counted_searches(monkeypatch, failing_after=1)
    assert statuses(callers.claim_at_once(*names(5))) == [201] + [503] * 4
    # The first, one for all, and each by itself.
    assert len(searches) == 1 + 1 + 4


def counted_searches(monkeypatch: pytest.MonkeyPatch, failing_after: int | None = None) -> list[None]:
    """The searches from now on; those after so many take too long."""
    searches: list[None] = []
    real = CandidateSearch.find_in

    def find_in(candidates: CandidateSearch, *given: Any) -> Any:
        searches.append(None)
        if failing_after is not None and len(searches) > failing_after:
            raise SearchTimeout("too long")
        return real(candidates, *given)

    monkeypatch.setattr(CandidateSearch, "find_in", find_in)
    return searches


@pytest.mark.parametrize(
    "query", ["resources=MEMORY_MB:1", "resources=VCPU:1&order_by=spread", "resources=VCPU:2"]
)
def test_who_asks_for_something_else_waits_for_nobody(api, callers, query):
    api.provider("host", VCPU=8, MEMORY_MB=8)
    first = callers.pool.submit(callers.claim, names(1)[0])
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.is_there.clear()
    other = callers.pool.submit(callers.claim, names(1)[0], query)
    # It has come as far as to its claim, too.
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.may_go.set()
    assert statuses([each.result(PATIENCE_SECONDS) for each in (first, other)]) == [201, 201]
    assert callers.served == []


def test_the_order_of_what_is_asked_for_is_that_of_the_answer(api, callers):
    api.provider("host", VCPU=8, MEMORY_MB=8)
    first = callers.pool.submit(callers.claim, names(1)[0], "resources=VCPU:1,MEMORY_MB:1")
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.is_there.clear()
    other = callers.pool.submit(callers.claim, names(1)[0], "resources=MEMORY_MB:1,VCPU:1")
    assert callers.is_there.wait(PATIENCE_SECONDS)
    callers.may_go.set()
    assert classes(first) == ["VCPU", "MEMORY_MB"]
    assert classes(other) == ["MEMORY_MB", "VCPU"]


def classes(asked: Future[TestResponse]) -> list[str]:
    (held,) = asked.result(PATIENCE_SECONDS).json["allocations"].values()
    return list(held["resources"])
