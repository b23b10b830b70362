"""How the node agent reports kubelet's topology manager."""

from __future__ import annotations

_POLICY_NAMES = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}
_SCOPE_NAMES = {"pod": "PodLevel", "container": "ContainerLevel"}


def reported_topology_policy(policy: str, scope: str) -> str:
    """The entry of `topologyPolicies` that the node agent writes for kubelet's topology manager.

    Anything but the three aligning policies with the scope `pod` or `container` is `None`.
    """
    if policy not in _POLICY_NAMES or scope not in _SCOPE_NAMES:
        return "None"
    return _POLICY_NAMES[policy] + _SCOPE_NAMES[scope]
