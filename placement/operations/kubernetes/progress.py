"""How far the synchronization is, for who watches it: its checks and its figures."""

from __future__ import annotations

import time
from collections.abc import Mapping

from placement.metrics.synchronization import LAG_SECONDS, OBJECTS, REJECTED
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.watching import SOURCE, UNKNOWN_KIND
from placement.services.health.probes import Check

SERVICE = "service"
# Rounds follow each other within a second; a long one sends a lot.
_BEHIND_SECONDS = 60.0


class Progress:
    """What is known of the synchronization at any moment; asked by other threads than the one that sends."""

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
        """Whether Kubernetes is watched, the service answers, and it is not far behind."""
        troubles = self._journal.troubles()
        watching = [
            f"{source.removeprefix(SOURCE)}: {said}"
            for source, said in troubles.items()
            if source.startswith(SOURCE) and not said.startswith(UNKNOWN_KIND)
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
        said = f"{behind:.1f} s behind, {self._rejected} rejected"
        return Check("caught-up", behind <= _BEHIND_SECONDS, said)

    def _behind_seconds(self) -> float:
        return time.monotonic() - self._settled_at
