"""The consumers of a service beside the servers that nova knows, and which records may be deleted."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.client.server_lists import PAGE, ListedServer, ServerList
from placement.engine.domain.claims import UNKNOWN_CONSUMER_TYPE

INSTANCE = "INSTANCE"
_OF_SERVERS = (INSTANCE, UNKNOWN_CONSUMER_TYPE)
_MOST_LACKING_PERCENT = 5
_BAD_LIST = "the list of servers heals nothing"


@dataclass
class ServerComparison:
    """A list of servers beside the consumers that hold something.

    `unknown` are consumers that the list lacks, `missing_servers` servers that hold nothing and should.
    `compared` counts consumers that may be servers, with the unknown ones. `moving` has a server that is on
    its way, by project.
    """

    server_list: ServerList
    unknown: list[Mapping[str, Any]] = field(default_factory=list)
    missing_servers: list[ListedServer] = field(default_factory=list)
    moving: dict[str, ListedServer] = field(default_factory=dict)
    compared: int = 0

    def warnings(self, now: datetime.datetime) -> list[str]:
        """Return why the list is not good enough to delete records by it, nothing if it is."""
        found = []
        if not self.server_list.rows:
            found.append("it has no servers")
        if self.server_list.rows == PAGE:
            found.append(
                f"it ends at exactly {PAGE:,} servers, where nova ends a page; list all with --limit -1"
            )
        lacking = len(self.unknown)
        if lacking * 100 > self.compared * _MOST_LACKING_PERCENT:
            found.append(
                f"it lacks {lacking:,} of {self.compared:,} consumers of type {INSTANCE} or without a type, "
                f"more than {_MOST_LACKING_PERCENT} %; list the servers of all projects and cells"
            )
        if self.server_list.made > now:
            found.append("it was made in the future, by the clock of this machine")
        return found


def compare(consumers: Iterable[Mapping[str, Any]], server_list: ServerList) -> ServerComparison:
    """Return how consumers, as /ext/v1/allocations lists them, and servers differ.

    Consumers of other types than servers are not compared. Without a type one may be a server.
    """
    found, servers = ServerComparison(server_list), server_list.servers
    here = set()
    for consumer in consumers:
        uuid = consumer["consumer_uuid"]
        here.add(uuid)
        server = servers.get(uuid)
        if consumer["consumer_type"] in _OF_SERVERS:
            found.compared += 1
            if server is None:
                found.unknown.append(consumer)
        if server is not None and server.is_moving:
            found.moving[consumer["project_id"]] = server
    found.missing_servers = [
        each for uuid, each in servers.items() if uuid not in here and each.holds_something
    ]
    return found


@dataclass(frozen=True)
class HealRules:
    """The rules by which a record may be deleted; each method returns why one is kept, empty if it is not."""

    now: datetime.datetime
    older_than: datetime.timedelta
    comparison: ServerComparison | None = None

    @property
    def warnings(self) -> list[str]:
        """Return why the list of servers is not good enough, nothing without a list."""
        return [] if self.comparison is None else self.comparison.warnings(self.now)

    def why_migration_stays(self, consumer: Mapping[str, Any]) -> str:
        """Judge the record of a migration, as /ext/v1/orphans lists its consumer."""
        if consumer["is_pod"]:
            return "it is a pod"
        if self.warnings:
            return _BAD_LIST
        return self._why_too_young(consumer) or self._why_changed(consumer) or self._why_moving(consumer)

    def why_unknown_stays(self, consumer: Mapping[str, Any]) -> str:
        """Judge a consumer that nova does not know, as /ext/v1/allocations lists it."""
        if self.warnings:
            return _BAD_LIST
        if changed := self._why_changed(consumer):
            return changed
        # The file may have been written long after the listing began, or be a copy.
        if self.now - _moment(consumer["changed_at"]) <= self.older_than:
            return "it changed less than --older-than ago"
        # Without a type it may be a migration of a nova that gives none.
        return "" if consumer["consumer_type"] == INSTANCE else self._why_moving(consumer)

    def _why_changed(self, consumer: Mapping[str, Any]) -> str:
        if self.comparison is None:
            return ""
        if consumer["changed_at"] is None:
            return "when it changed is not known"
        is_newer = _moment(consumer["changed_at"]) >= self.comparison.server_list.made
        return "it changed after the list was made" if is_newer else ""

    def _why_moving(self, consumer: Mapping[str, Any]) -> str:
        moving = None if self.comparison is None else self.comparison.moving.get(consumer["project_id"])
        if moving is None:
            return ""
        return f"it may be of server {moving.uuid} of its project, which is {moving.state}"

    def _why_too_young(self, consumer: Mapping[str, Any]) -> str:
        seconds = consumer["age_seconds"]
        if seconds is None:
            return "its age is not known"
        # The clock of the service counts, as it says the age.
        age = datetime.timedelta(seconds=seconds)
        return "" if age > self.older_than else "it is younger than --older-than"


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
