"""The scheduler extender: which nodes fit a pod, how well, which pods to preempt for it, and binding it."""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from placement.common.gang import Gang
from placement.common.pod_identity import ENDED_PHASES, canonical_uid
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Conflict, NotFound, PlacementError, Unanswered
from placement.engine.domain.explanation import ConditionKind
from placement.engine.numa.host import Refusal, RefusalClass
from placement.pods.clusters import Clusters
from placement.pods.cycle import in_plain_words
from placement.pods.gangs import GivenUpGangs
from placement.pods.manifests.affinity import without_unknown_namespaces
from placement.pods.model import RecordedPod
from placement.pods.preemption import ENOUGH_NODES, Preemption, Victims
from placement.pods.reading import PodDocument
from placement.pods.rows import PodAnswer
from placement.pods.scheduler import PlacementResult
from placement.pods.service import ClaimedElsewhere, Pods, Precondition
from placement.storage.clock import utcnow


class Binder(Protocol):
    """An API server of a cluster that binds pods. Every call may raise PlacementError."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the pod; None if there is none."""

    def pods_on(self, node: str) -> Iterable[Mapping[str, Any]]:
        """Return the pods on a node that are not over; possibly as of a moment ago."""

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Assign the pod to the node and set annotations, both or neither; refused if it is assigned.

        Raises Unanswered if the pod may have been bound, or may still be.
        """


class Binders(Protocol):
    """A registry of the API servers in which this service may bind."""

    def of(self, cluster: str) -> Binder:
        """Return the API server of a cluster. Raises PlacementError that says what is missing."""


# Binding a pod once, beside other attempts for the same pod that may still be under way.
#
# A Binding that was sent cannot be called back: kube-scheduler may hang up and try again while the API server
# is still at work. So only the attempt that made or renewed a claim last releases it, and only if no Binding
# for it can still take effect. In doubt the claim stays, and the synchronisation releases it later.


# An attempt does not last longer, and leaves a part of the time of its request for finding out what happened.
_BINDS_WITHIN_SECONDS = 60.0
_PART_OF_REQUEST = 2 / 3
# API servers give up on a call after a minute. So no attempt can succeed any more so long after its claim.
_DECIDED_AFTER = datetime.timedelta(seconds=150)
_TOO_SLOW = "the API server took so long that the pod is not bound any more; its place was given back"


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod to bind, and the node to which it goes."""

    namespace: str
    name: str
    uid: str
    node: str


class _Overtaken(Conflict):
    """A conflict: the claim was released or renewed since."""


class BindAttempt:
    """An attempt that binds one pod once."""

    def __init__(self, pods: Pods, binder: Binder, cluster: str, binding: Binding) -> None:
        self._pods = pods
        self._binder = binder
        self._cluster = cluster
        self._binding = binding
        self._title = f"pod {binding.namespace}/{binding.name}"
        self.freed: list[Binding] = []
        """The pods of its gang that need not wait any longer, because this pod has its place."""

    def run(self) -> None:
        """Bind the pod with its annotations, unless it is bound already. Raises PlacementError."""
        binding, error = self._binding, None
        with request_scope.within(min(_BINDS_WITHIN_SECONDS, request_scope.remaining() * _PART_OF_REQUEST)):
            pod = self._pod()
            node = _node(pod)
            if node and node != binding.node:
                raise Conflict(f"{self._title} is assigned to node {node} already")
            if node:
                return
            taken = self._claimed(without_unknown_namespaces(pod))
            claim, target = taken.answer, (binding.namespace, binding.name, binding.uid, binding.node)
            try:
                if not self._pods.is_held(self._cluster, claim):
                    raise _Overtaken(f"{self._title}: another caller released or renewed its claim meanwhile")
                if request_scope.is_over():
                    raise PlacementError(_TOO_SLOW)
                self._binder.bind(*target, claim.annotations)
            except _Overtaken:
                raise
            except PlacementError as failure:
                error = failure
        if error is not None:
            self._settle(error, taken)

    def _pod(self) -> Mapping[str, Any]:
        """Return the pod with the name and the uid of the binding. Raises PlacementError."""
        pod = self._binder.pod(self._binding.namespace, self._binding.name)
        if pod is None:
            raise NotFound(f"{self._title} does not exist")
        uid = pod["metadata"]["uid"]
        if uid != self._binding.uid:
            raise Conflict(f"{self._title} is another one by now, with uid {uid}, not {self._binding.uid}")
        return pod

    def _claimed(self, pod: Mapping[str, Any]) -> PlacementResult:
        """Claim the place on the node; one elsewhere is released once the pod cannot go there any more."""
        of = self._binding
        wanted = self._cluster, of.namespace, of.name, of.uid, of.node, pod
        try:
            taken = self._pods.bind(*wanted)
        except ClaimedElsewhere as elsewhere:
            held = elsewhere.claim
            if _is_undecided(datetime.datetime.fromisoformat(held.changed_at)):
                raise Conflict(
                    f"{self._title} has a claim on node {held.node}, to which it may still be bound; "
                    f"after {_DECIDED_AFTER.seconds} s it can go to another node"
                ) from None
            self._release(held)
            taken = self._pods.bind(*wanted)
        self.freed = [
            Binding(each.pod.namespace, each.pod.name, each.pod.uid, each.node.name) for each in taken.freed
        ]
        return taken

    def _settle(self, error: PlacementError, taken: PlacementResult) -> None:
        """Raise the error of a failed call unless the pod is on its node, as the call may have succeeded."""
        try:
            bound_to = _node(self._pod())
        except (NotFound, Conflict):
            self._release(taken.answer)
            raise error from None
        except PlacementError as unknown:
            raise PlacementError(
                f"{error}; it is unknown whether the pod was bound ({unknown}), so its place stays claimed"
            ) from None
        if bound_to == self._binding.node:
            return
        if not bound_to and (isinstance(error, Unanswered) or _is_undecided(taken.before)):
            raise PlacementError(f"{error}; the pod may still be bound, so its place stays claimed")
        self._release(taken.answer)
        raise error

    def _release(self, claim: PodAnswer) -> None:
        """Release the claim, unless another attempt has made or renewed it meanwhile."""
        precondition = Precondition(claim.uid, claim.changed_at)
        with suppress(NotFound, Conflict):
            self._pods.delete(self._cluster, claim.namespace, claim.name, precondition)


def _is_undecided(claimed_at: datetime.datetime | None) -> bool:
    """Return whether an attempt with a claim of that time may still succeed."""
    return claimed_at is not None and utcnow() - claimed_at < _DECIDED_AFTER


def _node(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


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


class OpeningNodes:
    """A memory of nodes that were closed when kube-scheduler asked about them.

    kube-scheduler asks the moment a node comes back. After a refusal it would ask again only minutes later,
    after an error it does so in seconds. A node that stays closed longer refuses as any other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str], float] = {}

    def soon(self, cluster: str, asked: Iterable[str], closed: Collection[str]) -> list[str]:
        """Return which of the `closed` nodes have been closed for a short time only, sorted.

        That is as far as this process knows. Nodes that are open are forgotten once they are `asked` about.
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

    What a process remembers of gangs only avoids claims in vain.
    """

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
        gang = preview.pod.gang
        # Members of a gang that is not Strict keep their places whatever becomes of others.
        if gang is not None and gang.is_strict:
            releases, member = True, PodDocument.unnamed(cluster, pod)
            self._given_up.note(cluster, gang, member)
            refused = self._refused_of_gang(cluster, gang) if fitting else {}
            if refused or not fitting:
                self._pods.release_waiting(cluster, gang)
                self._given_up.set(cluster, gang, has_given_up=True)
            if refused:
                if member.uid not in refused:
                    return Filtered({}, dict.fromkeys(names, _NO_ROOM_FOR_GANG), releases)
                mine = refused[member.uid]
                fitting, refusals = 0, {name: mine[name] for name in names if name in mine}
        if opening and not fitting:
            for name in self._pods.fitting_once_open(cluster, pod, opening):
                raise Conflict(f"node {name} is closed until it is recorded with all pods that run there")
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        # Sorted, so that every process answers with the same bytes.
        for name, refusal in sorted(refusals.items(), key=lambda item: item[0]):
            lasting = refusal.status is RefusalClass.UNRESOLVABLE
            (unresolvable if lasting else failed)[name] = "; ".join(map(in_plain_words, refusal.reasons))
        if fitting + len(refusals) < len(names):
            known = {node.name for node in self._clusters.nodes(cluster)}
            unresolvable.update((name, _UNKNOWN_NODE) for name in names if name not in known)
        return Filtered(failed, unresolvable, releases)

    def _has_room_after_all(self, cluster: str, nodes: Iterable[str], fits: Callable[[str], bool]) -> bool:
        """Release pods of these nodes that are over or gone in Kubernetes; return whether a pod fits then.

        kube-scheduler hears of a deletion before the synchronization reports it, and asks at once. After a
        refusal it asks again only minutes later. `fits` is called with each node that pods have left.
        """
        refresh = self._refresher(cluster, _LOOK_SECONDS)
        return any(refresh(node) and fits(node) for node in nodes)

    def _refresher(self, cluster: str, seconds: float = math.inf) -> Callable[[str], bool]:
        """Return a function that releases pods of a node that are over or gone, and returns whether any were.

        Deletions of pods that have begun, but were not reported yet, are recorded and count, too. The
        function asks Kubernetes about ENOUGH_NODES nodes, for so many seconds in all, and never again after
        a failure. So the time-outs of an API server that does not answer do not add up. Without an answer no
        pod is released.
        """
        left = ENOUGH_NODES if self._binders is not None else 0
        end = time.monotonic() + seconds

        def refresh(node: str) -> bool:
            nonlocal left
            if left <= 0 or self._binders is None:
                return False
            left -= 1
            has_changed = False
            try:
                with request_scope.within(end - time.monotonic()):
                    recorded = self._pods.recorded_on(cluster, node)
                    binder = self._binders.of(cluster)
                    present = {canonical_uid(pod["metadata"]["uid"]): pod for pod in binder.pods_on(node)}
                    # Pods on no node yet, or newer than the list, are asked for one by one.
                    absent = [pod for pod in recorded if pod.uid not in present]
                    vanished = [pod for pod in absent if not _lives(binder, pod)]
                    for pod in vanished:
                        # A uid never recurs.
                        with suppress(NotFound):
                            self._pods.delete(cluster, pod.namespace, pod.name, Precondition(pod.uid))
                        has_changed = True
                    staying = [
                        present[pod.uid] for pod in recorded if pod.uid in present and not pod.is_leaving
                    ]
                    leaving = [each for each in staying if each["metadata"].get("deletionTimestamp")]
                    if leaving:
                        has_changed = True
                        # The list is of a moment ago: a pod may have been released since.
                        with suppress(Conflict):
                            self._pods.report_known(cluster, leaving)
            except PlacementError:
                left = 0
            return has_changed

        return refresh

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
        refresh = self._refresher(cluster)
        return self._preemption.victims(cluster, without_unknown_namespaces(pod), proposed, refresh)

    def bind(self, cluster: str, binding: Binding) -> None:
        """Claim a place for the pod on the node, write it to the pod, and assign the pod to the node.

        This order keeps a pod from being on a node without its CPUs. Members of its gang that waited for it
        are bound, too. Raises PlacementError; nothing is claimed then, unless the message says so.
        """
        if self._binders is None:
            raise PlacementError(_CANNOT_BIND)
        binder = self._binders.of(cluster)
        attempt = BindAttempt(self._pods, binder, cluster, binding)
        try:
            attempt.run()
        finally:
            # A member that is not bound now is bound when kube-scheduler tries again.
            for other in attempt.freed:
                with suppress(PlacementError):
                    BindAttempt(self._pods, binder, cluster, other).run()


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
        if refusal.status is RefusalClass.UNSCHEDULABLE and name != nominated
    ]
    yield from (name for _, name in sorted(others))
