"""The terms of a reservation: who may use it, how often, how much of it, and until when."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.dialects.koordinator.reservation.owners import Owner, read_owners
from placement.kubernetes.manifest import Field, Report


class AllocatePolicy(StrEnum):
    """Whether owners may take beyond what the reservation has left; only Restricted forbids it."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


@dataclass(frozen=True, slots=True)
class ReservationTerms:
    """Who may use a reservation, and how.

    `allocate_once`: the first owner ends it. `order`: of several reservations on a node the lowest is used
    first, 0 is none. `labels` are those of the Reservation, by which pods choose. An `unschedulable` one
    takes no further owners. `since` is when it was made, `expires_at` when it ends, UTC without a zone, None
    if never.
    """

    owners: tuple[Owner, ...]
    since: datetime.datetime
    allocate_once: bool = True
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    expires_at: datetime.datetime | None = None
    order: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False

    @property
    def restricted(self) -> bool:
        """Whether owners get nothing beyond what is left of it."""
        return self.policy is AllocatePolicy.RESTRICTED

    def is_over(self, now: datetime.datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def owned_by(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod with this manifest may use it. Source: koordinator.md, "Reservations"."""
        return not self.unschedulable and any(owner.matches(pod) for owner in self.owners)

    def document(self) -> dict[str, Any]:
        """The terms as JSON to be stored."""
        return {
            "owners": [owner.document() for owner in self.owners],
            "since": self.since.isoformat(),
            "allocate_once": self.allocate_once,
            "policy": str(self.policy),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "order": self.order,
            "labels": dict(self.labels),
            "unschedulable": self.unschedulable,
        }


def stored_terms(document: Mapping[str, Any]) -> ReservationTerms:
    """The terms that a stored document describes."""
    expires_at = document.get("expires_at")
    return ReservationTerms(
        owners=read_owners(Field("owners", document["owners"], Report())),
        since=datetime.datetime.fromisoformat(document["since"]),
        allocate_once=document.get("allocate_once", True),
        policy=AllocatePolicy(document.get("policy", "")),
        expires_at=None if expires_at is None else datetime.datetime.fromisoformat(expires_at),
        order=document.get("order", 0),
        labels=document.get("labels", {}),
        unschedulable=document.get("unschedulable", False),
    )
