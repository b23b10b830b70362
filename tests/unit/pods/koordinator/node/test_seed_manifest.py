"""The manifest that the design documents show."""

from pathlib import Path

import pytest
import yaml

PATH = "NodeResourceTopology.metadata.annotations[node.koordinator.sh/pod-cpu-allocs][0]"


@pytest.fixture(scope="module")
def seed():
    path = Path(__file__).parents[4] / "data" / "noderesourcetopology-seed.yaml"
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def seed_node(a_node):
    return a_node(name="node1", allocatable={"cpu": 90, "vendor/nic1": 9, "vendor/nic2": 6})


def test_it_loads_as_it_is_under_design(seed, seed_node, imported, providers):
    """Its pod on unknown CPUs is left out with warnings; its devices live in its zones only."""
    result = imported(seed_node, seed)
    assert result.policies.bind == "FullPCPUsOnly"
    assert result.policies.numa == "SingleNUMANode"
    assert result.policies.distributes_over_numa
    assert (result.takeover, result.kubelet_pods, result.unallocatable_cpus) == ("mixed", (), frozenset())
    assert f"{PATH}.cpu: read as cpuset, the name of the field" in result.warnings
    assert f'{PATH}.managedByKubelet: the text "true" is read as the boolean true' in result.warnings
    assert f"{PATH}.cpu: CPUs 4-8 are not in the cpu-topology; left out" in result.warnings
    offers = {
        name: {kind: inventory.total for kind, inventory in provider.inventories.items()}
        for name, provider in providers(result).items()
    }
    assert offers == {
        "host": {"CUSTOM_NODE_CPU_MILLI": 90000},
        "numa-0": {"CUSTOM_CPU_MILLI": 15000, "CUSTOM_VENDOR_NIC1": 3},
        "numa-1": {"CUSTOM_CPU_MILLI": 25000, "CUSTOM_VENDOR_NIC2": 6},
        "numa-2": {"CUSTOM_CPU_MILLI": 25000, "CUSTOM_VENDOR_NIC1": 3},
        "numa-3": {"CUSTOM_CPU_MILLI": 25000, "CUSTOM_VENDOR_NIC1": 3},
        "core-0-0": {"PCPU": 1},
        "core-1-1": {"PCPU": 1},
    }


def test_it_is_refused_under_koord_scheduler_naming_the_fields(seed, seed_node, refused):
    assert refused(seed_node, seed, profile="koord-scheduler") == (
        f"{PATH}.cpu: the field is called cpuset",
        f'{PATH}.managedByKubelet: must be the boolean true, not the text "true"',
    )
