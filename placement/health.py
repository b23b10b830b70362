"""The health of one process: what it needs to answer requests, looked at by a thread of its own.

So asking costs nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from placement.common.probes import Check
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.metrics import catalog
from placement.pods.store.cache import ClusterCache
from placement.providers.use_history import UseHistory
from placement.providers.view import ForestKeeper
from placement.storage import schema
from placement.storage.database import Database
from placement.storage.failures import NO_SLOT

# Operators know its lines by this name.
LOG = logging.getLogger("placement.use_cases")
_MEMORY = Path("/proc/self/statm")
_EVERY_SECONDS = 2.0
_DATABASE_ANSWERS_WITHIN_SECONDS = 3.0
# Rounds are seconds apart; a thread that reported nothing for so long is stuck.
_STALE_SECONDS = 10.0
SCHEMA, WRITABLE, FOREST = "schema-version", "database-writable", "forest-loaded"


class Health:
    """The checks of one process: schema version, database writable, forest loaded and how far behind."""

    # Figures and health are for every caller that reaches the port.
    for_bound_callers = True

    def __init__(
        self, database: Database, forest: ForestKeeper, cluster_cache: ClusterCache, use_history: UseHistory
    ) -> None:
        self._database = database
        self._forest = forest
        self._cluster_cache = cluster_cache
        self._use_history = use_history
        self._known: tuple[str | None, frozenset[str]] | None = None
        self._database_checks: tuple[Check, ...] = ()
        self._forest_problem = "it is still being loaded"
        self._told_at = time.monotonic()

    @property
    def database_kind(self) -> str:
        """Return which database it is: sqlite or postgresql."""
        return self._database.backend.name

    def watch(self) -> None:
        """Look again and again from a thread of its own, the first time at once, and sample the use."""
        threading.Thread(target=self._watch, name="health", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                self.look()
                self._sample()
            except Exception:
                # The next look may be luckier; without any, health would stay as it is for ever.
                LOG.exception("looking at the health of this process failed")
            time.sleep(_EVERY_SECONDS)

    def _sample(self) -> None:
        """Take the sample of the half hour if that is due, and nothing is amiss; else the next look does."""
        if all(check.ok for check in self.checks()):
            with suppress(Unavailable), request_scope.within(_DATABASE_ANSWERS_WITHIN_SECONDS):
                self._use_history.sample(time.time())

    def look(self) -> None:
        """Look at the database, let the forest catch up with it, and write down how things are."""
        with request_scope.within(_DATABASE_ANSWERS_WITHIN_SECONDS):
            self._database_checks = self._look_at_database()
        self._told_at = time.monotonic()
        # The first time this loads everything, which has no bound.
        began, is_first = time.monotonic(), not self._forest.state.loaded
        try:
            self._forest.current()
        except Unavailable as error:
            self._forest_problem = str(error)
        else:
            self._forest_problem = ""
            if is_first:
                count, seconds = self._forest.state.providers, time.monotonic() - began
                LOG.info("loaded %d providers in %.1f seconds", count, seconds)
        # The figures of a process that are not counted where something happens.
        state, (nodes, size) = self._forest.state, self._cluster_cache.held
        catalog.LAG_SECONDS.set(state.behind_seconds)
        catalog.PROVIDERS.set(state.providers)
        catalog.FOREST_BYTES.set(state.bytes)
        catalog.IMAGE_NODES.set(nodes)
        catalog.IMAGE_BYTES.set(size)
        for name, count in self._database.connections().items():
            catalog.DATABASE_CONNECTIONS.labels(name).set(count)
        catalog.WORKERS.set(1)
        if _MEMORY.exists():
            pages = int(_MEMORY.read_text().split()[1])
            catalog.RESIDENT_BYTES.set(pages * os.sysconf("SC_PAGE_SIZE"))

    def checks(self, *, counted: bool = True) -> list[Check]:
        """Return what was found last, without a query and without waiting.

        With `counted` it says how many providers all clusters have.
        """
        silent = time.monotonic() - self._told_at
        found = self._database_checks
        if not found or silent > _STALE_SECONDS:
            given = f"the database has not answered for {silent:.0f} s" if found else "not looked at yet"
            found = (Check(SCHEMA, False, given), Check(WRITABLE, False, given))
        # Only the writes of this process find a disk full.
        refused = self._database.refusal
        if refused:
            found = tuple(
                Check(WRITABLE, False, refused) if each.name == WRITABLE and each.ok else each
                for each in found
            )
        state = self._forest.state
        if not state.loaded:
            forest_check = Check(FOREST, False, self._forest_problem or "it is being loaded again")
        else:
            is_late = state.behind_seconds > _STALE_SECONDS
            count = f"{state.providers} providers, " if counted else ""
            read = f"{count}read {state.behind_seconds:.1f} s ago"
            why = f": {self._forest_problem or 'the database is slow'}" if is_late else ""
            forest_check = Check(FOREST, not is_late, f"{read}{why}")
        return [*found, forest_check]

    def _look_at_database(self) -> tuple[Check, ...]:
        try:
            with self._database.read() as connection:
                present = schema.revision_of(connection)
                writable = self._database.backend.is_writable(connection)
        except Unavailable as error:
            if self._database.diagnose(error.__cause__ or error) is NO_SLOT and self._database_checks:
                # Others use all connections, so what was found before still holds.
                return self._database_checks
            return Check(SCHEMA, False, str(error)), Check(WRITABLE, False, str(error))
        given = "it takes writes" if writable else "it takes no writes"
        return self._schema_check(present), Check(WRITABLE, writable, given)

    def _schema_check(self, present: str | None) -> Check:
        if self._known is None:
            self._known = schema.newest(self._database), schema.revisions(self._database)
        newest, known = self._known
        if present is not None and present == newest:
            return Check(SCHEMA, True, present)
        if present is None or present in known:
            return Check(SCHEMA, False, f"{present}, this release needs {newest}")
        # In a rolling upgrade the release before goes on beside the next one.
        return Check(SCHEMA, True, f"{present}, of a newer release than this one, whose newest is {newest}")
