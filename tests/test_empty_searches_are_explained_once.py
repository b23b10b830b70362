"""A search that finds nothing is explained once for its log line, until the forest or the query changes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from unittest import mock

import pytest

from placement.allocations import candidates
from tests.client import Client

pytestmark = pytest.mark.one_database


@pytest.fixture
def explained() -> Iterator[mock.Mock]:
    """How often an explanation was made."""
    with mock.patch.object(candidates, "explain", side_effect=candidates.explain) as made:
        yield made


def search(api: Client, query: str, path: str = "/allocation_candidates") -> None:
    assert api.get(f"{path}?{query}").status_code == 200


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == candidates.__name__]


def test_equal_searches_are_explained_once(
    api: Client, explained: mock.Mock, caplog: pytest.LogCaptureFixture
):
    host = api.provider("host", VCPU=4)
    with caplog.at_level("INFO", logger=candidates.__name__):
        for _ in range(3):
            search(api, "resources=VCPU:8")
    assert explained.call_count == 1
    assert (
        lines_of(caplog)
        == [f"no candidates: 8 VCPU free: 0 of 1 hosts; {host} lacks 4 VCPU: it has 4 free"] * 3
    )


def test_a_change_of_the_forest_is_explained(
    api: Client, explained: mock.Mock, caplog: pytest.LogCaptureFixture
):
    host = api.provider("host", VCPU=4)
    with caplog.at_level("INFO", logger=candidates.__name__):
        search(api, "resources=VCPU:8")
        assert api.claim({host: {"VCPU": 1}}).status_code == 204
        search(api, "resources=VCPU:8")
    assert explained.call_count == 2
    assert lines_of(caplog)[1].endswith("lacks 5 VCPU: it has 3 free")


def test_other_searches_are_explained_by_themselves(
    api: Client, explained: mock.Mock, caplog: pytest.LogCaptureFixture
):
    api.provider("host", VCPU=4)
    for cluster in ("east", "west"):
        assert api.put(f"/ext/v1/clusters/{cluster}", {}).status_code == 201
    with caplog.at_level("INFO", logger=candidates.__name__):
        for cluster in ("east", "west", "east"):
            search(api, f"resources=VCPU:1&cluster={cluster}", "/ext/v1/allocation_candidates")
        search(api, "resources=VCPU:9")
    assert ["in cluster east" in line for line in lines_of(caplog)] == [True, False, True, False]
    assert explained.call_count == 3


def test_aggregates_without_providers_keep_their_names(
    api: Client, explained: mock.Mock, caplog: pytest.LogCaptureFixture
):
    api.provider("host", VCPU=4)
    uuids = [str(uuid.uuid4()) for _ in range(2)]
    with caplog.at_level("INFO", logger=candidates.__name__):
        for asked in (*uuids, uuids[0]):
            search(api, f"resources=VCPU:1&member_of={asked}")
    first, second, again = lines_of(caplog)
    assert (uuids[0] in first, uuids[1] in second, again == first) == (True, True, True)
    assert explained.call_count == 2


def test_an_explanation_that_is_asked_for_is_made(api: Client, explained: mock.Mock):
    api.provider("host", VCPU=4)
    search(api, "resources=VCPU:8", "/ext/v1/allocation_candidates")
    for _ in range(2):
        answer = api.get("/ext/v1/allocation_candidates?resources=VCPU:8&explain=1").json
        assert answer["explanation"]["nearest"][0]["missing"] == 4
    assert explained.call_count == 3


def test_kept_explanations_are_bounded(api: Client, explained: mock.Mock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(candidates, "_MOST_EMPTY", 2)
    api.provider("host", VCPU=4)
    for amount in (8, 9, 10, 8, 8):
        search(api, f"resources=VCPU:{amount}")
    assert explained.call_count == 4
    monkeypatch.setattr(candidates, "_MOST_KEPT_CONDITIONS", 0)
    search(api, "resources=VCPU:8")
    assert explained.call_count == 5
