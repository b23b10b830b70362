"""The names in a file: projects, users or servers, as `openstack project list -f json` and others print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from placement.client.arguments import UsageError, read_json
from placement.common.texts import disturbing
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.given_names import GivenNameKind, NameKey
from placement.engine.domain.identifiers import normalize_uuid

_LONGEST = 255
# The columns that only one of the lists has, whether short or --long.
_OF_SERVERS = {"Status", "Networks", "Flavor", "Image", "Host", "Task State"}
_OF_USERS = {"Email", "Project"}
_OF_PROJECTS = {"Domain ID", "Description", "Enabled"}


class NameList(NamedTuple):
    """The names of a file by kind and id, and why other rows of it are skipped."""

    kind: GivenNameKind
    names: dict[NameKey, str]
    skipped: list[str]


def read_names(file: str, kind: str | None) -> NameList:
    """Return the names in a file, of this kind, or of the one that the columns of its rows tell.

    Raises PlacementError for a file that is no list, UsageError if the kind can only be guessed.
    """
    rows = read_json(file)
    if not isinstance(rows, list):
        raise PlacementError(f"{file}: is not a list, as `openstack project list -f json` prints it")
    found = NameList(_kind_of(file, rows) if kind is None else GivenNameKind(kind), {}, [])
    for number, row in enumerate(rows):
        members = row if isinstance(row, dict) else {}
        uuid, name = (_text(members.get(member)) for member in ("ID", "Name"))
        key = NameKey(found.kind, _normal(found.kind, uuid))
        why = _fault(key, uuid, name) or ("comes again" if key in found.names else "")
        if why:
            found.skipped.append(f"[{number}] {uuid or name or '-'}: {why}")
        else:
            found.names[key] = name
    return found


def _kind_of(file: str, rows: Sequence[Any]) -> GivenNameKind:
    members = {member for row in rows if isinstance(row, dict) for member in row}
    # Lists of users have a description, too, so the order matters.
    for kind, columns in (
        (GivenNameKind.CONSUMER, _OF_SERVERS),
        (GivenNameKind.USER, _OF_USERS),
        (GivenNameKind.PROJECT, _OF_PROJECTS),
    ):
        if members & columns:
            return kind
    raise UsageError(
        f"{file}: rows with no more than ID and Name may be of projects, users or servers: add --kind"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _normal(kind: GivenNameKind, uuid: str) -> str:
    """Return an id as consumers have it: OpenStack sends the ids of projects and users as it lists them."""
    return normalize_uuid(uuid) or "" if kind is GivenNameKind.CONSUMER else uuid


def _fault(key: NameKey, uuid: str, name: str) -> str:
    """Return why a row has no name that a service takes; nothing if it has one."""
    for what, text in (("ID", uuid), ("Name", name)):
        if not text:
            return f"has no {what}"
        if len(text) > _LONGEST:
            return f"its {what} has {len(text)} characters; {_LONGEST} are possible"
        if found := disturbing(text):
            return f"its {what} has {found}, which no name may have"
    return "" if key.uuid else "its ID is not a UUID"
