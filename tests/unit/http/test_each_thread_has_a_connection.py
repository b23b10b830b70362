"""Each thread that may hold a connection finds one in the pool, as the service is configured by default."""

import pytest

from placement.allocations.candidates import SearchSettings
from placement.http.worker.lanes import Lanes, WorkerLimits
from placement.pods.services.clusters import Clusters
from placement.pods.store.cache import ClusterCache
from placement.providers.view import ForestKeeper
from placement.server import settings
from placement.wiring import use_cases_on
from tests.server import BACKENDS, database_url


def threads_of(limits: WorkerLimits) -> int:
    """Return the threads that need the database; all that follow changes take turns at one connection."""
    lanes = Lanes(limits)
    return sum(lane._threads for lane in lanes.all if lane not in (lanes.events, lanes.sign_ins)) + 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_pool_has_a_connection_for_all(backend: str, monkeypatch: pytest.MonkeyPatch):
    with database_url(backend) as url:
        monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", url)
        database = settings.open_database(settings.load([]))
        registry = use_cases_on(database, SearchSettings())
        registry[Clusters].put("edge", {})
        registry[ForestKeeper].current()
        registry[ClusterCache].snapshot("edge")
        kept = database.connections()["used"]
        # Health, the removal of old records, [capacity] watch, and the doubt about a look without an answer.
        others = 4
        assert threads_of(WorkerLimits()) + kept + others <= database.connections()["limit"]
        assert kept == 2
        database.dispose()
