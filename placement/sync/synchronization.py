"""The run of the synchronization: threads that watch and a loop that sends, or one pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from placement.client.client import ServiceError
from placement.engine.domain.errors import PlacementError
from placement.sync.api_server import ApiServer, ApiServerError, object_path, pods_path
from placement.sync.events import RejectionEvents
from placement.sync.expiring_claims import LOOK_EVERY_SECONDS
from placement.sync.figures import LEADS
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.leadership import Leadership, NotLeading
from placement.sync.own_claims import OwnClaims
from placement.sync.pause import Pause
from placement.sync.progress import SERVICE, Progress
from placement.sync.reconciled_pods import GATHERED_SECONDS
from placement.sync.reconciler import Reconciler
from placement.sync.sending import ReservationListener
from placement.sync.service import PodId, ServiceCluster
from placement.sync.settings import PATIENCE_SECONDS
from placement.sync.watched_collections import collections
from placement.sync.watched_objects import ObjectKind, WatchedObject
from placement.sync.watching import Watching, list_into

_LOOK_AGAIN_SECONDS = 1.0
# Finds what changed in the service without having changed in Kubernetes; sends nothing where all is well.
_COMPARE_EVERY_SECONDS = 600.0


class Synchronization:
    """The synchronization of one cluster of the service with one Kubernetes cluster."""

    def __init__(
        self,
        api_server: ApiServer,
        service: ServiceCluster,
        namespaces: Sequence[str],
        journal: Journal,
        claim_patience: float = PATIENCE_SECONDS,
        leadership: Leadership | None = None,
        own: OwnClaims | None = None,
        made_room: Callable[[], None] = lambda: None,
        reserved: ReservationListener = lambda _, __: None,
    ) -> None:
        """Prepare a synchronization; with `leadership` it sends only while this process leads.

        `own` are pods that this process binds itself; `made_room` is called when a pod that waits may fit,
        `reserved` with the outcome of each reservation.
        """
        self._api_server = api_server
        self._collections = collections(namespaces)
        self._pods = next(found for found in self._collections if found.kind is ObjectKind.POD)
        self._journal = journal
        self.progress = Progress(journal)
        self.store = InformerStore([collection.title for collection in self._collections])
        # How many lists the service has had everything of, None before that since this process leads.
        self._settled_lists: int | None = None
        self._leadership = leadership
        # Without an election this process leads.
        LEADS.set(leadership is None)
        self._events = RejectionEvents(api_server, journal)
        self._new_reconciler: Callable[[], Reconciler] = partial(
            Reconciler,
            service,
            self.store,
            journal,
            self._asked_for,
            namespaces,
            self.progress.tell,
            claim_patience,
            self._events,
            own,
            made_room,
            reserved,
        )
        self._reconciler = self._new_reconciler()
        self._stood_by = False
        # When each is due again; at first and after a failure both are.
        self._compare_at = self._look_at_claims_at = 0.0

    @property
    def is_current(self) -> bool:
        """Return whether the service has had all of the latest lists, since this process leads."""
        return self._settled_lists == self.store.lists

    def _asked_for(self, pod: PodId) -> WatchedObject | None:
        """Return the pod with that uid from Kubernetes, None if it is gone. Raises ApiServerError."""
        found = self._api_server.get(object_path(pods_path(pod.namespace), pod.name))
        if found is None:
            return None
        _, watched = self._pods.watched(found)
        return watched if watched.uid == pod.uid else None

    def once(self) -> int:
        """List everything and send the difference; return how much was rejected. Raises PlacementError."""
        for collection in self._collections:
            list_into(self._api_server, collection, self.store, self._journal)
        self._reconciler.compare()
        self._reconciler.settle_all()
        self._events.write_all()
        self._journal.note(self._reconciler.summary())
        return self._reconciler.rejected

    def look_at_claims(self) -> None:
        """Release claims that are known to have no pod. Raises PlacementError."""
        self._reconciler.look_at_claims()
        self._reconciler.settle()

    def forever(self, others: Sequence[threading.Thread] = ()) -> None:
        """Synchronize until KeyboardInterrupt, with other threads beside it.

        Raises PlacementError if a watch or one of them ends, which none should.
        """
        watches = [
            Watching(self._api_server, collection, self.store, self._journal)
            for collection in self._collections
        ]
        try:
            threads = *watches, *others
            for thread in (*threads, self._events, *([self._leadership] if self._leadership else [])):
                thread.start()
            self._send(threads)
        except KeyboardInterrupt:
            self._journal.note(f"stopped: {self._reconciler.summary()}")
        finally:
            if self._leadership is not None:
                self._leadership.resign()

    def _send(self, threads: Sequence[threading.Thread]) -> None:
        pause = Pause()
        while True:
            lists = self.store.lists
            changed = self.store.changed(
                GATHERED_SECONDS if self._reconciler.gathers else _LOOK_AGAIN_SECONDS
            )
            for thread in threads:
                if not thread.is_alive():
                    raise PlacementError(f"the thread of {thread.name} has ended")
            if self._leadership is not None and not self._leadership.is_alive():
                raise PlacementError("the thread that renews the Lease has ended")
            if not self._may_send():
                continue
            self._reconciler.look_at(changed)
            if not self.store.complete:
                continue
            try:
                if time.monotonic() >= self._compare_at:
                    self._reconciler.compare()
                    self._compare_at = time.monotonic() + _COMPARE_EVERY_SECONDS
                if time.monotonic() >= self._look_at_claims_at:
                    self.look_at_claims()
                    self._look_at_claims_at = time.monotonic() + LOOK_EVERY_SECONDS
                self._reconciler.settle(gathering=self._settled_lists == lists)
            except NotLeading:
                continue
            except (ServiceError, ApiServerError) as error:
                # The service may hold something else after the outage.
                self._compare_at = 0.0
                self._journal.trouble(SERVICE, str(error))
                time.sleep(pause.after_failure())
                continue
            self._settled_lists = lists
            pause.after_success()
            self._journal.well(SERVICE)
            self.progress.settled(self._reconciler.counts, self._reconciler.rejected)
            self.progress.tell(self._reconciler.summary(), is_settled=True)

    def _may_send(self) -> bool:
        """Return whether this process leads. One that stands by keeps watching, and does nothing else."""
        if self._leadership is None or self._leadership.leads:
            self._stood_by = False
            self.progress.leads()
            return True
        self._settled_lists = None
        self.progress.stands_by(self._leadership.holder)
        # Pods that end meanwhile are released by another process, or by the first comparison of this one.
        self.store.ended()
        if not self._stood_by:
            self._stood_by = True
            # Others send now, so it is not known any more what the service was sent last.
            self._reconciler = self._new_reconciler()
            self._compare_at = self._look_at_claims_at = 0.0
        return False
