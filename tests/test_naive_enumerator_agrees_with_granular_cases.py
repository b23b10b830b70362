"""The naive enumerator gives exactly the candidates of every granular case that has any to compare."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.granular import expected_candidates, fresh_uuids, providers
from tests.naive import enumerate_candidates
from tests.querystring import parsed

DOCUMENT = json.loads((Path(__file__).parent / "data" / "granular.json").read_text(encoding="utf-8"))
ANSWERED = [case for case in DOCUMENT["cases"] if "candidates" in case["expect"]]


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case["id"])
def test_candidates(case: dict[str, Any]) -> None:
    topology = DOCUMENT["topologies"][case["topology"]]
    uuids = fresh_uuids(topology)
    found = enumerate_candidates(
        providers(topology, uuids), parsed((key, value) for key, value in case["query"])
    )
    expected = expected_candidates(case["expect"], uuids)
    assert found == set(expected)
    assert len(found) == len(expected)
    assert len({candidate.allocations for candidate in found}) == case["expect"]["distinct_allocations"]


def test_every_answered_case_has_candidates_to_compare() -> None:
    assert {case["id"] for case in ANSWERED} == {
        case["id"] for case in DOCUMENT["cases"] if case["expect"]["status"] == 200
    }
