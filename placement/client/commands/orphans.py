"""`placement orphans`: what was left over, beside the servers that nova knows, and its deletion."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from placement.client.arguments import UsageError, argument, consumer_uuid, duration, limit
from placement.client.command import Listing
from placement.client.orphan_comparison import HealRules, compare
from placement.client.orphan_entries import COLUMNS, COMPARED, LISTED, OrphanEntry, entries_of
from placement.client.server_lists import read_servers
from placement.client.tables import ShownTable
from placement.common.moments import FORMS, moment_of
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid

if TYPE_CHECKING:
    from placement.client.client import Client

_HEALED = ("consumer", "state", "why")
_SHOWN = 50
_DAY = datetime.timedelta(days=1)
_NOTHING_ELSE = "--heal deletes migration records and consumers that nova does not know, and it is neither"
_NOT_STOPPED = "this deletes records of allocations, and stops no server"
# The first version in which a consumer may be emptied with its generation as the condition.
_WITH_GENERATION = "1.28"
_CONFLICT = 409


class ListOrphans(Listing):
    """List what may be left over, and delete what consumers hold that nothing needs any more.

    Listed are migration records, consumers on several hosts, hosts in no aggregate, providers that offer
    nothing, and names that MySQL takes for one. --instances compares with the servers that nova knows, as
    `openstack server list --all-projects --limit -1 --long -f json` prints them.

    --heal deletes records of migrations that are older than --older-than, and consumers that nova does not
    know and that have not changed for as long. It shows them and asks. A consumer that changed since it was
    listed stays, and pods always stay. A list that is empty, is cut, or lacks more than 5 % of the consumers
    that may be servers, is compared and heals nothing.
    """

    arguments = (
        argument("--kind", choices=[*LISTED, *COMPARED], help="of this kind only"),
        argument("--instances", metavar="FILE", help="compare with the servers in this file; - for input"),
        argument(
            "--made",
            metavar="TIME",
            help=f"when the listing of FILE began: {FORMS}; in UTC (default: when FILE was written)",
        ),
        argument(
            "--heal",
            nargs="*",
            metavar="UUID",
            type=consumer_uuid,
            help="delete what these consumers hold; all that are listed with `yes` if none is named",
        ),
        argument(
            "--older-than",
            metavar="AGE",
            type=duration,
            default=_DAY,
            help="heal migration records of this age only, and other consumers that have not changed for as "
            "long, such as 90m or 3d (default 24h)",
        ),
        argument("--yes", action="store_true", help="delete without asking"),
        limit(f"N rows at most (default {_SHOWN} in tables)"),
    )
    left_out_first = ("uuid", "project", "name", "heal")
    kept = ("kind", "what", "why")
    only_wide = ("name", "project", "uuid")
    nothing = "orphans{deleted}"
    filters = ("kind",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        now = datetime.datetime.now(datetime.UTC)
        parsed_args.deleted = "" if parsed_args.heal is None else " that --heal deletes"
        if parsed_args.heal is not None and getattr(parsed_args, "watch", None):
            raise UsageError("--watch: cannot be given with --heal")
        if parsed_args.heal is not None and parsed_args.limit is not None:
            raise UsageError("--limit: cannot be given with --heal; name the UUIDs instead")
        if parsed_args.kind in COMPARED and parsed_args.instances is None:
            raise UsageError(f"--kind: {parsed_args.kind} needs --instances FILE")
        comparison = None
        if parsed_args.instances is not None:
            servers = read_servers(parsed_args.instances, _made(parsed_args.made))
            consumers = self.client.entries("/ext/v1/allocations", "consumers", "after")
            comparison = compare(consumers, servers)
        rules = HealRules(now, parsed_args.older_than, comparison)
        entries = list(entries_of(self.client, rules, parsed_args.kind))
        for warning in rules.warnings:
            self.note(f"warning: {parsed_args.instances} heals nothing: {warning}")
        shown = (entry.row(now) for entry in self.bounded(parsed_args, entries, _SHOWN))
        if parsed_args.heal is None:
            return COLUMNS, shown
        if rules.warnings:
            self.produce_output(parsed_args, COLUMNS, shown)
            raise PlacementError(f"{parsed_args.instances} heals nothing; nothing was deleted")
        return _HEALED, self._chosen_and_healed(parsed_args, entries, now)

    def _chosen_and_healed(
        self, parsed_args: argparse.Namespace, orphans: Sequence[OrphanEntry], now: datetime.datetime
    ) -> Iterable[tuple[Any, ...]]:
        """Show what would be deleted, ask, and return the outcome for each consumer as it is deleted."""
        chosen, refused = _chosen(orphans, parsed_args.heal)
        if chosen and self.for_people(parsed_args):
            self.produce_output(parsed_args, COLUMNS, [entry.row(now) for entry in chosen])
        if chosen and not parsed_args.yes:
            subject = "1 consumer holds" if len(chosen) == 1 else f"{len(chosen)} consumers hold"
            self.confirm(f"Delete what {subject}?", _NOT_STOPPED)
        if refused:
            self.exit_status = 1
        return self._healed(chosen, refused)

    def _healed(
        self, orphans: Sequence[OrphanEntry], refused: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        """Delete what consumers hold, and yield the outcome for each; the refused ones come last."""
        from placement.client.client import ServiceError

        for entry in orphans:
            try:
                _empty(self.client, entry)
            except ServiceError as error:
                self.exit_status = 1
                state = "conflict" if error.status == _CONFLICT else "failed"
                yield entry.uuid, state, str(error)
            else:
                yield entry.uuid, "deleted", entry.kind
        yield from refused


def _chosen(
    orphans: Sequence[OrphanEntry], uuids: Sequence[str]
) -> tuple[list[OrphanEntry], list[tuple[Any, ...]]]:
    """Return what may be deleted, of the named consumers if some are, and why others of these stay."""
    judged = {entry.uuid: entry for entry in orphans if entry.kept is not None}
    if not uuids:
        return [entry for entry in judged.values() if not entry.kept], []
    chosen, refused = [], []
    for uuid in dict.fromkeys(map(normalize_uuid, uuids)):
        entry = judged.get(uuid)
        if entry is not None and not entry.kept:
            chosen.append(entry)
        else:
            refused.append((uuid, "kept", _NOTHING_ELSE if entry is None else entry.kept))
    return chosen, refused


def _made(text: str | None) -> datetime.datetime | None:
    """Return the time that --made gives, in UTC unless it has a zone. Raises UsageError."""
    if text is None:
        return None
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    try:
        return moment_of(text, now).replace(tzinfo=datetime.UTC)
    except ValueError:
        raise UsageError(f"--made: {text} is not a time such as {FORMS}") from None


def _empty(client: Client, entry: OrphanEntry) -> None:
    """Delete what a consumer holds if it has not changed since it was listed. Raises ServiceError."""
    from placement.client.client import path

    consumer = entry.consumer or {}
    body = {
        "allocations": {},
        "project_id": consumer["project_id"],
        "user_id": consumer["user_id"],
        "consumer_generation": consumer["consumer_generation"],
    }
    client.put(path("allocations", entry.uuid or ""), body, _WITH_GENERATION)
