"""The status of Reservations in Kubernetes, which a thread keeps as the service has them.

A Reservation is looked at when the watch shows it, when the service has taken or refused it, when a pod that
uses it gets to its node or ends, when it expires, and from time to time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from placement.client.client import ServiceError
from placement.common.documents import RESERVATION_API_VERSION
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.errors import PlacementError
from placement.scheduling.figures import WRITES
from placement.scheduling.reservation_status import ReservationUser, StatusChanges, changes, waits_for_owner
from placement.sync.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path
from placement.sync.journal import Journal
from placement.sync.leadership import NotLeading
from placement.sync.pause import Pause
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject

_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
_PATH = f"/apis/{RESERVATION_API_VERSION}/reservations"
_IDLE_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 600.0
# An owner gets to its node within moments, and clocks need not agree about when a reservation expires.
_SOON_SECONDS = 5.0
_SOURCE = "statuses of reservations"


class ReservationTeller(threading.Thread):
    """The thread that writes the status of Reservations, until the process ends."""

    def __init__(
        self,
        api_server: ApiServer,
        reservation: Callable[[str], Mapping[str, Any] | None],
        seen: Callable[[Key], WatchedObject | None],
        schedulers: Collection[str],
        allow: Callable[[], None],
        may_write: Callable[[], bool],
        journal: Journal,
    ) -> None:
        """Prepare the thread. `reservation` asks the service for one, `seen` is what the watch has.

        `may_write` returns whether this process leads and the service has had what Kubernetes has. `allow`
        raises NotLeading. Reservations of other schedulers than `schedulers` are theirs.
        """
        super().__init__(name="telling reservations", daemon=True)
        self._api_server = api_server
        self._reservation = reservation
        self._seen = seen
        self._schedulers = schedulers
        self._allow = allow
        self._may_write = may_write
        self._journal = journal
        # When to look at each Reservation, in monotonic seconds, and why the service refused it.
        self._due: dict[str, float] = {}
        self._refusals: dict[str, ServiceError] = {}
        self._pauses: dict[str, Pause] = {}
        # The Reservation that each pod uses.
        self._used: dict[Key, str] = {}
        self._condition = threading.Condition()

    def saw(self, key: Key, watched: WatchedObject | None) -> None:
        """Note an object as the watch has it; this is called by the threads that watch, one at a time."""
        if key.kind is ObjectKind.RESERVATION:
            self._look_at(key.name, 0.0)
        elif key.kind is ObjectKind.POD:
            before, now = self._used.pop(key, None), _used_by(watched)
            if now is not None:
                self._used[key] = now
            for name in {before, now} - {None}:
                self._look_at(str(name), 0.0)

    def reserved(self, name: str, refusal: ServiceError | None) -> None:
        """Note that the service has taken a reservation, or why it has not."""
        with self._condition:
            if refusal is None:
                self._refusals.pop(name, None)
            else:
                self._refusals[name] = refusal
        self._look_at(name, 0.0)

    def _look_at(self, name: str, seconds: float) -> None:
        """Look at a Reservation after these seconds, or before."""
        with self._condition:
            at = time.monotonic() + seconds
            self._due[name] = min(at, self._due.get(name, at))
            self._condition.notify()

    def run(self) -> None:
        pause = Pause()
        while True:
            with self._condition:
                self._condition.wait_for(self._is_due, _IDLE_SECONDS)
            if not self._may_write():
                time.sleep(_IDLE_SECONDS)
            elif self.write_due():
                pause.after_success()
            else:
                time.sleep(pause.after_failure())

    def _is_due(self) -> bool:
        return any(at <= time.monotonic() for at in self._due.values())

    def write_due(self) -> bool:
        """Look at the Reservations that are due, the ones that wait longest first; write what differs.

        Return whether all had their turn: where Kubernetes or the service cannot be reached, or another
        process leads, the rest stays due.
        """
        with self._condition:
            now = time.monotonic()
            due = sorted((at, name) for name, at in self._due.items() if at <= now)
            for _, name in due:
                del self._due[name]
        for number, (_, name) in enumerate(due):
            if not self._tell(name):
                with self._condition:
                    self._due = {**{name: at for at, name in due[number + 1 :]}, **self._due}
                return False
        return True

    def _tell(self, name: str) -> bool:
        """Write the status of a Reservation; return whether the next ones may be written. Raises nothing."""
        source = f"status of reservation {name}"
        goes_on = True
        try:
            seconds = self._written(name)
        except NotLeading:
            seconds, goes_on = 0.0, False
        except Exception as error:
            # Whatever is wrong with one of them, the others are written, unless nothing answers.
            goes_on = getattr(error, "status", error) is not None
            text = str(error) if isinstance(error, PlacementError) else repr(error)
            self._journal.trouble(source if goes_on else _SOURCE, text)
            WRITES.labels("reservation", "failed").inc()
            seconds = self._pauses.setdefault(name, Pause()).after_failure()
        else:
            self._pauses.pop(name, None)
            self._journal.well(source)
            self._journal.well(_SOURCE)
        if seconds is not None:
            self._look_at(name, seconds)
        return goes_on

    def _written(self, name: str) -> float | None:
        """Write the status of a Reservation if it differs; return when to look again, None for never.

        Raises ServiceError, ApiServerError, NotLeading.
        """
        watched = self._seen(Key(ObjectKind.RESERVATION, "", name))
        if watched is None or watched.over:
            with self._condition:
                self._refusals.pop(name, None)
            return None
        manifest = watched.manifest
        if not self._is_ours(manifest):
            return None
        answer = self._reservation(name)
        owners = self._owners(answer)
        refusal = self._refusals.get(name)
        if changes(manifest, answer, refusal, owners, datetime.now(UTC)):
            # The watch may be behind, most of all after a write of this thread.
            present = self._api_server.get(object_path(_PATH, name))
            uid = None if present is None else canonical_uid(str(present["metadata"].get("uid") or ""))
            if present is not None and uid == watched.uid:
                self._write(name, present, changes(present, answer, refusal, owners, datetime.now(UTC)))
        if waits_for_owner(answer, owners):
            return _SOON_SECONDS
        return _LOOK_EVERY_SECONDS if answer is None else _seconds_until(answer["expires_at"])

    def _is_ours(self, manifest: Mapping[str, Any]) -> bool:
        """Return whether the template names no other scheduler."""
        found: Any = manifest
        for name in ("spec", "template", "spec", "schedulerName"):
            found = found.get(name) if isinstance(found, Mapping) else None
        return not found or found in self._schedulers

    def _owners(self, answer: Mapping[str, Any] | None) -> list[ReservationUser]:
        """Return the owners that Kubernetes has on a node."""
        found = []
        for each in () if answer is None else answer["current_owners"]:
            watched = self._seen(Key(ObjectKind.POD, each["namespace"], each["name"]))
            if watched is not None and watched.uid == each["uid"] and watched.node is not None:
                found.append(ReservationUser.of(watched.manifest, watched.node))
        return found

    def _write(self, name: str, present: Mapping[str, Any], status_changes: StatusChanges) -> None:
        """Write changes, which Kubernetes refuses if others changed the Reservation meanwhile.

        Raises ApiServerError, NotLeading.
        """
        path, metadata = object_path(_PATH, name), present["metadata"]
        if status_changes.annotations:
            self._allow()
            body = {"metadata": {**_version(metadata), "annotations": status_changes.annotations}}
            metadata = self._api_server.patch(path, body)["metadata"]
        if status_changes.status:
            body = {"metadata": _version(metadata), "status": status_changes.status}
            self._allow()
            try:
                self._api_server.patch(object_path(path, "status"), body)
            except ApiServerError as error:
                if error.status != NOT_FOUND:
                    raise
                # The custom resource has no status of its own, or the Reservation is gone.
                self._allow()
                self._api_server.patch(path, body)
        if status_changes:
            WRITES.labels("reservation", "written").inc()


def _version(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def _used_by(watched: WatchedObject | None) -> str | None:
    """Return the Reservation that a pod on a node names as the one it uses, None if it names none."""
    if watched is None or watched.node is None or _ALLOCATED.encode() not in watched.text:
        return None
    try:
        name = orjson.loads(watched.manifest["metadata"]["annotations"][_ALLOCATED])["name"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _seconds_until(expires_at: str | None) -> float:
    """Return when to look at a reservation again that expires then."""
    if expires_at is None:
        return _LOOK_EVERY_SECONDS
    seconds = (datetime.fromisoformat(expires_at) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, _SOON_SECONDS), _LOOK_EVERY_SECONDS)
