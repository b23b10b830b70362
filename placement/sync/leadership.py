"""Leader election of processes: the holder of a Lease of Kubernetes (coordination.k8s.io/v1) writes.

It works as in client-go. Clocks of hosts need not agree: other processes count from when they saw that the
Lease had changed. The holder counts from before it asked to renew it, and stops a third of the time before
another process may begin.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from placement.engine.domain import request_scope
from placement.engine.domain.errors import PlacementError
from placement.sync.api_server import ApiServer, ApiServerError, object_path
from placement.sync.figures import LEADS
from placement.sync.journal import Journal
from placement.sync.service import CONFLICT
from placement.sync.settings import LeaseName
from placement.sync.watching import SOURCE

_GROUP = "coordination.k8s.io/v1"
_TRUSTED_SHARE = 2 / 3
_LOOKS_PER_LEASE = 7.5
_SOURCE = f"{SOURCE}lease"
# What a Lease that is not as it must be leads to; another look may find a good one.
_TROUBLE = (ApiServerError, LookupError, TypeError, ValueError, AttributeError)


class NotLeading(PlacementError):
    """Another process may write by now, so this one must not."""


class Leadership(threading.Thread):
    """The thread that tries to get the Lease and to keep it."""

    def __init__(self, api_server: ApiServer, lease: LeaseName, seconds: int, journal: Journal) -> None:
        super().__init__(name="leadership", daemon=True)
        self._api_server = api_server
        self._lease = lease
        self._seconds = seconds
        self._journal = journal
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.holder = ""
        self._leads_until = 0.0
        self._logged: str | None = None
        # What was seen of the holder last, and when.
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0
        self._ended = threading.Event()

    @property
    def leads(self) -> bool:
        """Return whether this process may write at this moment."""
        return time.monotonic() < self._leads_until

    def require(self) -> None:
        """Raise NotLeading unless this process may write at this moment."""
        if not self.leads:
            raise NotLeading(f"the Lease {self._lease} could not be renewed in time")

    def run(self) -> None:
        pause = self._seconds / _LOOKS_PER_LEASE
        while not self._ended.wait(pause if self._logged is not None else 0):
            self._look()

    def resign(self) -> None:
        """Give the Lease back, so that another process need not wait; if that fails, it expires."""
        self._ended.set()
        self.join(self._seconds)
        if not self.leads:
            return
        self._leads_until = 0.0
        try:
            with request_scope.within(self._seconds * _TRUSTED_SHARE):
                lease = self._found()
                if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                    self._replace(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except _TROUBLE as error:
            self._journal.trouble(_SOURCE, str(error))

    def _look(self) -> None:
        asked_at = time.monotonic()
        try:
            with request_scope.within(self._seconds * _TRUSTED_SHARE):
                held = self._hold()
        except _TROUBLE as error:
            # If another process was faster, the next look shows it; none leads before our Lease has run out.
            if getattr(error, "status", None) != CONFLICT:
                self._journal.trouble(_SOURCE, f"Lease {self._lease}: {error}")
        else:
            self._journal.well(_SOURCE)
            self._leads_until = asked_at + self._seconds * _TRUSTED_SHARE if held else 0.0
        leads = self.leads
        LEADS.set(leads)
        other = "cannot renew it" if self.holder == self.identity else f"{self.holder or 'no process'} leads"
        text = "this process leads" if leads else f"stands by, {other}"
        if text != self._logged:
            self._logged = text
            self._journal.note(f"Lease {self._lease}: {text}")

    def _hold(self) -> bool:
        """Take or renew the Lease; return whether this process has it now.

        Raises ApiServerError, and for a malformed Lease LookupError, TypeError, ValueError, AttributeError.
        """
        lease, now = self._found(), _now()
        held: dict[str, Any] = {"leaseDurationSeconds": self._seconds, "renewTime": now}
        taken = {**held, "holderIdentity": self.identity, "acquireTime": now}
        if lease is None:
            metadata = {"namespace": self._lease.namespace, "name": self._lease.name}
            body = {"apiVersion": _GROUP, "kind": "Lease", "metadata": metadata}
            self._api_server.post(self._collection, {**body, "spec": {**taken, "leaseTransitions": 0}})
        else:
            spec = lease["spec"]
            self.holder = spec.get("holderIdentity") or ""
            seen = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"))
            if seen != self._seen:
                self._seen, self._seen_at = seen, time.monotonic()
            lasts = spec.get("leaseDurationSeconds") or self._seconds
            if not isinstance(lasts, int):
                # Without it nothing says when another process has ceased to lead.
                raise ValueError(f"leaseDurationSeconds {lasts!r} is not a number of seconds")
            if self.holder not in ("", self.identity) and time.monotonic() < self._seen_at + lasts:
                return False
            if self.holder != self.identity:
                held = {**taken, "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1}
            self._replace(lease, held)
        self.holder = self.identity
        return True

    def _found(self) -> dict[str, Any] | None:
        return self._api_server.get(object_path(self._collection, self._lease.name))

    def _replace(self, lease: dict[str, Any], changes: dict[str, Any]) -> None:
        """Change the Lease; refused with 409 if it was changed since it was read. Raises ApiServerError."""
        changed = {**lease, "spec": {**lease["spec"], **changes}}
        self._api_server.put(object_path(self._collection, self._lease.name), changed)

    @property
    def _collection(self) -> str:
        return object_path(f"/apis/{_GROUP}", "namespaces", self._lease.namespace, "leases")


def _now() -> str:
    """Return the present time as a MicroTime of Kubernetes."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
