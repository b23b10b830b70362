"""A request is given up or refused before its work grows beyond what its size and its time allow."""

from __future__ import annotations

import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from placement.engine.domain import request_scope
from placement.engine.search import budget
from placement.engine.search.assignment import Assignment
from placement.engine.search.budget import Budget
from placement.engine.search.problem import Problem
from placement.flavors import claim_bodies
from placement.planning import capacity
from placement.planning.pod_capacity import PodCapacity
from placement.planning.query_capacity import QueryCapacity
from placement.providers.statements import names
from placement.storage.database import Database
from tests.client import Client, code, detail
from tests.kubernetes import cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

CAPACITY = "/ext/v1/capacity"
CANDIDATES = "/ext/v1/allocation_candidates"
ONE = {"query": {"groups": {"": {"resources": {"VCPU": 1}}}}}
COMMON = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "query": "resources=VCPU:1"}


def test_members_are_counted_before_any_is_made(api: Client, monkeypatch: pytest.MonkeyPatch):
    def made() -> None:
        raise AssertionError("a consumer was made")

    monkeypatch.setattr(claim_bodies, "uuid4", made)
    # Some hundred thousand bytes that stand for a hundred million consumers.
    answer = api.post("/ext/v1/claims", {**COMMON, "members": [{"count": 10_000}] * 10_000})
    assert answer.status_code == 400
    assert "members: 100000000 consumers are more than 10000" in detail(answer)


def test_members_of_all_kinds_are_counted(api: Client):
    uuids = [f"{number:08}-0000-0000-0000-000000000000" for number in range(3)]
    listed = [{"consumer_uuids": uuids[1:]}, {"consumer_uuid": uuids[0]}]
    dry = {**COMMON, "dry_run": True}
    answer = api.post("/ext/v1/claims", {**dry, "members": [*listed, {"count": 9_998}]})
    assert answer.status_code == 400
    assert "members: 10001 consumers are more than 10000" in detail(answer)
    assert api.post("/ext/v1/claims", {**dry, "members": [*listed, {"count": 9_997}]}).status_code == 200


def groups(count: int) -> dict[str, Any]:
    return {f"_{number}": {"resources": {"VCPU": 1}} for number in range(count)}


def test_a_query_has_a_bounded_number_of_groups(api: Client):
    api.provider("a", VCPU=8)
    many = {"group_policy": "none", "groups": groups(5_001)}
    specs = {f"resources{number}:VCPU": "1" for number in range(5_001)} | {"group_policy": "none"}
    flavor = {"vcpus": 1, "memory_mb": 1, "extra_specs": specs}
    asked = (
        (CANDIDATES, many),
        (CAPACITY, {"kinds": {"it": {"query": many}}}),
        ("/ext/v1/flavors/candidates", {"flavor": flavor}),
    )
    for path, body in asked:
        answer = api.post(path, body)
        assert answer.status_code == 400
        assert "groups are more than 5000, too many for a query" in detail(answer)


def test_like_groups_take_memory_in_proportion_to_their_number():
    def taken(count: int) -> int:
        problem = Problem((1,) * count, (tuple(range(count)),))
        tracemalloc.start()
        kept = Assignment(problem, Budget())
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept.order) == count
        return size

    assert taken(2_000) < 3 * taken(1_000)


def test_all_kinds_of_a_question_share_the_time_of_one_search(api: Client, monkeypatch: pytest.MonkeyPatch):
    api.provider("a", VCPU=8)
    passed = [0.0]

    class Slow(QueryCapacity):
        def __init__(self, *given: Any) -> None:
            passed[0] += 3.0
            super().__init__(*given)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    monkeypatch.setattr(budget, "time", clock)
    monkeypatch.setattr(capacity, "QueryCapacity", Slow)
    assert api.post(CAPACITY, {"kinds": {"first": ONE}}).status_code == 200
    answer = api.post(CAPACITY, {"kinds": {"first": ONE, "second": ONE}})
    assert (answer.status_code, code(answer)) == (503, "placement.search_timeout")
    assert "kinds['second']: counting took longer than 5 s" in detail(answer)


def test_no_pod_is_counted_once_the_time_of_the_request_is_up(api: Client, monkeypatch: pytest.MonkeyPatch):
    cluster_of(api, "n1")
    counted = []

    class Slow(PodCapacity):
        def __init__(self, *given: Any) -> None:
            counted.append(1)
            super().__init__(*given)
            request_scope.set_deadline(time.monotonic())

    monkeypatch.setattr(capacity, "PodCapacity", Slow)
    kinds = {name: {"pod": pod_manifest()} for name in ("first", "second", "third")}
    answer = api.post(CAPACITY, {"cluster": "edge", "kinds": kinds})
    assert (answer.status_code, len(counted)) == (503, 1)
    assert "The time of the request was up" in detail(answer)


def test_a_query_may_name_more_than_a_statement_takes(database: Database):
    # A statement takes 250,000 parameters.
    unknown = [f"00000000-0000-4000-8000-{number:012x}" for number in range(251_000)]
    with database.read() as connection:
        assert names.aggregate_ids(connection, unknown) == {}
