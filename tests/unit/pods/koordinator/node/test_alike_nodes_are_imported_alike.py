"""What makes nodes different without a meaning is left out before they are compared, and nothing else."""

from dataclasses import fields

import pytest
import yaml

from placement.pods.koordinator.host_cpus import ANONYMOUS, anonymous_node, anonymous_report
from placement.pods.koordinator.node import import_node
from placement.pods.state.host import offers_of
from placement.server.demonstration import examples
from tests.kubernetes import ALLOCS, BIND, KUBELET, RATIO, RESERVATION, node_manifests

EXAMPLES = sorted((examples() / "edge" / "nodes").glob("*.yaml"))
VARIANTS = [
    {},
    {"labels": {BIND: "FullPCPUsOnly", "rack": "r1"}},
    {"annotations": {RATIO: {"cpu": 1.5}, RESERVATION: {"reservedCPUs": "0-1"}}},
    {"nrt": {KUBELET: {"policy": "static", "reservedCPUs": "2"}}},
    {"nrt": {ALLOCS: [{"uid": "u", "cpuset": "4-5", "managedByKubelet": True}]}},
    {"policies": ["SingleNUMANodePodLevel"]},
    {"rows": (), "zones": {}},
    {"zones": {0: {"cpu": "4", "hugepages-2Mi": "4Mi"}}},
]
NAMED = {"name", "tree", "warnings"}


def anonymous(node: dict, nrt: dict | None) -> tuple[dict, dict | None]:
    return anonymous_node(node), None if nrt is None else anonymous_report(nrt)


def compare(node: dict, nrt: dict | None) -> None:
    full, reduced = import_node("c", node, nrt), import_node("c", *anonymous(node, nrt))
    for field in fields(full):
        if field.name not in NAMED:
            assert getattr(full, field.name) == getattr(reduced, field.name), field.name
    first, second = offers_of(full, f"c/{full.name}"), offers_of(reduced, f"c/{ANONYMOUS}")
    assert vars(first) == vars(second)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_nodes(path):
    node, nrt = yaml.safe_load_all(path.read_text())
    compare(node, nrt)
    compare(node, None)


@pytest.mark.parametrize("given", VARIANTS)
def test_everything_that_counts_is_kept(given):
    manifests = node_manifests("n1", **given)
    compare(manifests["node"], manifests["nodeResourceTopology"])


def test_names_and_what_changes_all_the_time_are_left_out():
    reduced = []
    for name, available in (("n1", "1"), ("n2", "2")):
        manifests = node_manifests(name, labels={"zone": name})
        manifests["node"]["status"]["conditions"] = [{"lastHeartbeatTime": name}]
        for zone in manifests["nodeResourceTopology"]["zones"]:
            zone["resources"][0]["available"] = available
        reduced.append(anonymous(manifests["node"], manifests["nodeResourceTopology"]))
    assert reduced[0] == reduced[1]
