"""Stored topologies that differ in the name of the node are read once, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from placement.pods.koordinator.host_cpus import anonymous_report
from placement.pods.store import topologies
from placement.pods.store.topologies import TopologyTexts, canonical_report
from tests.kubernetes import node_manifests


def topology(name: str) -> dict[str, Any]:
    found: dict[str, Any] = node_manifests(name)["nodeResourceTopology"]
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes whose topologies were read in full."""
    names: list[str] = []

    def noting(nrt: dict[str, Any]) -> dict[str, Any]:
        names.append((nrt["metadata"] or {}).get("name"))
        return anonymous_report(nrt)

    monkeypatch.setattr(topologies, "anonymous_report", noting)
    return names


def test_like_nodes_share_what_was_read(read: list[str]):
    texts = TopologyTexts()
    one, other = (texts.read(json.dumps(topology(name)), name) for name in ("n1", 'é"2'))
    assert read == ["n1"]
    assert one is other
    assert one == canonical_report(topology("n1"))


@pytest.mark.parametrize("part", ["zones", "topologyPolicies", "annotations"])
def test_nodes_that_differ_are_read_by_themselves(part: str):
    texts, one, other = TopologyTexts(), topology("n1"), topology("n2")
    if part == "annotations":
        other["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"] = '{"policy": "static"}'
    else:
        other[part] = [{"name": "n2", "type": "Node"}] if part == "zones" else ["SingleNUMANodePodLevel"]
    for nrt in (one, other):
        assert texts.read(json.dumps(nrt), nrt["metadata"]["name"]) == canonical_report(nrt)
    assert canonical_report(one) != canonical_report(other)


@pytest.mark.parametrize("members", [("zones", "metadata"), ("metadata", "zones")])
def test_a_zone_that_is_called_as_its_node_is_not_taken_for_it(members: tuple[str, str]):
    texts = TopologyTexts()
    for name in ("node-0", "node-1", "node-2"):
        whole = {"zones": [{"name": name, "type": "Node"}], "metadata": {"name": name}}
        nrt = {member: whole[member] for member in members}
        assert texts.read(json.dumps(nrt), name) == canonical_report(nrt)


ODD = ['{"name": "NAME", "name": "x"}', '{"labels": {"name": "NAME"}, "name": "x"}', '{"x\\"name": "NAME"}']


@pytest.mark.parametrize("metadata", [*ODD, "null"])
def test_a_name_elsewhere_is_not_that_of_the_node(metadata: str, read: list[str]):
    texts = TopologyTexts()
    for name in ("a", "b"):
        texts.read(f'{{"metadata": {metadata.replace("NAME", name)}, "zones": []}}', name)
    assert len(read) == 2


def test_a_node_without_a_topology_has_none():
    texts = TopologyTexts()
    assert texts.read(None, "n1") == texts.read("null", "n1") == canonical_report(None)


def test_only_so_many_are_kept():
    texts = TopologyTexts()
    for number in range(200):
        nrt = topology("n1") | {"topologyPolicies": [str(number)]}
        assert texts.read(json.dumps(nrt), "n1") == canonical_report(nrt)
    assert len(texts._known) <= 64
