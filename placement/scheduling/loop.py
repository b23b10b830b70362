"""The loop that places pods: one cycle takes the next ones, has them placed in one call, and binds them.

A cycle:

1. *Updates.* What the watch has seen of pods goes into the queue, and what became of Bindings.
2. *Take.* The most important and oldest pods, gangs as a whole, up to some hundreds.
3. *Tailor.* Marked nodes, bound volumes and nodes that are kept for others become part of the manifest.
4. *Place.* The service decides and records all of them in one call. If that fails, halves of them are sent,
   gangs as a whole, until the pod or the gang that fails alone goes into quarantine.
5. *Bind.* Threads write the Bindings, or take gates away, while the next cycle runs.
6. *Tell.* A pod that fits nowhere gets the reason, and may have others evicted.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from placement.client.client import ServiceError
from placement.scheduling import figures
from placement.scheduling.binder import BindingOutcome, BindingResult, PodBinder, PodClaim
from placement.scheduling.evictions import Evictions
from placement.scheduling.inbox import Inbox, Update
from placement.scheduling.pending import BindingWay, read_pending
from placement.scheduling.pinned import PinnedPods
from placement.scheduling.queue import QUARANTINE_SECONDS, QueuedPod, QueueState, SchedulingQueue
from placement.scheduling.rivals import Rivals
from placement.scheduling.tailoring import tailored
from placement.scheduling.telling import NOT_DECIDED, PodTeller
from placement.scheduling.volumes import NotDecided, Volumes
from placement.sync.api_server import ApiServerError
from placement.sync.journal import Journal
from placement.sync.leadership import NotLeading
from placement.sync.own_claims import SHOWN_WITHIN_SECONDS, OwnClaims
from placement.sync.pause import Pause
from placement.sync.pod_groups import PodGroups
from placement.sync.service import ServiceCluster, is_refusal
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject

MOST_IN_CALL = 200
# So many pods may wait for their Bindings; the loop places no more meanwhile.
_MOST_BINDING = 1_000
_PLACED_WITHIN_SECONDS = 60.0
_IDLE_SECONDS = 1.0
# The settings of the cluster are read again so often.
_SETTINGS_SECONDS = 10.0
_SOURCE = "placing"
_UNAVAILABLE = frozenset({429, 502, 503, 504})
# The service takes no pod at all: the token, or the cluster is not what it must be.
_REFUSES_ALL = frozenset({401, 403, 404})
# In one cycle no pods are evicted for more than these: each search takes the service some time.
_MOST_PREEMPTIONS = 10


class SchedulingLoop(threading.Thread):
    """The thread that places pods."""

    def __init__(
        self,
        inbox: Inbox,
        service: ServiceCluster,
        schedulers: Collection[str],
        journal: Journal,
        own: OwnClaims,
        seen: Callable[[Key], WatchedObject | None],
        binder: PodBinder,
        teller: PodTeller,
        evictions: Evictions,
        groups: PodGroups,
        volumes: Volumes,
        rivals: Rivals,
        pinned: PinnedPods,
        may_place: Callable[[], bool],
    ) -> None:
        """Prepare the loop. `seen` returns an object as the watch has it, `may_place` whether it leads."""
        super().__init__(name="scheduling", daemon=True)
        self._inbox = inbox
        self._service = service
        self._schedulers = schedulers
        self._journal = journal
        self._own = own
        self._seen = seen
        self._binder = binder
        self._teller = teller
        self._evictions = evictions
        self._groups = groups
        self._volumes = volumes
        self._rivals = rivals
        self._pinned = pinned
        self._may_place = may_place
        self._queue = SchedulingQueue()
        # Pods that were bound a moment ago, with when to look at them again should the watch not show it.
        self._bound: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._pause = Pause()
        self._paused_until = self._settings_at = 0.0

    # -- the cycle ------------------------------------------------------------------------------------

    def run(self) -> None:
        while True:
            self.cycle(self._idle_seconds())

    def cycle(self, seconds: float) -> None:
        """Do one cycle, which begins when there is something to do, at the latest after these seconds."""
        for update in self._inbox.take(seconds):
            self._take_update(update)
        self._look_again()
        self._show_counts()
        if not self._may_place() or time.monotonic() < self._paused_until:
            return
        self._pinned.replace_overdue()
        if self._own.binding >= _MOST_BINDING:
            return
        taken_pods, untried_pods = self._queue.take(MOST_IN_CALL)
        for queued in untried_pods:
            self._teller.waits(queued.pod, queued.reason)
        if not taken_pods:
            return
        started = time.monotonic()
        try:
            refused = self._place(self._tailored(taken_pods))
        except NotLeading:
            self._put_back(taken_pods)
        except (ServiceError, ApiServerError) as error:
            # Nothing is wrong with the pods.
            self._put_back(taken_pods)
            self._journal.trouble(_SOURCE, str(error))
            self._paused_until = time.monotonic() + self._pause.after_failure()
        else:
            self._pause.after_success()
            self._journal.well(_SOURCE)
            self._preempt(refused)
        finally:
            for queued in taken_pods:
                result = {QueueState.TAKEN: "scheduled", QueueState.PARKED: "unschedulable"}.get(
                    queued.state, "error"
                )
                profile = str(queued.pod.manifest["spec"].get("schedulerName"))
                figures.ATTEMPTS.labels(result, profile).inc()
                figures.ATTEMPT_SECONDS.labels(result, profile).observe(time.monotonic() - started)

    def _idle_seconds(self) -> float:
        paused = self._paused_until - time.monotonic()
        if paused > 0:
            return min(paused, _IDLE_SECONDS)
        if not self._may_place() or self._own.binding >= _MOST_BINDING:
            return _IDLE_SECONDS
        seconds = self._queue.seconds_until_next()
        return _IDLE_SECONDS if seconds is None else min(seconds, _IDLE_SECONDS)

    # -- 1. updates -----------------------------------------------------------------------------------

    def _take_update(self, update: Update | BindingOutcome | None) -> None:
        if update is None:
            self._queue.wake()
        elif isinstance(update, BindingOutcome):
            self._take_outcome(update)
        elif update[0].kind is ObjectKind.POD:
            self._take_pod(*update)
        else:
            self._take_group(update[0])

    def _take_pod(self, key: Key, watched: WatchedObject | None) -> None:
        """Add or remove a pod, by what the watch has seen of it last."""
        pod = None
        if watched is not None:
            pod = read_pending(key, watched, self._schedulers, self._groups.annotated)
        uid = None if pod is None else pod.id.uid
        for other in self._queue.uids_of(key.namespace, key.name):
            # What is being bound stays until the outcome is known.
            if other != uid and not self._own.is_binding(other):
                self._forget(other)
        if pod is None or pod.pinned_to is None:
            self._pinned.forget(key)
        if pod is None:
            self._bound.pop(key, None)
        elif pod.pinned_to is not None:
            self._pinned.saw(pod)
        elif not self._own.is_bound(pod.id.uid):
            self._queue.put(pod)

    def _take_group(self, group_key: Key) -> None:
        """Read the pods of a PodGroup again, which came, changed or went."""
        for pod in self._queue.pods_of(group_key):
            key = Key(ObjectKind.POD, pod.id.namespace, pod.id.name)
            self._take_pod(key, self._seen(key))
        self._queue.wake()

    def _forget(self, uid: str) -> None:
        self._queue.remove(uid)
        self._evictions.forget(uid)
        self._teller.forget(uid)

    def _take_outcome(self, bound: BindingOutcome) -> None:
        """Let a pod go that is bound, and try another time with one that is not."""
        pod, node = bound.claim.pod, bound.claim.node
        key = Key(ObjectKind.POD, pod.id.namespace, pod.id.name)
        queued = self._queue.get(pod.id.uid)
        if bound.result in (BindingResult.BOUND, BindingResult.PINNED):
            self._own.binds(pod.id.uid, node, pod.manifest, bound.claim.annotations)
            self._bound[key] = pod.id.uid, time.monotonic() + SHOWN_WITHIN_SECONDS
            self._bound.move_to_end(key)
            self._forget(pod.id.uid)
            if bound.result is BindingResult.BOUND:
                self._teller.bound(pod, node)
            if queued is not None:
                figures.POD_ATTEMPTS.observe(queued.attempts)
                figures.SLI_SECONDS.labels(str(min(queued.attempts, 16))).observe(
                    time.monotonic() - queued.since
                )
            return
        self._own.fails(pod.id.uid)
        if bound.result is not BindingResult.UNKNOWN:
            # Its claim was given back.
            self._queue.wake()
        if bound.result in (BindingResult.GONE, BindingResult.TAKEN_ELSEWHERE):
            self._forget(pod.id.uid)
        elif queued is not None:
            self._journal.note(f"pod {pod.title}: not bound to {node}: {bound.text}")
            self._teller.waits(pod, bound.text)
            self._queue.back_off(queued, bound.text)
        # It may have changed, or gone, while it was being bound.
        self._take_pod(key, self._seen(key))

    def _look_again(self) -> None:
        """Look at pods that were bound, and which the watch does not show so: Kubernetes was set back."""
        now = time.monotonic()
        while self._bound:
            key, (uid, until) = next(iter(self._bound.items()))
            if until > now:
                return
            del self._bound[key]
            watched = self._seen(key)
            if watched is None or watched.uid != uid or watched.node is None:
                self._own.forget(uid)
                self._take_pod(key, watched)

    # -- 3. tailor ------------------------------------------------------------------------------------

    def _tailored(self, taken_pods: Sequence[QueuedPod]) -> list[tuple[QueuedPod, dict[str, Any]]]:
        """Return the manifests to be placed; a pod that the loop does not decide is parked instead.

        Raises ApiServerError, ServiceError.
        """
        self._read_settings()
        found = []
        for queued in taken_pods:
            pod = queued.pod
            is_bound_here = pod.way is BindingWay.BINDING
            try:
                lacking = self._groups.lacking(pod.manifest)
                if lacking:
                    raise NotDecided(lacking)
                terms = self._volumes.terms(pod) if is_bound_here else []
            except NotDecided as reason:
                self._refuse(queued, str(reason))
                continue
            except ApiServerError as error:
                if not error.is_refusal:
                    raise
                # It is about this volume; other pods go on.
                self._teller.waits(pod, str(error))
                self._queue.back_off(queued, str(error))
                continue
            manifest = tailored(
                self._groups.annotated(pod.manifest),
                only_marked=is_bound_here and not self._rivals.shares_nodes,
                tolerates=is_bound_here,
                terms=terms,
                without=self._evictions.kept_from(pod) | self._pinned.refused_for(pod),
            )
            found.append((queued, manifest))
        return found

    def _read_settings(self) -> None:
        """Read from time to time whether the loop shares its nodes with other schedulers."""
        if time.monotonic() >= self._settings_at:
            self._rivals.shares_nodes = self._service.settings().get("loopNodes") != "marked"
            self._settings_at = time.monotonic() + _SETTINGS_SECONDS

    # -- 4. place -------------------------------------------------------------------------------------

    def _place(
        self, pods: Sequence[tuple[QueuedPod, dict[str, Any]]]
    ) -> list[tuple[QueuedPod, dict[str, Any]]]:
        """Have pods placed and bound; return the ones that fit nowhere.

        Raises ServiceError where the service takes none, NotLeading.
        """
        if not pods:
            return []
        try:
            outcomes = self._service.place([manifest for _, manifest in pods], _PLACED_WITHIN_SECONDS)
        except ServiceError as error:
            if error.status is None or error.status in _UNAVAILABLE | _REFUSES_ALL:
                raise
            middle = _middle(pods)
            if middle is not None:
                return [*self._place(pods[:middle]), *self._place(pods[middle:])]
            for queued, _ in pods:
                self._quarantine(queued, str(error))
            return []
        refused = []
        for (queued, manifest), outcome in zip(pods, outcomes, strict=True):
            placed = outcome.get("pod", {})
            if placed.get("node") and placed.get("shared_with"):
                self._give_back(queued, placed)
            elif placed.get("node"):
                self._bind(queued, placed)
            elif self._fits_nowhere(queued, outcome):
                refused.append((queued, manifest))
        return refused

    def _fits_nowhere(self, queued: QueuedPod, outcome: Mapping[str, Any]) -> bool:
        """Note why a pod has no place; return whether that is for want of room."""
        if "error" not in outcome:
            self._teller.waits(queued.pod, "it is recorded without a node")
            self._queue.back_off(queued, "")
            return False
        error, status = outcome["error"], outcome["status"]
        # The name of the pod stands beside the text wherever it is shown.
        text = str(error["detail"]).removeprefix(f"pod {queued.pod.title}: ")
        if error.get("code") in ("unschedulable", "gang_waits"):
            self._refuse(queued, text)
            return bool(error.get("code") == "unschedulable")
        if status in _UNAVAILABLE:
            raise ServiceError(text, status)
        if is_refusal(ServiceError(text, status)) and status != 409:
            # Only another manifest helps.
            self._refuse(queued, text)
        elif status == 409:
            self._teller.waits(queued.pod, text)
            self._queue.back_off(queued, text)
        else:
            self._quarantine(queued, text)
        return False

    def _refuse(self, queued: QueuedPod, text: str) -> None:
        self._queue.park(queued, text)
        self._teller.waits(queued.pod, text, self._evictions.nominated_node(queued.pod.id.uid))

    def _quarantine(self, queued: QueuedPod, text: str) -> None:
        figures.QUARANTINED.inc()
        self._journal.note(f"pod {queued.pod.title}: the service cannot take it: {text}")
        self._teller.waits(queued.pod, text)
        self._queue.back_off(queued, text, QUARANTINE_SECONDS)

    def _put_back(self, taken_pods: Sequence[QueuedPod]) -> None:
        for queued in taken_pods:
            if queued.state is QueueState.TAKEN and not self._own.is_binding(queued.pod.id.uid):
                self._queue.put_back(queued)

    # -- 5. bind --------------------------------------------------------------------------------------

    def _bind(self, queued: QueuedPod, placed: Mapping[str, Any]) -> None:
        self._queue.placed(queued)
        claim = PodClaim(queued.pod, placed["node"], placed["annotations"], placed.get("changed_at") or "")
        self._own.begins(queued.pod.id.uid)
        undecided = ", ".join(dict.fromkeys(str(each["what"]) for each in placed.get("undecided") or ()))
        if undecided and queued.pod.way is BindingWay.BINDING:
            self._teller.notes(queued.pod, NOT_DECIDED, f"not looked at: {undecided}")
        self._binder.bind(claim)

    def _give_back(self, queued: QueuedPod, placed: Mapping[str, Any]) -> None:
        """Give back a claim for CPUs that another pod has, as Kubernetes was set back to when it ran there.

        Raises ServiceError, NotLeading.
        """
        self._service.release(queued.pod.id, placed.get("changed_at"))
        text = f"its CPUs on node {placed['node']} are held by {', '.join(placed['shared_with'])}"
        self._teller.waits(queued.pod, text)
        self._queue.back_off(queued, text)

    # -- 6. preempt -----------------------------------------------------------------------------------

    def _preempt(self, refused: Sequence[tuple[QueuedPod, dict[str, Any]]]) -> None:
        """Evict pods for the most important of the refused ones, one of each shape."""
        shapes = set[bytes]()
        for queued, manifest in refused:
            if queued.pod.gang or queued.pod.way is BindingWay.GATE or queued.pod.shape in shapes:
                continue
            if len(shapes) >= _MOST_PREEMPTIONS:
                return
            shapes.add(queued.pod.shape)
            # Nodes that are kept since the manifest was sent: two pods must not wait for the same victims.
            kept = self._evictions.kept_from(queued.pod)
            manifest = tailored(manifest, only_marked=False, tolerates=False, without=kept)
            try:
                nomination = self._evictions.evict_for(queued.pod, manifest)
            except NotLeading:
                return
            except (ServiceError, ApiServerError) as error:
                self._journal.trouble("preemption", str(error))
                return
            self._journal.well("preemption")
            if nomination is not None:
                self._teller.waits(queued.pod, queued.reason, nomination.node)
                if not nomination.victims:
                    # It fits there by now.
                    self._queue.wake()

    def _show_counts(self) -> None:
        counts = self._queue.counts
        for place in (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.PARKED, QueueState.GATED):
            figures.PENDING_PODS.labels(str(place)).set(counts[place])


def _middle(pods: Sequence[tuple[QueuedPod, dict[str, Any]]]) -> int | None:
    """Return where to cut in half without cutting a gang; None if all are one pod or one gang."""
    gangs = [queued.pod.gang for queued, _ in pods]
    cuts = [cut for cut in range(1, len(gangs)) if not gangs[cut] or gangs[cut] != gangs[cut - 1]]
    return min(cuts, key=lambda cut: abs(cut - len(gangs) // 2), default=None)
