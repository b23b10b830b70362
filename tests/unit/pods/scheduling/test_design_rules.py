"""The principles of the design documents, one test each."""

from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.host import HostLedger
from placement.pods.accounts import host_pools
from placement.pods.koordinator.records import read_pod_record
from tests.unit.pods.koordinator.pods import (
    DESIGN,
    STRATEGY,
    container,
    cpus_of,
    held,
    host,
    imported_node,
    lsr,
    read,
)

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
