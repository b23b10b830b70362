"""Amplified hosts and what they reserve."""

from fractions import Fraction

import pytest

from placement.engine.domain.inventories import Inventory

RATIO = "node.koordinator.sh/resource-amplification-ratio"
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM = "node.koordinator.sh/system-qos-resource"


def test_zones_are_multiplied_and_rounded_up_while_the_host_is_multiplied_already(
    a_node, imported, providers
):
    result = imported(a_node(annotations={RATIO: {"cpu": 1.33, "memory": 1.0}}))
    tree = providers(result)
    assert tree["numa-0"].inventories["CUSTOM_CPU_MILLI"].total == 5320
    assert tree["numa-0"].inventories["MEMORY_MB"].total == 8192
    assert tree["host"].inventories["CUSTOM_NODE_CPU_MILLI"].total == 8000
    assert result.amplification == {"cpu": Fraction(133, 100)}
    assert result.zones[0].amounts["cpu"] == 4000


def test_reported_ratios_say_that_zones_are_multiplied_already(a_node, an_nrt, imported, providers):
    ratios = {RATIO: {"cpu": 1.5}}
    result = imported(a_node(annotations=ratios), an_nrt(annotations=ratios))
    assert providers(result)["numa-0"].inventories["CUSTOM_CPU_MILLI"].total == 4000
    assert result.zones_amplified


def test_amounts_counted_from_the_cpus_are_always_multiplied(a_node, a_zone, an_nrt, imported, providers):
    ratios = {RATIO: {"cpu": 1.5}}
    nrt = an_nrt(annotations=ratios, zones=[a_zone(0, cpu="6")])
    tree = providers(imported(a_node(annotations=ratios), nrt))
    assert tree["numa-1"].inventories["CUSTOM_CPU_MILLI"].total == 6000


def test_amplification_leaves_cores_alone(a_node, imported, providers):
    tree = providers(imported(a_node(annotations={RATIO: {"cpu": 2}})))
    assert tree["core-0-0"].inventories == {"PCPU": Inventory(total=2)}


@pytest.mark.parametrize("ratio", ["1.5", None, True, [1]])
def test_ratios_must_be_numbers(ratio, a_node, refused):
    path = f"Node.metadata.annotations[{RATIO}].cpu"
    assert refused(a_node(annotations={RATIO: {"cpu": ratio}})) == (f"{path}: must be a number",)


@pytest.mark.parametrize(
    ("reservation", "reserved"),
    [
        ({"resources": {"cpu": "1500m", "memory": "1Gi"}}, {"CPU": 1500, "MEMORY": 1024}),
        ({"resources": {"cpu": "4"}, "reservedCPUs": "0-1"}, {"CPU": 2000, "MEMORY": 0}),
        ({"resources": {"cpu": "4"}, "reservedCPUs": "what"}, {"CPU": 4000, "MEMORY": 0}),
        ({"resources": {"memory": "1", "cpu": "-2"}}, {"CPU": 0, "MEMORY": 1}),
        ({"reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"}, {"CPU": 0, "MEMORY": 0}),
        ({"reservedCPUs": "0-1", "applyPolicy": "Sometimes"}, {"CPU": 2000, "MEMORY": 0}),
    ],
)
def test_a_reservation_reduces_the_host_unless_it_is_for_cpus_only(
    reservation, reserved, a_node, imported, providers
):
    offers = providers(imported(a_node(annotations={RESERVATION: reservation})))["host"].inventories
    assert offers["CUSTOM_NODE_CPU_MILLI"].reserved == reserved["CPU"]
    assert offers["CUSTOM_NODE_MEMORY_MB"].reserved == reserved["MEMORY"]


def test_a_reservation_never_touches_batch_resources(a_node, imported, providers):
    batch = {"kubernetes.io/batch-cpu": "1000"}
    node = a_node(allocatable=batch, annotations={RESERVATION: {"resources": batch}})
    assert providers(imported(node))["host"].inventories == {"CUSTOM_BATCH_CPU": Inventory(total=1000)}


def test_reserved_and_system_cpus_are_unallocatable(an_nrt, imported):
    nrt = an_nrt(annotations={RESERVATION: {"reservedCPUs": "0"}, SYSTEM: {"cpuset": "2-3"}})
    assert imported(nrt=nrt).unallocatable == {0, 2, 3}


def test_a_shared_system_list_takes_nothing_away(an_nrt, imported):
    nrt = an_nrt(annotations={SYSTEM: {"cpuset": "2-3", "cpusetExclusive": False}})
    assert imported(nrt=nrt).unallocatable == frozenset()


def test_lists_on_the_node_count_until_the_node_agent_reports_its_own(a_node, an_nrt, imported):
    node = a_node(annotations={RESERVATION: {"reservedCPUs": "0-1"}, SYSTEM: {"cpuset": "7"}})
    assert imported(node).unallocatable == {0, 1, 7}
    assert imported(node, an_nrt(annotations={RESERVATION: {"reservedCPUs": "4"}})).unallocatable == {4, 7}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RESERVATION, "{"),
        (RESERVATION, {"reservedCPUs": "0-x"}),
        (RESERVATION, []),
        (SYSTEM, {"cpuset": 4}),
        (SYSTEM, {"cpuset": "4", "cpusetExclusive": "yes"}),
        ("kubelet.koordinator.sh/cpu-manager-policy", {"policy": "none", "reservedCPUs": "1 "}),
        ("kubelet.koordinator.sh/cpu-manager-policy", "{]"),
        ("node.koordinator.sh/pod-cpu-allocs", "nothing"),
        ("node.koordinator.sh/pod-cpu-allocs", {}),
    ],
)
def test_an_unreadable_source_of_unallocatable_cpus_is_a_warning(key, value, an_nrt, imported):
    result = imported(nrt=an_nrt(annotations={key: value}))
    assert result.unallocatable == frozenset()
    assert any(f"[{key}]" in warning and "ignored" in warning for warning in result.warnings)


def test_cpus_that_the_topology_does_not_have_are_left_out_with_a_warning(an_nrt, imported):
    result = imported(nrt=an_nrt(annotations={RESERVATION: {"reservedCPUs": "7-9"}}))
    assert result.unallocatable == {7}
    path = f"NodeResourceTopology.metadata.annotations[{RESERVATION}].reservedCPUs"
    assert f"{path}: CPUs 8-9 are not in the cpu-topology; left out" in result.warnings
