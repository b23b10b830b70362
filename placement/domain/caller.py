"""Who waits for the answer of the work at hand: long work ends when nobody does any more."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def _stays() -> bool:
    return False


_is_gone: ContextVar[Callable[[], bool]] = ContextVar("placement_caller_is_gone", default=_stays)


def attend(is_gone: Callable[[], bool] | None) -> None:
    """From now on the work of this thread is for a caller of whom `is_gone` tells; None: one who stays."""
    _is_gone.set(is_gone or _stays)


def is_gone() -> bool:
    """Whether the caller of this thread's work went away. Asks the system; not for every step of a loop."""
    return _is_gone.get()()
