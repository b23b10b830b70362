"""The principles of the design documents, one test each."""

import pytest

from placement.common.manifest import ManifestError
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.host import HostLedger
from placement.pods.accounts import host_pools
from placement.pods.koordinator.policies import KubeletPolicy, running_qos
from placement.pods.koordinator.records import read_pod_record
from placement.pods.node_filter import Fit, allocate_on_host, fit_host
from tests.unit.pods.koordinator.pods import (
    DESIGN,
    KUBELET,
    NUMA,
    STRATEGY,
    admitted,
    build_pod,
    container,
    held,
    host,
    imported_node,
    lsr,
    read,
    reasons,
    request_of,
)

GUARANTEED = build_pod(container(cpu="2", memory="1Gi"))
ONE_THREAD = tuple((cpu, cpu, cpu // 4, cpu // 4) for cpu in range(8))


def pools_with(*pods, **node):
    """The CPUs of the LS pools and of the BE pools with these pods running, by name."""
    held = (read_pod_record(read(pod), DESIGN).holding for pod in pods)
    pools = host_pools(imported_node(**node), HostLedger(dict(enumerate(held))), frozenset())
    return tuple(
        format_cpu_list(frozenset[int]().union(*(pool.cpus for pool in of))) for of in (pools.ls, pools.be)
    )


def running(qos, listed):
    return lsr(qos=qos, status={"cpuset": listed}, nodeName="node-1", phase="Running")


def cpus_of(place, document):
    request = request_of(document)
    fit = fit_host(place, request)
    assert isinstance(fit, Fit), fit
    return format_cpu_list(allocate_on_host(place, request, fit).status.cpus)


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
def test_lse_and_lsr_request_whole_cpus_and_no_less_than_their_limit(qos):
    assert admitted(lsr(qos=qos)).request.need == 4
    for cpu, limit in (("1500m", "1500m"), ("2", "4")):
        with pytest.raises(ManifestError):
            admitted(lsr(container(requests={"cpu": cpu}, limits={"cpu": limit}), qos=qos))


def test_cpus_of_lse_pods_are_shared_with_nobody():
    assert pools_with(running("LSE", "0-3")) == ("4-15", "4-15")


def test_cpus_of_lsr_pods_are_shared_with_be_only():
    assert pools_with(running("LSR", "0-3")) == ("4-15", "0-15")


def test_ls_pods_share_what_no_lse_or_lsr_pod_has():
    assert pools_with(running("LSE", "0-3"), running("LSR", "8-9")) == ("4-7,10-15", "4-15")


def test_the_shared_pool_includes_what_kubelet_reserves():
    kubelet = {"policy": "static", "reservedCPUs": "0-1"}
    assert pools_with(kubelet=kubelet) == ("0-15", "0-15")
    assert cpus_of(host(kubelet=kubelet), lsr(container(cpu="8"))) == "8-15"


def test_kubelet_managed_cpus_are_in_no_pool():
    allocs = [{"uid": "k", "cpuset": "0-3", "managedByKubelet": True}]
    nrt = {"node.koordinator.sh/pod-cpu-allocs": allocs}
    assert pools_with(nrt=nrt, kubelet={"policy": "static"}) == ("4-15", "4-15")


def test_what_the_node_or_system_pods_keep_for_themselves_is_in_no_pool():
    nrt = {
        "node.koordinator.sh/reservation": {"reservedCPUs": "0-1"},
        "node.koordinator.sh/system-qos-resource": {"cpuset": "8"},
    }
    assert pools_with(nrt=nrt) == ("2-7,9-15", "2-7,9-15")


def test_running_guaranteed_pods_are_lsr_under_kubelets_static_policy():
    assert running_qos(read(GUARANTEED), KubeletPolicy("static")) == "LSR"


def test_running_guaranteed_pods_are_ls_under_kubelets_none_policy():
    assert running_qos(read(GUARANTEED), KubeletPolicy("none")) == "LS"


def test_new_guaranteed_pods_without_qos_are_treated_as_ls():
    request = request_of(build_pod(container(cpu="2", memory="1Gi"), priority=9500))
    assert not request.bound
    assert request.uses_ls_pools


def test_fullpcpus_continues_with_partial_cores_where_it_is_preferred():
    # One core is whole, the others have lost a thread each.
    assert cpus_of(host(held("0,2,4,6,8,10,12")), lsr()) == "9,11,14-15"


def test_smt_alignment_refuses_where_fullpcpus_is_required():
    required = lsr(container(cpu="3"), spec={"requiredCPUBindPolicy": "FullPCPUs"})
    assert reasons(host(), required) == ("node(s) requested cpus not multiple cpus per core",)
    kubelet = {"policy": "static", "options": {"full-pcpus-only": "true"}}
    assert reasons(host(kubelet=kubelet), lsr(container(cpu="3"))) == (
        "node(s) requested cpus not multiple cpus per core",
    )


def test_hosts_that_only_give_whole_cores_avoid_pods_that_require_spreading():
    kubelet = {"policy": "static", "options": {"full-pcpus-only": "true"}}
    spreading = lsr(spec={"requiredCPUBindPolicy": "SpreadByPCPUs"})
    assert reasons(host(kubelet=kubelet), spreading) == (
        "node(s) cpu bind policy conflicts with pod's required cpu bind policy",
    )


def test_without_smt_as_on_arm_every_bind_policy_is_fullpcpus():
    place = host(held("0"), rows=ONE_THREAD)
    chosen = {
        cpus_of(place, lsr(container(cpu="2"), spec={"preferredCPUBindPolicy": policy}))
        for policy in ("FullPCPUs", "SpreadByPCPUs")
    }
    assert chosen == {"4-5"}


def test_without_smt_as_on_arm_only_numanodelevel_is_exclusive():
    def chosen(level):
        spec = {"preferredCPUExclusivePolicy": level}
        place = host(held("0", level), rows=ONE_THREAD, labels={STRATEGY: "MostAllocated"})
        return cpus_of(place, lsr(container(cpu="2"), spec=spec))

    assert chosen("PCPULevel") == chosen("None") == "1-2"
    assert chosen("NUMANodeLevel") == "4-5"


def test_the_numa_strategy_label_comes_before_kubelets_option():
    kubelet = {"policy": "static", "options": {"distribute-cpus-across-numa": "true"}}
    twelve = lsr(container(cpu="12"))
    assert cpus_of(host(kubelet=kubelet), twelve) == "0-5,8-13"
    assert cpus_of(host(kubelet=kubelet, labels={STRATEGY: "LeastAllocated"}), twelve) == "0-11"


def test_the_numa_policy_label_comes_before_topologypolicies():
    policies = ["SingleNUMANodePodLevel"]
    assert host(policies=policies).numa_policy == "SingleNUMANode"
    assert host(policies=policies, labels={NUMA: "BestEffort"}).numa_policy == "BestEffort"


def test_distribute_cpus_across_numa_splits_evenly_what_needs_several_numa_nodes():
    kubelet = {"policy": "static", "options": {"distribute-cpus-across-numa": "true"}}
    place = host(held("0-1"), kubelet=kubelet)
    assert cpus_of(place, lsr(container(cpu="12"))) == "2-13"
    assert cpus_of(place, lsr(container(cpu="8"))) == "8-15"


def test_hosts_tell_how_far_they_are_taken_over_from_kubelet():
    assert imported_node(kubelet={"policy": "static"}).takeover == "mixed"
    assert imported_node(kubelet={"policy": "none"}).takeover == "taken over"
    assert imported_node(nrt={KUBELET: {"policy": ""}}).takeover == "blind"
