"""The forest of this process, brought in step with the database before every look at it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from placement.common import memory
from placement.engine.domain import errors, request_scope
from placement.engine.domain.groups import RequestGroup
from placement.engine.domain.portions import portions
from placement.engine.forest import bulk
from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import ProviderRecord, ProviderStates
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import within
from placement.engine.search.query import GroupQuery, IsOpen
from placement.engine.search.ranking import ScoreCache
from placement.providers.statements import clusters, names
from placement.providers.statements.closed_nodes import closed_nodes
from placement.providers.statements.names import CLOSING_TRAIT, SHARING_TRAIT, Names
from placement.storage.database import Database, Executor
from placement.storage.feed import FeedBatch
from placement.storage.follower import Follower
from placement.storage.history import BEFORE_ALL
from placement.storage.records import read_document

# Beyond this many changed providers a fresh load of everything is cheaper than applying changes.
_RELOAD_ABOVE = 20_000
# From this many providers on, columns are faster than records.
_MANY = 200
# The most providers that one statement reads, so that it never reads all of a large fleet.
_AT_ONCE = 20_000
# Bounds the wait of readers of figures: a look is shorter, a full load is longer, and they take stale data.
_SHORTLY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """The forest at one moment, the names of its ids, and the scores that searches keep for the next.

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
    """One forest; every look at it sees all writes that were committed before."""

    # Above it takes PostgreSQL longer to make documents than to be asked again.
    most_documents = 30

    def __init__(self, database: Database) -> None:
        super().__init__(database, "providers")
        self._forest = Forest()
        self._sharing = SharingMap()
        self._score_cache = ScoreCache()
        self._names: Names | None = None
        # What bound callers may see, by the aggregates of their clusters; dropped with its snapshot.
        self._parts: WeakKeyDictionary[Forest, dict[frozenset[int], View]] = WeakKeyDictionary()
        # Ids of hosts that are closed nodes, and of changed ones to read again, None for all; others stay.
        self._closed_nodes: frozenset[int] = frozenset()
        self._changed_nodes: set[int] | None = None
        # The condition of each snapshot, with the closed nodes that it was made for.
        self._open_hosts: WeakKeyDictionary[Forest, tuple[frozenset[int], IsOpen | None]] = (
            WeakKeyDictionary()
        )

    def current(self) -> View:
        """Return the forest with all that was committed before the call, as far as it may be seen now.

        Raises Unavailable rather than guess.
        """
        view, homes = self._now(), homes_of(self.database)
        if homes is None:
            return view
        # The trees of some clusters only, by their aggregates.
        known = self._parts.setdefault(view.forest, {})
        if homes not in known:
            sharing = view.sharing.of(view.forest, view.names.trait_ids[SHARING_TRAIT])
            forest = within(view.forest, sharing, homes)
            known[homes] = View(forest, SharingMap(), ScoreCache(), view.names)
        # New names may come without a change of any provider.
        return replace(known[homes], names=view.names)

    def open_hosts(self, view: View) -> IsOpen | None:
        """Return the condition that a host takes new consumers; None if every host of the view does.

        Raises Unavailable.
        """
        with self.alone():
            changed = self._changed_nodes
            if changed is None or changed:
                # Over the connection of the feed, as the lock is held.
                with self.feed.session(self.horizon or BEFORE_ALL) as connection:
                    closed = closed_nodes(connection, changed)
                kept = self._closed_nodes - changed if changed else frozenset[int]()
                self._closed_nodes = kept | closed
                self._changed_nodes = set()
            closed_now, forest = self._closed_nodes, view.forest
            known, open_hosts = self._open_hosts.get(forest, (None, None))
            if known is not closed_now:
                is_open = IsOpen(frozenset((view.names.trait_ids[CLOSING_TRAIT],)), closed_now)
                open_hosts = None if is_open.among(forest, forest.roots).all() else is_open
                self._open_hosts[forest] = closed_now, open_hosts
            return open_hosts

    def _now(self) -> View:
        with self.caught_up():
            assert self._names is not None
            return View(self._forest.snapshot(), self._sharing, self._score_cache, self._names)

    @property
    def state(self) -> ForestState:
        """Return the present state of the forest."""
        forest = self._forest
        return ForestState(self.horizon is not None, len(forest), forest.bytes, self.behind_seconds)

    def latest(self) -> View | None:
        """Return the whole forest as it is now, or as the last look left it if the database is slow.

        Returns None if not loaded. It is for figures, which are equal for all callers. Raises Unavailable.
        """
        if self.horizon is None:
            return None
        with suppress(errors.Unavailable), request_scope.within(_SHORTLY_SECONDS):
            return self._now()
        with self.alone(_SHORTLY_SECONDS):
            if self.horizon is None or self._names is None:
                return None
            return View(self._forest.snapshot(), self._sharing, self._score_cache, self._names)

    def begin(self) -> None:
        """Load all providers and names. Raises Unavailable."""
        with self.feed.snapshot() as (horizon, snapshot):
            self._forest.load(snapshot)
        # Of a million providers it leaves 300 MiB behind that are free and scattered.
        del snapshot
        memory.give_back()
        with self.feed.session(horizon) as connection:
            self._names = names.load(connection)
        self._changed_nodes = None
        # Only now: a failure in between must not leave a forest that believes itself current.
        self.horizon = horizon

    def apply(self, batch: FeedBatch) -> bool:
        """Apply a look; return False if loading is cheaper, or if a parent is still missing.

        Raises Unavailable.
        """
        if not (batch.changed or batch.deleted or batch.names_changed):
            return True
        forest = self._forest
        stale = forest.outdated([(row.id, row.revision) for row in batch.changed])
        if len(stale) > max(_RELOAD_ABOVE, len(forest) // 4):
            self.forget()
            return False
        # If they are many enough for columns, their state is read in columns.
        states: list[ProviderStates] = []
        records: Sequence[ProviderRecord] = ()
        if len(stale) >= _MANY:
            others = partial(bulk.altered, forest)
            for some in portions(stale, _AT_ONCE):
                strangers = bulk.strangers(forest, some)
                states.append(self.feed.states(some, batch.horizon, others, strangers))
        elif stale:
            records = self._records(batch, stale)
        if not (bulk.have_ancestors(forest, states) and self._has_ancestors(records)):
            return False
        # Names come after providers, which may refer to names that are newer than the look.
        if batch.names_changed or not self._can_name(states, records):
            with self.feed.session(batch.horizon) as connection:
                self._names = names.load(connection)
        bulk.apply(forest, *states)
        forest.apply(records)
        if self._changed_nodes is not None:
            fresh, of_nodes = set(stale), (row for row in batch.changed if row.cluster_id is not None)
            self._changed_nodes.update(row.root_id or row.id for row in of_nodes if row.id in fresh)
        # Removals are last, as providers below a deleted one have moved away before.
        for id_ in batch.deleted:
            forest.remove(id_)
        return True

    def _records(self, batch: FeedBatch, stale: Sequence[int]) -> Sequence[ProviderRecord]:
        """Return what is known of changed providers: what the look brought, or what is read now."""
        documents = {row.id: row.document for row in batch.changed}
        brought = [text for id_ in stale if (text := documents[id_]) is not None]
        if len(brought) < len(stale):
            return self.feed.records(stale)
        return [read_document(text) for text in brought]

    def _has_ancestors(self, records: Sequence[ProviderRecord]) -> bool:
        """Return whether no record lacks its root or parent, which may be newer than the look."""
        coming = {record.row.id for record in records}
        return all(
            other in coming or self._forest.knows(other)
            for record in records
            for other in (record.row.root_id, record.row.parent_id or record.row.root_id)
        )

    def _can_name(self, states: list[ProviderStates], records: Sequence[ProviderRecord]) -> bool:
        """Return whether every class and trait that was read has a name."""
        assert self._names is not None
        classes, traits = self._names.classes, self._names.traits
        return all(
            record.trait_ids <= traits.keys() and all(row.class_id in classes for row in record.inventories)
            for record in records
        ) and all(
            classes.keys() >= each.class_ids and all(ids <= traits.keys() for ids, _ in each.traits)
            for each in states
        )


# The scope of callers that are bound to clusters: the trees, aggregates, groups and consumers they see.
#
# The clusters are in `engine.domain.request_scope`. For all other callers each function returns what it is
# given.


def homes_of(database: Database) -> frozenset[int] | None:
    """Return the ids of the aggregates with the trees that may be seen, None for all trees."""
    names = request_scope.visible_clusters()
    if names is None:
        return None
    if not names:
        return frozenset()
    with database.read() as connection:
        return clusters.aggregates_of(connection, names)


def require_cluster(connection: Executor, name: str | None) -> None:
    """Raise BadRequest for a cluster that is unknown, Forbidden for none unless everything may be seen."""
    if name is None:
        request_scope.require_everything()
    elif clusters.find(connection, name) is None:
        raise errors.BadRequest(
            clusters.none_found(connection, name),
            place=errors.parameter("cluster"),
            value=name,
            known=errors.NamesOf(errors.NameKind.CLUSTER),
        )


def visible_aggregates(forest: Forest, ids: Mapping[str, int]) -> Mapping[str, int]:
    """Return the aggregates, id by uuid, that some provider of the forest is in.

    To a bound caller an aggregate of another cluster is one that never had a member.
    """
    if request_scope.visible_clusters() is None:
        return ids
    return {uuid: id_ for uuid, id_ in ids.items() if len(forest.aggregates.rows_with((id_,), forest.count))}


def stored_group(name: str) -> str:
    """Return the name under which a group of consumers is stored, at most 255 characters.

    Groups of bound callers are by cluster and name. Both go in as a SHA-256, as a name may have 255
    characters itself.
    """
    names = request_scope.visible_clusters()
    if names is None:
        return name
    return f"of-clusters:{hashlib.sha256('/'.join([*sorted(names), name]).encode()).hexdigest()}"


def hidden_consumers(held: Mapping[str, Mapping[str, object]], forest: Callable[[], Forest]) -> set[str]:
    """Return the consumers that may not be seen; `held` is what each holds, by provider uuid.

    A bound caller sees a consumer that holds something, all of it in the forest that it sees. A consumer on a
    shared pool of the cluster and on a host of another cluster is hidden.
    """
    if request_scope.visible_clusters() is None or not held:
        return set()
    row = cache(forest().row_of_uuid)
    return {uuid for uuid, on in held.items() if not on or any(row(provider) < 0 for provider in on)}


def refusal(consumer_uuid: str, conflict: errors.Conflict) -> errors.Conflict:
    """Return why a consumer may not claim; a bound caller gets one answer for all reasons, `taken`."""
    return conflict if request_scope.visible_clusters() is None else taken(consumer_uuid)


def taken(consumer_uuid: str) -> errors.Conflict:
    """Return the refusal of a consumer that holds something else, here or elsewhere."""
    return errors.Conflict(
        f"{consumer_uuid} already holds something else than the query asks for",
        place=errors.BODY / "consumer_uuid",
    )


# Request groups by ids: the names of classes, traits and aggregates looked up.


NO_AGGREGATE = -1
"""The id of no aggregate, which stands for aggregates that never had a member."""
# Amounts beyond this fit nowhere and need not be distinguished.
_LARGEST_ASKED = 2**60


def resolve_group(
    known_names: Names, group: RequestGroup, aggregates: Mapping[str, int], prefix: str = ""
) -> GroupQuery:
    """Return a request group by ids. Raises BadRequest with the name that does not exist."""
    for name in group.resources:
        if name not in known_names.class_ids:
            raise errors.BadRequest(
                f"Invalid resource class in resources parameter: No such resource class {name}.",
                value=name,
                known=errors.NamesOf(errors.NameKind.RESOURCE_CLASS),
            )
    return GroupQuery(
        suffix=group.suffix,
        resources=tuple(
            (known_names.class_ids[name], min(amount, _LARGEST_ASKED))
            for name, amount in group.resources.items()
        ),
        required=tuple(trait_set(known_names, any_of, prefix) for any_of in group.required),
        forbidden=trait_set(known_names, group.forbidden, prefix),
        member_of=aggregate_sets(aggregates, group.member_of),
        forbidden_aggregates=frozenset(
            aggregates[uuid] for uuid in group.forbidden_aggregates if uuid in aggregates
        ),
        in_tree=group.in_tree,
        split=frozenset(known_names.class_ids[name] for name in group.split),
        split_rule=group.split_rule,
    )


def trait_set(known_names: Names, traits: Iterable[str], prefix: str = "") -> frozenset[int]:
    """Return the ids of traits. Raises BadRequest naming the traits that do not exist."""
    unknown = sorted(trait for trait in traits if trait not in known_names.trait_ids)
    if unknown:
        raise errors.BadRequest(
            f"{prefix}No such trait(s): {', '.join(unknown)}.",
            value=unknown[0],
            known=errors.NamesOf(errors.NameKind.TRAIT),
        )
    return frozenset(known_names.trait_ids[trait] for trait in traits)


def aggregates_of(group: RequestGroup) -> tuple[frozenset[str], ...]:
    """Return the sets of aggregates that a group names."""
    return (*group.member_of, group.forbidden_aggregates)


def aggregate_ids(database: Database, sets: Iterable[frozenset[str]]) -> Mapping[str, int]:
    """Return the ids of aggregates by uuid; an aggregate that never had a member has none."""
    wanted = frozenset().union(*sets)
    if not wanted:
        return {}
    with database.read() as connection:
        return names.aggregate_ids(connection, wanted)


def aggregate_sets(ids: Mapping[str, int], sets: Iterable[frozenset[str]]) -> tuple[frozenset[int], ...]:
    """Return sets of uuids as sets of ids."""
    return tuple(frozenset(ids.get(uuid, NO_AGGREGATE) for uuid in any_of) for any_of in sets)
