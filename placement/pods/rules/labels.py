"""Labels and names: the nodes that a pod selects, or requires by node affinity."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Mask
from placement.engine.numa.demand import Refusal, RefusalClass
from placement.pods.manifests.selection import NodeSelection, Requirement, Term
from placement.pods.node_info import NodeInfo
from placement.pods.rules.rule import IncomingPod, Rule, Stated
from placement.pods.snapshot import LabelKey, NodeColumns

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
                return _not_selected(Obstacle(ConditionKind.LABELS, key))
        if selection.terms is not None and not any(term.holds(attributes) for term in selection.terms):
            return _not_selected(_AFFINITY)
        return None

    def conditions(self, pod: IncomingPod, failed: Collection[Obstacle]) -> Stated:
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


def _not_selected(obstacle: Obstacle) -> Refusal:
    return Refusal((NOT_SELECTED,), RefusalClass.UNRESOLVABLE, obstacle)


def labelled(columns: NodeColumns, selection: NodeSelection) -> Mask:
    """Return the nodes that a pod may go to by their names and labels, whatever their taints are."""
    mask = np.ones(len(columns.nodes), np.bool_)
    for key, value in selection.selector:
        mask &= columns.label(LabelKey(key)).equals(value)
    if selection.terms is not None:
        terms = [_holds(columns, term) for term in selection.terms]
        mask &= np.logical_or.reduce(terms) if terms else False
    return mask


def _holds(columns: NodeColumns, term: Term) -> Mask:
    mask = np.full(len(columns.nodes), term.says_anything)
    for key, requirement in _requirements(term):
        mask &= columns.label(key).holds(requirement)
    return mask


def _requirements(term: Term) -> Iterator[tuple[LabelKey, Requirement]]:
    for requirement in term.labels:
        yield LabelKey(requirement.key), requirement
    for requirement in term.fields:
        yield LabelKey(requirement.key, is_field=True), requirement
