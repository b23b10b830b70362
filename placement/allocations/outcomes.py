"""Counters of attempts to get something for a consumer: won, repeated, or refused by reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from placement.engine.domain import errors
from placement.metrics.catalog import CLAIMS

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# Of the classes that an error is an instance of, the first counts.
_OUTCOMES = {
    errors.CapacityExceeded: "no_room",
    errors.ConcurrentUpdate: "concurrent",
    errors.Conflict: "conflict",
    errors.BadRequest: "bad_request",
    errors.NotFound: "not_found",
    errors.Unavailable: "unavailable",
}


def counted(kind: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Count the calls of a function that gets something for a consumer of this kind."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            return attempted(kind, lambda: function(*arguments, **named))

        return call

    return decorate


def attempted(
    kind: str, attempt: Callable[[], Result], is_repeated: Callable[[Result], bool] = lambda _: False
) -> Result:
    """Count one attempt to get something for a consumer of this kind, and what became of it.

    `is_repeated`: whether the consumer already held all that it asks for.
    """
    try:
        result = attempt()
    except errors.PlacementError as error:
        count_refused(kind, error)
        raise
    (count_repeated if is_repeated(result) else count_won)(kind)
    return result


def count_won(kind: str, number: int = 1) -> None:
    """Count `number` attempts that got something, each for a consumer of this kind."""
    CLAIMS.labels(kind, "won").inc(number)


def count_repeated(kind: str, number: int = 1) -> None:
    """Count `number` attempts for consumers of this kind that already held all that was asked for."""
    CLAIMS.labels(kind, "repeated").inc(number)


def count_refused(kind: str, error: errors.PlacementError) -> None:
    """Count an attempt for a consumer of this kind that failed, by its reason."""
    name = next((name for one, name in _OUTCOMES.items() if isinstance(error, one)), "other")
    CLAIMS.labels(kind, name).inc()
