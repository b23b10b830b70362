"""Taints: a pod that does not tolerate what a node is marked with is kept off, cordoned nodes included."""

from __future__ import annotations

from collections.abc import Collection

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Mask
from placement.engine.numa.demand import Refusal, RefusalClass
from placement.pods.columns import NodeTaints
from placement.pods.manifests.selection import CORDONED, NodeSelection, untolerated
from placement.pods.node_info import NodeInfo
from placement.pods.rules.rule import IncomingPod, Rule, Stated
from placement.pods.snapshot import NodeColumns

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint"

_CORDON, _TAINTS = Obstacle(ConditionKind.CORDON), Obstacle(ConditionKind.TAINTS)
_NOT_CORDONED = Condition(
    ConditionKind.CORDON, "not cordoned, or that is tolerated", forbidden=(str(CORDONED),)
)
_FREE_OF_TAINTS = Condition(ConditionKind.TAINTS, "no taint that the pod does not tolerate")


def guard_refusal(guard: NodeTaints, selection: NodeSelection) -> Refusal | None:
    """Return why a pod may not go to nodes with these taints, in the words of kube-scheduler."""
    taints, unschedulable = guard
    if unschedulable and not any(toleration.covers(CORDONED) for toleration in selection.tolerations):
        return Refusal((UNSCHEDULABLE,), RefusalClass.UNRESOLVABLE, _CORDON)
    taint = next(untolerated(taints, selection.tolerations), None)
    if taint is None:
        return None
    words = f"{UNTOLERATED} {{{taint.key}: {taint.value}}}"
    return Refusal((words,), RefusalClass.UNRESOLVABLE, _TAINTS)


class Taints(Rule):
    """A rule that pods tolerate the taints of their node."""

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes with a guard that the pod tolerates, decided once per distinct guard."""
        return columns.table.where_guard(lambda guard: guard_refusal(guard, pod.selection) is None)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return which taint, or that the node is cordoned, keeps the pod off."""
        attributes = node.attributes
        if not (attributes.taints or attributes.unschedulable):
            return None
        return guard_refusal(NodeTaints(attributes.taints, attributes.unschedulable), pod.selection)

    def conditions(self, pod: IncomingPod, failed: Collection[Obstacle]) -> Stated:
        """Yield both stages, whether any node failed them or not."""
        yield _CORDON, _NOT_CORDONED
        yield _TAINTS, _FREE_OF_TAINTS
