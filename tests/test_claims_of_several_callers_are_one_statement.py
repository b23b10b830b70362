"""Claims of new consumers that come at the same time are one statement; each is answered for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from werkzeug.test import TestResponse

from placement.allocations.claims import Claims
from placement.allocations.new_claims import NewClaimWriter
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.http.registry import registry_of
from placement.storage import tables
from placement.storage.failures import OutcomeUnknown
from tests.client import Client
from tests.crowds import Crowd, names, raising, recorded, statuses


class Callers(Crowd):
    """Callers who claim providers that they name."""

    def __init__(self, application: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(registry_of(application)[Claims]._new_claims._coalescer, monkeypatch)
        self.application = application
        # How many claims each statement had that several callers share, and whether it took place.
        self.written: list[tuple[int, bool]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.afterwards: Callable[[], None] = lambda: None
        real = NewClaimWriter.write

        def write(writer: NewClaimWriter, wanted: Sequence[Any], *others: Any, **options: Any) -> bool:
            if len(wanted) == 1:
                self.work()
                return real(writer, wanted, *others, **options)
            self.meanwhile()
            taken = real(writer, wanted, *others, **options)
            self.written.append((len(wanted), taken))
            self.afterwards()
            return taken

        monkeypatch.setattr(NewClaimWriter, "write", write)

    def claim(self, consumer: str, resources: Mapping[str, dict[str, int]]) -> TestResponse:
        api = Client(self.application.test_client(), headers=(("X-OpenStack-Request-Id", f"req-{consumer}"),))
        return api.claim({**resources}, consumer)

    def claim_at_once(self, wanted: Sequence[tuple[str, Mapping[str, dict[str, int]]]]) -> list[TestResponse]:
        return self.all_at_once([partial(self.claim, *each) for each in wanted])


@pytest.fixture
def callers(application: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callers]:
    made = Callers(application, monkeypatch)
    yield made
    made.end()


def one_of_each(hosts: Sequence[str], count: int) -> list[tuple[str, dict[str, dict[str, int]]]]:
    """Claims of one VCPU of each host in turn."""
    return [(name, {hosts[at % len(hosts)]: {"VCPU": 1}}) for at, name in enumerate(names(count))]


def test_all_are_written_at_once_and_each_is_recorded_as_who_claimed(api, callers, database):
    hosts = [api.provider(name, VCPU=8) for name in ("first", "second")]
    wanted = one_of_each(hosts, 5)
    assert statuses(callers.claim_at_once(wanted)) == [204] * 5
    assert callers.written == [(4, True)]
    assert [api.used(host) for host in hosts] == [{"VCPU": 3}, {"VCPU": 2}]
    assert recorded(database) == {consumer: {f"req-{consumer}"} for consumer, _ in wanted}
    for consumer, resources in wanted:
        assert api.used_by(consumer) == resources


def test_what_does_not_fit_is_refused_to_who_asked_for_it(api, callers):
    large, small = api.provider("large", VCPU=8), api.provider("small", VCPU=1)
    wanted = [*one_of_each([large], 3), *one_of_each([small], 2)]
    answers = callers.claim_at_once(wanted)
    assert statuses(answers)[:3] == [204] * 3
    assert sorted(statuses(answers)[3:]) == [204, 409]
    assert callers.written == [(4, False)]
    assert (api.used(large), api.used(small)) == ({"VCPU": 3}, {"VCPU": 1})


def test_what_others_took_meanwhile_is_given_to_nobody(api, callers):
    host = api.provider("host", VCPU=4)
    (other,) = names(1)
    callers.may_go.set()
    assert api.claim({host: {"VCPU": 1}}, other).status_code == 204
    callers.may_go.clear()
    callers.is_there.clear()
    # A consumer that holds something already waits for nobody.
    callers.meanwhile = lambda: answers.append(api.claim({host: {"VCPU": 2}}, other, generation=1))
    answers = []
    assert sorted(statuses(callers.claim_at_once(one_of_each([host], 4)))) == [204, 204, 409, 409]
    assert statuses(answers) == [204]
    assert callers.written == [(3, False)]
    assert api.used(host) == {"VCPU": 4}


def test_one_that_names_nothing_that_exists_spoils_it_for_nobody(api, callers):
    host = api.provider("host", VCPU=4)
    unknown = (names(1)[0], {names(1)[0]: {"VCPU": 1}})
    answers = callers.claim_at_once([*one_of_each([host], 2), unknown])
    assert statuses(answers) == [204, 204, 400]
    assert callers.written == [(2, False)]


def test_an_unknown_outcome_is_told_to_all_whom_it_concerns(api, callers):
    host = api.provider("host", VCPU=8)
    callers.afterwards = raising(OutcomeUnknown("lost while committing"))
    wanted = one_of_each([host], 4)
    answers = callers.claim_at_once(wanted)
    assert statuses(answers) == [204, 503, 503, 503]
    assert ["lost while committing" in answer.text for answer in answers[1:]] == [True] * 3
    assert api.used(host) == {"VCPU": 4}


def test_claims_are_sent_one_by_one_where_the_common_statement_fails(api, callers):
    host = api.provider("host", VCPU=8)
    callers.meanwhile = raising(Unavailable("no connection"))
    assert statuses(callers.claim_at_once(one_of_each([host], 4))) == [204] * 4
    assert api.used(host) == {"VCPU": 4}


_ENDED_IF_MANY = """
CREATE FUNCTION end_many() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM fresh) > 1 THEN
        RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER end_many AFTER INSERT ON consumers REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION end_many();
"""


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_slow_common_statement_refuses_no_claim(api, callers, database):
    """The server ends the statement of many as it ends one that takes longer than its second."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql(_ENDED_IF_MANY)
    host = api.provider("host", VCPU=8)
    assert statuses(callers.claim_at_once(one_of_each([host], 4))) == [204] * 4
    assert callers.written == []
    assert api.used(host) == {"VCPU": 4}


def test_each_claim_raises_the_generation_of_its_providers(api, callers):
    hosts = [api.provider(name, VCPU=8) for name in ("first", "second")]
    before = [generation(api, host) for host in hosts]
    assert statuses(callers.claim_at_once(one_of_each(hosts, 5))) == [204] * 5
    assert callers.written == [(4, True)]
    assert [generation(api, host) for host in hosts] == [before[0] + 3, before[1] + 2]


def test_claims_are_written_in_order_of_arrival(api, callers, database):
    host = api.provider("host", VCPU=8)
    wanted = one_of_each([host], 8)
    assert statuses(callers.claim_at_once(wanted)) == [204] * 8
    assert callers.written == [(7, True)]
    records = tables.audit_records.c
    in_order = sa.select(records.target).where(records.kind == "allocations").order_by(records.id)
    with database.read() as connection:
        assert list(connection.execute(in_order).scalars()) == [name for name, _ in wanted]


def test_a_caller_with_little_time_waits_for_no_other(application, api, monkeypatch):
    """Who works for many has a second, however little the others have."""
    writer = registry_of(application)[Claims]._new_claims
    monkeypatch.setattr(writer._coalescer, "ask", raising(Unavailable("it waits")))
    host = api.provider("host", VCPU=8)
    remaining = request_scope.remaining
    monkeypatch.setattr(request_scope, "remaining", lambda at_most=2.0: min(1.0, remaining(at_most)))
    assert api.claim({host: {"VCPU": 1}}).status_code == 204


def generation(api: Client, provider: str) -> int:
    return api.get(f"/resource_providers/{provider}").json["generation"]
