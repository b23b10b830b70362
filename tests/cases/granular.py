"""Granular cases: topologies, candidate queries on them, and the exact set of candidates, over HTTP.

Every topology is brought into the service under fresh uuids and taken out again after its cases, so that the
service may hold other data: candidates that touch any other provider are not looked at. `{name}` in a query
stands for the uuid of a provider or an aggregate.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from placement.engine.domain.inventories import Inventory
from tests.cases import Outcome
from tests.installation import installed
from tests.naive import Candidate, NaiveProvider
from tests.service import Answer, Service, ServiceError, candidates

FORMAT = "granular-cases/1"

Uuids = Mapping[str, str]
"""Name of a provider or aggregate -> uuid."""


def run(document: dict[str, Any], url: str | None) -> Iterator[Outcome]:
    """Run all cases, topology by topology; without a URL against a service of its own."""
    with ExitStack() as stack:
        if url is None:
            from tests.server import running_server

            url = stack.enter_context(running_server())
        service = Service(url)
        for case in document["cases"]:
            if case["topology"] not in document["topologies"]:
                yield case["id"], f"no topology {case['topology']!r} in the file"
        for name, topology in document["topologies"].items():
            yield from _run_on(
                service, topology, [case for case in document["cases"] if case["topology"] == name]
            )


def fresh_uuids(topology: Iterable[dict[str, Any]]) -> dict[str, str]:
    """A new uuid for every provider and aggregate of a topology."""
    names = {name for each in topology for name in (each["name"], *each.get("aggregates", ()))}
    return {name: str(uuid.uuid4()) for name in sorted(names)}


def providers(topology: Iterable[dict[str, Any]], uuids: Uuids) -> list[NaiveProvider]:
    """The providers of a topology as listed, which is parents before children."""
    return [
        NaiveProvider(
            uuid=uuids[provider["name"]],
            parent=uuids[provider["parent"]] if provider["parent"] else None,
            inventories={name: _inventory(record) for name, record in provider["inventories"].items()},
            used={
                name: record["used"] for name, record in provider["inventories"].items() if record.get("used")
            },
            traits=frozenset(provider["traits"]),
            aggregates=frozenset(uuids[name] for name in provider.get("aggregates", ())),
        )
        for provider in topology
    ]


def _inventory(record: dict[str, Any]) -> Inventory:
    return Inventory(**{name: value for name, value in record.items() if name != "used"})


def parameters(case: dict[str, Any], uuids: Uuids) -> list[tuple[str, str]]:
    """The parameters of the query of a case, not yet encoded."""
    return [(key, value.format_map(uuids)) for key, value in case["query"]]


def expected_candidates(expect: dict[str, Any], uuids: Uuids) -> list[Candidate]:
    """The candidates that a case expects, each listed once."""
    return [
        Candidate(
            allocations=frozenset(
                (uuids[provider], name, amount)
                for provider, held in candidate["allocations"].items()
                for name, amount in held.items()
            ),
            mappings=frozenset(
                (suffix, frozenset(uuids[provider] for provider in names))
                for suffix, names in candidate["mappings"].items()
            ),
        )
        for candidate in expect["candidates"]
    ]


def _run_on(
    service: Service, topology: list[dict[str, Any]], cases: list[dict[str, Any]]
) -> Iterator[Outcome]:
    """Run the cases of one topology; if the service fails, all that have not run fail for that reason.

    Raises ServiceError if nothing is left to fail but the topology cannot be taken out again.
    """
    uuids = fresh_uuids(topology)
    left = list(cases)
    try:
        with installed(service, providers(topology, uuids)):
            while left:
                outcome = left[0]["id"], _judge(service, left[0], uuids)
                left.pop(0)
                yield outcome
    except ServiceError as error:
        if not left:
            raise
        reason = " ".join(str(error).split())
        yield from ((case["id"], reason) for case in left)


def _judge(service: Service, case: dict[str, Any], uuids: Uuids) -> str | None:
    query, version = parameters(case, uuids), case["microversion"]
    answer = service.call("GET", "/allocation_candidates", query=query, version=version)
    expect = case["expect"]
    if "candidates" in expect and int(version.split(".")[1]) < 34:
        # There are no mappings yet.
        expect = {**expect, "candidates": [{**each, "mappings": {}} for each in expect["candidates"]]}
    return difference(expect, answer, uuids)


def difference(expect: dict[str, Any], answer: Answer, uuids: Uuids) -> str | None:
    """How the answer differs from what is expected, None if it does not."""
    if answer.status != expect["status"]:
        return f"status {answer.status} instead of {expect['status']}"
    if "candidates" not in expect:
        return None
    found = [candidate for candidate in candidates(answer.body) if _within(candidate, set(uuids.values()))]
    wanted = expected_candidates(expect, uuids)
    missing, extra = Counter(wanted), Counter(found)
    missing, extra = missing - extra, extra - missing
    if missing or extra:
        return f"{_listed('missing', missing, uuids)}; {_listed('not expected', extra, uuids)}"
    distinct = len({candidate.allocations for candidate in found})
    if distinct != expect["distinct_allocations"]:
        return f"{distinct} distinct allocations instead of {expect['distinct_allocations']}"
    return None


def _within(candidate: Candidate, uuids: set[str]) -> bool:
    mapped = {provider for _, providers in candidate.mappings for provider in providers}
    return mapped | {provider for provider, _, _ in candidate.allocations} <= uuids


def _listed(what: str, found: Counter[Candidate], uuids: Uuids) -> str:
    """How many candidates, and the first of them in the names of the case."""
    if not found:
        return f"0 {what}"
    names = {provider: name for name, provider in uuids.items()}
    first = min(_spelled(candidate, names) for candidate in found)
    return f"{found.total()} {what}, such as {first}"


def _spelled(candidate: Candidate, names: Mapping[str, str]) -> str:
    amounts = sorted(f"{names[provider]}:{name}={amount}" for provider, name, amount in candidate.allocations)
    groups = sorted(
        f"{suffix!r} on {'+'.join(sorted(names[provider] for provider in providers))}"
        for suffix, providers in candidate.mappings
    )
    return f"{' '.join(amounts)} ({', '.join(groups)})"
