"""Pods and hosts of a small cluster, built from the few things a test is about."""

import json
from types import SimpleNamespace

from placement.allocations.kubernetes_resources import host_class
from placement.common.manifest import ManifestReport, Profile
from placement.engine.numa.amounts import NumaAmounts, summed
from placement.engine.numa.cpuset import format_cpu_list, parse_cpu_list
from placement.engine.numa.demand import ExclusiveLevel
from placement.engine.numa.host import Holding, HostLedger, HostTotals
from placement.pods.cycle import judged as judged_by
from placement.pods.host import host_of, with_ledger
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.pod import interpret_pod
from placement.pods.manifests.pod import read_pod
from placement.pods.model import SchedulerSettings
from placement.pods.reading import import_pod
from placement.pods.rules import HOST
from placement.pods.rules.numa import allocate_on_host, answer_of
from placement.pods.rules.rule import Fit, IncomingPod, concerned
from tests.unit.pods.koordinator.conftest import build_node, build_nrt, build_zone

QOS = "koordinator.sh/qosClass"
PRIORITY = "koordinator.sh/priority-class"
SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
BIND = "node.koordinator.sh/cpu-bind-policy"
STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NUMA = "node.koordinator.sh/numa-topology-policy"
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
RATIO = "node.koordinator.sh/resource-amplification-ratio"

DESIGN, KOORD = SchedulerSettings(), SchedulerSettings(profile=Profile.KOORD_SCHEDULER)

# Two sockets with one NUMA node each, four cores per node, adjacent siblings.
ROWS = tuple((cpu, cpu // 2, cpu // 8, cpu // 8) for cpu in range(16))


def container(**resources):
    """A container whose limits are its requests; `requests` and `limits` say otherwise."""
    if "requests" in resources or "limits" in resources:
        return {"resources": resources}
    return {"resources": {"requests": resources, "limits": resources}}


def build_pod(
    *containers,
    qos=None,
    priority=None,
    spec=None,
    numa=None,
    labels=None,
    annotations=None,
    status=None,
    **members,
):
    """A pod manifest; `spec`, `numa` and `status` are annotations, other members belong to the pod's spec."""
    written = {SPEC: spec, NUMA_SPEC: numa, STATUS: status, **(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "pod-1",
            "namespace": "default",
            "uid": "u1",
            "labels": {
                key: value for key, value in {QOS: qos, **(labels or {})}.items() if value is not None
            },
            "annotations": {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in written.items()
                if value is not None
            },
        },
        "spec": {
            "containers": list(containers) or [container(cpu="4", memory="1Gi")],
            "priority": priority,
            **{key: value for key, value in members.items() if key not in ("phase", "qosClass")},
        },
        "status": {key: members[key] for key in ("phase", "qosClass") if key in members},
    }


def lsr(*containers, **members):
    """An LSR pod of class prod."""
    return build_pod(*containers, **{"qos": "LSR", "priority": 9500, **members})


def read(document):
    return read_pod(document, ManifestReport())


def request_of(document, settings=DESIGN):
    return interpret_pod(read(document), settings)


def imported_node(
    *,
    labels=None,
    annotations=None,
    kubelet=None,
    policies=None,
    rows=ROWS,
    zones=None,
    nrt=None,
    profile="design",
):
    node = build_node(
        labels=labels,
        annotations=annotations,
        allocatable={"cpu": "16", "memory": "32Gi", "pods": "110"},
    )
    if zones is None:
        zones = [build_zone(numa, cpu="8", memory="16Gi") for numa in sorted({row[2] for row in rows})]
    topology = build_nrt(
        rows=rows,
        zones=zones,
        annotations={**({KUBELET: kubelet} if kubelet else {}), **(nrt or {})},
        policies=policies,
    )
    return import_node("c1", node, topology, profile)


def held(listed="", level="None", **by_numa):
    amounts = NumaAmounts({int(name.removeprefix("numa")): row for name, row in by_numa.items()})
    return Holding(parse_cpu_list(listed), ExclusiveLevel(level), amounts)


def ledger_of(*holdings):
    return HostLedger({str(number): holding for number, holding in enumerate(holdings)})


def host(*holdings, settings=DESIGN, unreadable=(), **node):
    """A host of a cluster with these settings on which pods hold that."""
    imported = imported_node(profile=settings.profile, **node)
    return with_ledger(host_of(imported, settings), ledger_of(*holdings), unreadable)


def host_totals(node, requests):
    """What an imported node as a whole can give, and what pods with these requests ask of it together."""
    allocatable = {}
    for resource_class, inventory in node.tree.root.inventories.items():
        resource = node.resource_names[resource_class]
        allocatable[resource] = inventory.capacity * host_class(resource).unit
    return HostTotals(allocatable, summed({0: amounts} for amounts in requests).get(0, {}))


def totals(*requests, **node):
    return host_totals(imported_node(**node), requests)


def judge(pod, place, total):
    """The verdict of a host with these totals about an incoming pod."""
    return judged_by(concerned(HOST, pod), SimpleNamespace(host=place, totals=total), pod)


def fit_host(place, request):
    """The answer of the CPUs and NUMA nodes of a host."""
    return answer_of(place, IncomingPod(request)).answer


def judged(place, document, settings=DESIGN, **options):
    """The verdict about a pod on an otherwise empty host."""
    return judge(IncomingPod(request_of(document, settings), **options), place, totals())


def cpus_of(place, document, settings=DESIGN):
    """The CPUs that a pod is given on a host where it fits."""
    request = request_of(document, settings)
    fit = fit_host(place, request)
    assert isinstance(fit, Fit), fit
    return format_cpu_list(allocate_on_host(place, request, fit).status.cpus)


def admitted(document, settings=DESIGN):
    return import_pod(document, settings)
