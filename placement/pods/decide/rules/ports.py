"""Host ports: a pod takes ports of its node, which no other pod there may have.

Source: kube-scheduler, plugin NodePorts.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Mask
from placement.engine.numa.host import Refusal
from placement.pods.decide.rules.rule import IncomingPod, Rule, Stated
from placement.pods.manifests.ports import conflicting
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"
_TAKEN = Obstacle(ConditionKind.HOST_PORTS)
PORTS_TAKEN = Refusal((NO_FREE_PORTS,), obstacle=_TAKEN)


class FreeHostPorts(Rule):
    """A rule that no pod or reservation of the node takes a host port of the pod."""

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the pod takes host ports."""
        return bool(pod.selection.host_ports)

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return exactly the nodes where all ports are free.

        The table has no columns of ports: there are too many, and few pods take any.
        """
        return np.array([self.refuse(node, pod) is None for node in columns.nodes], np.bool_)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return that a port is taken."""
        return PORTS_TAKEN if any(conflicting(pod.selection.host_ports, node.used_ports)) else None

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the stage of all ports."""
        if pod.selection.host_ports:
            ports = ", ".join(map(str, pod.selection.host_ports))
            yield (
                _TAKEN,
                Condition(ConditionKind.HOST_PORTS, f"free ports for the requested pod ports {ports}"),
            )
