"""The principles of the design documents, one test each."""

from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.host import HostLedger
from placement.pods.koordinator.pod import read_pod_record
from placement.pods.shared_pools import host_pools
from tests.unit.pods.koordinator.pods import DESIGN, container, cpus_of, host, imported_node, lsr, read


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
