"""A look at what changed serves callers that came before it began; callers that come later need another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from placement.providers.view import ForestKeeper
from placement.storage.database import Database
from tests.patience import PATIENCE_SECONDS


def test_who_comes_during_a_look_is_not_served_by_it(
    embedded_database: Database, monkeypatch: pytest.MonkeyPatch
):
    keeper = ForestKeeper(embedded_database)
    look, alone = keeper._catch_up, keeper.alone
    looks: list[str] = []
    begun, came, ended = threading.Event(), threading.Event(), threading.Event()

    def catch_up() -> None:
        looks.append(threading.current_thread().name)
        begun.set()
        assert ended.wait(PATIENCE_SECONDS)
        look()

    @contextmanager
    def noticed() -> Iterator[None]:
        if threading.current_thread().name == "second":
            came.set()
        with alone():
            yield

    def caller() -> None:
        with keeper.caught_up():
            pass

    monkeypatch.setattr(keeper, "_catch_up", catch_up)
    monkeypatch.setattr(keeper, "alone", noticed)
    threads = [threading.Thread(target=caller, name=name) for name in ("first", "second")]
    threads[0].start()
    assert begun.wait(PATIENCE_SECONDS)
    threads[1].start()
    assert came.wait(PATIENCE_SECONDS)
    ended.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert looks == ["first", "second"]
    keeper.close()
