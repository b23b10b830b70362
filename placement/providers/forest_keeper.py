"""The forest of this process, brought in step with the database before every look at it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from placement.engine.domain import deadline
from placement.engine.domain.errors import Unavailable
from placement.engine.domain.identifiers import portions
from placement.engine.forest import forest as states
from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import ProviderRecord, ProviderStates
from placement.engine.forest.sharing import SharingMap
from placement.engine.search.ranking import ScoreCache
from placement.engine.search.simulation import within
from placement.providers import scoping
from placement.providers.statements import names
from placement.providers.statements.names import SHARING_TRAIT, Names
from placement.storage.database import Database
from placement.storage.feed import FeedBatch
from placement.storage.follower import Follower
from placement.storage.history import Horizon

# Beyond this many changed providers a fresh load of everything is cheaper than applying changes.
_RELOAD_ABOVE = 20_000
# From this many providers on, columns are faster than records.
_MANY = 200
# The most providers that one statement reads, so that it never reads all of a large fleet.
_AT_ONCE = 20_000
# Longer than a look; a caller that accepts less than the present does not wait for a load.
_SHORTLY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """The forest as it was at one moment, the names its ids stand for, and what searches keep for the next.

    It stays so for as long as it is referenced; any number of searches may look at it at once.
    """

    forest: Forest
    sharing: SharingMap
    score_cache: ScoreCache
    names: Names


class ForestState(NamedTuple):
    """The state of a forest that is known without asking the database or waiting for another thread."""

    loaded: bool
    providers: int
    bytes: int
    behind_seconds: float


class ForestKeeper(Follower):
    """A keeper of one forest; every look at it sees all writes that were committed before."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "providers")
        self._forest = Forest()
        self._sharing = SharingMap()
        self._score_cache = ScoreCache()
        self._names: Names | None = None
        # What bound callers may see, by the aggregates of their clusters; dropped with its snapshot.
        self._parts: WeakKeyDictionary[Forest, dict[frozenset[int], View]] = WeakKeyDictionary()

    def current(self) -> View:
        """Return the forest with all that was committed before the call, as far as it may be seen now.

        Raises Unavailable rather than guess.
        """
        view, homes = self._now(), scoping.homes(self.database)
        return view if homes is None else self._part(view, homes)

    def _now(self) -> View:
        with self.caught_up():
            assert self._names is not None
            return View(self._forest.snapshot(), self._sharing, self._score_cache, self._names)

    def _part(self, view: View, homes: frozenset[int]) -> View:
        """Return the view with the trees of some clusters only, by their aggregates."""
        known = self._parts.setdefault(view.forest, {})
        if homes not in known:
            sharing = view.sharing.of(view.forest, view.names.trait_ids[SHARING_TRAIT])
            forest = within(view.forest, sharing, homes)
            known[homes] = View(forest, SharingMap(), ScoreCache(), view.names)
        # New names may come without a change of any provider.
        return replace(known[homes], names=view.names)

    @property
    def state(self) -> ForestState:
        """Return what is known of the forest as it is."""
        forest = self._forest
        return ForestState(self.horizon is not None, len(forest), forest.bytes, self.behind_seconds)

    def latest(self) -> View | None:
        """Return the whole forest as it is now, or as the last look left it if the database is slow.

        Returns None if not loaded. It is for figures, which are equal for all callers. Raises Unavailable.
        """
        if self.horizon is None:
            return None
        with suppress(Unavailable), deadline.within(_SHORTLY_SECONDS):
            return self._now()
        with self.alone(_SHORTLY_SECONDS):
            if self.horizon is None or self._names is None:
                return None
            return View(self._forest.snapshot(), self._sharing, self._score_cache, self._names)

    def begin(self) -> None:
        """Load all providers and names. Raises Unavailable."""
        with self.feed.snapshot() as (horizon, snapshot):
            self._forest.load(snapshot)
        with self.feed.session(horizon) as connection:
            self._names = names.load(connection)
        # Only now: a failure in between must not leave a forest that believes itself current.
        self.horizon = horizon

    def apply(self, look: FeedBatch) -> bool:
        """Apply what changed; return False if loading is cheaper, or if a parent is still missing.

        Raises Unavailable.
        """
        if not (look.changed or look.deleted or look.names_changed):
            return True
        stale = self._forest.outdated([(row.id, row.revision) for row in look.changed])
        if len(stale) > max(_RELOAD_ABOVE, len(self._forest) // 4):
            self.forget()
            return False
        many = self._states(stale, look.horizon)
        records = self.feed.records(stale) if stale and not many else []
        if not (states.have_ancestors(self._forest, many) and self._has_ancestors(records)):
            return False
        # Names come after providers, which may refer to names that are newer than the look.
        if look.names_changed or not self._can_name(many, records):
            with self.feed.session(look.horizon) as connection:
                self._names = names.load(connection)
        states.apply(self._forest, *many)
        self._forest.apply(records)
        # Removals are last, as providers below a deleted one have moved away before.
        for id_ in look.deleted:
            self._forest.remove(id_)
        return True

    def _states(self, ids: list[int], horizon: Horizon) -> list[ProviderStates]:
        """Return the present state of these providers, if they are many enough for columns."""
        if len(ids) < _MANY:
            return []
        others = partial(states.altered, self._forest)
        return [
            self.feed.states(some, horizon, others, states.strangers(self._forest, some))
            for some in portions(ids, _AT_ONCE)
        ]

    def _has_ancestors(self, records: list[ProviderRecord]) -> bool:
        """Return whether no record lacks its root or parent, which may be newer than the look."""
        coming = {record.row.id for record in records}
        return all(
            other in coming or self._forest.knows(other)
            for record in records
            for other in (record.row.root_id, record.row.parent_id or record.row.root_id)
        )

    def _can_name(self, many: list[ProviderStates], records: list[ProviderRecord]) -> bool:
        """Return whether every class and trait that was read has a name."""
        assert self._names is not None
        classes, traits = self._names.classes, self._names.traits
        return all(
            record.trait_ids <= traits.keys() and all(row.class_id in classes for row in record.inventories)
            for record in records
        ) and all(
            classes.keys() >= each.class_ids and all(ids <= traits.keys() for ids, _ in each.traits)
            for each in many
        )
