"""What kube-scheduler is configured with is taken as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from placement.allocations.kubernetes_resources import class_of, resource_of
from placement.allocations.orders import order_of, strategies_from
from placement.engine.domain.errors import BadRequest
from placement.engine.scoring.order import parse_order

RAMP = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
FOO = [{"name": "intel.com/foo", "weight": 3}, {"name": "cpu"}, {"name": "memory", "weight": 2}]
RATIO = {"type": "RequestedToCapacityRatio", "shape": RAMP, "resources": FOO}
PRIORITY = {
    "name": "RequestedToCapacityRatioPriority",
    "weight": 2,
    "argument": {"requestedToCapacityRatioArguments": {"shape": RAMP, "resources": FOO}},
}
FIT = {
    "scoringStrategy": {
        "type": "RequestedToCapacityRatio",
        "resources": FOO,
        "requestedToCapacityRatio": {"shape": RAMP},
    }
}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (PRIORITY, [{**RATIO, "weight": 2}]),
        (PRIORITY["argument"], [RATIO]),
        (
            {
                "kind": "Policy",
                "predicates": [{"name": "PodFitsResources"}],
                "priorities": [
                    PRIORITY,
                    {"name": "LeastRequestedPriority", "weight": 1},
                    {"name": "ServiceSpreadingPriority", "weight": 5},
                ],
            },
            [{**RATIO, "weight": 2}, {"type": "LeastAllocated", "weight": 1}],
        ),
        (FIT, [RATIO]),
        ({"kind": "NodeResourcesFitArgs", **FIT}, [RATIO]),
        (
            {"kind": "NodeResourcesBalancedAllocationArgs", "resources": [{"name": "cpu", "weight": 1}]},
            [{"type": "BalancedAllocation", "resources": [{"name": "cpu", "weight": 1}]}],
        ),
        (
            {
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {
                        "schedulerName": "packing",
                        "plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 4}]}},
                        "pluginConfig": [
                            {"name": "NodeResourcesFit", "args": FIT},
                            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 1}},
                        ],
                    }
                ],
            },
            [{**RATIO, "weight": 4}],
        ),
    ],
    ids=["priority", "argument", "policy", "scoringStrategy", "fit", "balanced", "configuration"],
)
def test_documents(document: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    found = strategies_from(document)
    assert found == expected
    assert len(parse_order(found).strategies) == len(expected)


@pytest.mark.parametrize("document", [[], "pack", {"type": "LeastAllocated"}, {"strategies": []}, None, 3])
def test_other_values_are_left_to_others(document: Any) -> None:
    assert strategies_from(document) is None


@pytest.mark.parametrize(
    "document",
    [{"priorities": []}, {"profiles": [3, {}]}, {"priorities": [{"name": "EqualPriority"}]}],
)
def test_a_configuration_without_scores_is_refused(document: dict[str, Any]) -> None:
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
    try:
        found = strategies_from(document)
        parse_order(document if found is None else found)
    except BadRequest:
        pass


@pytest.mark.parametrize(
    ("name_of", "names"),
    [
        (class_of, ["CUSTOM_INTEL_COM_FOO", "VCPU", "MEMORY_MB"]),
        (resource_of, ["intel.com/foo", "cpu", "memory"]),
    ],
)
def test_resources_are_called_what_is_scored(name_of: Callable[[str], str], names: list[str]) -> None:
    for document in (PRIORITY, FIT, RATIO):
        order = order_of(document, "scoring", name_of)
        assert order is not None
        assert [resource.name for resource in order.strategies[0].resources] == names
        assert [resource.weight for resource in order.strategies[0].resources] == [3, 1, 2]


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "pods", "kubernetes.io/batch-cpu"])
def test_a_class_of_ours_leads_back_to_its_resource(name: str) -> None:
    assert resource_of(class_of(name)) == name
    assert resource_of(name) == name
    assert class_of(class_of(name)) == class_of(name)
