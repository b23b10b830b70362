"""What is wrong with the parameters of a score."""

from __future__ import annotations

from collections.abc import Iterable

from placement.domain.errors import BadRequest


class ScoringRefused(BadRequest):
    """Parameters that cannot be used.

    `code` is stable: shape_invalid, weight_invalid, resource_duplicate, resource_invalid, strategy_unknown,
    strategy_invalid, shape_not_allowed, scope_invalid. `reasons` tells more for shape_invalid, sorted:
    empty, type, max_score, order, utilization_range, score_range.
    """

    def __init__(self, code: str, where: str, message: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(f"{where}: {message}", code)
        self.reasons = sorted(reasons)


def is_integer(value: object) -> bool:
    """Whether a JSON value is an integer; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)
