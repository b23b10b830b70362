"""Runs the synchronization: threads that watch and a loop that sends, or one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from placement.domain.errors import PlacementError
from placement.metrics.synchronization import LEADS
from placement.operations.client import ServiceError
from placement.operations.kubernetes.api_server import ApiServer, ApiServerError, object_path
from placement.operations.kubernetes.claims import LOOK_EVERY_SECONDS, PATIENCE_SECONDS
from placement.operations.kubernetes.collection import collections, pods_path
from placement.operations.kubernetes.events import RejectionEvents
from placement.operations.kubernetes.informer_store import InformerStore, Kind, WatchedObject
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.leadership import Leadership, NotLeading
from placement.operations.kubernetes.pause import Pause
from placement.operations.kubernetes.progress import SERVICE, Progress
from placement.operations.kubernetes.reconciled_pods import GATHERED_SECONDS
from placement.operations.kubernetes.reconciler import Reconciler
from placement.operations.kubernetes.service import PodId, ServiceCluster
from placement.operations.kubernetes.watching import Watching, list_into

_LOOK_AGAIN_SECONDS = 1.0
_SUMMARY_SECONDS = 10.0
# Finds what changed in the service without having changed in Kubernetes; sends nothing where all is well.
_COMPARE_EVERY_SECONDS = 600.0


class Synchronization:
    """Keeps one cluster of the service equal to one Kubernetes cluster."""

    def __init__(
        self,
        api_server: ApiServer,
        service: ServiceCluster,
        namespaces: Sequence[str],
        journal: Journal,
        claim_patience: float = PATIENCE_SECONDS,
        leadership: Leadership | None = None,
    ) -> None:
        """With `leadership` it sends only while this process leads."""
        self._api_server = api_server
        self._collections = collections(namespaces)
        self._pods = next(found for found in self._collections if found.kind is Kind.POD)
        self._journal = journal
        self.progress = Progress(journal)
        self._store = InformerStore([collection.title for collection in self._collections])
        self._summary = _Summary(journal)
        self._leadership = leadership
        # Who need not ask leads.
        LEADS.set(leadership is None)
        self._events = RejectionEvents(api_server, journal)
        self._new_reconciler: Callable[[], Reconciler] = partial(
            Reconciler,
            service,
            self._store,
            journal,
            self._lives,
            self._is_placed,
            namespaces,
            self._summary.progress,
            claim_patience,
            self._events,
        )
        self._reconciler = self._new_reconciler()
        self._stood_by = False
        self._claims_looked_at = _Every(LOOK_EVERY_SECONDS)
        self._compared = _Every(_COMPARE_EVERY_SECONDS)

    def _lives(self, pod: PodId) -> bool:
        """Whether Kubernetes has that very pod, and it is not over. Raises ApiServerError."""
        seen = self._asked_for(pod)
        return seen is not None and not seen.over

    def _is_placed(self, pod: PodId) -> bool:
        """Whether that very pod is on a node now, and not over. Raises ApiServerError."""
        seen = self._asked_for(pod)
        return seen is not None and seen.node is not None

    def _asked_for(self, pod: PodId) -> WatchedObject | None:
        """The pod as Kubernetes has it now, None if it is gone."""
        found = self._api_server.get(object_path(pods_path(pod.namespace), pod.name))
        if found is None:
            return None
        _, seen = self._pods.seen(found)
        return seen if seen.uid == pod.uid else None

    def once(self) -> int:
        """List everything, send the difference; how much was rejected. Raises PlacementError."""
        for collection in self._collections:
            list_into(self._api_server, collection, self._store, self._journal)
        self._reconciler.compare()
        self._reconciler.settle_all()
        self._events.write_all()
        self._journal.note(self._reconciler.summary())
        return self._reconciler.rejected

    def look_at_claims(self) -> None:
        """Release claims that are known to have no pod. Raises PlacementError."""
        self._reconciler.look_at_claims()
        self._reconciler.settle()

    def forever(self) -> None:
        """Until KeyboardInterrupt. Raises PlacementError if a watch ends, which none should."""
        watches = [
            Watching(self._api_server, collection, self._store, self._journal)
            for collection in self._collections
        ]
        try:
            for thread in (*watches, self._events, *([self._leadership] if self._leadership else [])):
                thread.start()
            self._send(watches)
        except KeyboardInterrupt:
            self._journal.note(f"stopped: {self._reconciler.summary()}")
        finally:
            if self._leadership is not None:
                self._leadership.resign()

    def _send(self, watches: Sequence[Watching]) -> None:
        pause = Pause()
        while True:
            changed = self._store.changed(
                GATHERED_SECONDS if self._reconciler.gathers else _LOOK_AGAIN_SECONDS
            )
            for watch in watches:
                if not watch.is_alive():
                    raise PlacementError(f"the watch of {watch.name} has ended")
            if self._leadership is not None and not self._leadership.is_alive():
                raise PlacementError("the thread that renews the Lease has ended")
            if not self._may_send():
                continue
            self._reconciler.look_at(changed)
            if not self._store.complete:
                continue
            try:
                if self._compared.is_due():
                    self._reconciler.compare()
                    self._compared.done()
                if self._claims_looked_at.is_due():
                    self.look_at_claims()
                    self._claims_looked_at.done()
                self._reconciler.settle(gathering=True)
            except NotLeading:
                continue
            except (ServiceError, ApiServerError) as error:
                # The service may hold something else after the outage.
                self._compared.forget()
                self._journal.trouble(SERVICE, str(error))
                time.sleep(pause.after_failure())
                continue
            pause.after_success()
            self._journal.well(SERVICE)
            self.progress.settled(self._reconciler.counts, self._reconciler.rejected)
            self._summary.tell(self._reconciler.summary())

    def _may_send(self) -> bool:
        """Whether this process leads. One that stands by keeps watching, and nothing else."""
        if self._leadership is None or self._leadership.leads:
            self._stood_by = False
            return True
        self.progress.stands_by(self._leadership.holder)
        # What ends meanwhile another process releases, or the comparison with which this one begins.
        self._store.ended()
        if not self._stood_by:
            self._stood_by = True
            # Others send now, so it is not known any more what the service was sent last.
            self._reconciler = self._new_reconciler()
            self._compared.forget()
            self._claims_looked_at.forget()
        return False


class _Every:
    """When a thing is due: at once, then again after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next: float | None = None

    def is_due(self) -> bool:
        """Whether it is to be done now."""
        return self._next is None or time.monotonic() >= self._next

    def done(self) -> None:
        """Note that it was done."""
        self._next = time.monotonic() + self._seconds

    def forget(self) -> None:
        """Make it due at once."""
        self._next = None


class _Summary:
    """Prints the state when it has changed, but not too often."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._told: str | None = None
        self._told_at = time.monotonic()

    def tell(self, text: str) -> None:
        """Print the state after everything was sent."""
        if self._told is None:
            self._tell(text)
        self.progress(text)

    def progress(self, text: str) -> None:
        """Print the state while more is to be sent."""
        if text != self._told and time.monotonic() - self._told_at >= _SUMMARY_SECONDS:
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._journal.note(text)
        self._told, self._told_at = text, time.monotonic()
