"""What a pod asks of any host."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.numa_topology_spec import (
    NumaTopologySpec,
    read_numa_topology_spec,
)
from placement.dialects.koordinator.pod.priority import PriorityClass, raw_priority
from placement.dialects.koordinator.pod.resource_spec import (
    CONSTRAINED_BURST,
    DEFAULT,
    ResourceSpec,
    read_resource_spec,
)
from placement.dialects.koordinator.qos import QosClass, qos_with_default, raw_qos
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.resource_status import (
    ResourceStatus,
    read_resource_status,
)
from placement.kubernetes.field import Field
from placement.kubernetes.pod import Pod
from placement.kubernetes.pod_resources import pod_limit, pod_requests, request_amounts
from placement.numa.amounts import Amounts
from placement.numa.policies import BindPolicy, ExclusiveLevel
from placement.numa.refusal import RefusalClass, Refused

CPUS_MUST_BE_INTEGER = "the requested CPUs must be integer"
MECHANISM = "NodeNUMAResource"


@dataclass(frozen=True)
class PodRequest:
    """What a pod asks of any host; equal requests get equal answers.

    `amounts` are in millicores, bytes and pieces. A `bound` pod gets `need` CPUs of its own everywhere, under
    the policies named here, which are NONE otherwise. `designated`: what somebody else decided on already.
    `uses_ls_pools`: it runs in the LS pools unless it is bound. `burst_limit`: the millicores that the pool
    of one NUMA node has to cover.
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

    @cached_property
    def _hash(self) -> int:
        policies = (self.bound, self.required_bind, self.preferred_bind, self.exclusive, self.numa)
        rest = (self.designated, self.ignores_reservations, self.uses_ls_pools, self.burst_limit)
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
    the pod. Source: Koordinator semantics, who is bound.
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
    )


def is_bound_eligible(pod: Pod, settings: SchedulerSettings) -> bool:
    """Whether the scheduler may give a pod CPUs of its own wherever it runs: LSE and LSR pods of class prod.

    Source: Koordinator semantics, who is bound.
    """
    priority = raw_priority(pod) or qos_with_default(pod, settings.guaranteed_qos).default_priority
    return raw_qos(pod).owns_cpus and priority is PriorityClass.PROD


def _bind_policies(
    pod: Pod, spec: ResourceSpec, amounts: Amounts, settings: SchedulerSettings
) -> tuple[BindPolicy, BindPolicy]:
    """The required and the preferred policy of a pod that is bound, else none."""
    required, preferred = spec.effective_bind(settings.default_bind_policy)
    effective = required or preferred
    if not is_bound_eligible(pod, settings) or not effective or effective not in set(BindPolicy):
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

    Source: Koordinator semantics, keys on the pod and profiles.
    """
    if spec.exclusive in ("", DEFAULT) and settings.follows_design:
        return settings.default_exclusive_level
    return ExclusiveLevel(spec.exclusive) if spec.exclusive in set(ExclusiveLevel) else ExclusiveLevel.NONE


def _is_latency_sensitive(pod: Pod) -> bool:
    """Whether the pod runs in the LS pools (Koordinator semantics: QoS class)."""
    return qos_with_default(pod, guaranteed=QosClass.LS).uses_ls_pools


def _burst_limit(pod: Pod, spec: ResourceSpec, settings: SchedulerSettings) -> int | None:
    """The limit that a shared pool has to cover (Koordinator semantics: profiles, ConstrainedBurst)."""
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
