"""The run of the synchronization: threads that watch and a loop that sends, or one pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from placement.client.client import ServiceError
from placement.common import probes
from placement.common.probes import Check
from placement.engine.domain.errors import PlacementError
from placement.metrics.sharing import exposition
from placement.sync.api_server import ApiServer, ApiServerError, object_path
from placement.sync.events import Journal, RejectionEvents
from placement.sync.figures import LAG_SECONDS, LEADS, OBJECTS, REJECTED
from placement.sync.leadership import Leadership, NotLeading
from placement.sync.pods import GATHERED_SECONDS, LOOK_EVERY_SECONDS, PATIENCE_SECONDS
from placement.sync.reconciler import Reconciler
from placement.sync.service import PodId, ServiceCluster
from placement.sync.store import InformerStore, ObjectKind, WatchedObject, collections, pods_path
from placement.sync.watching import SOURCE, UNKNOWN_KIND, Pause, Watching, list_into

# How far the synchronization is, for its operator: its checks and its figures.


SERVICE = "service"
# Rounds follow each other within a second; a long one sends a lot.
_BEHIND_SECONDS = 60.0


class Progress:
    """The state of the synchronization at any moment, for threads other than the one that sends."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._settled_at = time.monotonic()
        self._rejected: int | None = None
        self._leader: str | None = None
        LAG_SECONDS.set_function(self._behind_seconds)

    def settled(self, counts: Mapping[str, int], rejected: int) -> None:
        """Note that the service has everything that it takes."""
        self._leader = None
        self._settled_at = time.monotonic()
        self._rejected = rejected
        REJECTED.set(rejected)
        for kind, count in counts.items():
            OBJECTS.labels(kind).set(count)

    def stands_by(self, leader: str) -> None:
        """Note that another process sends, so that this one is not behind."""
        self._leader = leader
        self._settled_at = time.monotonic()

    def checks(self) -> list[Check]:
        """Return checks: Kubernetes is watched, the service answers, and it is not far behind."""
        troubles = self._journal.troubles()
        watching = [
            f"{source.removeprefix(SOURCE)}: {given}"
            for source, given in troubles.items()
            if source.startswith(SOURCE) and not given.startswith(UNKNOWN_KIND)
        ]
        service = troubles.get(SERVICE, "")
        return [
            Check("kubernetes-watched", not watching, "; ".join(watching)),
            Check("service-answers", not service, service),
            self._caught_up(),
        ]

    def _caught_up(self) -> Check:
        behind = self._behind_seconds()
        if self._leader is not None and behind <= _BEHIND_SECONDS:
            return Check("caught-up", True, f"stands by, {self._leader or 'nobody'} leads")
        if self._rejected is None:
            return Check("caught-up", False, f"not once since the start, {behind:.0f} s ago")
        given = f"{behind:.1f} s behind, {self._rejected} rejected"
        return Check("caught-up", behind <= _BEHIND_SECONDS, given)

    def _behind_seconds(self) -> float:
        return time.monotonic() - self._settled_at


_LOOK_AGAIN_SECONDS = 1.0
_SUMMARY_SECONDS = 10.0
# Finds what changed in the service without having changed in Kubernetes; sends nothing where all is well.
_COMPARE_EVERY_SECONDS = 600.0


class Synchronization:
    """A synchronization that keeps one cluster of the service equal to one Kubernetes cluster."""

    def __init__(
        self,
        api_server: ApiServer,
        service: ServiceCluster,
        namespaces: Sequence[str],
        journal: Journal,
        claim_patience: float = PATIENCE_SECONDS,
        leadership: Leadership | None = None,
    ) -> None:
        """Prepare a synchronization; with `leadership` it sends only while this process leads."""
        self._api_server = api_server
        self._collections = collections(namespaces)
        self._pods = next(found for found in self._collections if found.kind is ObjectKind.POD)
        self._journal = journal
        self.progress = Progress(journal)
        self._store = InformerStore([collection.title for collection in self._collections])
        self._summary = _Summary(journal)
        self._leadership = leadership
        # Without an election this process leads.
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
        """Return whether Kubernetes has that very pod, and it is not over. Raises ApiServerError."""
        seen = self._asked_for(pod)
        return seen is not None and not seen.over

    def _is_placed(self, pod: PodId) -> bool:
        """Return whether that very pod is on a node now, and not over. Raises ApiServerError."""
        seen = self._asked_for(pod)
        return seen is not None and seen.node is not None

    def _asked_for(self, pod: PodId) -> WatchedObject | None:
        """Return the pod as Kubernetes has it now, None if it is gone."""
        found = self._api_server.get(object_path(pods_path(pod.namespace), pod.name))
        if found is None:
            return None
        _, seen = self._pods.seen(found)
        return seen if seen.uid == pod.uid else None

    def once(self) -> int:
        """List everything and send the difference; return how much was rejected. Raises PlacementError."""
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
        """Synchronize until KeyboardInterrupt. Raises PlacementError if a watch ends, which none should."""
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
        """Return whether this process leads. One that stands by keeps watching, and does nothing else."""
        if self._leadership is None or self._leadership.leads:
            self._stood_by = False
            return True
        self.progress.stands_by(self._leadership.holder)
        # Pods that end meanwhile are released by another process, or by the first comparison of this one.
        self._store.ended()
        if not self._stood_by:
            self._stood_by = True
            # Others send now, so it is not known any more what the service was sent last.
            self._reconciler = self._new_reconciler()
            self._compared.forget()
            self._claims_looked_at.forget()
        return False


class _Every:
    """A timer of a thing that is due at once, then again after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next: float | None = None

    def is_due(self) -> bool:
        """Return whether it is to be done now."""
        return self._next is None or time.monotonic() >= self._next

    def done(self) -> None:
        """Note that it was done."""
        self._next = time.monotonic() + self._seconds

    def forget(self) -> None:
        """Make it due at once."""
        self._next = None


class _Summary:
    """A printer that shows the state when it has changed, but not too often."""

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


# A port of its own on which the synchronization tells of its health and its figures.


def serve_health(host: str, port: int, checks: Callable[[], Sequence[Check]]) -> None:
    """Answer /livez, /readyz, /healthcheck and /metrics there, from threads that end with the process.

    Raises PlacementError naming the options if it cannot listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == probes.METRICS:
                figures = exposition()
                size = {"Content-Length": str(len(figures))}
                self._send(200, {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4, **size}, figures)
            elif path in probes.PATHS:
                accept = self.headers.get("Accept") or ""
                probe = probes.answer(self.command, path, query, accept, checks)
                self._send(probe.status, probe.headers, probe.body.encode())
            else:
                self._send(404, {"Content-Length": "0"}, b"")

        do_HEAD = do_GET

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: requests that come every few seconds tell nothing."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        reason = error.strerror or error
        raise PlacementError(f"--health-host {host} --health-port {port}: {reason}") from None
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
