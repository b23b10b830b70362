"""The caller of the present work: long work ends when its caller has gone away."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def _stays() -> bool:
    return False


_is_gone: ContextVar[Callable[[], bool]] = ContextVar("placement_caller_is_gone", default=_stays)


def attend(is_gone: Callable[[], bool] | None) -> None:
    """From now on this thread works for a caller; `is_gone` tells whether it left, None: it never does."""
    _is_gone.set(is_gone or _stays)


def is_gone() -> bool:
    """Whether the caller of this thread's work went away. Asks the system; not for every step of a loop."""
    return _is_gone.get()()
