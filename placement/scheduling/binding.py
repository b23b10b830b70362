"""How a host binds the CPUs of pods, where its policy and theirs meet."""

from __future__ import annotations

from typing import NamedTuple

from placement.dialects.koordinator.node.host_policies import HostBindPolicy, pod_bind_policy
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.demand import BindPolicy, CpuDemand, ExclusiveLevel
from placement.numa.isolation import Preference


class HostBinding(NamedTuple):
    """The bind policy of a host.

    `everybody`: it gives CPUs of their own to all pods that request CPUs. `whole_cores_only`: no policies
    but FullPCPUs and NUMANodeLevel have an effect there.
    """

    policy: HostBindPolicy = HostBindPolicy.NONE
    everybody: bool = False
    whole_cores_only: bool = False

    def binds(self, request: PodRequest) -> bool:
        """Whether a pod gets CPUs of its own, because of itself or because of the host.

        Source: koordinator.md, "Who is bound", "Pods without CPUs of their own".
        """
        return request.bound or self.binds_all(request)

    def binds_all(self, request: PodRequest) -> bool:
        """Whether a pod gets CPUs of its own whatever it is."""
        return self.everybody and request.milli_cpus > 0

    def required(self, request: PodRequest) -> BindPolicy:
        """The policy that a pod requires, as far as it has an effect (koordinator.md, "ARM hosts")."""
        without_effect = self.whole_cores_only and request.required_bind is BindPolicy.SPREAD_BY_PCPUS
        return BindPolicy.NONE if without_effect else request.required_bind

    def preference(self, request: PodRequest) -> Preference:
        """What a pod would rather have of its CPUs, as far as it has an effect.

        Source: koordinator.md, "ARM hosts", "Isolation".
        """
        bind = self.required(request) or request.preferred_bind
        exclusive = request.exclusive
        if self.whole_cores_only:
            bind = BindPolicy.FULL_PCPUS
            if exclusive is ExclusiveLevel.PCPU_LEVEL:
                exclusive = ExclusiveLevel.NONE
        return Preference(bind, exclusive)

    def demand(self, request: PodRequest) -> CpuDemand | None:
        """The CPUs that a pod asks for, None if it gets none of its own.

        Source: koordinator.md, "Strict bind policy".
        """
        if not self.binds(request):
            return None
        preferred, exclusive = self.preference(request)
        bind, strict = pod_bind_policy(self.policy, self.required(request), preferred)
        return CpuDemand(request.need, BindPolicy(bind), strict, exclusive, request.group)

    def is_avoided(self, request: PodRequest) -> bool:
        """Whether a pod goes to such hosts last: it would rather spread where only whole cores are given.

        Source: koordinator.md, "Isolation".
        """
        spreads = not request.required_bind and self.preference(request).bind is BindPolicy.SPREAD_BY_PCPUS
        return spreads and self.policy is HostBindPolicy.FULL_PCPUS_ONLY


UNBINDING = HostBinding()
