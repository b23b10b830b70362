"""The shapes that the inputs of Koordinator cases are made of, as the project's own values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from placement.allocations.kubernetes_resources import base_amount
from placement.common.manifest import ManifestReport, Profile, parse_quantity
from placement.engine.numa.allocator import HostReservations, Reservation
from placement.engine.numa.cpus import (
    CpuTopology,
    LogicalCpu,
    format_cpu_list,
    mask_of,
    members_of,
    parse_cpu_list,
)
from placement.engine.numa.host import (
    BindPolicy,
    Distribution,
    ExclusiveLevel,
    Holding,
    HostLedger,
    NumaAmounts,
    NumaExclusivity,
    NumaPolicy,
    NumaStrategy,
    PickRules,
    summed,
)
from placement.engine.scoring.order import DEFAULT_SCORING, Order, Strategy
from placement.engine.scoring.parameters import Weighted
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.host_cpus import label_strategy
from placement.pods.koordinator.node import import_node
from placement.pods.manifests.pod import Pod, read_pod
from placement.pods.state.host import Host, host_of, with_ledger
from placement.pods.state.model import (
    NodeImport,
    NumaTopologySpec,
    PodRequest,
    ResourceStatus,
    SchedulerSettings,
)

Json = Mapping[str, Any]


class Given(dict[str, Any]):
    """The input of a case: what is absent means empty, false or none, and reads as None."""

    def __missing__(self, key: str) -> None:
        return None


def given_input(value: Any) -> Any:
    """A parsed input with all its mappings as `Given`."""
    if isinstance(value, dict):
        return Given({key: given_input(member) for key, member in value.items()})
    return [given_input(member) for member in value] if isinstance(value, list) else value


def topology(given: Json | None) -> CpuTopology:
    """A `topology`, unknown ones without CPUs."""
    if not given:
        return CpuTopology()
    if "cpus" in given:
        return CpuTopology(tuple(LogicalCpu(*row) for row in given["cpus"]))
    sockets, numa_per_socket, cores_per_numa, threads = given["shape"]
    cores = [
        (core, numa, numa // numa_per_socket)
        for numa in range(sockets * numa_per_socket)
        for core in range(numa * cores_per_numa, (numa + 1) * cores_per_numa)
    ]
    return CpuTopology(
        tuple(
            LogicalCpu(cpu, *place)
            for cpu, place in enumerate(place for place in cores for _ in range(threads))
        )
    )


def mask(cpu_list: str | None) -> int:
    """A cpu list as a mask."""
    return mask_of(parse_cpu_list(cpu_list or ""))


def text(cpus: int) -> str:
    """A mask as a cpu list."""
    return format_cpu_list(members_of(cpus))


def amounts(quantities: Json | None) -> dict[str, int]:
    """Quantities by resource name in millicores, bytes and pieces."""
    return {name: base_amount(name, parse_quantity(text)) for name, text in (quantities or {}).items()}


def numa_amounts(given: Json | None) -> NumaAmounts:
    """A `numa_resources`."""
    return NumaAmounts({int(numa): amounts(quantities) for numa, quantities in (given or {}).items()})


def level(given: str | None) -> ExclusiveLevel:
    """An `exclusive`."""
    return ExclusiveLevel(given or "None")


def rules(strategy: str | None, profile: Profile, share_limit: int | None = 1) -> PickRules:
    """How CPUs are chosen under a `numa_strategy`."""
    read = label_strategy(strategy or "", profile)
    even = read is NumaStrategy.DISTRIBUTE_EVENLY
    return PickRules(
        share_limit=share_limit or 1,
        fullest_first=read is NumaStrategy.MOST_ALLOCATED,
        distribution=Distribution.OVER_ALL if even else Distribution.PACKED,
        downgrades=profile is Profile.DESIGN,
    )


def ledger(existing: Iterable[Json] | None, reservations: Json | None = None) -> HostLedger:
    """The pods of an `existing`, whatever they are called.

    What owners of reservations hold is recorded there with the reservations, too; here it is recorded once.
    """
    twice = numa_amounts((reservations or {}).get("matched_allocated"))
    back = {numa: {name: -amount for name, amount in row.items()} for numa, row in twice.items()}
    recorded = {"recorded twice": Holding(amounts=NumaAmounts(back))}
    for place, pod in enumerate(existing or ()):
        holding = Holding(
            parse_cpu_list(pod.get("cpuset") or ""),
            level(pod.get("exclusive")),
            numa_amounts(pod.get("numa_resources")),
        )
        recorded[f"{place} {pod.get('pod')}"] = holding
    return HostLedger(recorded)


def scoring(given: Json | None) -> Strategy:
    """A `score` or `numa_score`."""
    if not given:
        return DEFAULT_SCORING
    weights = tuple(Weighted(*entry) for entry in (given["weights"] or {}).items())
    return Strategy(given["type"], weights or DEFAULT_SCORING.resources)


def settings(profile: Profile, given: Json, default_bind: str = "FullPCPUs") -> SchedulerSettings:
    """What the scheduler is set to; in the phase kinds CPUs are bound to whole cores by default."""
    return SchedulerSettings(
        profile=profile,
        default_bind_policy=BindPolicy(given.get("default_bind", default_bind) or ""),
        # The running scheduler's default, which `design` would take for the cluster's own word.
        default_numa_strategy=None if profile is Profile.DESIGN else NumaStrategy.LEAST_ALLOCATED,
        host_scoring=Order((scoring(given.get("score")),)),
        numa_scoring=scoring(given.get("numa_score")),
    )


def pod(given: Json) -> Pod:
    """A pod from its labels, annotations and the like; `requests` are those of a single container."""
    containers = [{"resources": container} for container in given.get("containers") or ()]
    if "requests" in given:
        containers = [{"resources": {"requests": given["requests"], "limits": given["requests"]}}]
    annotations = dict(given.get("annotations") or {})
    if given.get("scheduling_hint"):
        annotations[keys.SCHEDULING_HINT] = json.dumps({"extensions": {"NodeNUMAResource": {}}})
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": given.get("name", "pod"),
            "namespace": given.get("namespace", "default"),
            "uid": given.get("uid", ""),
            "labels": given.get("labels") or {},
            "annotations": annotations,
        },
        "spec": {
            "containers": containers or [{}],
            "priority": given.get("priority"),
            "nodeName": given.get("node", ""),
        },
        "status": {"phase": given.get("phase", ""), "qosClass": given.get("k8s_qos", "")},
    }
    return read_pod(document, ManifestReport())


def request(given: Json | None) -> PodRequest:
    """A `request` of the phase kinds."""
    given = given or {}
    designated = given.get("designated")
    return PodRequest(
        amounts=amounts(given.get("requests")),
        need=given.get("need", 0),
        bound=given.get("bound", False),
        required_bind=BindPolicy(given.get("required_bind", "")),
        preferred_bind=BindPolicy(given.get("preferred_bind", "")),
        exclusive=level(given.get("exclusive")),
        numa=NumaTopologySpec(
            NumaPolicy(given.get("numa_policy") or "None"),
            NumaExclusivity(given.get("numa_exclusive") or ""),
        ),
        designated_status=designated and _status(designated),
        uses_ls_pools=True,
    )


def _status(given: Json) -> ResourceStatus:
    return ResourceStatus(parse_cpu_list(given.get("cpuset", "")), numa_amounts(given.get("numa_resources")))


def node(given: Json, profile: Profile) -> NodeImport:
    """A `host`, read from the manifests that say the same."""
    rows = topology(given.get("topology")).logical_cpus
    detail = [{"id": row.cpu, "core": row.core, "socket": row.socket, "node": row.numa} for row in rows]
    zones = [
        {
            "name": f"node-{numa}",
            "type": "Node",
            "resources": [{"name": name, "allocatable": amount} for name, amount in quantities.items()],
        }
        for numa, quantities in (given.get("numa_resources") or {}).items()
    ]
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "host",
            "labels": given.get("labels") or {},
            "annotations": given.get("annotations") or {},
        },
        "status": {"allocatable": given.get("allocatable") or {}},
    }
    nrt = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "host",
            "annotations": {
                keys.CPU_TOPOLOGY: json.dumps({"detail": detail}),
                keys.CPU_MANAGER_POLICY: json.dumps(given.get("kubelet") or {}),
            },
        },
        "zones": zones,
    }
    return import_node("cases", manifest, nrt, profile)


def host(given: Json, recorded: HostLedger, chosen: SchedulerSettings) -> Host:
    """A `host` with recorded pods."""
    return with_ledger(host_of(node(given, chosen.profile), chosen), recorded)


def reservations(given: Json | None) -> HostReservations:
    """Return a `reservations`; the first one that matches is the nominated one.

    Of a Restricted one without `remained` all of its `allocatable` is left.
    """
    if given is None:
        return HostReservations()
    return HostReservations(
        matched=tuple(
            Reservation(
                cpus=mask(matched.get("remained_cpus")),
                remaining_amounts=numa_amounts(matched.get("remained", _all_left(matched))),
                total_amounts=numa_amounts(matched.get("allocatable")),
                restricted=matched.get("policy") == "Restricted",
            )
            for matched in given.get("matched") or ()
        ),
        nominated=0 if given.get("nominated") and given.get("matched") else None,
        required=bool(given.get("required")),
        ignored=bool(given.get("ignored")),
    )


def _all_left(matched: Json) -> Json | None:
    return matched.get("allocatable") if matched.get("policy") == "Restricted" else None


def total_requests(pods: Iterable[Json]) -> dict[str, int]:
    """What all pods of an `existing_pods` request together."""
    together = summed({0: amounts(pod.get("requests"))} for pod in pods)
    return dict(together.get(0, {}))


def ratio(amplification: Json | None) -> Fraction:
    """The ratio of an `amplification` for cpu."""
    return Fraction(str((amplification or {}).get("cpu", 1)))
