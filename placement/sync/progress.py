"""The state of the synchronization, for its operator: its checks and its figures."""

from __future__ import annotations

import time
from collections.abc import Mapping

from placement.common.probes import Check
from placement.sync.figures import LAG_SECONDS, OBJECTS, REJECTED
from placement.sync.journal import Journal
from placement.sync.watching import SOURCE, UNKNOWN_KIND

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
