"""Callers in threads: the first is held up at work, so that the others gather behind it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from werkzeug.test import TestResponse

from placement.allocations.coalescing import RequestCoalescer
from placement.storage import tables
from placement.storage.database import Database
from tests.patience import PATIENCE_SECONDS, eventually


class Crowd:
    """Calls that are made at the same time; all of them have time to wait."""

    def __init__(self, coalescer: RequestCoalescer[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(coalescer, "_patience_seconds", PATIENCE_SECONDS)
        self.coalescer = coalescer
        self.is_there, self.may_go = threading.Event(), threading.Event()
        self.pool = ThreadPoolExecutor(16)

    def work(self) -> None:
        """What every call does that is at work: it waits until it may go on."""
        self.is_there.set()
        assert self.may_go.wait(PATIENCE_SECONDS)

    def all_at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """What the calls give; the first is at work while the others come, one after another."""
        asked: list[Future[Any]] = [self.pool.submit(calls[0])]
        assert self.is_there.wait(PATIENCE_SECONDS)
        for number, call in enumerate(calls[1:], 1):
            asked.append(self.pool.submit(call))
            eventually(number, lambda: sum(map(len, self.coalescer._waiting.values())))
        self.may_go.set()
        return [each.result(PATIENCE_SECONDS) for each in asked]

    def end(self) -> None:
        """Let everybody go."""
        self.may_go.set()
        self.pool.shutdown()


def names(count: int) -> list[str]:
    """Uuids of consumers that nobody knows."""
    return [str(uuid.uuid4()) for _ in range(count)]


def statuses(answers: Sequence[TestResponse]) -> list[int]:
    """Their statuses."""
    return [answer.status_code for answer in answers]


def raising(error: Exception) -> Callable[[], None]:
    """What fails like that."""

    def fail() -> None:
        raise error

    return fail


def recorded(database: Database) -> dict[str, set[str]]:
    """Under which ids of callers the consumers were claimed."""
    records = tables.audit_records.c
    with database.read() as connection:
        rows = connection.execute(
            sa.select(records.consumer_id, records.global_request_id).where(records.kind == "allocations")
        )
        found: dict[str, set[str]] = {}
        for consumer, caller in rows:
            found.setdefault(consumer, set()).add(caller)
        return found
