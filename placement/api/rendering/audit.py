"""Audit records as events of CADF, and changes as events of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from placement.domain.audit import Change, StoredRecord
from placement.services.auditing.events import News
from placement.services.auditing.trail import AuditPage

_EVENT = "http://schemas.dmtf.org/cloud/audit/1.0/event"
_SERVICE = "service/placement"
_OBSERVER = {"id": "target", "typeURI": _SERVICE, "name": "placement"}


def audit_body(page: AuditPage) -> dict[str, Any]:
    """A page of records."""
    return {"events": [_event(record) for record in page.records], "next": page.next}


def _event(record: StoredRecord) -> dict[str, Any]:
    """A record in the words of CADF (DMTF DSP0262); what is not stored did not succeed."""
    documents = (("before", record.before), ("after", record.after))
    return {
        "typeURI": _EVENT,
        "id": str(record.id),
        "eventType": "activity",
        "eventTime": f"{record.recorded_at.isoformat()}+00:00",
        "action": record.action,
        "outcome": "success",
        "initiator": _initiator(record),
        "target": {"typeURI": f"{_SERVICE}/{record.kind}", "id": record.target},
        "observer": _OBSERVER,
        "attachments": [
            {"name": name, "typeURI": "application/json", "content": orjson.loads(text)}
            for name, text in documents
            if text is not None
        ],
    }


def _initiator(record: StoredRecord) -> dict[str, Any]:
    """A caller; or this service, where nobody called: a command on its machine, or work of its own."""
    if record.request_id is None:
        return {"typeURI": _SERVICE, "id": "placement"}
    return {
        "typeURI": "service/security/account/user",
        "id": record.user_id,
        "project_id": record.project_id,
        "roles": record.roles.split(",") if record.roles else [],
        "host": {"address": record.address},
        "request_id": record.request_id,
        "global_request_id": record.global_request_id,
    }


def news_body(news: News) -> dict[str, Any]:
    """What changed, and the token from which to go on."""
    return {"events": [_change(change) for change in news.changes], "next": news.token}


def _change(change: Change) -> dict[str, Any]:
    told: dict[str, Any] = {"type": change.kind, "uuid": change.id, "action": change.action}
    return told if change.generation is None else {**told, "generation": change.generation}


def stream_pieces(news: News) -> Iterable[bytes]:
    """The same as Server-Sent Events; the token is the id of the last, for only then all are told."""
    for change in news.changes:
        yield b"event: change\ndata: " + orjson.dumps(_change(change)) + b"\n\n"
    # Without data it is no event for the reader, but takes its place in Last-Event-ID.
    yield f"id: {news.token}\n\n".encode()
    # Sent now, and not together with what follows some day.
    yield b""
