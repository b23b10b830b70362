"""Random amounts are split, claimed until nothing is left, and no provider ever gives more than it has."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings

from placement.engine.domain.groups import CandidateQuery
from tests.installation import ensure_custom_names, installed
from tests.naive import Amount, NaiveProvider, enumerate_splits, has_room
from tests.querystring import as_json, rendered
from tests.server import RunningServer
from tests.service import Answer, Service
from tests.strategies import RESOURCE_CLASSES, TRAITS, Inventory, Search, split_searches

SEARCH = "/ext/v1/allocation_candidates"
MOST_CLAIMS = 8

Used = Counter[tuple[str, str]]


@settings(max_examples=15)
@given(split_searches())
def test_claims_take_what_there_is_and_no_more(served: RunningServer, given_search: Search) -> None:
    """By query string and as JSON the same is found, and something whenever there is any way."""
    providers, query = given_search
    service = Service(served.url)
    everything = {name: Inventory(total=1) for name in RESOURCE_CLASSES}
    ensure_custom_names(service, [NaiveProvider("", None, everything, {}, frozenset(TRAITS))])
    with installed(service, providers):
        asked = service.call("GET", SEARCH, query=rendered(query))
        as_body = service.call("POST", SEARCH, as_json(query))
        assert as_body.status == asked.status
        assert as_body.body == asked.body or asked.status == 400
        consumers: list[str] = []
        try:
            claim_what_there_is(service, providers, query, consumers)
        finally:
            for consumer in consumers:
                service.must("DELETE", f"/allocations/{consumer}")


def claim_what_there_is(
    service: Service, providers: Sequence[NaiveProvider], query: CandidateQuery, consumers: list[str]
) -> None:
    """Claim until nothing fits any more; consumers are noted as they come."""
    used = Counter({(each.uuid, name): n for each in providers for name, n in each.used.items()})
    while len(consumers) < MOST_CLAIMS:
        found = enumerate_splits(with_usage(providers, used), query)
        ways = {candidate.allocations for candidates in found.values() for candidate in candidates}
        consumer = str(uuid.uuid4())
        answer = claim(service, consumer, query)
        if answer.status != 201:
            assert not ways
            assert answer.status == 409 or "only sharing providers" in str(answer.body)
            return
        consumers.append(consumer)
        taken = amounts(answer.body["allocations"])
        assert taken in ways
        used.update({(provider, name): amount for provider, name, amount in taken})
        assert usage(service, providers) == used
        by_uuid = {provider.uuid: provider for provider in with_usage(providers, used)}
        assert all(has_room(by_uuid[provider], name, 0) for provider, name, _ in taken)


def with_usage(providers: Sequence[NaiveProvider], used: Used) -> list[NaiveProvider]:
    return [
        replace(each, used={name: used[each.uuid, name] for name in each.inventories}) for each in providers
    ]


def amounts(allocations: Mapping[str, Mapping[str, Mapping[str, int]]]) -> frozenset[Amount]:
    return frozenset(
        (provider, name, amount)
        for provider, held in allocations.items()
        for name, amount in held["resources"].items()
    )


def usage(service: Service, providers: Sequence[NaiveProvider]) -> Used:
    """What the service says is used of the providers."""
    listed = service.must("GET", "/ext/v1/resource_providers?include=usages")["resource_providers"]
    names = {provider.uuid for provider in providers}
    return Counter(
        {
            (each["uuid"], name): amount
            for each in listed
            if each["uuid"] in names
            for name, amount in each["usages"].items()
        }
    )


def claim(service: Service, consumer: str, query: CandidateQuery) -> Answer:
    labels = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    body = {**labels, "consumer_uuid": consumer, "query": as_json(query)}
    return service.call("POST", "/ext/v1/claims", body)
