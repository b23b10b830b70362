"""An order of candidates may be a name, our JSON, or what kube-scheduler is configured with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from placement.allocations.kubernetes_resources import class_of, resource_of
from placement.allocations.orders import order_of
from placement.allocations.scheduler_configurations import strategies_from
from placement.engine.domain.errors import BadRequest, parameter
from placement.engine.scoring.order import NAMED, parse_order

RAMP = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
FOO = [{"name": "intel.com/foo", "weight": 3}, {"name": "cpu"}, {"name": "memory", "weight": 2}]
RATIO = {"type": "RequestedToCapacityRatio", "shape": RAMP, "resources": FOO}
PRIORITY = {
    "name": "RequestedToCapacityRatioPriority",
    "weight": 2,
    "argument": {"requestedToCapacityRatioArguments": {"shape": RAMP, "resources": FOO}},
}
SCORED = {"type": "RequestedToCapacityRatio", "resources": FOO, "requestedToCapacityRatio": {"shape": RAMP}}
FIT = {"scoringStrategy": SCORED}
CPU = [{"name": "cpu", "weight": 1}]
PROFILE = {
    "schedulerName": "packing",
    "plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 4}]}},
    "pluginConfig": [
        {"name": "NodeResourcesFit", "args": FIT},
        {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 1}},
    ],
}
PRIORITIES = [PRIORITY, {"name": "LeastRequestedPriority", "weight": 1}, {"name": "ServiceSpreadingPriority"}]
POLICY = {"kind": "Policy", "predicates": [{"name": "PodFitsResources"}], "priorities": PRIORITIES}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (PRIORITY, [{**RATIO, "weight": 2}]),
        (PRIORITY["argument"], [RATIO]),
        (POLICY, [{**RATIO, "weight": 2}, {"type": "LeastAllocated", "weight": 1}]),
        (FIT, [RATIO]),
        ({"kind": "NodeResourcesFitArgs", **FIT}, [RATIO]),
        (
            {"kind": "NodeResourcesBalancedAllocationArgs", "resources": CPU},
            [{"type": "BalancedAllocation", "resources": CPU}],
        ),
        ({"kind": "KubeSchedulerConfiguration", "profiles": [PROFILE]}, [{**RATIO, "weight": 4}]),
    ],
    ids=["priority", "argument", "policy", "scoringStrategy", "fit", "balanced", "configuration"],
)
def test_documents(document: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    found = strategies_from(document)
    assert found == expected
    assert len(parse_order(found).strategies) == len(expected)


def test_other_values_are_left_to_others() -> None:
    for document in ([], "pack", {"type": "LeastAllocated"}, {"strategies": []}, None, 3):
        assert strategies_from(document) is None


def test_a_configuration_without_scores_is_refused() -> None:
    for document in ({"priorities": []}, {"profiles": [3, {}]}, {"priorities": [{"name": "EqualPriority"}]}):
        with pytest.raises(BadRequest):
            strategies_from(document)


@pytest.mark.parametrize(
    "document",
    [
        {"priorities": [{"argument": {"requestedToCapacityRatioArguments": {"shape": 3, "resources": 4}}}]},
        {"scoringStrategy": {"type": 3, "resources": [3, {"name": 4}], "requestedToCapacityRatio": []}},
        {"profiles": [{"plugins": [], "pluginConfig": [{"name": "NodeResourcesFit", "args": FIT}, {}, 3]}]},
        {"kind": ["RequestedToCapacityRatioArgs"], "priorities": 4},
    ],
)
def test_broken_documents_are_refused_or_read_but_never_crash(document: dict[str, Any]) -> None:
    with suppress(BadRequest):
        found = strategies_from(document)
        parse_order(document if found is None else found)


@pytest.mark.parametrize(
    ("name_of", "names"),
    [
        (class_of, ["CUSTOM_INTEL_COM_FOO", "VCPU", "MEMORY_MB"]),
        (resource_of, ["intel.com/foo", "cpu", "memory"]),
    ],
)
def test_resources_are_called_what_is_scored(name_of: Callable[[str], str], names: list[str]) -> None:
    for document in (PRIORITY, FIT, RATIO):
        order = order_of(document, parameter("scoring"), name_of)
        assert order is not None
        assert [resource.name for resource in order.strategies[0].resources] == names
        assert [resource.weight for resource in order.strategies[0].resources] == [3, 1, 2]


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "pods", "kubernetes.io/batch-cpu"])
def test_a_class_of_ours_leads_back_to_its_resource(name: str) -> None:
    assert resource_of(class_of(name)) == name
    assert resource_of(name) == name
    assert class_of(class_of(name)) == class_of(name)


def test_names_stand_for_orders() -> None:
    assert order_of("none", parameter("order_by")) is None
    assert order_of("  ", parameter("order_by")) is None
    for name, order in NAMED.items():
        assert order_of(f" {name} ", parameter("order_by")) == order


def test_json_and_its_text_mean_the_same() -> None:
    given = [{"type": "LeastAllocated", "resources": [{"name": "VCPU", "weight": 3}]}]
    order = order_of(given, parameter("scoring"))
    assert order == order_of(
        '[{"type":"LeastAllocated","resources":[{"name":"VCPU","weight":3}]}]', parameter("x")
    )
    assert order.strategies[0].resources == (("VCPU", 3),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zebra", "order_by: 'zebra' is not a known order"),
        ("{", "order_by: Malformed JSON"),
        ('[{"type": "LeastAllocated", "weight": NaN}]', "order_by: Malformed JSON"),
        ('[{"type": "\\ud800"}]', "order_by: Malformed JSON"),
        ('[{"type": "Zebra"}]', "order_by"),
    ],
)
def test_what_is_no_order_is_refused_by_the_name_of_the_field(text: str, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        order_of(text, parameter("order_by"))
    assert str(refused.value).startswith(said)
