"""Whoever wants to see a cluster waits for others who load it no longer than its request may take."""

from __future__ import annotations

import threading

import pytest

from placement.engine.domain import request_scope
from placement.engine.domain.errors import NotFound, Unavailable
from placement.pods.store.cache import ClusterCache
from placement.storage.database import Database
from tests.patience import PATIENCE_SECONDS, eventually


def outcome(cluster_cache: ClusterCache, seconds: float) -> type[Exception] | None:
    with request_scope.within(seconds):
        try:
            cluster_cache.snapshot("edge")
        except (NotFound, Unavailable) as error:
            return type(error)
    return None


def waiting(database: Database) -> bool:
    with database.read() as connection:
        statement = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        return bool(connection.exec_driver_sql(statement).scalar_one())


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_a_view_that_somebody_loads_is_not_waited_for(database: Database):
    cluster_cache = ClusterCache(database)
    found: list[type[Exception] | None] = []
    with database.write() as holder:
        holder.connection.exec_driver_sql("LOCK TABLE clusters")
        first = threading.Thread(target=lambda: found.append(outcome(cluster_cache, PATIENCE_SECONDS)))
        first.start()
        eventually(True, lambda: waiting(database))
        second = threading.Thread(target=lambda: found.append(outcome(cluster_cache, 0.2)))
        second.start()
        second.join(5)
        assert found == [Unavailable], "the lock timeout of the server is 10 seconds"
    first.join(PATIENCE_SECONDS)
    assert found == [Unavailable, NotFound]
    cluster_cache.close()
