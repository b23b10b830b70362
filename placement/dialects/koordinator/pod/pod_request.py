"""A Kubernetes pod as values: what it asks of any host, and all else that its manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.admission import admission_violations, warn_of_pod
from placement.dialects.koordinator.pod.annotations import (
    CONSTRAINED_BURST,
    DEFAULT,
    NumaTopologySpec,
    ResourceSpec,
    ResourceStatus,
    read_numa_topology_spec,
    read_resource_spec,
    read_resource_status,
)
from placement.dialects.koordinator.pod.gang import Gang, read_gang
from placement.dialects.koordinator.qos import (
    KubernetesQos,
    QosClass,
    is_bound_eligible,
    kubernetes_qos,
    qos_with_default,
    raw_qos,
)
from placement.dialects.koordinator.reservation.affinity import (
    ReservationAffinity,
    read_reservation_affinity,
)
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.manifest import Field, Report
from placement.kubernetes.node_selection import NodeSelection, read_node_selection
from placement.kubernetes.pod import Pod, pod_limit, pod_requests, read_pod, request_amounts
from placement.kubernetes.pod_rules import PodRules, read_pod_rules
from placement.numa.amounts import Amounts
from placement.numa.demand import BindPolicy, ExclusiveLevel
from placement.numa.refusal import RefusalClass, Refused

CPUS_MUST_BE_INTEGER = "the requested CPUs must be integer"
MECHANISM = "NodeNUMAResource"


@dataclass(frozen=True)
class PodRequest:
    """What a pod asks of any host; equal requests get equal answers.

    `amounts` are in millicores, bytes and pieces. A `bound` pod gets `need` CPUs of its own everywhere, under
    the policies named here, which are NONE otherwise. `designated`: what another scheduler decided.
    `uses_ls_pools`: it runs in the LS pools unless it is bound. `burst_limit`: the millicores that the pool
    of one NUMA node has to cover. `group`: pods of the same one never share a core, or a NUMA node.
    """

    amounts: Amounts
    need: int
    bound: bool = False
    required_bind: BindPolicy = BindPolicy.NONE
    preferred_bind: BindPolicy = BindPolicy.NONE
    exclusive: ExclusiveLevel = ExclusiveLevel.NONE
    numa: NumaTopologySpec = field(default_factory=NumaTopologySpec)
    designated: ResourceStatus | None = None
    ignores_reservations: bool = False
    uses_ls_pools: bool = False
    burst_limit: int | None = None
    group: str = ""

    @cached_property
    def _hash(self) -> int:
        policies = (self.bound, self.required_bind, self.preferred_bind, self.exclusive, self.numa)
        rest = (self.designated, self.ignores_reservations, self.uses_ls_pools, self.burst_limit, self.group)
        return hash((frozenset(self.amounts.items()), self.need, policies, rest))

    def __hash__(self) -> int:
        return self._hash

    @property
    def milli_cpus(self) -> int:
        """The requested millicores."""
        return self.amounts.get("cpu", 0)

    @property
    def is_fractional(self) -> bool:
        """Whether the request is no whole number of CPUs."""
        return bool(self.milli_cpus % 1000)


def interpret_pod(pod: Pod, settings: SchedulerSettings) -> PodRequest | None:
    """What a pod asks of any host; None if it requests nothing at all.

    Annotations that do not parse are reported where the pod's manifest is. Raises Refused if no host can take
    the pod. Source: koordinator.md, "Who is bound".
    """
    amounts = request_amounts(pod_requests(pod))
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    numa = read_numa_topology_spec(pod.manifest.annotation(keys.NUMA_TOPOLOGY_SPEC))
    designated = _read_designated(pod)
    if not amounts:
        return None
    required, preferred = _bind_policies(pod, spec, amounts, settings)
    return PodRequest(
        amounts=amounts,
        need=amounts.get("cpu", 0) // 1000,
        bound=bool(required or preferred),
        required_bind=required,
        preferred_bind=preferred,
        exclusive=exclusive_level(spec, settings),
        numa=numa,
        designated=designated,
        ignores_reservations=pod.label(keys.RESERVATION_IGNORED) == "true",
        uses_ls_pools=settings.follows_design and _is_latency_sensitive(pod),
        burst_limit=_burst_limit(pod, spec, settings),
        group=exclusivity_group(pod, settings) if required or preferred else "",
    )


def _bind_policies(
    pod: Pod, spec: ResourceSpec, amounts: Amounts, settings: SchedulerSettings
) -> tuple[BindPolicy, BindPolicy]:
    """The required and the preferred policy of a pod that is bound, else none."""
    required, preferred = spec.effective_bind(settings.default_bind_policy)
    effective = required or preferred
    if (
        not is_bound_eligible(pod, settings.guaranteed_qos)
        or not effective
        or effective not in set(BindPolicy)
    ):
        return BindPolicy.NONE, BindPolicy.NONE
    if amounts.get("cpu", 0) % 1000:
        raise Refused(CPUS_MUST_BE_INTEGER, status=RefusalClass.UNRESOLVABLE)
    if not amounts.get("cpu", 0):
        return BindPolicy.NONE, BindPolicy.NONE
    return _known_policy(required), _known_policy(preferred)


def _known_policy(policy: str) -> BindPolicy:
    return BindPolicy(policy) if policy in set(BindPolicy) else BindPolicy.NONE


def exclusive_level(spec: ResourceSpec, settings: SchedulerSettings) -> ExclusiveLevel:
    """The level of a pod with that spec; unknown ones behave as none.

    Source: koordinator.md, "Keys on the pod", "Profiles".
    """
    if spec.exclusive in ("", DEFAULT) and settings.follows_design:
        return settings.default_exclusive_level
    return ExclusiveLevel(spec.exclusive) if spec.exclusive in set(ExclusiveLevel) else ExclusiveLevel.NONE


def exclusivity_group(pod: Pod, settings: SchedulerSettings) -> str:
    """The group that a pod names, empty if none; what cannot be read is reported.

    Source: koordinator.md, "Exclusivity groups".
    """
    named = pod.manifest.annotation(keys.EXCLUSIVITY_GROUP).text() or ""
    return named if settings.follows_design else ""


def _is_latency_sensitive(pod: Pod) -> bool:
    """Whether the pod runs in the LS pools (koordinator.md, "QoS class")."""
    return qos_with_default(pod, guaranteed=QosClass.LS).uses_ls_pools


def _burst_limit(pod: Pod, spec: ResourceSpec, settings: SchedulerSettings) -> int | None:
    """The limit that a shared pool has to cover (koordinator.md, "ConstrainedBurst")."""
    bursts = CONSTRAINED_BURST in (spec.required_bind, spec.preferred_bind)
    if not (settings.follows_design and bursts and qos_with_default(pod).uses_ls_pools):
        return None
    limit = pod_limit(pod, "cpu")
    if limit is None:
        containers = pod.manifest.root.member("spec").member("containers")
        containers.refuse(f"{CONSTRAINED_BURST} needs a limit of cpu on every container")
        return None
    return request_amounts({"cpu": limit}).get("cpu", 0)


def _read_designated(pod: Pod) -> ResourceStatus | None:
    """The status a pod arrives with, if a scheduling hint names this mechanism and no host is chosen yet."""
    hint = pod.manifest.annotation(keys.SCHEDULING_HINT).json()
    if pod.host or not _names_mechanism(hint):
        return None
    status = read_resource_status(pod.manifest.annotation(keys.RESOURCE_STATUS))
    return None if status.is_empty else status


def _names_mechanism(hint: Field) -> bool:
    return MECHANISM in hint.member("extensions").mapping()


@dataclass(frozen=True, slots=True)
class PodImport:
    """All that a manifest says about a pod that looks for a place.

    `request` is None if it requests nothing at all; `qos` is the class its label names, `treated_as` the one
    that decides where it runs. `spec` is its resource-spec as written, `containers` their names, `rules` what
    it says about other pods, `gang` with which pods it is placed together. With a `reservation_affinity` it
    must use a reservation.
    """

    qos: QosClass
    kubernetes_qos: KubernetesQos
    request: PodRequest | None
    spec: ResourceSpec
    selection: NodeSelection
    containers: tuple[str, ...]
    warnings: tuple[str, ...]
    treated_as: QosClass
    rules: PodRules
    gang: Gang | None = None
    reservation_affinity: ReservationAffinity | None = None

    @property
    def amounts(self) -> Amounts:
        """What it requests of its host as a whole."""
        return {} if self.request is None else self.request.amounts


def import_pod(
    document: Mapping[str, Any], settings: SchedulerSettings, old: Mapping[str, Any] | None = None
) -> PodImport:
    """What a parsed Pod asks of hosts under the settings of its cluster; `old` is the Pod before an update.

    Raises ManifestError with everything that is wrong: broken schema, contradictions, admission rules.
    Source: koordinator.md, "Who is bound", "Admission rules".
    """
    report = Report()
    pod = read_pod(document, report)
    before = None if old is None else read_pod(old, Report())
    for violation in admission_violations(pod, settings.profile, before, settings.keeps_sub_priority):
        report.refuse(violation)
    request = _interpret(pod, settings)
    selection = read_node_selection(pod.manifest.root.member("spec"))
    spec = read_resource_spec(pod.manifest.annotation(keys.RESOURCE_SPEC))
    affinity = read_reservation_affinity(pod.manifest.annotation(keys.RESERVATION_AFFINITY))
    rules, gang = read_pod_rules(pod.manifest.root, pod.namespace), read_gang(pod.manifest, pod.namespace)
    report.raise_findings()
    warn_of_pod(
        pod,
        spec,
        settings,
        unbound=request is not None and not request.bound,
        designated=request is not None and request.designated is not None,
    )
    return PodImport(
        qos=raw_qos(pod),
        kubernetes_qos=kubernetes_qos(pod),
        request=request,
        spec=spec,
        selection=selection,
        containers=tuple(container.name for container in pod.all_containers),
        warnings=report.warnings,
        treated_as=qos_with_default(pod, guaranteed=QosClass.LS),
        rules=rules,
        gang=gang,
        reservation_affinity=affinity,
    )


def _interpret(pod: Pod, settings: SchedulerSettings) -> PodRequest | None:
    try:
        return interpret_pod(pod, settings)
    except Refused:
        return None  # admission has a finding about every pod that no host can take
