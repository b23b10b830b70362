"""What another writer commits between the decision about a claim and its write counts for the claim.

On PostgreSQL only, for SQLite lets one writer in at a time.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.allocations import claims
from placement.storage.database import Database
from tests.client import Client
from tests.patience import eventually

PATH = "/ext/v1/claims"
OWNER = {"project_id": "p", "user_id": "u"}

pytestmark = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)


def one(**more: Any) -> dict[str, Any]:
    asked = {"query": "resources=VCPU:1", "members": [{"count": 1}], "atomic": True}
    return {**OWNER, "consumer_type": "INSTANCE", **asked, **more}


def place(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    (provider,) = answer.json["members"][0]["allocations"]
    return str(provider)


def waiting(database: Database) -> int:
    """How many connections wait for a lock."""
    waits = sa.text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with database.read() as connection:
        found: int = connection.execute(waits).scalar_one()
    return found


def test_a_claim_that_counts_a_group_waits_for_those_that_join_it(
    api: Client, other: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The one that joins has no rules, and is written but not committed when the other is decided on."""
    first, second = (api.provider(name, VCPU=8) for name in ("first", "second"))
    counting = one(rules=[{"kind": "at_most", "groups": ["web"]}])
    found: list[str] = []
    beside = threading.Thread(target=lambda: found.append(place(other.post(PATH, counting))))
    real, once = claims.consumers.join, iter([beside])

    def join(*arguments: Any) -> None:
        real(*arguments)
        for each in once:
            each.start()
            eventually(True, lambda: bool(found) or waiting(database) > 0)

    monkeypatch.setattr(claims.consumers, "join", join)
    assert place(api.post(PATH, one(group="web"))) == first
    beside.join()
    assert found == [second]


def test_a_consumer_that_came_to_be_meanwhile_holds_nothing_but_the_later_claim(
    api: Client, other: Client, monkeypatch: pytest.MonkeyPatch
):
    """Both claim it without generations: one has looked, and found none, when the other commits."""
    first, second = (api.provider(name, VCPU=8) for name in ("first", "second"))
    consumer = str(uuid.uuid4())

    def put(caller: Client, host: str) -> None:
        body = {"allocations": {host: {"resources": {"VCPU": 1}}}, **OWNER}
        answer = caller.at("1.27").put(f"/allocations/{consumer}", body)
        assert answer.status_code == 204, answer.text

    real, once = claims.consumers.lock_generations, iter([second])

    def lock_generations(*arguments: Any) -> dict[str, int]:
        generations = real(*arguments)
        for host in once:
            put(other, host)
        return generations

    monkeypatch.setattr(claims.consumers, "lock_generations", lock_generations)
    put(api, first)
    assert next(once, None) is None
    assert api.used_by(consumer) == {first: {"VCPU": 1}}
    assert [api.used(host) for host in (first, second)] == [{"VCPU": 1}, {"VCPU": 0}]
