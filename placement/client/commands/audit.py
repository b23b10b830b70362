"""`placement audit`: changes, and the users that made them."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from placement.client.display import Listing, argument, limit
from placement.client.formats import TextCell, lines, moment
from placement.engine.domain.audit import Action, TargetKind

_COLUMNS = ("time", "user", "project", "action", "type", "target", "request")
_LONG = ("before", "after", "roles", "address", "caller_request")
_FILTERS = ("user", "project", "request", "action", "type", "target", "consumer", "since", "until")
_PARAMETERS = {
    "user": "user_id",
    "project": "project_id",
    "request": "request_id",
    "type": "target_type",
    "consumer": "consumer_uuid",
}
_SHOWN = 50
_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _time(text: str) -> str:
    """Return a time as the service takes it, also for how long ago it was."""
    ago = _AGO.fullmatch(text)
    if ago is None:
        return text
    try:
        return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text} is too long ago") from None


class ListAudit(Listing):
    """List changes with the users that made them, the newest first; times are in UTC."""

    arguments = (
        argument("--user", help="changes of this user"),
        argument("--project", help="changes of users in this project"),
        argument("--request", metavar="ID", help="changes of this request, by its id or that of its caller"),
        argument("--action", choices=[str(action) for action in Action], help="changes of this kind"),
        argument("--type", choices=[str(kind) for kind in TargetKind], help="changes of such things"),
        argument("--target", metavar="ID", help="changes of this provider, consumer, name or CLUSTER/NAME"),
        argument("--consumer", metavar="UUID", help="changes of what this consumer holds, pods included"),
        argument(
            "--since", metavar="TIME", type=_time, help="changes from then on: 2026-01-31T12:00Z, or 1h"
        ),
        argument("--until", metavar="TIME", type=_time, help="changes before then"),
        argument("--long", action="store_true", help="with what was there before and after, and from where"),
        limit("N changes at most (default %(default)s)", _SHOWN),
    )
    left_out_first = ("caller_request", "address", "roles", "request", "project", "user")
    kept = ("action", "type", "target", "before", "after")
    nothing = "changes"
    filters = _FILTERS

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        given = {_PARAMETERS.get(name, name): getattr(parsed_args, name) for name in _FILTERS}
        events = self.pages(parsed_args, "/ext/v1/audit", "events", "marker", given)
        columns = _COLUMNS + _LONG if parsed_args.long else _COLUMNS
        now = datetime.now(UTC)
        return columns, (_row(event, now)[: len(columns)] for event in events)


def _row(event: dict[str, Any], now: datetime) -> tuple[Any, ...]:
    initiator, target = event["initiator"], event["target"]
    documents = {each["name"]: each["content"] for each in event["attachments"]}
    return (
        moment(event["eventTime"], now),
        initiator["id"],
        initiator.get("project_id"),
        event["action"],
        target["typeURI"].rpartition("/")[2],
        target["id"],
        initiator.get("request_id"),
        *(_document(documents.get(name)) for name in ("before", "after")),
        " ".join(initiator.get("roles", ())),
        initiator.get("host", {}).get("address"),
        initiator.get("global_request_id"),
    )


def _document(content: dict[str, Any] | None) -> TextCell:
    return lines([f"{name}: {value}" for name, value in (content or {}).items()])
