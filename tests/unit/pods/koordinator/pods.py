"""Pods and hosts of a small cluster, built from the few things a test is about."""

import json
from types import SimpleNamespace

from placement.allocations.kubernetes_resources import host_class
from placement.common.manifest import ManifestReport, Profile
from placement.engine.numa.cpus import parse_cpu_list
from placement.engine.numa.host import ExclusiveLevel, Holding, HostLedger, HostTotals, NumaAmounts, summed
from placement.pods.decide.ranking import judged as judged_by
from placement.pods.decide.reading import import_pod
from placement.pods.decide.rules import HOST
from placement.pods.decide.rules.rule import IncomingPod, concerned
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.pod import interpret_pod
from placement.pods.manifests.pod import read_pod
from placement.pods.state.host import host_of, with_ledger
from placement.pods.state.model import SchedulerSettings
from tests.kubernetes import KUBELET, QOS, ROWS, pod_manifest
from tests.unit.pods.koordinator.conftest import build_node, build_nrt, build_zone

STRATEGY = "node.koordinator.sh/numa-allocate-strategy"

DESIGN, KOORD = SchedulerSettings(), SchedulerSettings(profile=Profile.KOORD_SCHEDULER)


def container(**resources):
    """A container whose limits are its requests; `requests` and `limits` say otherwise."""
    if "requests" in resources or "limits" in resources:
        return {"resources": resources}
    return {"resources": {"requests": resources, "limits": resources}}


def build_pod(
    *containers, qos=None, priority=None, labels=None, annotations=None, phase=None, qosClass=None, **given
):
    """A pod manifest; `spec`, `numa` and `status` are annotations, other members belong to the pod's spec."""
    pod = pod_manifest(qos=None, priority=priority, uid="u1", phase=phase, **given)
    metadata, labelled = pod["metadata"], {QOS: qos, **(labels or {})}
    metadata |= {"name": "pod-1", "namespace": "default"}
    metadata["labels"] = {key: text for key, text in labelled.items() if text is not None}
    metadata["annotations"] |= {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (annotations or {}).items()
    }
    pod["spec"]["containers"] = list(containers) or [container(cpu="4", memory="1Gi")]
    pod["status"] |= {"qosClass": qosClass} if qosClass else {}
    return pod


def lsr(*containers, **members):
    """An LSR pod of class prod."""
    return build_pod(*containers, **{"qos": "LSR", "priority": 9500, **members})


def read(document):
    return read_pod(document, ManifestReport())


def request_of(document, settings=DESIGN):
    return interpret_pod(read(document), settings)


def imported_node(*, kubelet=None, policies=None, rows=ROWS, zones=None, nrt=None, profile="design", **given):
    node = build_node(allocatable={"cpu": "16", "memory": "32Gi", "pods": "110"}, **given)
    if zones is None:
        zones = [build_zone(numa, cpu="8", memory="16Gi") for numa in sorted({row[2] for row in rows})]
    annotations = {**({KUBELET: kubelet} if kubelet else {}), **(nrt or {})}
    topology = build_nrt(rows=rows, zones=zones, annotations=annotations, policies=policies)
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


def judged(place, document, settings=DESIGN, **options):
    """The verdict about a pod on an otherwise empty host."""
    return judge(IncomingPod(request_of(document, settings), **options), place, totals())


def admitted(document, settings=DESIGN):
    return import_pod(document, settings)
