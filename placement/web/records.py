"""Audit records in words: which consumer, provider or pod changed, and what differs before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from placement.engine.domain.audit import Action, DescribedRecord, TargetKind
from placement.pods.views import NamedPlace
from placement.web import units
from placement.web.search_results import summed
from placement.web.templating import address, escaped

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
Document = Mapping[str, Any]


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
    place = _PLACES.get(record.kind)
    return ChangeRow(
        str(record.id),
        record.recorded_at.isoformat(" ", "seconds"),
        record.action,
        record.kind.replace("_", " "),
        record.target,
        _name(record, before, after),
        f"{pages}{place}{record.target}" if place else "",
        _effect(record, before, after),
        record.user_id or "",
        record.project_id or "",
    )


def since_and_last(records: Sequence[DescribedRecord]) -> dict[str, DescribedRecord]:
    """Return the record that made a thing, if it is there, and the last one, from records newest first."""
    made = next((each for each in records if each.action == Action.CREATE), None)
    found = {"since": made, "last written": records[0] if records else None}
    return {words: each for words, each in found.items() if each is not None}


def _read(text: str | None) -> Document:
    return {} if text is None else orjson.loads(text)


def _name(record: DescribedRecord, before: Document, after: Document) -> str:
    """Return the name of what a record is about: of a consumer its project and user."""
    known = after or before
    if record.kind == TargetKind.ALLOCATIONS and "project_id" in known:
        return f"{known['project_id']}/{known['user_id']}"
    name = known.get("name") if record.kind == TargetKind.PROVIDER else None
    return record.provider or name or record.target


def _effect(record: DescribedRecord, before: Document, after: Document) -> str:
    """Return what the change did, in one line; empty if its action says it all."""
    if record.kind == TargetKind.ALLOCATIONS:
        return _of_allocations(record, before, after)
    if record.kind == TargetKind.INVENTORIES:
        totals = ({name: each["total"] for name, each in all_.items()} for all_ in (before, after))
        return units.difference(*totals) if _is_whole(before) and _is_whole(after) else ""
    if record.kind in (TargetKind.TRAITS, TargetKind.AGGREGATES):
        return _of_names(before.get(record.kind, ()), after.get(record.kind, ()))
    if record.kind == TargetKind.AGGREGATE:
        former, name = (each.get("name") or "no name" for each in (before, after))
        return f"{former} → {name}"
    if record.kind == TargetKind.POD:
        parts = {"node": "on {}", "cpuset": "CPUs {}", "qos": "{}", "phase": "{}"}
        return ", ".join(words.format(after[name]) for name, words in parts.items() if after.get(name))
    if record.kind == TargetKind.NODE:
        counts = ((after.get(f"providers_{done}"), done) for done in ("created", "changed", "deleted"))
        return ", ".join(f"{units.number(count)} providers {done}" for count, done in counts if count)
    return ""


def _is_whole(document: Document) -> bool:
    """Return whether a document was kept as it is: of a long one only length and hash are."""
    return "omitted_characters" not in document


def _of_allocations(record: DescribedRecord, before: Document, after: Document) -> str:
    if not (_is_whole(before) and _is_whole(after)):
        return ""
    held, holds = (summed(each.get("allocations", {}).values()) for each in (before, after))
    came, went = (units.listed(each, _MOST_NAMES) for each in (record.hosts_after, record.hosts_before))
    if held and holds and came != went:
        return f"{units.summary(holds)}: {went or 'a deleted host'} → {came or 'a deleted host'}"
    change = units.difference(held, holds)
    where = came or went
    return f"{change} on {where}" if change and where else change


def _of_names(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the names that came and went."""
    added, removed = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    signs = [("+", name) for name in added] + [(units.MINUS, name) for name in removed]
    return units.listed([f"{sign}{units.plain(name)}" for sign, name in signs], _MOST_NAMES)


# One change: what differs before and after.


class ChangedPart(NamedTuple):
    """A part of a document that differs, before and after; empty where it is not there."""

    name: str
    before: str
    after: str


def providers_in(documents: Sequence[Document | None]) -> set[str]:
    """Return the uuids of the providers of the allocations in some documents."""
    return {uuid for document in documents for uuid in (document or {}).get("allocations", ())}


def differences(
    before: Document | None, after: Document | None, places: Mapping[str, NamedPlace]
) -> list[ChangedPart]:
    """Return the parts that differ; amounts have their units, and providers their names."""
    old, new = dict(_parts(before or {}, places)), dict(_parts(after or {}, places))
    names = [*old, *(name for name in new if name not in old)]
    pairs = ((name, old.get(name, ""), new.get(name, "")) for name in names)
    return [ChangedPart(*each) for each in pairs if each[1] != each[2]]


def _parts(document: Document, places: Mapping[str, NamedPlace]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a document with a name each."""
    for name, value in document.items():
        if name == "allocations":
            for uuid, amounts in value.items():
                called = places[uuid].name if uuid in places else uuid
                for of, amount in amounts.items():
                    yield f"{called}, {units.plain(of)}", units.amount(amount, of)
        elif isinstance(value, Mapping):
            yield from ((f"{name}, {inner}", text) for inner, text in _parts(value, places))
        elif isinstance(value, list):
            yield name, ", ".join(map(str, value))
        elif value is not None:
            yield name, str(value)
