"""Which nodes a pod fits on, best first.

Pods of one shape ask the same of every node, and a node that nobody changed answers as before: so answers are
kept by shape and by state of node. What a node can score at most is known without trying the pod there, so
nodes are tried in that order, and no longer than something better may come.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.kubernetes.node_selection import NodeSelection
from placement.numa.refusal import Refusal, RefusalClass
from placement.scheduling.filter import PodJudge
from placement.scheduling.host_demand import is_bound_on
from placement.scheduling.host_fit import host_needs, lacking
from placement.scheduling.numa_fit import Fit
from placement.services.clusters.node_states import NodeState

INVENTORIES_DIFFER = Refusal(("node(s) have inventories that differ from the imported node",))
_SHAPES_KEPT = 32
_CHANGES_KEPT = 20


class Standing(NamedTuple):
    """How a pod stands with a node: refused, or fit with a score.

    While it was not tried `answer` is None and the score the highest that is possible.
    """

    score: int
    answer: Fit | Refusal | None = None


@dataclass(frozen=True, slots=True)
class PodShape:
    """All that decides on which nodes a pod fits, and how well."""

    request: PodRequest | None
    selection: NodeSelection
    settings: SchedulerSettings


class Ranked(NamedTuple):
    """A node on which a pod fits."""

    state: NodeState
    score: int
    fit: Fit


class Ranking:
    """Pods of one shape and the nodes of a cluster."""

    def __init__(self, shape: PodShape) -> None:
        self._shape = shape
        self._judge = PodJudge(shape.request, shape.settings.host_scoring)
        self._standings: dict[NodeState, Standing] = {}
        self._needs = tuple(host_needs({} if shape.request is None else shape.request.amounts).items())

    def best_first(self, states: Collection[NodeState]) -> Iterator[Ranked]:
        """The nodes on which the pod fits, by descending score, then by name; tried one by one."""
        standings = self._standings
        waiting = []
        for state in states:
            standing = standings.get(state) or self._look(state)
            if not isinstance(standing.answer, Refusal):
                waiting.append((-standing.score, state.row.name, state))
        heapq.heapify(waiting)
        while waiting:
            height, name, state = heapq.heappop(waiting)
            standing = self.tried(state)
            if not isinstance(standing.answer, Fit):
                continue
            if standing.score == -height:
                yield Ranked(state, standing.score, standing.answer)
            else:
                # Less than it might have been: others may be better now.
                heapq.heappush(waiting, (-standing.score, name, state))

    def refusals(self, states: Iterable[NodeState]) -> dict[str, Refusal]:
        """Why the pod fits on none of these nodes, by name; nodes on which it does are left out."""
        found = {}
        for state in states:
            answer = self.tried(state).answer
            if isinstance(answer, Refusal):
                found[state.row.name] = answer
        return dict(sorted(found.items()))

    def tried(self, state: NodeState) -> Standing:
        """How the pod stands with a node, for certain."""
        standing = self._standings.get(state) or self._look(state)
        if standing.answer is None:
            verdict = self._judge.judge(state.host, state.totals)
            standing = self._standings[state] = Standing(verdict.score, verdict.answer)
        return standing

    def _look(self, state: NodeState) -> Standing:
        refusal = self._screen(state)
        if refusal is not None:
            standing = Standing(0, refusal)
        else:
            score = self._judge.highest_score(state.host, state.totals)
            standing = Standing(score)
        self._standings[state] = standing
        return standing

    def _screen(self, state: NodeState) -> Refusal | None:
        """What the names, labels, taints and totals of a node have against the pod."""
        reason = self._shape.selection.refusal(state.face)
        if reason is not None:
            return Refusal((reason,), RefusalClass.UNRESOLVABLE)
        if not state.kind.offers.is_amplified and self._has_room(state.free):
            return None
        request = self._shape.request
        amounts = {} if request is None else request.amounts
        bound = request is not None and is_bound_on(state.host, request)
        missing = lacking(state.offers, state.free, state.left, amounts, bound=bound)
        return Refusal(missing) if missing else None

    def _has_room(self, free: Mapping[str, int]) -> bool:
        """Whether the host itself has all that is needed; a plain loop, for it runs once per node."""
        for name, units in self._needs:  # noqa: SIM110
            if free.get(name, 0) < units:
                return False
        return True

    def trim(self, states: Collection[NodeState]) -> None:
        """Forget now and then what the nodes of the cluster were before they were what they are now."""
        if len(self._standings) > len(states) + len(states) // 4 + _CHANGES_KEPT:
            known = self._standings
            self._standings = {state: known[state] for state in states if state in known}
            self._judge = PodJudge(self._shape.request, self._shape.settings.host_scoring)


class Rankings:
    """The rankings of the shapes that were asked for last, for each cluster by itself.

    Threads share them: what they note about a node is the same whoever notes it, and is noted at once.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, PodShape], Ranking] = {}
        self._lock = threading.Lock()

    def of(self, cluster_id: int, shape: PodShape, states: Collection[NodeState]) -> Ranking:
        """The ranking for pods of a shape; `states` are all nodes of the cluster, asked about now or not."""
        key = (cluster_id, shape)
        with self._lock:
            ranking = self._kept.pop(key, None) or Ranking(shape)
            self._kept[key] = ranking
            if len(self._kept) > _SHAPES_KEPT:
                del self._kept[next(iter(self._kept))]
        ranking.trim(states)
        return ranking


def verdict(refusals: Collection[Refusal], fitting: int = 0) -> str:
    """How many nodes are available and why the others are not, as kube-scheduler counts it."""
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts.update(refusal.reasons)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    available = f"{fitting}/{fitting + len(refusals)} nodes are available"
    return f"{available}: {reasons}." if reasons else f"{available}."
