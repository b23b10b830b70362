"""The run of the synchronization: threads that watch and a loop that sends, or one pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from placement.client.client import ServiceError
from placement.common import probes
from placement.common.probes import Check
from placement.engine.domain.errors import PlacementError
from placement.metrics.sharing import exposition
from placement.sync.api_server import ApiServer, ApiServerError, object_path, pods_path
from placement.sync.events import RejectionEvents
from placement.sync.figures import LAG_SECONDS, LEADS, OBJECTS, REJECTED
from placement.sync.leadership import Leadership, NotLeading
from placement.sync.reconciled import (
    GATHERED_SECONDS,
    LOOK_EVERY_SECONDS,
    PATIENCE_SECONDS,
    Asked,
    ExpiringClaims,
    ReconciledNodes,
    ReconciledPods,
    ReconciledReservations,
    Sending,
)
from placement.sync.service import PodId, ServiceCluster
from placement.sync.watching import (
    SOURCE,
    UNKNOWN_KIND,
    InformerStore,
    Journal,
    Key,
    ObjectKind,
    Pause,
    WatchedObject,
    Watching,
    collections,
    list_into,
)

# How far the synchronization is, for its operator: its checks and its figures.


SERVICE = "service"
# Rounds follow each other within a second; a long one sends a lot.
_BEHIND_SECONDS = 60.0
_SUMMARY_SECONDS = 10.0


class Progress:
    """The state of the synchronization at any moment, for threads other than the one that sends."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._settled_at = time.monotonic()
        self._rejected: int | None = None
        self._leader: str | None = None
        self._summary: str | None = None
        self._summarized_at = time.monotonic()
        LAG_SECONDS.set_function(self._behind_seconds)

    def tell(self, summary: str, *, is_settled: bool = False) -> None:
        """Print the state when it has changed, not too often; the first as soon as everything was sent."""
        is_first = is_settled and self._summary is None
        seconds = time.monotonic() - self._summarized_at
        if is_first or (summary != self._summary and seconds >= _SUMMARY_SECONDS):
            self._journal.note(summary)
            self._summary, self._summarized_at = summary, time.monotonic()

    def settled(self, counts: Mapping[str, int], rejected: int) -> None:
        """Note that the service has everything that it takes."""
        self._settled_at = time.monotonic()
        self._rejected = rejected
        REJECTED.set(rejected)
        for kind, count in counts.items():
            OBJECTS.labels(kind).set(count)

    def leads(self) -> None:
        """Note that this process sends, so that it is behind until everything was sent."""
        self._leader = None

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
        behind = self._behind_seconds()
        caught_up = behind <= _BEHIND_SECONDS
        if self._leader is not None and caught_up:
            given = f"stands by, {self._leader or 'no process'} leads"
        elif self._rejected is None:
            caught_up, given = False, f"not once since the start, {behind:.0f} s ago"
        else:
            given = f"{behind:.1f} s behind, {self._rejected} rejected"
        return [
            Check("kubernetes-watched", not watching, "; ".join(watching)),
            Check("service-answers", not service, service),
            Check("caught-up", caught_up, given),
        ]

    def _behind_seconds(self) -> float:
        return time.monotonic() - self._settled_at


class Reconciler:
    """A reconciler that compares the store with what the service holds, and sends the difference.

    Order: pods that end, reservations that end, nodes that go, nodes that come or change, pods that come or
    change, then reservations: the service finds room for these beside what runs. So room is given back before
    it is asked for, and a node is there before its pods; pods of a node that the service does not have wait
    for it. A node that was sent closed is opened once its own pods are sent, not once all are: the pods of a
    large cluster take minutes. Whatever is not done when a call fails stays due.
    """

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        journal: Journal,
        asked: Asked,
        namespaces: Collection[str],
        progress: Callable[[str], None],
        claim_patience: float,
        events: RejectionEvents | None = None,
    ) -> None:
        self._service = service
        self._store = store
        self._journal = journal
        self._sending = Sending(journal, lambda: progress(self.summary()), store, events)
        self._pods = ReconciledPods(service, store, self._sending, asked, namespaces)
        self._reservations = ReconciledReservations(service, store, self._sending)
        self._nodes = ReconciledNodes(service, store, self._sending, self._pods, self._reservations)
        self._claims = ExpiringClaims(service, store, self._pods, journal, asked, claim_patience)

    @property
    def rejected(self) -> int:
        """Return how many things the service refuses as they are."""
        return len(self._sending.rejections)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of nodes, pods and reservations held, and of pods that wait for their node."""
        return {
            "nodes": len(self._nodes),
            "pods": len(self._pods),
            "reservations": len(self._reservations),
            "waiting": self._pods.waiting,
        }

    def summary(self) -> str:
        """Return what the service holds, in a line."""
        waiting = f", waiting {self._pods.waiting}" if self._pods.waiting else ""
        kept = f", reservations {len(self._reservations)}" if len(self._reservations) else ""
        return f"nodes {len(self._nodes)}, pods {len(self._pods)}{waiting}{kept}, rejected {self.rejected}"

    def compare(self) -> None:
        """Read what the service holds; all that may differ becomes due.

        Raises ServiceError, ApiServerError.
        """
        if self._service.create_if_missing():
            self._journal.note("the cluster is new")
        self._sending.rejections.forgive()
        self._nodes.compare()
        self._reservations.compare()
        self._pods.compare()
        self.look_at(self._store.keys())

    def look_at(self, keys: Iterable[Key]) -> None:
        """Note objects that may have changed."""
        found = set(keys)
        pods = {key for key in found if key.kind is ObjectKind.POD}
        self._pods.look_at(pods)
        reservations = {key for key in found if key.kind is ObjectKind.RESERVATION}
        self._reservations.look_at(reservations)
        # A topology is sent with its node.
        self._nodes.look_at(Key(ObjectKind.NODE, "", key.name) for key in found - pods - reservations)

    def look_at_claims(self) -> None:
        """Find claims without a pod. Raises ServiceError, ApiServerError."""
        self._claims.look()

    @property
    def gathers(self) -> bool:
        """Return whether pods that are due may wait a moment for others."""
        return self._pods.gathers

    def settle(self, *, gathering: bool = False) -> int:
        """Send what is due; return how many calls changed something.

        Raises ServiceError, ApiServerError; the rest stays due.

        With `gathering`, pods that come one after another wait for each other, and reservations for them.
        Calls that give back room do not wait.
        """
        self._pods.end(self._store.ended())
        self.look_at(self._sending.rejections.ripe())
        changes = self._pods.release_ended()
        changes += self._reservations.delete_gone()
        changes += self._nodes.delete_gone()
        changes += self._nodes.put()
        if gathering and self.gathers:
            return changes
        for taken, complete in self._pods.put(self._nodes.has):
            changes += taken + self._nodes.open(complete)
        changes += self._nodes.open()
        return changes + self._reservations.put()

    def settle_all(self) -> None:
        """Send what is due, and conflicts again as long as some of them succeed.

        Raises ServiceError, ApiServerError.
        """
        self.settle()
        while conflicts := self._sending.rejections.ripen():
            self.look_at(conflicts)
            if not self.settle():
                return


_LOOK_AGAIN_SECONDS = 1.0
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
        self._leadership = leadership
        # Without an election this process leads.
        LEADS.set(leadership is None)
        self._events = RejectionEvents(api_server, journal)
        self._new_reconciler: Callable[[], Reconciler] = partial(
            Reconciler,
            service,
            self._store,
            journal,
            self._asked_for,
            namespaces,
            self.progress.tell,
            claim_patience,
            self._events,
        )
        self._reconciler = self._new_reconciler()
        self._stood_by = False
        # When each is due again; at first and after a failure both are.
        self._compare_at = self._look_at_claims_at = 0.0

    def _asked_for(self, pod: PodId) -> WatchedObject | None:
        """Return that very pod as Kubernetes has it now, None if it is gone. Raises ApiServerError."""
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
                if time.monotonic() >= self._compare_at:
                    self._reconciler.compare()
                    self._compare_at = time.monotonic() + _COMPARE_EVERY_SECONDS
                if time.monotonic() >= self._look_at_claims_at:
                    self.look_at_claims()
                    self._look_at_claims_at = time.monotonic() + LOOK_EVERY_SECONDS
                self._reconciler.settle(gathering=True)
            except NotLeading:
                continue
            except (ServiceError, ApiServerError) as error:
                # The service may hold something else after the outage.
                self._compare_at = 0.0
                self._journal.trouble(SERVICE, str(error))
                time.sleep(pause.after_failure())
                continue
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
        self.progress.stands_by(self._leadership.holder)
        # Pods that end meanwhile are released by another process, or by the first comparison of this one.
        self._store.ended()
        if not self._stood_by:
            self._stood_by = True
            # Others send now, so it is not known any more what the service was sent last.
            self._reconciler = self._new_reconciler()
            self._compare_at = self._look_at_claims_at = 0.0
        return False


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
