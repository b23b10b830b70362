"""Koordinator cases about the phases of scheduling: interpret, filter, reserve, score, bind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.common.manifest import Profile
from placement.engine.numa.allocator import ReservedPlacing
from placement.engine.numa.cpus import format_cpu_list, parse_cpu_list
from placement.engine.numa.host import Holding, HostLedger, HostTotals, PodRefused, Refusal, summed
from placement.pods.decide.rules.numa import allocate_on_host, rate_host
from placement.pods.decide.rules.rule import Fit, IncomingPod
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.annotations import completed_spec, status_document
from placement.pods.koordinator.host_cpus import host_bind_policy
from placement.pods.koordinator.pod import interpret_pod
from placement.pods.state.host import Host, alignment_on, demand_on, merged_numa_policy, pod_bind_policy
from placement.pods.state.model import NO_REQUEST, KubeletPolicy, PodRequest, ResourceSpec, ResourceStatus
from tests.cases import koordinator_inputs as read
from tests.cases.koordinator_inputs import Json
from tests.unit.pods.koordinator.pods import judge

Outcome = Mapping[str, Any]


def interpret(given: Json, profile: Profile) -> Outcome:
    """What a pod asks of any host."""
    pod = read.pod(given["pod"] or {})
    request = interpret_pod(pod, read.settings(profile, given, default_bind=""))
    pod.manifest.root.report.raise_findings()
    if request is NO_REQUEST:
        return {"skip": True}
    designated = request.designated_status
    return {
        "bound": request.bound,
        "need": request.need,
        "required_bind": request.required_bind,
        "preferred_bind": request.preferred_bind,
        "designated": designated
        and {"cpuset": format_cpu_list(designated.cpus), "numa_resources": designated.amounts},
    }


def bind_policy(given: Json, profile: Profile) -> Outcome:
    """The policy under which a pod is bound on a host."""
    kubelet = given.get("kubelet") or {}
    host = host_bind_policy(
        given["node_policy"] or "", KubeletPolicy(kubelet.get("policy", ""), kubelet.get("options") or {})
    )
    bind, required = pod_bind_policy(host, given["required"] or "", given["preferred"] or "")
    return {"bind": bind, "required": required}


def _fit(host: Host, totals: HostTotals, request: PodRequest, given: Json) -> Fit:
    if not (request.amounts or request.bound or request.designated_status):
        request = NO_REQUEST  # as the service reads a pod that asks for nothing
    pod = IncomingPod(request, reservations=read.reservations(given.get("reservations")))
    result = judge(pod, host, totals)
    if isinstance(result.answer, Refusal):
        raise PodRefused(*result.answer.reasons, refusal_class=result.answer.refusal_class)
    return result.answer


def _totals(host: Json) -> HostTotals:
    pods = host.get("existing_pods") or ()
    return HostTotals(read.amounts(host.get("allocatable")), read.total_requests(pods))


def filter_one(given: Json, profile: Profile) -> Outcome:
    """Filter one host."""
    host = read.host(given["host"], read.ledger(given.get("existing")), read.settings(profile, given))
    request = read.request(given["request"])
    fit = _fit(host, _totals(given["host"]), request, given)
    if fit.designated_allocation is None:
        return {"ok": True}
    status, _ = allocate_on_host(host, request, fit)
    return {"ok": True, "allocation": _allocated(status)}


def _allocated(status: ResourceStatus) -> Outcome:
    return {"cpuset": format_cpu_list(status.cpus), "numa_resources": status.amounts}


def filter_amplified(given: Json, profile: Profile) -> Outcome:
    """Filter one host by its amplified CPUs."""
    settings = read.settings(profile, given)
    described = {**given["host"], "existing_pods": given["existing_pods"] or ()}
    host = read.host(described, read.ledger(given["existing_pods"]), settings)
    _fit(host, _totals(described), interpret_pod(read.pod(given["pod"] or {}), settings), given)
    return {"ok": True}


def _recorded_amounts(existing: Json) -> HostLedger:
    held = {
        numa: summed({int(numa): read.amounts(request)} for request in requests)
        for numa, requests in existing.items()
    }
    return HostLedger({numa: Holding(amounts=amounts) for numa, amounts in held.items()})


def filter_affinity(given: Json, profile: Profile) -> Outcome:
    """The NUMA nodes chosen while filtering."""
    ledger = _recorded_amounts(given.get("existing_numa") or {})
    host = read.host(given["host"], ledger, read.settings(profile, given))
    fit = _fit(host, _totals(given["host"]), read.request(given["request"]), given)
    return {"affinity": None if fit.affinity is None else list(fit.affinity)}


def _given_fit(given: Json) -> Fit:
    return Fit(tuple(given["affinity"]) if given.get("affinity") is not None else None)


def _ledger(given: Json) -> HostLedger:
    return read.ledger(given.get("existing"), given.get("reservations"))


def reserve(given: Json, profile: Profile) -> Outcome:
    """Allocate on one host, aligned as the case says."""
    host = read.host(given["host"], _ledger(given), read.settings(profile, given))
    request, reservations = read.request(given["request"]), read.reservations(given.get("reservations"))
    fit = (
        _fit(host, _totals(given["host"]), request, given) if request.designated_status else _given_fit(given)
    )
    return _allocated(allocate_on_host(host, request, fit, reservations)[0])


def reserve_numa(given: Json, profile: Profile) -> Outcome:
    """Filter one host, then allocate on it."""
    host = read.host(given["host"], read.ledger(given.get("existing")), read.settings(profile, given))
    request = read.request(given["request"])
    fit = _fit(host, _totals(given["host"]), request, given)
    return _allocated(allocate_on_host(host, request, fit)[0])


def nominate(given: Json, profile: Profile) -> Outcome:
    """Allocate out of the first reservation."""
    host = read.host(given["host"], _ledger(given), read.settings(profile, given))
    request = read.request(given["request"])
    merged_numa_policy(host.numa_policy, request.numa.policy)
    reservations = read.reservations(given["reservations"])
    ReservedPlacing(host.state, demand_on(host.binding, request), reservations).nominate(
        0, _given_fit(given).affinity
    )
    return {"ok": True}


def score_one(given: Json, profile: Profile) -> Outcome:
    """The score of one host, aligned as the case says."""
    settings = read.settings(profile, given)
    host = read.host(given["host"], _ledger(given), settings)
    request = read.request(given["request"])
    reservations = read.reservations(given.get("reservations"))
    pod = IncomingPod(request, scoring=settings.host_scoring, reservations=reservations)
    demand = demand_on(host.binding, request)
    alignment = alignment_on(host.numa_policy, request.numa, host.numa_scoring, host.favours_idle)
    return {"score": rate_host(host, pod, _given_fit(given), demand, alignment).score(_totals(given["host"]))}


def score_hosts(given: Json, profile: Profile) -> Outcome:
    """The scores of several hosts, each filtered before."""
    settings = read.settings(profile, given)
    request = interpret_pod(read.pod(given["pod"] or {}), settings)
    pod, scores = IncomingPod(request, scoring=settings.host_scoring), {}
    for described in given["hosts"]:
        existing = [*(described.get("existing") or ()), *(described.get("existing_pods") or ())]
        host = read.host(described, read.ledger(existing), settings)
        scores[described["name"]] = judge(pod, host, _totals(described)).score
    return {"scores": scores}


def _spec(document: Json | None) -> ResourceSpec:
    given = document or {}
    return ResourceSpec(
        given.get("requiredCPUBindPolicy", ""),
        given.get("preferredCPUBindPolicy", ""),
        given.get("preferredCPUExclusivePolicy", ""),
        given,
    )


def spec_writeback(given: Json, profile: Profile) -> Outcome:
    """The completed resource-spec of a pod that was bound."""
    host = host_bind_policy((given.get("labels") or {}).get(keys.CPU_BIND_POLICY, ""), KubeletPolicy())
    bind, strict = pod_bind_policy(host, given["required_bind"] or "", given["preferred_bind"] or "")
    return {"resource_spec": completed_spec(_spec(given["resource_spec"]), bind, strict)}


def bind_result(given: Json, profile: Profile) -> Outcome:
    """The annotations of a pod that was allocated."""
    allocation = given["allocation"] or {}
    status = ResourceStatus(
        parse_cpu_list(allocation.get("cpuset") or ""), read.numa_amounts(allocation.get("numa_resources"))
    )
    spec = given["resource_spec"] or {}
    if status.cpus:
        spec = spec_writeback(given, profile)["resource_spec"]
    return {"status": status_document(status), "spec": spec}


KINDS = {
    "interpret": interpret,
    "bind-policy": bind_policy,
    "filter": filter_one,
    "filter-amplified": filter_amplified,
    "filter-affinity": filter_affinity,
    "reserve": reserve,
    "reserve-numa": reserve_numa,
    "nominate": nominate,
    "score-host": score_one,
    "score-numa": score_hosts,
    "score-amplified": score_hosts,
    "spec-writeback": spec_writeback,
    "bind-result": bind_result,
}
