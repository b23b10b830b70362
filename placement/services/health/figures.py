"""The figures of a process that are not counted where something happens, written down now and then."""

from __future__ import annotations

import os
from pathlib import Path

from placement.metrics import catalog
from placement.services.following.cluster_cache import ClusterCache
from placement.services.following.forest_keeper import ForestKeeper
from placement.storage.database import Database

_MEMORY = Path("/proc/self/statm")


def publish(database: Database, forest: ForestKeeper, images: ClusterCache) -> None:
    """Write down the state of pool, forest, images and process; waits for nobody."""
    state = forest.state
    catalog.LAG_SECONDS.set(state.behind_seconds)
    catalog.PROVIDERS.set(state.providers)
    catalog.FOREST_BYTES.set(state.bytes)
    nodes, size = images.held
    catalog.IMAGE_NODES.set(nodes)
    catalog.IMAGE_BYTES.set(size)
    for name, count in database.connections().items():
        catalog.DATABASE_CONNECTIONS.labels(name).set(count)
    catalog.WORKERS.set(1)
    if _MEMORY.exists():
        pages = int(_MEMORY.read_text().split()[1])
        catalog.RESIDENT_BYTES.set(pages * os.sysconf("SC_PAGE_SIZE"))
