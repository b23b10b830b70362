"""`placement names`: what people call projects, users and servers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime

from placement.client.arguments import IN_CLUSTER, argument, limit
from placement.client.cells import moment, owner
from placement.client.command import Listing
from placement.client.name_lists import NameList, read_names
from placement.client.tables import ShownTable
from placement.engine.domain.given_names import GivenNameKind
from placement.engine.domain.portions import portions

_PATH = "/ext/v1/names"
_KINDS = [str(kind) for kind in GivenNameKind]
_AT_ONCE = 1000
_SHOWN = 50
_MOST_TOLD = 10
_FILTERS = ("kind", "uuid", "name", "cluster")


class ListNames(Listing):
    """List the names of projects, users and consumers, each with its writer; times are in UTC."""

    arguments = (
        argument("--kind", choices=_KINDS, help="of this kind only"),
        argument("--uuid", metavar="ID", help="of what has this id only"),
        argument("--name", help="only what has this name"),
        IN_CLUSTER,
        limit(f"N names at most (default {_SHOWN} in tables)"),
    )
    left_out_first = ("written_by", "written_at")
    kept = ("name", "uuid")
    nothing = "names"
    filters = _FILTERS

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        wanted = {name: getattr(parsed_args, name) for name in _FILTERS}
        now = datetime.now(UTC)
        names = self.entries(parsed_args, _PATH, "names", "after", wanted, _SHOWN)
        return ("kind", "name", "uuid", "written_by", "written_at"), (
            (
                *(each["kind"], each["name"], each["uuid"]),
                owner(each["written_by"], whole=parsed_args.wide),
                moment(each["written_at"], now),
            )
            for each in names
        )


class LoadNames(Listing):
    """Give projects, users or servers the names in a file.

    FILE is what `openstack project list -f json`, `openstack user list -f json` or
    `openstack server list --all-projects --limit -1 -f json` prints. Names that are not in it stay.
    """

    arguments = (
        argument("file", metavar="FILE", help="a list with ID and Name in each row; - for standard input"),
        argument("--kind", choices=_KINDS, help="what the rows are (default: what their columns tell)"),
    )
    kept = ("kind", "written", "unchanged", "skipped")
    nothing = "names in {file}"

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        found = read_names(parsed_args.file, parsed_args.kind)
        for why in found.skipped[:_MOST_TOLD]:
            self.note(f"Skipped {why}")
        if (more := len(found.skipped) - _MOST_TOLD) > 0:
            self.note(f"Skipped {more} more")
        return ("kind", "written", "unchanged", "skipped"), self._sent(found)

    def _sent(self, found: NameList) -> Iterator[tuple[str, int, int, int]]:
        """Send the names in bounded steps, and yield the sums."""
        written = unchanged = sent = 0
        for some in portions(found.names.items(), _AT_ONCE):
            entries = [{**key._asdict(), "name": name} for key, name in some]
            answer = self.client.put(_PATH, {"names": entries})
            written, unchanged = written + answer["written"], unchanged + answer["unchanged"]
            sent += len(some)
            if len(found.names) > _AT_ONCE:
                self.note(f"{sent} of {len(found.names)} names sent")
        yield str(found.kind), written, unchanged, len(found.skipped)
