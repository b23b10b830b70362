"""CPU bind policies of hosts and pods."""

from __future__ import annotations

from enum import StrEnum

from placement.dialects.koordinator.node.kubelet import KubeletPolicy

FULL_PCPUS_ONLY_OPTION = "full-pcpus-only"


class HostBindPolicy(StrEnum):
    """How a host binds every pod that asks for CPUs; `NONE` leaves it to the pod."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


_POD_POLICIES = {HostBindPolicy.FULL_PCPUS_ONLY: "FullPCPUs", HostBindPolicy.SPREAD_BY_PCPUS: "SpreadByPCPUs"}


def host_bind_policy(label: str, kubelet: KubeletPolicy) -> HostBindPolicy:
    """The effective policy of a host with that label, which counts as None if unknown.

    Kubelet's option full-pcpus-only beats a SpreadByPCPUs label.
    Source: koordinator.md, "Effective host bind policy".
    """
    if kubelet.has_option(FULL_PCPUS_ONLY_OPTION):
        return HostBindPolicy.FULL_PCPUS_ONLY
    return HostBindPolicy(label) if label in set(HostBindPolicy) else HostBindPolicy.NONE


def pod_bind_policy(host: HostBindPolicy, required: str, preferred: str) -> tuple[str, bool]:
    """The policy a bound pod gets on a host and whether it is strict; empty policies are not set.

    What the pod requires comes first, then the host (both strict), then what the pod prefers.
    Source: koordinator.md, "Strict bind policy".
    """
    strict = required or _POD_POLICIES.get(host, "")
    return (strict, True) if strict else (preferred, False)
