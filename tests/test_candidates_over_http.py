"""The worked examples and the granular cases hold through HTTP, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import worked_examples
from tests.cases import granular
from tests.cases.__main__ import load
from tests.installation import installed
from tests.naive import Candidate
from tests.server import BACKENDS, RunningServer, database_url, running_service
from tests.service import Service, candidates

GRANULAR = Path(__file__).parent / "data" / "granular.json"


@pytest.fixture(scope="module", params=BACKENDS)
def live(request):
    with database_url(request.param) as url, running_service(url) as server:
        yield server


@pytest.mark.parametrize("example", worked_examples.EXAMPLES, ids=lambda example: example.id)
def test_worked_example(live: RunningServer, example: worked_examples.WorkedExample):
    labels = worked_examples.labels(example.topology)
    service = Service(live.url)
    with installed(service, worked_examples.providers(example.topology, labels)):
        query = worked_examples.parameters(example, labels)
        answer = service.call("GET", "/allocation_candidates", query=query, version=example.microversion)
    assert answer.status == 200, answer.body
    found = candidates(answer.body)
    expected = worked_examples.candidates(example, labels)
    if int(example.microversion.split(".")[1]) < 34:
        expected = {Candidate(candidate.allocations, frozenset()) for candidate in expected}
    assert set(found) == expected
    assert len(found) == len(example.expected)


def test_granular_cases(live: RunningServer):
    document, _ = load(GRANULAR)
    failures = {id_: reason for id_, reason in granular.run(document, live.url) if reason is not None}
    assert not failures
