"""What was left over: old migrations, consumers on several hosts, and providers that nothing goes to.

A list of one kind after the other. A page of it may be empty and still not be the last: each looks at a
bounded number of consumers.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from placement.allocations.statements import orphans as statements
from placement.allocations.statements.lists import NamedHost
from placement.allocations.statements.orphans import HeldConsumer
from placement.common.clock import server_now
from placement.common.mysql_names import folded
from placement.engine.domain.errors import BadRequest, parameter
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.forest import leftovers
from placement.providers.statements import providers
from placement.providers.statements.names import SHARING_TRAIT
from placement.providers.statements.providers import Named
from placement.providers.view import ForestKeeper, View
from placement.storage.database import Database

SUSPICIOUS = datetime.timedelta(hours=1)
"""The age from which on a migration has probably ended without giving back what it held."""
MOST_COUNTED = 1000
"""Up to how many old migrations are counted."""
_WINDOW = 20_000
_MOST_ODD_NAMES = 100_000
_LAST_UUID = "g"
_LONGEST_ID = 18


class OrphanKind(StrEnum):
    """A kind of what may be left over."""

    MIGRATION = "migration"
    SEVERAL_HOSTS = "several_hosts"
    NO_AGGREGATE = "no_aggregate"
    NO_INVENTORY = "no_inventory"
    SAME_NAME = "same_name"


class AgedConsumer(NamedTuple):
    """A consumer and its age, None if its creation is not known."""

    held: HeldConsumer
    age: datetime.timedelta | None


class Orphan(NamedTuple):
    """Something that may be left over: a consumer, a provider, or several providers with names alike.

    `name` and `uuid` are of a provider, `uuid` also of a consumer. `hosts` are at most two of `host_count`:
    of the consumer, or the host of the provider. `named` are providers with names alike.
    """

    kind: OrphanKind
    uuid: str | None = None
    name: str | None = None
    consumer: AgedConsumer | None = None
    hosts: Sequence[NamedHost] = ()
    host_count: int = 0
    named: Sequence[Named] = ()

    @property
    def is_suspicious(self) -> bool:
        """Whether it is something else than a migration that is known to be younger than SUSPICIOUS."""
        age = None if self.consumer is None else self.consumer.age
        return self.kind is not OrphanKind.MIGRATION or age is None or age > SUSPICIOUS


class OrphanCursor(NamedTuple):
    """A place in the list: behind what stands at `after`, empty for the beginning of a kind."""

    kind: OrphanKind
    after: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.after}"


class OrphanPage(NamedTuple):
    """Some of the list, and where the following page begins, None if there is none."""

    orphans: Sequence[Orphan]
    next_cursor: OrphanCursor | None


_OrphanRows = tuple[Sequence[Orphan], str | None]
_OF_CONSUMERS = (OrphanKind.MIGRATION, OrphanKind.SEVERAL_HOSTS)


def read_cursor(text: str, only_kind: OrphanKind | None = None) -> OrphanCursor:
    """Return the place that the `next` of a page names, of one kind if only that is listed.

    Raises BadRequest.
    """
    name, separator, after = text.partition(":")
    known = list(OrphanKind) if only_kind is None else [only_kind]
    kind = OrphanKind(name) if name in known and separator else None
    if kind in _OF_CONSUMERS:
        is_place = not after or normalize_uuid(after) == after
    else:
        is_number = after.isascii() and after.isdecimal() and len(after) <= _LONGEST_ID
        is_place = kind is OrphanKind.SAME_NAME or (kind is not None and (is_number or not after))
    if kind is None or not is_place:
        raise BadRequest(f"must be the `next` of an earlier page, not {text!r}", place=parameter("after"))
    return OrphanCursor(kind, after)


class Orphans:
    """A use case that lists what may be left over, in order of kinds; nothing is changed."""

    def __init__(self, database: Database, forest: ForestKeeper) -> None:
        self._database = database
        self._forest = forest
        self._of: Mapping[OrphanKind, Callable[[str, int], _OrphanRows]] = {
            OrphanKind.MIGRATION: self._migrations,
            OrphanKind.SEVERAL_HOSTS: self._on_several_hosts,
            OrphanKind.NO_AGGREGATE: self._without_aggregate,
            OrphanKind.NO_INVENTORY: self._without_inventory,
            OrphanKind.SAME_NAME: self._alike,
        }

    def listed(self, kind: OrphanKind | None, cursor: OrphanCursor | None, count: int) -> OrphanPage:
        """Return at most `count` of all kinds or one, and where the following page begins.

        `cursor` is of that kind. Raises Unavailable.
        """
        kinds = list(OrphanKind) if kind is None else [kind]
        at = OrphanCursor(kinds[0]) if cursor is None else cursor
        orphans: list[Orphan] = []
        for each in kinds[kinds.index(at.kind) :]:
            if len(orphans) == count:
                return OrphanPage(orphans, OrphanCursor(each))
            found, following = self._of[each](at.after if each is at.kind else "", count - len(orphans))
            orphans += found
            if following is not None:
                return OrphanPage(orphans, OrphanCursor(each, following))
        return OrphanPage(orphans, None)

    def old_migrations(self) -> int:
        """Return how many migrations are older than an hour, counted up to MOST_COUNTED."""
        with self._database.read() as connection:
            return statements.old_migrations(connection, server_now() - SUSPICIOUS, MOST_COUNTED)

    def _migrations(self, after: str, count: int) -> _OrphanRows:
        with self._database.read() as connection:
            found = statements.migrations(connection, after, count + 1)
        return self._aged(OrphanKind.MIGRATION, found[:count]), _last(found, count)

    def _on_several_hosts(self, after: str, count: int) -> _OrphanRows:
        with self._database.read() as connection:
            end = statements.end_of_window(connection, after, _WINDOW)
            found = statements.on_several_hosts(connection, after, end or _LAST_UUID, count + 1)
        following = _last(found, count) or end
        return self._aged(OrphanKind.SEVERAL_HOSTS, found[:count]), following

    def _aged(self, kind: OrphanKind, consumers: Sequence[HeldConsumer]) -> list[Orphan]:
        now, orphans = server_now(), []
        for each in consumers:
            aged = AgedConsumer(each, None if each.created_at is None else now - each.created_at)
            orphans.append(Orphan(kind, each.uuid, None, aged, each.hosts, each.host_count))
        return orphans

    def _without_aggregate(self, after: str, count: int) -> _OrphanRows:
        view = self._forest.current()
        sharing = view.sharing.of(view.forest, view.names.trait_ids[SHARING_TRAIT]).providers
        ids = leftovers.hosts_without_aggregate(view.forest, sharing)
        return self._of_ids(OrphanKind.NO_AGGREGATE, view, ids, int(after or 0), count)

    def _without_inventory(self, after: str, count: int) -> _OrphanRows:
        view = self._forest.current()
        ids = leftovers.providers_without_inventory(view.forest)
        return self._of_ids(OrphanKind.NO_INVENTORY, view, ids, int(after or 0), count)

    def _of_ids(
        self, kind: OrphanKind, view: View, ids: Sequence[int], after: int, count: int
    ) -> _OrphanRows:
        later = [id_ for id_ in ids if id_ > after]
        shown = later[:count]
        with self._database.read() as connection:
            # One that was deleted since has no row any more.
            known = providers.named(connection, shown)
            places = providers.named_places(connection, [each.uuid for each in known.values()])
        found = [
            Orphan(kind, *each, hosts=[NamedHost(place.root_name, place.root_uuid)], host_count=1)
            for id_, each in sorted(known.items())
            if (place := places.get(each.uuid)) is not None
        ]
        return found, str(shown[-1]) if len(later) > count else None

    def _alike(self, after: str, count: int) -> _OrphanRows:
        with self._database.read() as connection:
            odd = statements.odd_names(connection, _MOST_ODD_NAMES)
            groups: dict[str, set[Named]] = defaultdict(set)
            for each in odd:
                groups[folded(each.name)].add(each)
            # The one name of a group that has nothing to fold.
            plain = {key.lower() for key in groups if key.isascii()}
            for each in statements.called(connection, plain):
                groups[folded(each.name)].add(each)
        keys = sorted(key for key, alike in groups.items() if len(alike) > 1 and key > after)
        shown = keys[:count]
        found = [
            Orphan(OrphanKind.SAME_NAME, named=sorted(groups[key], key=lambda each: each.name))
            for key in shown
        ]
        return found, shown[-1] if len(keys) > count else None


def _last(consumers: Sequence[HeldConsumer], count: int) -> str | None:
    """Return the uuid of the last one on a page, None if there are no more than are on it."""
    return consumers[count - 1].uuid if len(consumers) > count else None
