"""Keeps this process's forest in step with the database, before every look at it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from placement.candidates.forest import Forest
from placement.candidates.scoreboards import Scoreboards
from placement.candidates.sharing import SharingMap
from placement.domain.errors import Unavailable
from placement.storage import names
from placement.storage.database import Database
from placement.storage.feed import Feed, Look
from placement.storage.names import Names

# Beyond this many changed providers a fresh load of everything is cheaper than telling them apart.
_RELOAD_ABOVE = 20_000
_ROUNDS = 5
# Longer than any search or catch-up, shorter than what callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class View:
    """The forest as of now, with the names its ids stand for and what searches of it keep for the next."""

    forest: Forest
    sharing: SharingMap
    boards: Scoreboards
    names: Names


class ForestKeeper:
    """One forest; whoever looks at it sees every write that was committed before."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feed = Feed(database)
        self._forest = Forest()
        self._sharing = SharingMap()
        self._boards = Scoreboards()
        self._names: Names | None = None
        self._horizon = 0
        # Searches are bound by the interpreter lock anyway; one at a time keeps the forest consistent.
        self._lock = threading.Lock()

    @contextmanager
    def current(self) -> Iterator[View]:
        """The forest, caught up, for as long as the block runs. Raises Unavailable, never guesses."""
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            raise Unavailable("The providers are still being loaded, or too many searches wait; try again.")
        try:
            yield View(self._forest, self._sharing, self._boards, self._catch_up())
        finally:
            self._lock.release()

    def _catch_up(self) -> Names:
        if self._names is None:
            return self._load()
        for _ in range(_ROUNDS):
            look = self._feed.look(self._horizon)
            if look is None:
                return self._names
            stale = [row.id for row in look.changed if not self._forest.is_current(row.id, row.revision)]
            if len(stale) > max(_RELOAD_ABOVE, len(self._forest) // 4):
                return self._load()
            complete = self._apply(look, stale)
            if complete:
                self._horizon = look.horizon
                return self._names
        return self._load()

    def _apply(self, look: Look, stale: list[int]) -> bool:
        """Take over what changed; False if a parent appeared meanwhile that another look must bring."""
        for id_ in look.deleted:
            self._forest.remove(id_)
        if look.names_changed:
            with self._database.read() as connection:
                self._names = names.load(connection)
        if not stale:
            return True
        records = self._feed.records(stale)
        coming = {record.row.id for record in records}
        for record in records:
            for other in (record.row.root_id, record.row.parent_id or record.row.root_id):
                if other not in coming and not self._forest.knows(other):
                    return False
        self._forest.apply(records)
        return True

    def _load(self) -> Names:
        with self._feed.snapshot() as (horizon, snapshot):
            self._forest.load(snapshot)
        with self._database.read() as connection:
            self._names = names.load(connection)
        # Only now: a failure in between must not leave a forest that believes itself current.
        self._horizon = horizon
        return self._names

    def close(self) -> None:
        """Give back the connection."""
        self._feed.close()
