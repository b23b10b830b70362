"""What differs before and after one change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from placement.providers.statements.providers import NamedPlace
from placement.web import units
from placement.web.records import RecordedDocument


class ChangedPart(NamedTuple):
    """A part of a document that differs, before and after; empty where it is not there."""

    name: str
    before: str
    after: str


def differences(
    before: RecordedDocument | None, after: RecordedDocument | None, places: Mapping[str, NamedPlace]
) -> list[ChangedPart]:
    """Return the parts that differ; amounts have their units, and providers their names."""
    old, new = dict(_parts(before or {}, places)), dict(_parts(after or {}, places))
    names = [*old, *(name for name in new if name not in old)]
    pairs = ((name, old.get(name, ""), new.get(name, "")) for name in names)
    return [ChangedPart(*each) for each in pairs if each[1] != each[2]]


def _parts(document: RecordedDocument, places: Mapping[str, NamedPlace]) -> Iterator[tuple[str, str]]:
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


def providers_in(documents: Sequence[RecordedDocument | None]) -> set[str]:
    """Return the uuids of the providers of the allocations in some documents."""
    return {uuid for document in documents for uuid in (document or {}).get("allocations", ())}
