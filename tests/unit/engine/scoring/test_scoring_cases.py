"""The table of scoring cases holds, and the worked example gives what its source prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placement.engine.scoring.order import parse_strategy, score_host
from tests.cases import scoring

TABLE = Path(__file__).parents[3] / "data" / "scoring.json"
DOCUMENT = json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DOCUMENT["cases"], ids=lambda case: case["id"])
def test_case(case: dict) -> None:
    ((_, reason),) = scoring.run({"cases": [case]}, None)
    assert reason is None


@pytest.mark.parametrize(
    ("capacity", "used", "score"),
    [
        ({"CUSTOM_FOO": 4, "MEMORY_MB": 1024, "VCPU": 8}, {"CUSTOM_FOO": 1, "MEMORY_MB": 256, "VCPU": 1}, 5),
        ({"CUSTOM_FOO": 8, "MEMORY_MB": 1024, "VCPU": 8}, {"CUSTOM_FOO": 2, "MEMORY_MB": 512, "VCPU": 6}, 7),
    ],
    ids=["node 1", "node 2"],
)
def test_the_worked_example_of_kubernetes(capacity: dict, used: dict, score: int) -> None:
    strategy = parse_strategy(
        {
            "type": "RequestedToCapacityRatio",
            "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            "resources": [
                {"name": "CUSTOM_FOO", "weight": 5},
                {"name": "MEMORY_MB", "weight": 1},
                {"name": "VCPU", "weight": 3},
            ],
        }
    )
    request = {"CUSTOM_FOO": 2, "MEMORY_MB": 256, "VCPU": 2}
    assert score_host(strategy, used, capacity, request) == score
