"""Connections are prepared before use; asking whether others are answered takes none of the pool."""

import threading
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from placement.storage.backends.postgresql_driver import _Watch
from placement.storage.database import Database
from tests.server import database_url


def test_a_connection_that_could_not_be_prepared_is_not_kept():
    """The oldest release of SQLAlchemy that is allowed would hand it out as it is."""
    with database_url("sqlite") as url:
        database = Database(url)
        with pytest.raises(KeyboardInterrupt), database.single_write():
            raise KeyboardInterrupt
        fails_once = Mock(side_effect=[ValueError, *[None] * 9])
        sa.event.listen(database.engine, "connect", fails_once, insert=True)
        with pytest.raises(ValueError), database.single_write():  # noqa: PT011
            pass
        with database.single_write() as write:
            assert write.connection.isolation_level is None
        database.dispose()


def test_asking_whether_others_are_answered_takes_one_connection_beside_the_pool():
    with database_url("sqlite") as url:
        database = Database(url, pool_size=1, max_overflow=0, pool_timeout=0)
        made = Mock()
        sa.event.listen(database.engine, "connect", made)
        assert database.is_answering()
        assert made.call_count == 1
        with database.read():
            assert database.is_answering()
        assert made.call_count == 3
        database.dispose()


def test_a_doubt_that_gets_no_thread_is_settled_later(monkeypatch: pytest.MonkeyPatch):
    silent: Any = Mock(doubted=0.0)
    watch = _Watch()
    watch._connections.add(silent)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        watch._settle_doubt()
    assert not silent.cut.called
    watch._settle_doubt()
    assert watch._doubt is not None
    watch._doubt.join()
    assert silent.cut.called
