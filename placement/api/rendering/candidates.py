"""The body of allocation candidates.

A candidate is a row of texts, most of which many candidates share: they are looked up column by column, so
the cost is linear in the candidates, however these place their groups. The summaries of a tree are kept as
long as nothing in the tree changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import orjson

from placement.api.microversions import Feature, Microversion
from placement.candidates.answer import Answer, ProviderSummary, Use
from placement.candidates.texts import Column, Texts, joined, lines, objects
from placement.candidates.tree_texts import TreeTexts
from placement.services.candidates import Search

_CACHE_BYTES = 32 * 2**20
# Candidates, or trees, that are written at a time.
_AT_ONCE = 2048
# What stands before and after the uuid of a provider.
_ALLOCATION = (b'"', b'":{"resources":')
_LISTED_ALLOCATION = (b'{"resource_provider":{"uuid":"', b'"},"resources":')


class CandidatesRenderer:
    """Writes answers; keeps the summaries of trees between requests."""

    def __init__(self) -> None:
        # In one, for answers from before and after a change of names are written side by side.
        self._kept: tuple[object, TreeTexts] = (None, TreeTexts(_CACHE_BYTES))

    def body(
        self,
        search: Search,
        version: Microversion,
        *,
        remarks: Texts | None = None,
        appendix: bytes = b"",
    ) -> Iterator[bytes]:
        """The JSON body in parts of bounded size, each made when it is asked for.

        `remarks`: members to add to each element, `appendix`: to the body; as JSON without braces.
        """
        yield b'{"allocation_requests":['
        yield from _elements(search, version, remarks)
        yield b'],"provider_summaries":{'
        if version.offers(Feature.NESTED_CANDIDATES):
            yield from _listed(self._whole_trees(search))
        else:
            yield b",".join(_contributors(search, version))
        yield b"}," + appendix + b"}" if appendix else b"}}"

    def _whole_trees(self, search: Search) -> Iterator[list[bytes]]:
        names, kept = self._kept
        if names is not search.names:
            kept = TreeTexts(_CACHE_BYTES)
            self._kept = (search.names, kept)
        if len(search.answer):
            yield from search.answer.tree_texts(
                kept, lambda members: b",".join(_summary(member, search) for member in members), _AT_ONCE
            )


def _listed(parts: Iterable[list[bytes]]) -> Iterator[bytes]:
    """The texts with commas between them, part by part."""
    comma = b""
    for part in parts:
        yield comma + b",".join(part)
        comma = b","


def _elements(search: Search, version: Microversion, remarks: Texts | None) -> Iterator[bytes]:
    """All candidates, separated by commas."""
    count = len(search.answer)
    if not count:
        return
    columns = _columns(search, version, remarks)
    for start in range(0, count, _AT_ONCE):
        stop = min(start + _AT_ONCE, count)
        text = joined(columns, start, stop)
        yield text if stop < count else text[:-1]


def _columns(search: Search, version: Microversion, remarks: Texts | None) -> list[Column]:
    """A candidate as texts that follow each other, with a comma behind the last; constants are merged."""
    parts = [[b"{"], _allocations(search, version)]
    if version.offers(Feature.MAPPINGS):
        parts.append(_mappings(search))
    if remarks is not None:
        parts.append([b",", Column(objects(lines(remarks)))])
    columns: list[Column] = []
    constant = b""
    for part in chain(*parts, [b"},"]):
        if isinstance(part, bytes):
            constant += part
        else:
            columns += [Column(objects([constant])), part]
            constant = b""
    return [*columns, Column(objects([constant]))]


def _allocations(search: Search, version: Microversion) -> Iterator[bytes | Column]:
    """What a candidate takes of whom, providers in order of the slots that use them first."""
    by_uuid = version.offers(Feature.ALLOCATIONS_BY_PROVIDER)
    before, after = _ALLOCATION if by_uuid else _LISTED_ALLOCATION
    giving = [number for number, slot in enumerate(search.answer.slots) if slot.resources]
    yield b'"allocations":' + (b"{" if by_uuid else b"[")
    comma = b""
    for use in search.answer.first_uses(giving):
        yield from _uuids(search, use, comma + before, after)
        which, sets = search.answer.companions(use, giving)
        amounts = [_amounts(search, slots) + b"}" for slots in sets]
        if len(amounts) == 1 and not use.is_partial:
            yield amounts[0]
        else:
            yield Column(objects([*amounts, b""]), which)
        comma = b","
    yield b"}" if by_uuid else b"]"


def _amounts(search: Search, slots: Iterable[int]) -> bytes:
    """What some slots take together, by class."""
    amounts: dict[str, int] = {}
    for slot in slots:
        for class_id, amount in search.answer.slots[slot].resources:
            name = search.names.classes[class_id]
            amounts[name] = amounts.get(name, 0) + amount
    return orjson.dumps(amounts)


def _mappings(search: Search) -> Iterator[bytes | Column]:
    """Which providers serve which group, each once."""
    groups: dict[str, list[int]] = {}
    for number, slot in enumerate(search.answer.slots):
        groups.setdefault(slot.suffix, []).append(number)
    opening = b',"mappings":{'
    for suffix, slots in groups.items():
        yield opening + orjson.dumps(suffix) + b":["
        comma = b""
        for use in search.answer.first_uses(slots):
            yield from _uuids(search, use, comma + b'"', b'"')
            comma = b","
        yield b"]"
        opening = b","
    yield b"}"


def _uuids(search: Search, use: Use, before: bytes, after: bytes) -> Iterator[bytes | Column]:
    """The uuids of the providers with something around them, nothing at all where there is no use."""
    uuids = search.answer.uuids
    if use.is_partial:
        yield Column(objects([*(before + uuid + after for uuid in uuids), b""]), use.numbers)
    else:
        yield before
        yield Column(objects(uuids), use.numbers)
        yield after


def _contributors(search: Search, version: Microversion) -> Iterable[bytes]:
    """Summaries before 1.29: only providers in use, in the fields of the version."""
    answer: Answer = search.answer
    if not len(answer):
        return
    asked = {class_id for slot in answer.slots for class_id, _ in slot.resources}
    for member in answer.contributor_summaries():
        offered = [
            resource
            for resource in member.resources
            if version.offers(Feature.ALL_CLASSES_IN_SUMMARIES) or resource[0] in asked
        ]
        summary: dict[str, object] = {"resources": _resources(offered, search)}
        if version.offers(Feature.CANDIDATES_TRAITS):
            summary["traits"] = _traits(member, search)
        yield orjson.dumps(member.uuid) + b":" + orjson.dumps(summary)


def _summary(member: ProviderSummary, search: Search) -> bytes:
    summary = {
        "resources": _resources(member.resources, search),
        "traits": _traits(member, search),
        "parent_provider_uuid": member.parent_uuid,
        "root_provider_uuid": member.root_uuid,
    }
    return b'"%b":%b' % (member.uuid.encode(), orjson.dumps(summary))


def _resources(offered: Iterable[tuple[int, int, int]], search: Search) -> dict[str, dict[str, int]]:
    classes = search.names.classes
    return {classes[id_]: {"capacity": capacity, "used": used} for id_, capacity, used in offered}


def _traits(member: ProviderSummary, search: Search) -> list[str]:
    return sorted(search.names.traits[trait] for trait in member.trait_ids)
