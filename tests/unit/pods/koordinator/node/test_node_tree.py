"""The provider tree that an import makes of a host."""

import copy
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.domain.inventories import Inventory
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.tree import HostIdentity

X86 = {"HW_ARCH_X86_64"}


def totals(provider):
    return {name: inventory.total for name, inventory in provider.inventories.items()}


def test_a_host_has_numa_nodes_and_these_have_cores(imported):
    tree = imported().tree
    names = {provider.uuid: provider.name for provider in tree.providers}
    parents = {provider.name: names.get(provider.parent_uuid) for provider in tree.providers}
    assert parents == {
        "c1/node-1": None,
        "c1/node-1/numa-0": "c1/node-1",
        "c1/node-1/numa-1": "c1/node-1",
        "c1/node-1/core-0-0": "c1/node-1/numa-0",
        "c1/node-1/core-0-1": "c1/node-1/numa-0",
        "c1/node-1/core-1-2": "c1/node-1/numa-1",
        "c1/node-1/core-1-3": "c1/node-1/numa-1",
    }
    assert tree.root.name == "c1/node-1"
    assert list(parents)[:3] == ["c1/node-1", "c1/node-1/numa-0", "c1/node-1/numa-1"]


def test_importing_again_gives_the_same_value(a_node, an_nrt, imported):
    nrt = an_nrt()
    shuffled = copy.deepcopy(nrt)
    shuffled["zones"].reverse()
    assert imported(a_node(), nrt) == imported(a_node(), shuffled)


def test_uuids_depend_on_the_host_uid_and_on_its_name_only_without_one(a_node, imported):
    by_uid = imported().tree.root.uuid
    assert imported(a_node(uid="another")).tree.root.uuid != by_uid
    assert imported(a_node(uid=None)).tree.root.uuid == imported(a_node(uid="")).tree.root.uuid
    assert imported(a_node(uid=None)).tree.root.uuid != by_uid


def test_the_host_offers_its_allocatable(a_node, an_nrt, imported, providers):
    node = a_node(
        allocatable={
            "cpu": "7910m",
            "memory": "16389120Ki",
            "pods": "110",
            "ephemeral-storage": "107374182399",
            "kubernetes.io/batch-cpu": "4500",
            "kubernetes.io/batch-memory": "5Gi",
            "kubernetes.io/mid-cpu": 1000,
            "kubernetes.io/mid-memory": "1Gi",
            "example.com/licence": "3",
            "koordinator.sh/gpu-memory": "80Gi",
            "hugepages-2Mi": "0",
        }
    )
    result = imported(node, an_nrt())
    assert totals(providers(result)["host"]) == {
        "CUSTOM_NODE_CPU_MILLI": 7910,
        "CUSTOM_NODE_MEMORY_MB": 16005,
        "CUSTOM_PODS": 110,
        "DISK_GB": 99,
        "CUSTOM_BATCH_CPU": 4500,
        "CUSTOM_BATCH_MEMORY_MB": 5120,
        "CUSTOM_MID_CPU": 1000,
        "CUSTOM_MID_MEMORY_MB": 1024,
        "CUSTOM_EXAMPLE_COM_LICENCE": 3,
        "CUSTOM_KOORDINATOR_SH_GPU_MEMORY_MB": 81920,
    }
    assert result.resource_names["CUSTOM_EXAMPLE_COM_LICENCE"] == "example.com/licence"
    assert result.resource_names["CUSTOM_BATCH_CPU"] == "kubernetes.io/batch-cpu"
    assert result.resource_names["PCPU"] == "cpu"
    assert "CUSTOM_HUGEPAGES_2MI" not in result.resource_names


def test_a_numa_node_offers_memory_hugepages_devices_and_millicores(a_zone, an_nrt, imported, providers):
    zone = a_zone(
        0,
        **{
            "cpu": "3500m",
            "memory": "8388609Ki",
            "hugepages-2Mi": "5Mi",
            "hugepages-1Gi": "4Gi",
            "intel.com/sriov_net-1": "16",
            "kubernetes.io/batch-cpu": "900",
        },
    )
    result = imported(nrt=an_nrt(zones=[zone, a_zone(1, cpu="4")]))
    numa = providers(result)["numa-0"]
    assert totals(numa) == {
        "CUSTOM_CPU_MILLI": 3500,
        "MEMORY_MB": 8192,
        "CUSTOM_HUGEPAGES_2MI": 2,
        "CUSTOM_HUGEPAGES_1GI": 4,
        "CUSTOM_INTEL_COM_SRIOV_NET_1": 16,
        "CUSTOM_NUMA_BATCH_CPU": 900,
    }
    assert numa.traits == {"HW_NUMA_ROOT"}


def test_what_a_numa_node_offers_is_not_offered_by_the_host_again(
    a_node, a_zone, an_nrt, imported, providers
):
    node = a_node(allocatable={"nvidia.com/gpu": 4, "kubernetes.io/batch-cpu": 4000})
    zones = [a_zone(0, **{"nvidia.com/gpu": 4, "kubernetes.io/batch-cpu": 4000}), a_zone(1)]
    tree = providers(imported(node, an_nrt(zones=zones)))
    assert "CUSTOM_NVIDIA_COM_GPU" in tree["numa-0"].inventories
    assert totals(tree["host"]) == {"CUSTOM_BATCH_CPU": 4000}


@pytest.mark.parametrize(
    ("label", "kubelet"),
    [
        ("FullPCPUsOnly", {"policy": "none"}),
        (None, {"policy": "static", "options": {"full-pcpus-only": "true"}}),
    ],
)
def test_cores_of_full_pcpus_only_hosts_go_whole_or_not_at_all(
    label, kubelet, a_node, an_nrt, imported, providers
):
    node = a_node(labels={"node.koordinator.sh/cpu-bind-policy": label} if label else {})
    nrt = an_nrt(annotations={"kubelet.koordinator.sh/cpu-manager-policy": kubelet})
    core = providers(imported(node, nrt))["core-1-3"].inventories["PCPU"]
    assert (core.min_unit, core.step_size) == (2, 2)
    assert not core.admits(1)


def test_unallocatable_cpus_are_reserved_on_cores_and_numa_nodes(an_nrt, imported, providers):
    kubelet = {"policy": "none", "reservedCPUs": "0-2,4"}
    tree = providers(imported(nrt=an_nrt(annotations={"kubelet.koordinator.sh/cpu-manager-policy": kubelet})))
    reserved = {
        name: provider.inventories["PCPU"].reserved for name, provider in tree.items() if "core" in name
    }
    assert reserved == {"core-0-0": 2, "core-0-1": 1, "core-1-2": 1, "core-1-3": 0}
    assert tree["numa-0"].inventories["CUSTOM_CPU_MILLI"] == Inventory(total=4000, reserved=3000)
    assert tree["numa-1"].inventories["CUSTOM_CPU_MILLI"] == Inventory(total=4000, reserved=1000)


def test_a_numa_node_never_has_a_negative_capacity(a_zone, an_nrt, imported, providers):
    kubelet = {"policy": "none", "reservedCPUs": "0-2"}
    nrt = an_nrt(
        zones=[a_zone(0, cpu="1"), a_zone(1, cpu="4")],
        annotations={"kubelet.koordinator.sh/cpu-manager-policy": kubelet},
    )
    result = imported(nrt=nrt)
    assert providers(result)["numa-0"].inventories["CUSTOM_CPU_MILLI"].capacity == 0
    assert any("3000 of CUSTOM_CPU_MILLI are reserved but there are only 1000" in w for w in result.warnings)


def test_hosts_without_smt_have_one_thread_per_core(an_nrt, imported, providers):
    tree = providers(imported(nrt=an_nrt(rows=[(cpu, cpu, cpu // 4, 0) for cpu in range(8)])))
    assert tree["core-0-7"].inventories == {"PCPU": Inventory(total=1)}
    assert "CUSTOM_SMT_1" in tree["host"].traits
    assert "HW_CPU_HYPERTHREADING" not in tree["host"].traits


def test_siblings_may_be_distant(an_nrt, imported, providers):
    rows = [(cpu, cpu % 64, cpu % 64 // 32, cpu % 64 // 32) for cpu in range(128)]
    kubelet = {"policy": "none", "reservedCPUs": "0,64"}
    nrt = an_nrt(rows=rows, annotations={"kubelet.koordinator.sh/cpu-manager-policy": kubelet})
    result = imported(nrt=nrt)
    assert len(result.tree.providers) == 1 + 2 + 64
    assert providers(result)["core-0-0"].inventories == {"PCPU": Inventory(total=2, reserved=2)}
    assert {"CUSTOM_SMT_2", "HW_CPU_HYPERTHREADING"} <= providers(result)["host"].traits


def test_a_socket_may_have_several_numa_nodes(a_zone, an_nrt, imported):
    rows = [(cpu, cpu, cpu // 2, cpu // 8) for cpu in range(16)]
    result = imported(nrt=an_nrt(rows=rows, zones=[a_zone(numa, cpu="2") for numa in range(8)]))
    assert len(result.tree.providers) == 1 + 8 + 16
    assert len(result.topology.sockets) == 2


def test_arm_hosts_are_told_apart(a_node, imported, providers):
    assert "HW_ARCH_AARCH64" in providers(imported(a_node(architecture="arm64")))["host"].traits


def test_an_unknown_architecture_is_a_warning(a_node, imported, providers):
    result = imported(a_node(architecture="s390x"))
    assert not any(trait.startswith("HW_ARCH") for trait in providers(result)["host"].traits)
    assert "Node.status.nodeInfo.architecture: no trait for the architecture 's390x'" in result.warnings


def test_a_numa_node_may_have_memory_only(a_zone, an_nrt, imported, providers):
    zones = [a_zone(0, cpu="4"), a_zone(1, cpu="4"), a_zone(2, memory="64Gi")]
    tree = providers(imported(nrt=an_nrt(zones=zones)))
    assert totals(tree["numa-2"]) == {"MEMORY_MB": 65536}


def test_cpus_without_a_zone_still_make_a_numa_node(a_zone, an_nrt, imported, providers):
    result = imported(nrt=an_nrt(zones=[a_zone(0, cpu="4")]))
    assert totals(providers(result)["numa-1"]) == {"CUSTOM_CPU_MILLI": 4000}
    assert "NodeResourceTopology.zones: no cpu amount for NUMA node 1; counting its 4 CPUs" in result.warnings


def test_zones_that_are_no_numa_nodes_are_skipped_with_a_warning(a_zone, an_nrt, imported):
    zones = [a_zone(0, cpu="4"), a_zone(1, cpu="4"), {"name": "socket-0", "type": "Node"}]
    zones.append({**a_zone(3, cpu="1"), "type": "Cache"})
    result = imported(nrt=an_nrt(zones=zones))
    assert [zone.numa for zone in result.zones] == [0, 1]
    assert sum("skipped" in warning for warning in result.warnings) == 2


def test_a_host_without_a_report_is_a_root_and_a_warning(a_node):
    result = import_node("c1", a_node(), None)
    assert [provider.name for provider in result.tree.providers] == ["c1/node-1"]
    assert result.tree.root.traits == X86 | {"CUSTOM_KOORD_NO_CPU_TOPOLOGY"}
    assert result.takeover == "blind"
    assert any("NodeResourceTopology: is missing" in warning for warning in result.warnings)


def test_an_amount_beyond_any_inventory_is_cut_with_a_warning(a_node, imported, providers):
    result = imported(a_node(allocatable={"example.com/tokens": "1E"}))
    assert totals(providers(result)["host"]) == {"CUSTOM_EXAMPLE_COM_TOKENS": 2147483647}
    assert any("more than an inventory can hold" in warning for warning in result.warnings)


def test_a_host_without_allocatable_offers_nothing_as_a_whole(a_node, imported, providers):
    node = a_node()
    del node["status"]["allocatable"]
    result = imported(node)
    assert providers(result)["host"].inventories == {}
    assert "Node.status.allocatable: is missing; the host as a whole offers nothing" in result.warnings


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, texts)
def test_uuids_are_those_that_every_release_has_given(cluster, key, path):
    """Stored providers are found by them: version 5 of a namespace that never changes."""
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/provider")
    identity = HostIdentity(cluster, "host", key)
    assert identity.uuid(path) == str(uuid.uuid5(namespace, f"{cluster}/{key}/{path}"))
