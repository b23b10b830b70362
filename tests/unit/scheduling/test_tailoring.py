"""What the loop adds to a manifest before it has a pod placed."""

from __future__ import annotations

from typing import Any

import pytest

from placement.common.manifest import CHOOSE_GATE, LOOP_NODE
from placement.scheduling.tailoring import on_node, required, tailored

_WANTED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
DISK = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}


def manifest(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [], **spec}}


def terms(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = affinity["nodeAffinity"][_WANTED]["nodeSelectorTerms"]
    return found


def test_nothing_is_added_to_most_pods_and_nothing_is_changed_in_them():
    given = manifest(schedulingGates=[{"name": CHOOSE_GATE}])
    assert tailored(given, only_marked=False, tolerates=False) == manifest()
    assert given == manifest(schedulingGates=[{"name": CHOOSE_GATE}])


def test_pods_of_the_loop_tolerate_its_nodes_and_go_nowhere_else_if_these_are_marked():
    other = {"key": "gpu", "operator": "Exists"}
    found = tailored(manifest(tolerations=[other]), only_marked=True, tolerates=True)["spec"]
    assert found["tolerations"] == [other, {"key": LOOP_NODE, "operator": "Exists"}]
    assert terms(found["affinity"]) == [{"matchExpressions": [{"key": LOOP_NODE, "operator": "Exists"}]}]


def test_requirements_are_added_to_each_term_that_is_there():
    affinity = {"nodeAffinity": {_WANTED: {"nodeSelectorTerms": [ZONE, DISK]}}, "podAffinity": {"kept": 1}}
    found = required(affinity, on_node("n1"))
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert terms(found) == [{**ZONE, "matchFields": [field]}, {**DISK, "matchFields": [field]}]
    assert found["podAffinity"] == {"kept": 1}


def test_alternatives_of_volumes_are_multiplied_with_the_terms():
    affinity = {"nodeAffinity": {_WANTED: {"nodeSelectorTerms": [ZONE]}}}
    found = tailored(
        manifest(affinity=affinity), only_marked=False, tolerates=False, terms=[[DISK, ZONE], [DISK]]
    )
    (zone,), (disk,) = ZONE["matchExpressions"], DISK["matchExpressions"]
    assert terms(found["spec"]["affinity"]) == [
        {"matchExpressions": [zone, disk, disk]},
        {"matchExpressions": [zone, zone, disk]},
    ]


def test_a_term_that_no_node_meets_is_met_by_none_afterwards():
    affinity = {"nodeAffinity": {_WANTED: {"nodeSelectorTerms": [{}]}}}
    assert terms(required(affinity, on_node("n1"))) == [{}]


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {_WANTED: None}}])
def test_pods_without_terms_get_the_ones_that_are_added(affinity):
    assert terms(required(affinity, [ZONE, DISK])) == [ZONE, DISK]


def test_nodes_that_are_kept_for_others_are_named_one_by_one():
    found = tailored(manifest(), only_marked=False, tolerates=False, without=["n1", "n2"])
    (term,) = terms(found["spec"]["affinity"])
    assert [each["values"] for each in term["matchFields"]] == [["n1"], ["n2"]]
    assert {each["operator"] for each in term["matchFields"]} == {"NotIn"}
