"""Rows about what may be left over: of the list of the service, and of its comparison with nova."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.client.arguments import given
from placement.client.cells import TextCell, age, lines
from placement.client.orphan_comparison import HealRules, ServerComparison
from placement.client.server_lists import ListedServer

if TYPE_CHECKING:
    from placement.client.client import Client

COLUMNS = ("kind", "what", "age", "hosts", "why", "heal", "name", "project", "uuid")
_MIGRATION, _NOT_IN_NOVA, _NOT_HERE = "migration", "not_in_nova", "not_here"
LISTED = (_MIGRATION, "several_hosts", "no_aggregate", "no_inventory", "same_name")
"""The kinds that the service lists."""
COMPARED = (_NOT_IN_NOVA, _NOT_HERE)
"""The kinds that only a comparison with nova tells."""
_WHY = {
    _MIGRATION: "a migration that never gave back its source, or a resize that waits for its confirmation",
    "no_aggregate": "in no aggregate, so in no zone",
    "no_inventory": "offers nothing, and nothing below it does",
    "same_name": "names that MySQL takes for one",
}
_YOUNG = "a migration that may still run"


class OrphanEntry(NamedTuple):
    """A row: what may be left over, why it is listed, and for consumers why --heal keeps it, if it does."""

    kind: str
    what: Sequence[str]
    hosts: Sequence[str]
    why: str
    uuid: str | None = None
    consumer: Mapping[str, Any] | None = None
    name: str | None = None
    kept: str | None = None

    def row(self, now: datetime.datetime) -> tuple[Any, ...]:
        """Return the cells of the columns."""
        created = None if self.consumer is None else self.consumer.get("created_at")
        heal = "" if self.kept is None else self.kept or "yes"
        return (
            *(self.kind, self.what[0] if len(self.what) == 1 else lines(list(self.what))),
            *(None if created is None else age(created, now), lines(list(self.hosts)), self.why),
            *(TextCell(heal or None, (heal,)), self.name),
            *(None if self.consumer is None else self.consumer.get("project_id"), self.uuid),
        )


def entries_of(client: Client, rules: HealRules, kind: str | None) -> Iterator[OrphanEntry]:
    """Yield the rows of all kinds, or one: the comparison with nova, then the list of the service."""
    if rules.comparison is not None:
        for entry in _compared(client, rules, rules.comparison):
            if kind in (None, entry.kind):
                yield entry
    if kind not in COMPARED:
        servers = {} if rules.comparison is None else rules.comparison.server_list.servers
        for orphan in client.entries("/ext/v1/orphans", "orphans", "after", given(kind=kind).items()):
            yield _listed(orphan, rules, servers)


def _compared(client: Client, rules: HealRules, comparison: ServerComparison) -> Iterator[OrphanEntry]:
    hosts = _hosts(client) if comparison.unknown else {}
    for consumer in comparison.unknown:
        uuid = consumer["consumer_uuid"]
        held = consumer["allocations"].items()
        on = dict.fromkeys(hosts.get(provider, entry["name"]) for provider, entry in held)
        why, kept = "nova does not know it", rules.why_unknown_stays(consumer)
        yield OrphanEntry(_NOT_IN_NOVA, [uuid], list(on), why, uuid, consumer, kept=kept)
    for server in comparison.missing_servers:
        why = f"nova has it, {server.state}; it holds nothing here"
        on_host = [server.host] if server.host else []
        yield OrphanEntry(_NOT_HERE, [server.uuid], on_host, why, server.uuid, name=server.name)


def _hosts(client: Client) -> dict[str, str]:
    """Return the names of the hosts of all providers, by the uuids of these."""
    listed = list(client.entries("/ext/v1/resource_providers", "resource_providers", "after"))
    names = {each["uuid"]: each["name"] for each in listed}
    return {each["uuid"]: names.get(each["root_provider_uuid"], each["name"]) for each in listed}


def _listed(orphan: Mapping[str, Any], rules: HealRules, servers: Mapping[str, ListedServer]) -> OrphanEntry:
    kind, uuid, consumer = orphan["kind"], orphan["uuid"], orphan["consumer"]
    hosts = [each["name"] for each in orphan["hosts"]]
    more = orphan["host_count"] - len(hosts)
    on = [*hosts, f"and {more} more"] if more > 0 else hosts
    if consumer is None:
        names = [each["name"] for each in orphan["alike"]] or [orphan["name"]]
        return OrphanEntry(kind, names, [] if hosts == names else on, _WHY[kind], uuid, name=orphan["name"])
    server = servers.get(uuid)
    name = None if server is None else server.name
    if kind == _MIGRATION:
        why = _WHY[kind] if orphan["suspicious"] else _YOUNG
        return OrphanEntry(kind, [uuid], on, why, uuid, consumer, name, rules.why_migration_stays(consumer))
    where = "" if server is None else f"; nova has it {server.state}"
    why = f"holds something of {orphan['host_count']} hosts{where}"
    return OrphanEntry(kind, [uuid], on, why, uuid, consumer, name)
