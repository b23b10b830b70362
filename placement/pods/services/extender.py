"""The scheduler extender: which nodes fit a pod, how well, which pods to preempt for it, and binding it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from placement.common.gang import Gang
from placement.common.pod_identity import ENDED_PHASES, canonical_uid
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Conflict, NotFound, PlacementError
from placement.engine.domain.explanation import ConditionKind
from placement.engine.numa.host import Refusal, RefusalClass
from placement.pods.decide.explanation import in_plain_words
from placement.pods.decide.gangs import GivenUpGangs
from placement.pods.decide.reading import PodDocument
from placement.pods.manifests.affinity import without_unknown_namespaces
from placement.pods.services.binding import BindAttempt, Binder, Binders, Binding
from placement.pods.services.clusters import Clusters
from placement.pods.services.pods import Pods, Precondition
from placement.pods.services.preemption import ENOUGH_NODES, Preemption, Victims
from placement.pods.state.model import RecordedPod

# kube-scheduler schedules no other pod meanwhile. An API server takes some milliseconds for a node.
_LOOK_SECONDS = 1.0
_UNKNOWN_NODE = "placement does not know this node"
_NO_ROOM_FOR_GANG = "the gang of the pod does not fit as a whole"
_CANNOT_BIND = (
    "this service cannot bind: [kubernetes] kubeconfig is not set, so it cannot create the Binding; "
    "set it, or leave bindVerb out of the scheduler's configuration"
)
# A node that comes back is open as soon as the synchronization has sent it with its pods.
_OPENS_WITHIN_SECONDS = 60.0
# Ten of the largest clusters of Kubernetes.
_NODES_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class Filtered:
    """A result of the filter: why nodes do not fit, by name. Preemption can help on `failed` nodes only.

    `releases`: the call may have released pods that are over or gone in Kubernetes, or a gang that gave up.
    """

    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]
    releases: bool


class Extender:
    """A use case that answers kube-scheduler. Any process can answer each call.

    Memories of gangs in a process only avoid claims in vain.
    """

    for_bound_callers = True

    def __init__(
        self, clusters: Clusters, pods: Pods, preemption: Preemption, binders: Binders | None
    ) -> None:
        self._clusters = clusters
        self._pods = pods
        self._preemption = preemption
        self._binders = binders
        self._given_up = GivenUpGangs()
        self._opening = OpeningNodes()

    def filter(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Return which of these nodes do not fit, and why.

        Raises NotFound for the cluster, ManifestError, Conflict where none fits but one that may open soon.
        """
        pod = without_unknown_namespaces(pod)
        # 1. Filter by what is recorded; again if pods have left nodes since.
        preview = self._pods.preview(cluster, pod, names, most=0)
        nodes = list(_where_pods_may_have_left(pod, preview.refusals, fits=preview.fitting > 0))
        if self._has_room_after_all(
            cluster, nodes, lambda node: self._pods.preview(cluster, pod, [node], most=0).fitting > 0
        ):
            preview = self._pods.preview(cluster, pod, names, most=0)
        fitting, refusals = preview.fitting, preview.refusals
        closed = {name for name, refusal in refusals.items() if refusal.obstacle.kind is ConditionKind.CLOSED}
        opening = self._opening.soon(cluster, names, closed)
        releases = bool(nodes) and self._binders is not None
        # 2. The gang, if it has to fit as a whole. Members of a gang that is not Strict keep their places
        # whatever becomes of others.
        gang = preview.pod.gang
        if gang is not None and gang.is_strict:
            releases, member = True, PodDocument.unnamed(cluster, pod)
            refused = self._strict_gang(cluster, gang, member, fits=fitting > 0)
            if refused and member.uid not in refused:
                return Filtered({}, dict.fromkeys(names, _NO_ROOM_FOR_GANG), releases)
            if refused:
                mine = refused[member.uid]
                fitting, refusals = 0, {name: mine[name] for name in names if name in mine}
        # 3. Nodes that open soon: kube-scheduler asks again in seconds.
        if opening and not fitting:
            for name in self._pods.fitting_once_open(cluster, pod, opening):
                raise Conflict(f"node {name} is closed until it is recorded with all pods that run there")
        # 4. The answer.
        are_all_known = fitting + len(refusals) >= len(names)
        return self._filtered(cluster, names, refusals, releases, are_all_known=are_all_known)

    def _strict_gang(
        self, cluster: str, gang: Gang, document: PodDocument, *, fits: bool
    ) -> Mapping[str, Mapping[str, Refusal]]:
        """Return the members that keep a gang from trying again, and why; if it fails, let it give up."""
        self._given_up.note(cluster, gang, document)
        refused = self._refused_of_gang(cluster, gang) if fits else {}
        if refused or not fits:
            self._pods.release_waiting(cluster, gang)
            self._given_up.set(cluster, gang, has_given_up=True)
        return refused

    def _filtered(
        self,
        cluster: str,
        names: Sequence[str],
        refusals: Mapping[str, Refusal],
        releases: bool,
        *,
        are_all_known: bool,
    ) -> Filtered:
        """Return the refusals in plain words, by whether preemption can help, with unknown nodes."""
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        # Sorted, so that every process answers with the same bytes.
        for name, refusal in sorted(refusals.items(), key=itemgetter(0)):
            lasting = refusal.refusal_class is RefusalClass.UNRESOLVABLE
            (unresolvable if lasting else failed)[name] = "; ".join(map(in_plain_words, refusal.reasons))
        if not are_all_known:
            known = {node.name for node in self._clusters.nodes(cluster)}
            unresolvable.update((name, _UNKNOWN_NODE) for name in names if name not in known)
        return Filtered(failed, unresolvable, releases)

    def _has_room_after_all(self, cluster: str, nodes: Iterable[str], fits: Callable[[str], bool]) -> bool:
        """Release pods of these nodes that are over or gone in Kubernetes; return whether a pod fits then.

        kube-scheduler hears of a deletion before the synchronization reports it, and asks at once. After a
        refusal it asks again only minutes later. `fits` is called with each node that pods have left.
        """
        refresh = _NodeRefresh(self._pods, self._binders, cluster, _LOOK_SECONDS)
        return any(refresh(node) and fits(node) for node in nodes)

    def _refused_of_gang(self, cluster: str, gang: Gang) -> Mapping[str, Mapping[str, Refusal]]:
        """Return the members, by uid, that keep a gang from trying again after it gave up, and why by node.

        Otherwise two members with room out of three would keep that room from other pods, in vain.
        """
        members = self._given_up.members(cluster, gang)
        refused = self._pods.refused_of_gang(cluster, gang, members) if members else {}
        if refused:
            nodes = _where_pods_may_have_left({}, next(iter(refused.values())), fits=False)
            if self._has_room_after_all(
                cluster, nodes, lambda _: not self._pods.refused_of_gang(cluster, gang, members)
            ):
                refused = {}
        if members and not refused:
            self._given_up.set(cluster, gang, has_given_up=False)
        return refused

    def prioritize(self, cluster: str, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return the score, 0 to 100, of each of these nodes on which the pod fits.

        Raises NotFound for the cluster, ManifestError.
        """
        return self._pods.scores(cluster, without_unknown_namespaces(pod), names)

    def preempt(
        self, cluster: str, pod: Mapping[str, Any], proposed: Mapping[str, Victims]
    ) -> dict[str, Victims]:
        """Return the pods to evict from each proposed node; nodes where eviction does not help are left out.

        Raises NotFound for the cluster, ManifestError.
        """
        refresh = _NodeRefresh(self._pods, self._binders, cluster)
        return self._preemption.victims(cluster, without_unknown_namespaces(pod), proposed, refresh)

    def bind(self, cluster: str, binding: Binding) -> None:
        """Claim a place for the pod on the node, write it to the pod, and assign the pod to the node.

        This order keeps a pod from being on a node without its CPUs. Members of its gang that waited for it
        are bound as well. Raises PlacementError; nothing is claimed then, unless the message says so.
        """
        if self._binders is None:
            raise PlacementError(_CANNOT_BIND)
        binder = self._binders.of(cluster)
        attempt = BindAttempt(self._pods, binder, cluster, binding)
        try:
            attempt.run()
        finally:
            # A member that is not bound now is bound when kube-scheduler tries again. Each has a transaction
            # of its own: its claim is renewed right before its Binding is sent, so that in doubt the attempt
            # that claimed last is known. The Bindings are calls of their own in any case.
            for other in attempt.freed_bindings:
                with suppress(PlacementError):
                    BindAttempt(self._pods, binder, cluster, other).run()


class OpeningNodes:
    """The nodes that were closed when kube-scheduler asked about them.

    kube-scheduler asks the moment a node comes back. After a refusal it would ask again only minutes later,
    after an error it does so in seconds. A node that stays closed longer refuses as any other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str], float] = {}

    def soon(self, cluster: str, asked: Iterable[str], closed: Collection[str]) -> list[str]:
        """Return which of the `closed` nodes have been closed for a short time only, sorted.

        Other processes may know others. Nodes that are open are forgotten once they are `asked` about.
        """
        # So many nodes do not come back together.
        if len(closed) > _NODES_REMEMBERED or not (closed or self._since):
            return []
        now = time.monotonic()
        with self._lock:
            # The ones asked about last stand last.
            before = {name: self._since.pop((cluster, name), now) for name in {*asked, *closed}}
            since = {name: before[name] for name in sorted(closed)}
            self._since.update(((cluster, name), at) for name, at in since.items())
            for key in list(islice(self._since, max(0, len(self._since) - _NODES_REMEMBERED))):
                del self._since[key]
        return [name for name, at in since.items() if now - at < _OPENS_WITHIN_SECONDS]


class _NodeRefresh:
    """The release of pods of nodes that are over or gone in Kubernetes, one node after another.

    Deletions of pods that have begun, but were not reported yet, are recorded and count as well. Kubernetes
    is asked about ENOUGH_NODES nodes, for this number of seconds in all, and never again after a failure. So
    the time-outs of an API server that does not answer do not add up. Without an answer no pod is released.
    """

    def __init__(self, pods: Pods, binders: Binders | None, cluster: str, seconds: float = math.inf) -> None:
        self._pods = pods
        self._binders = binders
        self._cluster = cluster
        self._left = ENOUGH_NODES
        self._end = time.monotonic() + seconds

    def __call__(self, node: str) -> bool:
        """Release pods of a node, and return whether that changed anything."""
        if self._left <= 0 or self._binders is None:
            return False
        self._left -= 1
        self._has_changed = False
        try:
            with request_scope.within(self._end - time.monotonic()):
                recorded = self._pods.recorded_on(self._cluster, node)
                binder = self._binders.of(self._cluster)
                present = {canonical_uid(pod["metadata"]["uid"]): pod for pod in binder.pods_on(node)}
                # Pods on no node yet, or newer than the list, are asked for one by one.
                absent = [pod for pod in recorded if pod.uid not in present]
                self._release([pod for pod in absent if not _lives(binder, pod)])
                staying = [present[pod.uid] for pod in recorded if pod.uid in present and not pod.is_leaving]
                self._report([each for each in staying if each["metadata"].get("deletionTimestamp")])
        except PlacementError:
            self._left = 0
        return self._has_changed

    def _release(self, vanished_pods: Iterable[RecordedPod]) -> None:
        for pod in vanished_pods:
            # A uid never recurs.
            with suppress(NotFound):
                self._pods.delete(self._cluster, pod.namespace, pod.name, Precondition(pod.uid))
            self._has_changed = True

    def _report(self, leaving: Sequence[Mapping[str, Any]]) -> None:
        if leaving:
            self._has_changed = True
            # The list is of a moment ago: a pod may have been released since.
            with suppress(Conflict):
                self._pods.report_known(self._cluster, leaving)


def _lives(binder: Binder, pod: RecordedPod) -> bool:
    found = binder.pod(pod.namespace, pod.name)
    if found is None or canonical_uid(found["metadata"]["uid"]) != pod.uid:
        return False
    return (found.get("status") or {}).get("phase") not in ENDED_PHASES


def _where_pods_may_have_left(
    pod: Mapping[str, Any], refusals: Mapping[str, Refusal], *, fits: bool
) -> Iterator[str]:
    """Yield the refusing nodes where the pod may fit once vanished pods are released, most likely first.

    If the pod `fits` elsewhere, that is only the node from which pods were evicted for it. kube-scheduler
    leaves out nodes without the amounts, so a node that is refused for an amount was probably left by a pod.
    """
    nominated = str((pod.get("status") or {}).get("nominatedNodeName"))
    if nominated in refusals:
        yield nominated
    if fits:
        return
    others = [
        (refusal.obstacle.kind is not ConditionKind.AMOUNT, name)
        for name, refusal in refusals.items()
        if refusal.refusal_class is RefusalClass.UNSCHEDULABLE and name != nominated
    ]
    yield from (name for _, name in sorted(others))
