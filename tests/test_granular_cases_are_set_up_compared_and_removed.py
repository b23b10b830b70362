"""The granular runner builds each topology, compares whole sets of candidates, and leaves nothing behind.

Against a service in memory that answers with the naive enumerator, so that every fault can be arranged.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placement.engine.domain.inventories import Inventory
from tests.cases import granular
from tests.naive import Candidate, NaiveProvider, enumerate_candidates
from tests.querystring import parsed
from tests.service import Answer, Service, ServiceError

DOCUMENT = json.loads((Path(__file__).parent / "data" / "granular.json").read_text(encoding="utf-8"))


class MemoryService(Service):
    """Keeps providers as the set-up calls describe them; checks that usage fits, refuses busy deletes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.providers: dict[str, NaiveProvider] = {}
        self.known: set[str] = set()
        self.consumers: set[str] = set()
        self.foreign: list[NaiveProvider] = []
        self.broken: str | None = None

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        if self.broken and path.startswith(self.broken):
            return Answer(503, "out of\norder")
        kind, *rest = path.strip("/").split("/")
        return getattr(self, f"_{method.lower()}_{kind}")(*rest, body=body, **options)

    def _put_traits(self, name: str, **_: Any) -> Answer:
        self.known.add(name)
        return Answer(201, None)

    _put_resource_classes = _put_traits

    def _post_resource_providers(self, body: dict[str, Any], **_: Any) -> Answer:
        assert body["parent_provider_uuid"] is None or body["parent_provider_uuid"] in self.providers
        assert body["uuid"] not in self.providers
        self.providers[body["uuid"]] = NaiveProvider(body["uuid"], body["parent_provider_uuid"])
        return Answer(200, {"generation": 0})

    def _get_resource_providers(self, uuid: str, **_: Any) -> Answer:
        return Answer(200, {"uuid": uuid, "generation": 7})

    def _put_resource_providers(self, uuid: str, what: str, body: dict[str, Any], **_: Any) -> Answer:
        assert body["resource_provider_generation"] == 7
        assert all(name in self.known for name in body[what] if name.startswith("CUSTOM_"))
        if what == "inventories":
            records = {name: Inventory(**record) for name, record in body[what].items()}
            self.providers[uuid] = replace(self.providers[uuid], inventories=records)
        else:
            assert what == "traits"
            self.providers[uuid] = replace(self.providers[uuid], traits=frozenset(body[what]))
        return Answer(200, body)

    def _put_allocations(self, consumer: str, body: dict[str, Any], **_: Any) -> Answer:
        for uuid, held in body["allocations"].items():
            provider = self.providers[uuid]
            for name, amount in held["resources"].items():
                inventory = provider.inventories[name]
                assert inventory.capacity >= amount
                assert inventory.admits(amount)
            self.providers[uuid] = replace(provider, used=held["resources"])
        self.consumers.add(consumer)
        return Answer(204, None)

    def _delete_allocations(self, consumer: str, **_: Any) -> Answer:
        self.consumers.remove(consumer)
        self.providers = {uuid: replace(each, used={}) for uuid, each in self.providers.items()}
        return Answer(204, None)

    def _delete_resource_providers(self, uuid: str, **_: Any) -> Answer:
        busy = self.providers[uuid].used or uuid in {each.parent for each in self.providers.values()}
        if busy:
            return Answer(409, "in use")
        del self.providers[uuid]
        return Answer(204, None)

    def _get_allocation_candidates(self, query: list[tuple[str, str]], **_: Any) -> Answer:
        found = enumerate_candidates([*self.providers.values(), *self.foreign], parsed(query))
        return Answer(200, {"allocation_requests": [_element(candidate) for candidate in found]})


def _element(candidate: Candidate) -> dict[str, Any]:
    allocations: dict[str, dict[str, dict[str, int]]] = {}
    for provider, name, amount in candidate.allocations:
        allocations.setdefault(provider, {"resources": {}})["resources"][name] = amount
    return {
        "allocations": allocations,
        "mappings": {suffix: sorted(names) for suffix, names in candidate.mappings},
    }


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> MemoryService:
    """The service that the runner finds under any URL."""
    service = MemoryService("http://memory")
    monkeypatch.setattr(granular, "Service", lambda url: service)
    return service


@pytest.fixture
def document() -> dict[str, Any]:
    """The granular cases that are answered; refusing the others is the business of a real service."""
    document = deepcopy(DOCUMENT)
    document["cases"] = [case for case in document["cases"] if case["expect"]["status"] == 200]
    return document


def _run(document: dict[str, Any]) -> dict[str, str | None]:
    return dict(granular.run(document, "http://memory"))


def test_right_answers_pass_and_nothing_stays(service: MemoryService, document: dict[str, Any]) -> None:
    outcomes = _run(document)
    assert len(outcomes) == len(document["cases"])
    assert set(outcomes.values()) == {None}
    assert not service.providers
    assert not service.consumers


def test_other_data_of_the_service_does_no_harm(service: MemoryService, document: dict[str, Any]) -> None:
    service.foreign = [
        NaiveProvider("foreign", None, {"VCPU": Inventory(8), "SRIOV_NET_VF": Inventory(8)}),
        NaiveProvider("foreign-child", "foreign", {"SRIOV_NET_VF": Inventory(8)}),
    ]
    assert set(_run(document).values()) == {None}


def test_missing_and_unexpected_candidates_are_counted(
    service: MemoryService, document: dict[str, Any]
) -> None:
    case = next(case for case in document["cases"] if case["id"] == "uc4-isolate")
    case["expect"]["candidates"][0]["mappings"] = {"1": ["RP1"], "2": ["RP1"]}
    document["cases"] = [case]
    assert _run(document)["uc4-isolate"] == (
        "1 missing, such as RP1:SRIOV_NET_VF=1 RP3:SRIOV_NET_VF=1 ('1' on RP1, '2' on RP1); "
        "1 not expected, such as RP1:SRIOV_NET_VF=1 RP3:SRIOV_NET_VF=1 ('1' on RP1, '2' on RP3)"
    )


def test_a_candidate_listed_twice_is_one_too_many() -> None:
    case = next(case for case in DOCUMENT["cases"] if case["id"] == "uc2-none")
    uuids = granular.fresh_uuids(DOCUMENT["topologies"][case["topology"]])
    elements = [_element(candidate) for candidate in granular.expected_candidates(case["expect"], uuids)]
    once = Answer(200, {"allocation_requests": elements})
    twice = Answer(200, {"allocation_requests": [*elements, elements[0]]})
    assert granular.difference(case["expect"], once, uuids) is None
    reason = granular.difference(case["expect"], twice, uuids)
    assert reason is not None
    assert reason.startswith("0 missing; 1 not expected")


def test_distinct_allocations_are_compared() -> None:
    expect = {"status": 200, "candidates": [], "distinct_allocations": 1}
    answer = Answer(200, {"allocation_requests": []})
    assert granular.difference(expect, answer, {}) == "0 distinct allocations instead of 1"


def test_statuses_are_compared() -> None:
    assert granular.difference({"status": 400}, Answer(400, {}), {}) is None
    assert granular.difference({"status": 400}, Answer(200, {}), {}) == "status 200 instead of 400"


def test_a_topology_that_cannot_be_set_up_fails_its_cases_and_is_removed(
    service: MemoryService, document: dict[str, Any]
) -> None:
    service.broken = "/allocations"
    outcomes = _run(document)
    assert len(outcomes) == len(document["cases"])
    failed = {case["id"] for case in document["cases"] if case["topology"] == "wiring-saturated"}
    assert {case_id for case_id, reason in outcomes.items() if reason} == failed
    assert all("answered 503: out of order" in str(outcomes[case_id]) for case_id in failed)
    assert not service.providers


def test_a_case_on_an_unknown_topology_fails(service: MemoryService) -> None:
    case = {"id": "lost", "topology": "atlantis"}
    outcomes = list(granular.run({"topologies": {}, "cases": [case]}, "http://memory"))
    assert outcomes == [("lost", "no topology 'atlantis' in the file")]


def test_leftovers_are_no_secret(service: MemoryService, document: dict[str, Any]) -> None:
    document["topologies"] = {"two-hosts": document["topologies"]["two-hosts"]}
    document["cases"] = [case for case in document["cases"] if case["topology"] == "two-hosts"]
    outcomes = granular.run(document, "http://memory")
    assert [next(outcomes)[1] for _ in document["cases"]] == [None] * len(document["cases"])
    service.broken = "/resource_providers"
    with pytest.raises(ServiceError, match="DELETE"):
        next(outcomes)
