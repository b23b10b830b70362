"""Keeps this process's forest in step with the database, before every look at it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from placement.domain import deadline
from placement.domain.errors import Unavailable
from placement.forest.forest import Forest
from placement.forest.records import ProviderRecord
from placement.forest.sharing import SharingMap
from placement.search.score_cache import ScoreCache
from placement.storage.changes.feed import Feed, Look
from placement.storage.database import Database
from placement.storage.statements import names
from placement.storage.statements.names import Names

# Beyond this many changed providers a fresh load of everything is cheaper than telling them apart.
_RELOAD_ABOVE = 20_000
_ROUNDS = 5
# Longer than any look, shorter than what callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class View:
    """The forest as it was at one moment, the names its ids stand for, and what searches keep for the next.

    It stays so for as long as somebody holds it; any number of searches may look at it at once.
    """

    forest: Forest
    sharing: SharingMap
    score_cache: ScoreCache
    names: Names


class ForestKeeper:
    """One forest; whoever looks at it sees every write that was committed before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)
        self._forest = Forest()
        self._sharing = SharingMap()
        self._score_cache = ScoreCache()
        self._names: Names | None = None
        self._horizon = 0
        # Held while catching up, never while searching.
        self._lock = threading.Lock()
        self._caught_up_at = 0.0

    def current(self) -> View:
        """The forest with all that was committed before the call. Raises Unavailable, never guesses."""
        arrived = time.monotonic()
        if not self._lock.acquire(timeout=deadline.remaining(_PATIENCE_SECONDS)):
            raise Unavailable("The providers are still being loaded, or the database is slow; try again.")
        try:
            known = self._names_since(arrived)
            return View(self._forest.snapshot(), self._sharing, self._score_cache, known)
        finally:
            self._lock.release()

    def _names_since(self, arrived: float) -> Names:
        """Catch up, unless somebody did while this caller waited: one look serves all who wait for it."""
        if self._names is not None and self._caught_up_at > arrived:
            return self._names
        began = time.monotonic()
        names = self._catch_up()
        self._caught_up_at = began
        return names

    def _catch_up(self) -> Names:
        if self._names is None:
            return self._load()
        for _ in range(_ROUNDS):
            look = self._feed.look(self._horizon)
            if look is None:
                return self._names
            if look.horizon < self._horizon:
                # The database is an older one than we know: restored, or a replica that lagged behind.
                return self._load()
            stale = [row.id for row in look.changed if not self._forest.is_current(row.id, row.revision)]
            if len(stale) > max(_RELOAD_ABOVE, len(self._forest) // 4):
                return self._load()
            try:
                complete = self._apply(look, stale)
            except BaseException:
                # What was taken over in part must not pass for the whole.
                self._names = None
                raise
            if complete:
                self._horizon = look.horizon
                return self._names
        return self._load()

    def _apply(self, look: Look, stale: list[int]) -> bool:
        """Take over what changed; False if a parent appeared meanwhile that another look must bring."""
        records = self._feed.records(stale) if stale else []
        coming = {record.row.id for record in records}
        for record in records:
            for other in (record.row.root_id, record.row.parent_id or record.row.root_id):
                if other not in coming and not self._forest.knows(other):
                    return False
        # After the records, which may speak of names that are newer than the look.
        if look.names_changed or not self._can_name(records):
            with self._feed.session(look.horizon) as connection:
                self._names = names.load(connection)
        self._forest.apply(records)
        # Last, for those who were below a deleted provider have moved away before.
        for id_ in look.deleted:
            self._forest.remove(id_)
        return True

    def _can_name(self, records: list[ProviderRecord]) -> bool:
        """Whether every class and trait of the records has a name."""
        assert self._names is not None
        classes, traits = self._names.classes, self._names.traits
        return all(
            record.trait_ids <= traits.keys() and all(row.class_id in classes for row in record.inventories)
            for record in records
        )

    def _load(self) -> Names:
        self._names = None
        with self._feed.snapshot() as (horizon, snapshot):
            self._forest.load(snapshot)
        with self._feed.session(horizon) as connection:
            loaded = names.load(connection)
        # Only now: a failure in between must not leave a forest that believes itself current.
        self._horizon, self._names = horizon, loaded
        return loaded

    def close(self) -> None:
        """Give back the connection."""
        self._feed.close()
