"""resource-status and resource-spec of pods that were given something, and what is read back from them."""

import pytest

from placement.common.manifest import ManifestError
from placement.engine.numa.host import ExclusiveLevel, NumaAmounts
from placement.pods.decide.reading import import_running_pod
from placement.pods.koordinator.annotations import status_document
from placement.pods.koordinator.pod import read_holding
from placement.pods.state.host import numa_capacity
from placement.pods.state.model import NO_HOLDING, KubeletPolicy, QosClass, ResourceStatus
from tests.kubernetes import RATIO
from tests.unit.pods.koordinator.conftest import build_zone
from tests.unit.pods.koordinator.pods import (
    DESIGN,
    build_pod,
    container,
    held,
    host,
    imported_node,
    lsr,
    read,
)

NONE = KubeletPolicy("none")


def test_empty_members_are_left_out_and_numa_nodes_are_sorted():
    amounts = NumaAmounts({3: {"cpu": 1000}, 1: {"memory": 7}})
    sorted_ = [{"node": 1, "resources": {"memory": "7"}}, {"node": 3, "resources": {"cpu": "1"}}]
    assert status_document(ResourceStatus(amounts=amounts)) == {"numaNodeResources": sorted_}
    assert status_document(ResourceStatus()) == {}


def record(document):
    return read_holding(read(document), DESIGN)


RUNNING = {"nodeName": "node-1", "phase": "Running"}


def test_a_running_pod_holds_what_its_annotations_say():
    numa = [{"node": 0, "resources": {"cpu": "4", "memory": "1Gi"}}, {"node": 1, "resources": {"cpu": 1}}]
    status = {"cpuset": "0-3,8", "numaNodeResources": numa}
    spec = {"preferredCPUExclusivePolicy": "PCPULevel"}
    holding = record(lsr(qos="LSE", status=status, spec=spec, **RUNNING))[0]
    assert holding.cpus == {0, 1, 2, 3, 8}
    assert holding.level == "PCPULevel"
    assert dict(holding.amounts) == {0: {"cpu": 4000, "memory": 2**30}, 1: {"cpu": 1000}}
    assert not holding.shares_with_best_effort


@pytest.mark.parametrize("qos", QosClass)
def test_what_is_read_back_is_what_was_recorded(qos):
    given = ResourceStatus(frozenset({1, 2})).holding(ExclusiveLevel.NONE, qos, "")
    assert record(lsr(qos=str(qos), status={"cpuset": "1-2"}, **RUNNING))[0] == given


def test_pods_without_host_ended_ones_and_those_that_were_given_nothing_hold_nothing():
    ended = ({"nodeName": "n", "phase": phase} for phase in ("Succeeded", "Failed"))
    for members in ({}, {"nodeName": ""}, *ended):
        assert record(lsr(status={"cpuset": "0-3"}, **members)) == (NO_HOLDING, ())
        assert record(lsr(status="{", **members))[1] == ()
    assert record(build_pod(**RUNNING)) == (NO_HOLDING, ())
    assert record(build_pod(status={"cpuset": ""}, **RUNNING)) == (NO_HOLDING, ())


def test_an_unreadable_status_is_a_reason_to_bind_nobody_there():
    for status in ("bad-alloc-fmt", '{"cpuset": "a"}', '{"numaNodeResources": [{"node": -1}]}'):
        holding, unreadable = record(lsr(status=status, **RUNNING))
        assert holding == NO_HOLDING
        assert unreadable


def test_a_spec_that_does_not_parse_costs_the_level_but_not_the_cpus():
    holding = record(lsr(status={"cpuset": "0-3"}, spec="{", **RUNNING))[0]
    assert holding.cpus == {0, 1, 2, 3}
    assert holding.level == "None"


def test_cpus_the_host_does_not_have_do_not_count():
    assert host(held("14-17")).state.use.held == 0b11 << 14


def test_a_running_pod_counts_for_the_totals_of_its_host():
    running = import_running_pod(build_pod(container(cpu="2", memory="1Gi"), **RUNNING), DESIGN, NONE)
    assert (running.treated_as, running.holding) == ("LS", NO_HOLDING)
    assert running.requests == {"cpu": 2000, "memory": 2**30}
    ended = import_running_pod(build_pod(nodeName="n", phase="Failed"), DESIGN, NONE)
    assert ended.requests == {}
    with pytest.raises(ManifestError):
        import_running_pod({"kind": "Pod"}, DESIGN, NONE)


def test_the_capacity_of_numa_nodes_lacks_unallocatable_cpus_before_it_is_amplified():
    nrt = {"node.koordinator.sh/reservation": {"reservedCPUs": "0-1"}}
    ratios = {RATIO: {"cpu": 1.5, "memory": 2}}
    zones = [
        build_zone(0, cpu="8", memory="3"),
        build_zone(1, cpu="1", memory="3"),
        build_zone(7, memory="5"),
    ]
    node = imported_node(nrt=nrt, annotations=ratios, zones=zones)
    less = {0: {"cpu": 9000, "memory": 6}, 1: {"cpu": 1500, "memory": 6}, 7: {"memory": 10}}
    assert dict(numa_capacity(node)) == less
    reported = imported_node(nrt={**nrt, **ratios}, annotations=ratios, zones=zones)
    assert dict(numa_capacity(reported))[0] == {"cpu": 6000, "memory": 3}
    # NUMA nodes never have less than nothing.
    nrt = {"node.koordinator.sh/reservation": {"reservedCPUs": "0-7"}}
    node = imported_node(nrt=nrt, zones=[build_zone(0, cpu="4")])
    assert dict(numa_capacity(node)) == {0: {"cpu": 0}}
