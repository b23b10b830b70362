"""`placement audit`: changes, and the users that made them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from placement.client.arguments import argument, limit
from placement.client.cells import TextCell, lines, moment, owner
from placement.client.command import Listing
from placement.client.tables import ShownTable
from placement.common.moments import FORMS
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
_KINDS = {TargetKind.PROVIDER: "provider", TargetKind.ALLOCATIONS: "consumer"}
_OF_TARGET = (
    "changes of what has this name or UUID; claims on a host are changes of their consumers: "
    "`placement allocation list --provider NAME` lists these, and --consumer their changes"
)


class ListAudit(Listing):
    """List changes with the users that made them, the newest first; times are in UTC."""

    arguments = (
        argument("--user", help="changes of this user"),
        argument("--project", help="changes of users in this project"),
        argument("--request", metavar="ID", help="changes of this request, by its id or that of its caller"),
        argument("--action", choices=[str(action) for action in Action], help="changes of this kind"),
        argument("--type", choices=[str(kind) for kind in TargetKind], help="changes of such things"),
        argument("--target", metavar="NAME", help=_OF_TARGET),
        argument("--consumer", metavar="UUID", help="changes of the allocations of this consumer or pod"),
        argument("--since", metavar="TIME", help=f"changes since this time: {FORMS}; in UTC"),
        argument("--until", metavar="TIME", help="changes before this time"),
        argument(
            "--long",
            action="store_true",
            help="with the values before and after, and the address of the caller",
        ),
        limit(f"N changes at most (default {_SHOWN})"),
    )
    left_out_first = ("caller_request", "address", "roles", "request", "project", "user")
    kept = ("action", "type", "target", "before", "after")
    nothing = "changes"
    filters = _FILTERS

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        given = {_PARAMETERS.get(name, name): getattr(parsed_args, name) for name in _FILTERS}
        unlimited = parsed_args.limit is None
        parsed_args.limit = _SHOWN + 1 if unlimited else parsed_args.limit
        events = self.entries(
            parsed_args,
            "/ext/v1/audit",
            "events",
            "marker",
            given,
            look=partial(self._tell_targets, parsed_args),
        )
        if unlimited:
            events = self.cut(parsed_args, events, _SHOWN)
        columns = _COLUMNS + _LONG if parsed_args.long else _COLUMNS
        now = datetime.now(UTC)
        return columns, (_row(event, now, whole=parsed_args.wide)[: len(columns)] for event in events)

    def _tell_targets(self, parsed_args: argparse.Namespace, page: Mapping[str, Any]) -> None:
        """Say what --target calls if that is more than one thing, and where the claims on a provider are."""
        targets = page.get("targets", ())
        if len(targets) > 1:
            words = (f"{_KINDS.get(each['type'], each['type'])} {each['id']}" for each in targets)
            self.note(f"Changes of {', '.join(words)}:")
        if any(each["type"] == TargetKind.PROVIDER for each in targets):
            listed = f"placement allocation list --provider {parsed_args.target}"
            self.note(
                f"Claims are changes of their consumers: `{listed}` lists these, --consumer their changes."
            )


def _row(event: dict[str, Any], now: datetime, *, whole: bool) -> tuple[Any, ...]:
    initiator, target = event["initiator"], event["target"]
    documents = {each["name"]: each["content"] for each in event["attachments"]}
    return (
        moment(event["eventTime"], now),
        owner(initiator["id"], whole=whole),
        owner(initiator.get("project_id"), whole=whole),
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
