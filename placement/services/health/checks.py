"""What a process needs to answer requests, looked at by a thread of its own, so that asking costs nothing."""

from __future__ import annotations

import logging
import threading
import time

from placement.domain import deadline
from placement.domain.errors import Unavailable
from placement.services.following.cluster_cache import ClusterCache
from placement.services.following.forest_keeper import ForestKeeper
from placement.services.health.figures import publish
from placement.services.health.probes import Check
from placement.storage import schema
from placement.storage.database import Database
from placement.storage.failures import NO_SLOT

LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 2.0
_DATABASE_ANSWERS_WITHIN_SECONDS = 3.0
# Rounds are seconds apart; who has told nothing for so long is stuck.
_STALE_SECONDS = 10.0
SCHEMA, WRITABLE, FOREST = "schema-version", "database-writable", "forest-loaded"


class Health:
    """The checks of one process: schema version, database writable, forest loaded and how far behind."""

    def __init__(self, database: Database, forest: ForestKeeper, images: ClusterCache) -> None:
        self._database = database
        self._forest = forest
        self._images = images
        self._known: tuple[str | None, frozenset[str]] | None = None
        self._database_checks: tuple[Check, ...] = ()
        self._forest_problem = "it is still being loaded"
        self._told_at = time.monotonic()

    def watch(self) -> None:
        """Look again and again from a thread of its own, the first time at once."""
        threading.Thread(target=self._watch, name="health", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                # The next look may be luckier; without any, health would stay as it is for ever.
                LOG.exception("looking at the health of this process failed")
            time.sleep(_EVERY_SECONDS)

    def look(self) -> None:
        """Look at the database, let the forest catch up with it, and write down how things are."""
        with deadline.within(_DATABASE_ANSWERS_WITHIN_SECONDS):
            self._database_checks = self._look_at_database()
        self._told_at = time.monotonic()
        # The first time this loads everything, which has no bound.
        try:
            self._forest.current()
        except Unavailable as error:
            self._forest_problem = str(error)
        else:
            self._forest_problem = ""
        publish(self._database, self._forest, self._images)

    def checks(self) -> list[Check]:
        """What was found last; it asks nobody and waits for nobody."""
        silent = time.monotonic() - self._told_at
        found = self._database_checks
        if not found or silent > _STALE_SECONDS:
            said = f"the database has not answered for {silent:.0f} s" if found else "not looked at yet"
            found = (Check(SCHEMA, False, said), Check(WRITABLE, False, said))
        return [*map(self._with_refusals, found), self._forest_check()]

    def _with_refusals(self, check: Check) -> Check:
        """Return the check as this process knows it from its own writes; only they find a disk full."""
        refused = self._database.refused_writes.reason
        return Check(WRITABLE, False, refused) if refused and check.name == WRITABLE and check.ok else check

    def _forest_check(self) -> Check:
        state = self._forest.state
        if not state.loaded:
            return Check(FOREST, False, self._forest_problem or "it is being loaded again")
        behind = f"{state.providers} providers, {state.behind_seconds:.1f} s behind"
        if state.behind_seconds <= _STALE_SECONDS:
            return Check(FOREST, True, behind)
        return Check(FOREST, False, f"{behind}: {self._forest_problem or 'the database is slow'}")

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
        said = "it takes writes" if writable else "it takes no writes"
        return self._schema_check(present), Check(WRITABLE, writable, said)

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
