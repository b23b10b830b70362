"""The example clusters that people start with."""

import uuid
from collections import Counter
from pathlib import Path

import pytest
import yaml

from placement.engine.domain.inventories import Inventory
from placement.pods.koordinator.node import import_node

EXAMPLES = Path(__file__).parents[5] / "etc" / "examples"
NODES = sorted(EXAMPLES.glob("*/nodes/*.yaml"))
CLUSTERS = sorted(path.parent.name for path in EXAMPLES.glob("*/cluster.yaml"))

# Host, NUMA nodes and cores of each host.
PROVIDERS = {
    **{f"edge-{number:02}": 1 + 2 + 32 for number in range(1, 9)},
    **{f"batch-{number:02}": 1 + 1 + 16 for number in range(1, 5)},
    **{f"batch-{number:02}": 1 + 1 + 32 for number in range(5, 9)},
    "batch-09": 1 + 2 + 48,
    "batch-10": 1 + 1 + 48,
}


def read_node(path):
    node, nrt = yaml.safe_load_all(path.read_text())
    return import_node(path.parent.parent.name, node, nrt)


def read_offers(cluster):
    """Every inventory of a cluster by provider name and class."""
    placement = yaml.safe_load((EXAMPLES / cluster / "placement.yaml").read_text())
    offers = {
        provider["name"]: {name: Inventory(**values) for name, values in provider["inventories"].items()}
        for provider in placement["resource_providers"]
    }
    for path in NODES:
        if path.parent.parent.name == cluster:
            offers |= {provider.name: provider.inventories for provider in read_node(path).tree.providers}
    return offers, placement


def test_there_are_three_clusters_whose_nodes_load_without_a_warning():
    assert CLUSTERS == ["batch", "cloud", "edge"]
    assert [path.stem for path in NODES] == sorted(PROVIDERS)
    for path in NODES:
        result = read_node(path)
        assert (result.warnings, result.name) == ((), path.stem)
        assert len(result.tree.providers) == PROVIDERS[path.stem]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_cluster_says_what_it_is_and_its_nodes_have_shared_storage(cluster):
    described = yaml.safe_load((EXAMPLES / cluster / "cluster.yaml").read_text())
    assert described.keys() == {"name", "profile", "description"}
    assert (described["name"], described["profile"]) == (cluster, "design")
    if cluster != "cloud":
        (storage,) = read_offers(cluster)[1]["resource_providers"]
        assert uuid.UUID(storage["uuid"])
        assert (storage["traits"], storage["in_cluster"]) == (["MISC_SHARES_VIA_AGGREGATE"], True)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_first_consumers_fit(cluster):
    offers, placement = read_offers(cluster)
    used = Counter()
    for consumer in placement["allocations"]:
        for provider, amounts in consumer["allocations"].items():
            for name, amount in amounts.items():
                assert offers[provider][name].admits(amount), (provider, name)
                used[provider, name] += amount
    for (provider, name), amount in used.items():
        assert amount <= offers[provider][name].capacity, (provider, name)


def test_some_hosts_start_about_a_third_full():
    offers, placement = read_offers("edge")
    used = Counter()
    for consumer in placement["allocations"]:
        for provider, amounts in consumer["allocations"].items():
            used[provider] += amounts.get("CUSTOM_NODE_CPU_MILLI", 0)
    shares = [used[name] / offers[name]["CUSTOM_NODE_CPU_MILLI"].total for name in used if used[name]]
    assert len(shares) >= 4
    assert all(0.3 <= share <= 0.4 for share in shares)
