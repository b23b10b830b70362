"""Taints, labels and names: which nodes a pod may go to by what it selects and what it tolerates."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Mask
from placement.engine.numa.host import Refusal, RefusalClass
from placement.pods.decide.rules.rule import IncomingPod, Rule, Stated
from placement.pods.manifests.selection import CORDONED, NodeSelection, untolerated
from placement.pods.state.columns import NodeGuard
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import LabelKey, NodeColumns

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint"
CLOSED = "node(s) were closed to new pods"

_IS_CLOSED = Obstacle(ConditionKind.CLOSED)
_OPEN = Condition(ConditionKind.CLOSED, "not closed to new pods")
_CORDON, _TAINTS = Obstacle(ConditionKind.CORDON), Obstacle(ConditionKind.TAINTS)
_NOT_CORDONED = Condition(
    ConditionKind.CORDON, "not cordoned, or the cordon is tolerated", forbidden=(str(CORDONED),)
)
_FREE_OF_TAINTS = Condition(ConditionKind.TAINTS, "only taints that the pod tolerates")


def guard_refusal(node_guard: NodeGuard, selection: NodeSelection) -> Refusal | None:
    """Return why a pod may not go to nodes with these taints, in the words of kube-scheduler."""
    taints, unschedulable, is_closed = node_guard
    if is_closed:
        return Refusal((CLOSED,), RefusalClass.UNRESOLVABLE, obstacle=_IS_CLOSED)
    if unschedulable and not any(toleration.covers(CORDONED) for toleration in selection.tolerations):
        return Refusal((UNSCHEDULABLE,), RefusalClass.UNRESOLVABLE, obstacle=_CORDON)
    taint = next(untolerated(taints, selection.tolerations), None)
    if taint is None:
        return None
    words = f"{UNTOLERATED} {{{taint.key}: {taint.value}}}"
    return Refusal((words,), RefusalClass.UNRESOLVABLE, obstacle=_TAINTS)


class Taints(Rule):
    """A rule that pods tolerate the taints of their node, which must not be closed."""

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes with a guard that the pod tolerates, decided once per distinct guard."""
        return columns.table.where_guard(lambda guard: guard_refusal(guard, pod.selection) is None)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return which taint, or that the node is cordoned or closed, keeps the pod off."""
        attributes = node.attributes
        if not (attributes.taints or attributes.unschedulable or attributes.closed is not None):
            return None
        return guard_refusal(NodeGuard.of(attributes), pod.selection)

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the stages of cordon and taints, and the one of closed nodes if any node failed it."""
        if _IS_CLOSED in obstacles:
            yield _IS_CLOSED, _OPEN
        yield _CORDON, _NOT_CORDONED
        yield _TAINTS, _FREE_OF_TAINTS


NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
_AFFINITY = Obstacle(ConditionKind.AFFINITY)


class Labels(Rule):
    """A rule that nodes match the selector of a pod and one of its required terms.

    Source: Kubernetes nodeSelector, required node affinity.
    """

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the pod selects or requires nodes."""
        return bool(pod.selection.selector) or pod.selection.terms is not None

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return exactly the nodes that match, decided once per distinct text."""
        return labelled(columns, pod.selection)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return which label, or that no term matches."""
        attributes, selection = node.attributes, pod.selection
        for key, value in selection.selector:
            if attributes.labels.get(key) != value:
                obstacle = Obstacle(ConditionKind.LABELS, key)
                return Refusal((NOT_SELECTED,), RefusalClass.UNRESOLVABLE, obstacle=obstacle)
        if selection.terms is not None and not any(term.holds(attributes) for term in selection.terms):
            return Refusal((NOT_SELECTED,), RefusalClass.UNRESOLVABLE, obstacle=_AFFINITY)
        return None

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield a stage for each selected label, and one for all terms."""
        for key, value in pod.selection.selector:
            label = f"{key}={value}"
            yield (
                Obstacle(ConditionKind.LABELS, key),
                Condition(ConditionKind.LABELS, f"label {label}", required=((label,),)),
            )
        if pod.selection.terms is not None:
            terms = tuple(map(str, pod.selection.terms))
            text = f"node affinity: {' or '.join(terms)}"
            yield _AFFINITY, Condition(ConditionKind.AFFINITY, text, required=(terms,))


def labelled(columns: NodeColumns, selection: NodeSelection) -> Mask:
    """Return the nodes that a pod may go to by their names and labels, whatever their taints are."""
    mask = np.ones(len(columns.nodes), np.bool_)
    for key, value in selection.selector:
        mask &= columns.label(LabelKey(key)).equals(value)
    if selection.terms is not None:
        any_term = np.zeros(len(columns.nodes), np.bool_)
        for term in selection.terms:
            holds = np.full(len(columns.nodes), term.says_anything)
            for requirements, is_field in ((term.label_requirements, False), (term.field_requirements, True)):
                for each in requirements:
                    holds &= columns.label(LabelKey(each.key, is_field)).holds(each)
            any_term |= holds
        mask &= any_term
    return mask
