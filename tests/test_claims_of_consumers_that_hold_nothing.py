"""A consumer that exists without allocations, as older data may have it, can claim like a new one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail

CONSUMER = "00000000-0000-4000-8000-0000000000cc"


@pytest.fixture
def host(api: Client, database: Database) -> str:
    """A host, and the consumer at generation 7 that has nothing of it."""
    host = api.provider("host", VCPU=4)
    AttributeRegistry(database).register([("project", "project"), ("user", "user")])
    with database.write() as transaction:
        consumers.create(transaction, [ConsumerAttributes(CONSUMER, "project", "user", None)])
        transaction.execute(sa.update(tables.consumers).values(generation=7))
    return host


def claim(api: Client, **changed: str) -> Any:
    wanted = {"consumer_uuid": CONSUMER, "project_id": "project", "user_id": "user"}
    return api.post(
        "/ext/v1/claims", {**wanted, "consumer_type": "INSTANCE", "query": "resources=VCPU:1", **changed}
    )


def test_an_idle_consumer_gets_the_best_candidate(api, host):
    answer = claim(api)
    assert answer.status_code == 201, answer.text
    assert answer.json["consumer_generation"] == 8
    assert api.get(f"/allocations/{CONSUMER}").json == {
        "allocations": {host: {"generation": 2, "resources": {"VCPU": 1}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": 8,
        "consumer_type": "INSTANCE",
    }
    assert claim(api).status_code == 200


@pytest.mark.parametrize("label", ["project_id", "user_id"])
def test_an_idle_consumer_of_somebody_else_is_refused_at_once(api, host, label):
    answer = claim(api, **{label: str(uuid.uuid4())})
    assert answer.status_code == 409, answer.text
    assert "belongs to project project and user user" in detail(answer)
    assert api.get(f"/allocations/{CONSUMER}").json["allocations"] == {}
