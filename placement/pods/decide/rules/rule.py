"""The base of rules: reasons why nodes refuse pods, for columns, one node, and explanations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Mask
from placement.engine.numa.allocator import NO_RESERVATIONS, Allocation, HostReservations
from placement.engine.numa.host import HostTotals, Refusal, Scorer
from placement.engine.scoring.order import POD_SCORING, Order
from placement.pods.manifests.pod import Pod
from placement.pods.manifests.selection import NodeSelection
from placement.pods.state.columns import AskedAmount, NodeTable
from placement.pods.state.host import Host
from placement.pods.state.model import PodRequest, SchedulerSettings
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

Stated = Iterator[tuple[Obstacle, Condition]]
"""Stages of an explanation: each condition, and the obstacle of nodes that fail it."""

_ANY_NODE = NodeSelection()


@dataclass(frozen=True, slots=True)
class PodShape:
    """A shape of pods: all that decides on which nodes a pod fits, and how well."""

    request: PodRequest
    selection: NodeSelection
    settings: SchedulerSettings

    def incoming(self) -> IncomingPod:
        """Return such a pod, to which no host has answered yet."""
        return IncomingPod(self.request, self.selection, self.settings.host_scoring)


@dataclass(frozen=True, slots=True)
class Fit:
    """An answer that a pod fits: aligned to these NUMA ids, if to any.

    `designated_allocation` is what it gets if another scheduler decided that; `nominated` is the position of
    the matched reservation that it would use.
    """

    affinity: tuple[int, ...] | None = None
    designated_allocation: Allocation | None = None
    nominated: int | None = None


def worst(totals: HostTotals) -> int:
    """Return 0, the score of hosts where nothing works."""
    return 0


class HostAnswer(NamedTuple):
    """An answer of all equal hosts to a pod; `by_policies`: their policies refuse it, whatever is free.

    `score` returns the score from the totals; `missed` is how much the pod misses of what it prefers.
    """

    answer: Fit | Refusal
    by_policies: bool = False
    score: Scorer = worst
    missed: int = 0


@dataclass(frozen=True, eq=False)
class IncomingPod:
    """A pod that looks for a node, as rules see it.

    `reservations` of the node are the ones that it may use. `answers` remembers what hosts answered.
    """

    request: PodRequest
    selection: NodeSelection = _ANY_NODE
    scoring: Order = POD_SCORING
    reservations: HostReservations = NO_RESERVATIONS
    answers: dict[Host, HostAnswer] = field(default_factory=dict)

    def own(self, rule: Rule) -> Any:
        """Return the value that the rule has read of the pod itself."""
        return dict(self.selection.own).get(rule)


class Rule(ABC):
    """A rule: why nodes refuse pods. Rules have no state: what they remember is kept with the pod.

    Nodes are asked in the order of RULES, and the first refusal counts. A rule may `read` pods itself. A
    column of its own is that of a `LabelKey`, or of a subclass with another `text` of a node. Such a key is
    one that no label has, as columns are kept by it.
    """

    def read(self, pod: Pod) -> Hashable:
        """Return the value that the rule reads of labels and annotations of a pod; None if there is none.

        Errors are reported in the manifest. `IncomingPod.own` returns the value.
        """
        return None

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the rule can refuse such a pod at all; only then `mask` and `refuse` are asked."""
        return True

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes that may pass: where it is False, `refuse` refuses."""
        return np.ones(len(columns.nodes), np.bool_)

    @abstractmethod
    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return why a node refuses the pod, None if it does not."""

    @abstractmethod
    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the stages of an explanation: what the pod asks for, and what else nodes failed."""

    def asked(self, kind: ConditionKind, table: NodeTable, pod: IncomingPod) -> list[AskedAmount]:
        """Return the amounts that a condition of this kind compares; none if it is not about amounts."""
        return []


def concerned(rules: Iterable[Rule], pod: IncomingPod) -> tuple[Rule, ...]:
    """Return the rules that can refuse such a pod, in their order."""
    return tuple(rule for rule in rules if rule.concerns(pod))


def may_pass(rules: Iterable[Rule], columns: NodeColumns, pod: IncomingPod) -> Mask:
    """Return the nodes that no rule refuses by its columns."""
    mask = np.ones(len(columns.nodes), np.bool_)
    for rule in concerned(rules, pod):
        mask &= rule.mask(columns, pod)
    return mask
