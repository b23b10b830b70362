"""Audit records in words: which consumer, provider or pod changed, and what differs before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from placement.common.titles import consumer_title
from placement.engine.domain.audit import Action, DescribedRecord, TargetKind
from placement.web import units
from placement.web.answers import address
from placement.web.templating import escaped

# How the address of the page of what a record is about begins.
_PLACES: dict[str, str] = {
    TargetKind.PROVIDER: "/hosts/",
    TargetKind.INVENTORIES: "/hosts/",
    TargetKind.TRAITS: "/hosts/",
    TargetKind.AGGREGATES: "/hosts/",
    TargetKind.ALLOCATIONS: "/consumers/",
    TargetKind.NODE: "/nodes/",
    TargetKind.POD: "/pods/",
}
_MOST_NAMES = 3
RecordedDocument = Mapping[str, Any]


class ChangeRow(NamedTuple):
    """A record as a row of a list, all texts escaped; `page` is the address of what it is about, if any."""

    id: str
    time: str
    action: str
    kind: str
    target: str
    name: str
    page: str
    effect: str
    user: str
    project: str


def rows_of(records: Sequence[DescribedRecord]) -> list[ChangeRow]:
    """Return records as rows."""
    pages = address("")
    return [ChangeRow._make(row) for row in escaped(_row(each, pages) for each in records)]


# Pages that are open show the same records again every few seconds.
@lru_cache(maxsize=512)
def _row(record: DescribedRecord, pages: str) -> ChangeRow:
    before, after = _read(record.before), _read(record.after)
    place, effect = _PLACES.get(record.kind), _EFFECTS.get(record.kind)
    return ChangeRow(
        str(record.id),
        record.recorded_at.isoformat(" ", "seconds"),
        record.action,
        record.kind.replace("_", " "),
        record.target,
        _name(record, before, after),
        f"{pages}{place}{record.target}" if place else "",
        "" if effect is None else effect(record, before, after),
        record.user_id or "",
        record.project_id or "",
    )


def since_and_last(records: Sequence[DescribedRecord]) -> dict[str, DescribedRecord]:
    """Return the record that made a thing, if it is there, and the last one, from records newest first."""
    made = next((each for each in records if each.action == Action.CREATE), None)
    found = {"since": made, "last written": records[0] if records else None}
    return {words: each for words, each in found.items() if each is not None}


def _read(text: str | None) -> RecordedDocument:
    return {} if text is None else orjson.loads(text)


def _name(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    """Return the name of what a record is about; a consumer is called by its type and UUID."""
    known = after or before
    if record.kind == TargetKind.ALLOCATIONS:
        return consumer_title(known.get("consumer_type"), record.target)
    name = known.get("name") if record.kind == TargetKind.PROVIDER else None
    return record.provider or name or record.target


def _is_whole(document: RecordedDocument) -> bool:
    """Return whether a document was kept as it is: of a long one only length and hash are."""
    return "omitted_characters" not in document


def _of_names(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the names that came and went."""
    added, removed = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    signs = [("+", name) for name in added] + [(units.MINUS, name) for name in removed]
    return units.listed([f"{sign}{units.plain(name)}" for sign, name in signs], _MOST_NAMES)


_Effect = Callable[[DescribedRecord, RecordedDocument, RecordedDocument], str]


def _of_allocations(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    if not (_is_whole(before) and _is_whole(after)):
        return ""
    held, holds = (units.summed(each.get("allocations", {}).values()) for each in (before, after))
    came, went = (units.listed(each, _MOST_NAMES) for each in (record.hosts_after, record.hosts_before))
    if held and holds and came != went:
        return f"{units.summary(holds)}: {went or 'a deleted host'} → {came or 'a deleted host'}"
    change = units.difference(held, holds)
    where = came or went
    return f"{change} on {where}" if change and where else change


def _of_inventories(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    if not (_is_whole(before) and _is_whole(after)):
        return ""
    return units.difference(
        *({name: each["total"] for name, each in all_.items()} for all_ in (before, after))
    )


def _of_members(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    return _of_names(before.get(record.kind, ()), after.get(record.kind, ()))


def _of_aggregate(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    former, name = (each.get("name") or "no name" for each in (before, after))
    return f"{former} → {name}"


def _of_pod(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    parts = {"node": "on {}", "cpuset": "CPUs {}", "qos": "{}", "phase": "{}"}
    return ", ".join(words.format(after[name]) for name, words in parts.items() if after.get(name))


def _of_node(record: DescribedRecord, before: RecordedDocument, after: RecordedDocument) -> str:
    counts = ((after.get(f"providers_{done}"), done) for done in ("created", "changed", "deleted"))
    return ", ".join(f"{units.number(count)} providers {done}" for count, done in counts if count)


_EFFECTS: dict[str, _Effect] = {
    TargetKind.ALLOCATIONS: _of_allocations,
    TargetKind.INVENTORIES: _of_inventories,
    TargetKind.TRAITS: _of_members,
    TargetKind.AGGREGATES: _of_members,
    TargetKind.AGGREGATE: _of_aggregate,
    TargetKind.POD: _of_pod,
    TargetKind.NODE: _of_node,
}
"""What a change did, in one line, by the kind of what it is about; the actions of others say it all."""
