"""The servers that nova knows, as `openstack server list -f json` writes them to a file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from placement.client.arguments import STANDARD_INPUT, UsageError, read_json
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid

PAGE = 1000
"""How many servers nova lists at once, unless its configuration says otherwise."""
_OFFLOADED = "SHELVED_OFFLOADED"
_WITHOUT_PLACE = ("BUILD", "ERROR")
_MOVING = ("VERIFY_RESIZE", "RESIZE", "REVERT_RESIZE", "MIGRATING")
_MOVING_TASKS = ("resize", "migrating")


class ListedServer(NamedTuple):
    """A server of the list; a short list has neither its task nor its host."""

    uuid: str
    name: str
    status: str
    task: str
    host: str

    @property
    def holds_something(self) -> bool:
        """Whether it has to hold something, which servers that have no host do not."""
        return self.status != _OFFLOADED and (bool(self.host) or self.status not in _WITHOUT_PLACE)

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way to another host, or waits there for its confirmation."""
        return self.status in _MOVING or self.task.startswith(_MOVING_TASKS)

    @property
    def state(self) -> str:
        """Return its status, and its task or host if it has one."""
        place = f" on {self.host}" if self.host else ""
        return f"{self.status or 'of unknown status'}{place}{f', {self.task}' if self.task else ''}"


class ServerList(NamedTuple):
    """The servers of a file by uuid, the number of its rows, and when it was made."""

    servers: Mapping[str, ListedServer]
    rows: int
    made: datetime.datetime


def read_servers(file: str, made: datetime.datetime | None) -> ServerList:
    """Return the servers in a file, `made` at that time or when it was last written.

    Raises PlacementError naming the place of what cannot be read, UsageError for input without a time.
    """
    rows = read_json(file)
    if not isinstance(rows, list):
        raise PlacementError(f"{file}: is not a list of servers")
    if made is None:
        if file == STANDARD_INPUT:
            raise UsageError("--made: is needed for a list from standard input, which has no time")
        made = datetime.datetime.fromtimestamp(Path(file).stat().st_mtime, datetime.UTC)
    found = [_server(f"{file}: [{number}]", row) for number, row in enumerate(rows)]
    return ServerList({each.uuid: each for each in found}, len(rows), made)


def _server(place: str, row: Any) -> ListedServer:
    if not isinstance(row, dict) or not isinstance(row.get("ID"), str):
        raise PlacementError(f"{place}: has no ID; write the list with: openstack server list -f json")
    uuid = normalize_uuid(row["ID"])
    if uuid is None:
        raise PlacementError(f"{place}.ID: is not a UUID: {row['ID']!r}")
    texts = (row.get(name) for name in ("Name", "Status", "Task State", "Host"))
    name, status, task, host = (text if isinstance(text, str) and text != "None" else "" for text in texts)
    return ListedServer(uuid, name, status.upper(), task.lower(), host)
