"""What a pod says of other pods is read whole, or has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from placement.pods.manifests.affinity import PodAffinity, may_keep_off, may_require, stored_affinity
from tests.pod_rules import ruled_pod

OWN = ("default", (("app", "web"),))
TEAM = {"matchLabels": {"team": "x"}}
WEB = {"app": "web"}


def stored(**said: Any) -> PodAffinity:
    """The rules of a running pod, as they are read, and again from what is stored of them."""
    read = stored_affinity(ruled_pod("there", said)["spec"]["affinity"], OWN)
    assert stored_affinity(read.document(), OWN) == read
    return read


@pytest.mark.parametrize(
    "others",
    [
        *({"namespaceSelector": selector} for selector in (TEAM, {"matchLabels": 5})),
        {"namespaces": "default"},
        {"matchLabelKeys": "app"},
        {"labelSelector": {"matchLabels": "app"}},
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn"}]}},
    ],
)
def test_a_term_that_cannot_be_read_whole_or_has_no_weight_has_no_effect(others: dict[str, Any]) -> None:
    found = stored(apart=[["zone", WEB, others]], rather_near=[[5, "zone", WEB, others]])
    assert found == PodAffinity()
    assert stored(rather_near=[[101, "zone", WEB], [0, "zone", WEB]]) == PodAffinity()


def test_namespaces_count_beside_a_selector_that_cannot_be_read() -> None:
    (term,) = stored(apart=[["zone", WEB, {"namespaces": ["other"], "namespaceSelector": TEAM}]]).apart_terms
    assert term.pods.selects(("other", (("app", "web"),)))
    assert not term.pods.selects(("default", (("app", "web"),)))


def test_terms_are_told_as_people_write_them() -> None:
    any_pod, web = stored(apart=[["zone", {}], ["zone", WEB, {"namespaceSelector": {}}]]).apart_terms
    assert str(any_pod) == "pods with any labels in namespace default, by zone"
    assert str(web).endswith("in any namespace, by zone")


@pytest.mark.parametrize(
    ("said", "requires", "keeps_off"),
    [
        ({}, False, False),
        ({"near": [["zone", WEB]]}, True, False),
        ({"apart": [["zone", WEB]]}, True, True),
        ({"spread": [["zone", 1, WEB]]}, True, False),
        ({"rather_near": [[1, "zone", WEB]], "rather_apart": [[1, "zone", WEB]]}, False, False),
        ({"rather_spread": [["zone", 1, WEB]]}, False, False),
    ],
)
def test_what_is_only_preferred_is_not_required(
    said: dict[str, Any], requires: bool, keeps_off: bool
) -> None:
    pod = ruled_pod("incoming", said)
    assert (may_require(pod), may_keep_off(pod)) == (requires, keeps_off)


def test_nothing_is_required_where_nothing_can_be_read() -> None:
    for spec in (None, [], {"affinity": "x"}, {"affinity": {"podAntiAffinity": ["x"]}}):
        assert not may_require({"spec": spec})
    assert may_require({"spec": {"topologySpreadConstraints": ["x"]}})
