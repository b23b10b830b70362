"""Lists of allocations and providers: filters, pages that lose nothing, a constant number of statements."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from placement.common.clock import utcnow
from placement.storage.database import Database
from tests.client import Client, detail

ALLOCATIONS = "/ext/v1/allocations"
PROVIDERS = "/ext/v1/resource_providers"


def consumer_uuid(number: int) -> str:
    return str(uuid.UUID(int=number))


def paged(api: Client, path: str, key: str, limit: int) -> Iterator[dict]:
    """All members of all pages; other things may happen between two pages."""
    after = ""
    while True:
        answer = api.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{after}")
        assert answer.status_code == 200, answer.text
        assert len(answer.json[key]) <= limit
        yield from answer.json[key]
        if answer.json["next"] is None:
            return
        after = f"&after={answer.json['next']}"


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements that are executed inside the block."""
    statements: list[str] = []

    def note(_connection, _cursor, statement, *_):
        statements.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    yield statements
    sa.event.remove(database.engine, "before_cursor_execute", note)


@pytest.fixture
def hosts(api: Client) -> list[str]:
    """Three hosts; consumer 1 holds something of the first two, 2 to 5 of one each."""
    made = [api.provider(f"host-{number}", VCPU=8, MEMORY_MB=100) for number in range(3)]
    claims = [
        ({made[0]: {"VCPU": 1}, made[1]: {"VCPU": 2, "MEMORY_MB": 5}}, {"project_id": "red"}),
        ({made[0]: {"VCPU": 1}}, {"project_id": "red", "user_id": "eve"}),
        ({made[1]: {"VCPU": 1}}, {"project_id": "blue", "consumer_type": "MIGRATION"}),
        ({made[1]: {"VCPU": 1}}, {"project_id": "blue"}),
        ({made[2]: {"VCPU": 1}}, {"project_id": "blue"}),
    ]
    for number, (resources, labels) in enumerate(claims, start=1):
        assert api.claim(resources, consumer_uuid(number), **labels).status_code == 204
    return made


def consumers(found: list[dict]) -> list[int]:
    return [uuid.UUID(entry["consumer_uuid"]).int for entry in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("project_id=red", [1, 2]),
        ("project_id=red&user_id=eve", [2]),
        ("user_id=user", [1, 3, 4, 5]),
        ("consumer_type=MIGRATION", [3]),
        ("consumer_type=unknown", []),
        ("resource_provider={1}", [1, 3, 4]),
        (f"consumer_uuid={consumer_uuid(2)}", [2]),
        ("project_id=nobody", []),
    ],
)
def test_filters(api, hosts, query, expected):
    found = api.get(f"{ALLOCATIONS}?{query.format(*hosts)}").json
    assert (consumers(found["consumers"]), found["next"]) == (expected, None)


def test_a_consumer_is_shown_with_what_it_holds(api, hosts):
    first = api.get(f"{ALLOCATIONS}?limit=1").json
    times = {name: first["consumers"][0][name] for name in ("created_at", "changed_at")}
    ages = [utcnow() - datetime.fromisoformat(each.removesuffix("Z")) for each in times.values()]
    assert all(abs(age) < timedelta(days=1) for age in ages)
    assert first == {
        "consumers": [
            {
                "consumer_uuid": consumer_uuid(1),
                "consumer_generation": 1,
                "consumer_type": "INSTANCE",
                "project_id": "red",
                "user_id": "user",
                **times,
                "allocations": {
                    hosts[0]: {"name": "host-0", "cluster": None, "resources": {"VCPU": 1}},
                    hosts[1]: {"name": "host-1", "cluster": None, "resources": {"VCPU": 2, "MEMORY_MB": 5}},
                },
            }
        ],
        "next": consumer_uuid(1),
    }
    on_one = api.get(f"{ALLOCATIONS}?resource_provider={hosts[0]}").json["consumers"][0]
    assert list(on_one["allocations"]) == [hosts[0]]


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_pages_hold_every_consumer_once(api, hosts, limit):
    assert consumers(list(paged(api, ALLOCATIONS, "consumers", limit))) == [1, 2, 3, 4, 5]


def test_a_replaced_allocation_is_neither_lost_nor_doubled(api, hosts):
    """Between any two pages every consumer is replaced and another one comes and goes."""
    seen = []
    for turn, entry in enumerate(paged(api, ALLOCATIONS, "consumers", 1), start=1):
        seen.append(entry)
        for number in range(1, 6):
            resources = {hosts[number % 3]: {"VCPU": 1}}
            assert api.claim(resources, consumer_uuid(number), turn).status_code == 204
        passing = consumer_uuid(10 + turn)
        assert api.claim({hosts[0]: {"VCPU": 1}}, passing).status_code == 204
        assert api.delete(f"/allocations/{passing}").status_code == 204
    assert consumers(seen) == [1, 2, 3, 4, 5]


def test_by_cluster(api, hosts):
    assert api.put("/ext/v1/clusters/east").status_code == 201
    assert api.get(f"{ALLOCATIONS}?cluster=east").json == {"consumers": [], "next": None}
    assert api.get(f"{PROVIDERS}?cluster=east").json == {"resource_providers": [], "next": None}
    for path in (ALLOCATIONS, PROVIDERS):
        refused = api.get(f"{path}?cluster=west")
        said = "cluster: No cluster west found; did you mean east?"
        assert (refused.status_code, detail(refused)) == (400, said)


def test_providers_with_everything_that_hangs_on_them(api, hosts):
    api.carry(hosts[0], "CUSTOM_SSD", "CUSTOM_RED")
    aggregate = "aaaaaaaa-0000-0000-0000-000000000001"
    api.join(hosts[0], aggregate)
    child = api.provider("port", hosts[0])
    found = list(
        paged(api, f"{PROVIDERS}?include=inventories,usages,traits,aggregates", "resource_providers", limit=3)
    )
    assert [entry["uuid"] for entry in found] == [*hosts, child]
    first = found[0]
    assert first["inventories"]["VCPU"]["total"] == 8
    assert first["usages"] == {"VCPU": 2, "MEMORY_MB": 0}
    assert (first["traits"], first["aggregates"]) == (["CUSTOM_RED", "CUSTOM_SSD"], [aggregate])
    assert found[3] == {
        "uuid": child,
        "name": "port",
        "generation": 0,
        "parent_provider_uuid": hosts[0],
        "root_provider_uuid": hosts[0],
        "cluster": None,
        "inventories": {},
        "usages": {},
        "traits": [],
        "aggregates": [],
    }
    assert "traits" not in api.get(f"{PROVIDERS}?include=usages").json["resource_providers"][0]


def test_the_number_of_statements_does_not_depend_on_the_number_of_rows(api, hosts, database):
    with counted(database) as few:
        api.get(f"{PROVIDERS}?include=inventories,usages,traits,aggregates&limit=1")
    with counted(database) as many:
        api.get(f"{PROVIDERS}?include=inventories,usages,traits,aggregates")
    assert len(few) == len(many) <= 5
    with counted(database) as listing:
        api.get(ALLOCATIONS)
    assert len(listing) <= 2
