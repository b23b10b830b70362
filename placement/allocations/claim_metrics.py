"""The outcomes of refused attempts to get something for a consumer, as `CLAIMS` counts them."""

from __future__ import annotations

from placement.engine.domain import errors
from placement.metrics.catalog import CLAIMS

# Of the classes that an error is an instance of, the first counts.
_REASONS = {
    errors.CapacityExceeded: "no_room",
    errors.ConcurrentUpdate: "concurrent",
    errors.Conflict: "conflict",
    errors.BadRequest: "bad_request",
    errors.NotFound: "not_found",
    errors.Unavailable: "unavailable",
}


def count_refused(kind: str, error: errors.PlacementError) -> None:
    """Count an attempt for a consumer of this kind that failed, by its reason."""
    reason = next((name for one, name in _REASONS.items() if isinstance(error, one)), "other")
    CLAIMS.labels(kind, reason).inc()
