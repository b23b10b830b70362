"""The table of scoring cases holds; parameters are checked field by field, and messages name the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from placement.engine.scoring.order import Scope, parse_order, parse_strategy
from placement.engine.scoring.parameters import ScoringRefused
from tests.cases import scoring

RAMP = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
RATIO = {"type": "RequestedToCapacityRatio", "shape": RAMP}
LEAST = {"type": "LeastAllocated"}


@pytest.mark.parametrize(
    ("given", "code", "where"),
    [
        ("LeastAllocated", "strategy_invalid", ""),
        ([], "strategy_invalid", ""),
        ([LEAST] * 17, "strategy_invalid", ""),
        ([LEAST, 3], "strategy_invalid", "[1]"),
        ([LEAST, {}], "strategy_unknown", "[1].type"),
        ([{"type": ["LeastAllocated"]}], "strategy_unknown", "[0].type"),
        ([{**LEAST, "colour": 1}], "strategy_invalid", "[0]"),
        ([{**LEAST, "shape": RAMP}], "shape_not_allowed", "[0].shape"),
        ([{**LEAST, "max_score": 10}], "shape_not_allowed", "[0].max_score"),
        ([{**LEAST, "weight": -1}], "weight_invalid", "[0].weight"),
        ([{**LEAST, "weight": True}], "weight_invalid", "[0].weight"),
        ([{**LEAST, "resources": {}}], "resource_invalid", "[0].resources"),
        ([{**LEAST, "resources": [{}]}], "resource_invalid", "[0].resources[0].name"),
        ([{**LEAST, "resources": [{"name": "VCPU"}] * 2}], "resource_duplicate", "[0].resources[1].name"),
        ([{**RATIO, "shape": None}], "shape_invalid", "[0].shape"),
        ([{**RATIO, "max_score": 50}], "shape_invalid", "[0].shape"),
    ],
)
def test_a_refusal_has_a_code_and_names_the_field(given: Any, code: str, where: str) -> None:
    with pytest.raises(ScoringRefused) as refused:
        parse_order({"strategies": given})
    assert refused.value.code == code
    assert str(refused.value).startswith(f"order_by.strategies{where}: ")


def test_a_strategy_alone_a_list_and_an_object_mean_the_same() -> None:
    assert parse_order(RATIO) == parse_order([RATIO]) == parse_order({"strategies": [RATIO]})
    assert parse_order({**RATIO, "scope": "allocated"}).scope is Scope.ALLOCATED
    with pytest.raises(ScoringRefused, match=r"order_by\.scope: must be one of tree, allocated"):
        parse_order({**RATIO, "scope": "host"})


def test_a_strategy_may_have_a_scope_of_its_own() -> None:
    order = parse_order({"strategies": [RATIO, {**LEAST, "scope": "tree"}], "scope": "allocated"})
    assert [strategy.scope for strategy in order.strategies] == [Scope.ALLOCATED, Scope.TREE]
    assert not order.by_tree
    assert parse_order([RATIO, LEAST]).by_tree
    assert not parse_order([RATIO, {**LEAST, "scope": "allocated"}]).by_tree
    with pytest.raises(ScoringRefused, match=r"order_by\.strategies\[1\]\.scope: must be one of"):
        parse_order({"strategies": [RATIO, {**LEAST, "scope": 1}]})
    with pytest.raises(ScoringRefused, match="order_by: shape is not understood"):
        parse_order({"strategies": [RATIO], "shape": []})


def test_weight_nought_means_one() -> None:
    strategy = parse_strategy({**LEAST, "weight": 0, "resources": [{"name": "VCPU", "weight": 0}]})
    assert (strategy.weight, strategy.resources[0].weight) == (1, 1)


def test_every_point_must_be_two_integers() -> None:
    for point in (
        3,
        {},
        {"utilization": 1},
        {"utilization": 1, "score": None},
        {"utilization": True, "score": 1},
    ):
        with pytest.raises(ScoringRefused) as refused:
            parse_strategy({**RATIO, "shape": [point]})
        assert refused.value.reasons == ["type"], point


DOCUMENT = json.loads((Path(__file__).parents[3] / "data" / "scoring.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DOCUMENT["cases"], ids=lambda case: case["id"])
def test_case(case: dict) -> None:
    ((_, reason),) = scoring.run({"cases": [case]}, None)
    assert reason is None
