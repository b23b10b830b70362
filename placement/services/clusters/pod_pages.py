"""What is answered about several pods or several nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from placement.domain.errors import CapacityExceeded
from placement.domain.explanation import Explanation
from placement.numa.refusal import Refusal
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.explanation import explain_pod
from placement.scheduling.pipeline import PodShape
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_placing import Placed
from placement.storage.statements.pods import PodHead, StoredPod


class Unschedulable(CapacityExceeded):
    """No node can take the pod; `refusals` says why, by node, and `explanation` stage by stage."""

    code = "unschedulable"

    def __init__(self, refusals: Mapping[str, Refusal], explanation: Explanation) -> None:
        super().__init__(nodes_available(refusals.values()))
        self.refusals = refusals
        self.explanation = explanation


@dataclass(frozen=True, slots=True)
class Preview:
    """Where a pod would fit, best first, and why not elsewhere.

    `fitting` counts all nodes on which it fits, of which `places` has the best. `shape` is the pod, and
    `columns` are the nodes that were looked at.
    """

    places: Sequence[Placed]
    fitting: int
    refusals: Mapping[str, Refusal]
    warnings: tuple[str, ...]
    shape: PodShape
    columns: NodeColumns

    @property
    def explanation(self) -> Explanation:
        """How many nodes passed each stage of the filter, and which came closest if none passed all."""
        return explain_pod(self.shape, self.columns, self.refusals)

    @property
    def message(self) -> str:
        """How many nodes are available, and why the others are not."""
        return nodes_available(self.refusals.values(), self.fitting)


@dataclass(frozen=True, slots=True)
class PodFilter:
    """Only pods to which all that is given applies; `scheduled`: placed here and not reported since."""

    namespace: str | None = None
    node: str | None = None
    qos: str | None = None
    scheduled: bool = False


@dataclass(frozen=True, slots=True)
class PodPage:
    """Some pods, and the cursor of the following page, None on the last one."""

    pods: list[PodAnswer]
    next: int | None


def next_page(rows: Sequence[StoredPod] | Sequence[PodHead], count: int) -> int | None:
    """The cursor of the page after the first `count` rows; there is one if there are more rows."""
    return rows[count - 1].id if len(rows) > count else None


def nodes_available(refusals: Collection[Refusal], fitting: int = 0) -> str:
    """How many nodes are available and why the others are not, as kube-scheduler counts it."""
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts.update(refusal.reasons)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    available = f"{fitting}/{fitting + len(refusals)} nodes are available"
    return f"{available}: {reasons}." if reasons else f"{available}."
