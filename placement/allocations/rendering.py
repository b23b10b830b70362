"""The body of allocation candidates.

A candidate is a row of texts, most of them shared by many candidates. They are looked up column by column,
so the cost is linear in the candidates, however these place their groups. The summaries of a tree are kept
as long as nothing in the tree changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import NamedTuple

import orjson

from placement.allocations.candidates import SearchResult, SoftCondition
from placement.common.microversions import Feature, Microversion
from placement.engine.forest.arrays import Rows
from placement.engine.forest.texts import (
    Part,
    Pieces,
    TextColumn,
    TextTable,
    assembled,
    fractions,
    joined,
    lines,
    numbers,
    objects,
    table,
)
from placement.engine.scoring.rule import ScoreFigure
from placement.engine.search.answer import Batch, ProviderSummary, SlotUse
from placement.engine.search.ranking import ScoreTable
from placement.engine.search.summaries import SummaryCache

_CACHE_BYTES = 32 * 2**20
# Candidates, or trees, that are written at a time.
_AT_ONCE = 2048
# What stands before and after the uuid of a provider.
_ALLOCATION = (b'"', b'":{"resources":')
_LISTED_ALLOCATION = (b'{"resource_provider":{"uuid":"', b'"},"resources":')
# If candidates share providers between slots in more ways than this, ways are not written one by one.
_MOST_PATTERNS = 8


class CandidatesRenderer:
    """A writer of answers that keeps the summaries of trees between requests."""

    def __init__(self) -> None:
        # One tuple, as answers from before and after a change of names may be written side by side.
        self._kept: tuple[object, SummaryCache] = (None, SummaryCache(_CACHE_BYTES))

    def body(
        self,
        search: SearchResult,
        version: Microversion,
        *,
        scores: Pieces | None = None,
        appendix: bytes = b"",
    ) -> Iterator[bytes]:
        """Yield the JSON body in parts of bounded size, each made on demand, the first within the request.

        `scores`: members to add to each element, `appendix`: to the body; both JSON without braces.
        """
        yield b'{"allocation_requests":['
        yield from _elements(search, version, scores)
        yield b'],"provider_summaries":{'
        summary = _summary_writer(search, version)
        if not _form_of(version).is_nested:
            # Only providers in use.
            yield summary(search.answer.contributor_summaries() if len(search.answer) else ())
        elif len(search.answer):
            names, cache = self._kept
            if names is not search.names:
                cache = SummaryCache(_CACHE_BYTES)
                self._kept = (search.names, cache)
            comma = b""
            for texts in search.answer.tree_texts(cache, summary, _AT_ONCE):
                yield comma + b",".join(texts)
                comma = b","
        yield b"}," + appendix + b"}" if appendix else b"}}"

    def elements(self, search: SearchResult, version: Microversion, scores: Pieces | None = None) -> bytes:
        """Return the candidates alone, as a JSON list."""
        return b"[" + b"".join(_elements(search, version, scores)) + b"]"


def _elements(search: SearchResult, version: Microversion, scores: Pieces | None) -> Iterator[bytes]:
    """Yield all candidates, separated by commas."""
    if search.answer.splits:
        yield from _split_elements(search, scores)
        return
    writer, count, done = _ElementWriter(search, version), len(search.answer), 0
    for batch in search.answer.batches(_AT_ONCE):
        text = writer.written(batch, None if scores is None else scores.at(slice(done, done + len(batch))))
        done += len(batch)
        yield text[:-1] if done == count else text


def _split_elements(search: SearchResult, scores: Pieces | None) -> Iterator[bytes]:
    """Yield candidates that differ in how many providers serve a group, one by one, separated by commas."""
    classes = search.names.classes
    added = repeat(b"") if scores is None else (b"," + text for text in lines(scores.whole))
    comma = b""
    for element, more in zip(search.answer.elements(), added, strict=False):
        allocations = {
            uuid: {"resources": {classes[class_id]: amount for class_id, amount in held.items()}}
            for uuid, held in element.amounts.items()
        }
        text = orjson.dumps({"allocations": allocations, "mappings": element.mappings})
        yield comma + text[:-1] + more + b"}"
        comma = b","


class _Form(NamedTuple):
    """What a microversion shows of candidates."""

    is_nested: bool
    is_by_uuid: bool
    has_mappings: bool
    has_traits: bool
    shows_all_classes: bool


@cache
def _form_of(version: Microversion) -> _Form:
    return _Form(
        version.offers(Feature.NESTED_CANDIDATES),
        version.offers(Feature.ALLOCATIONS_BY_PROVIDER),
        version.offers(Feature.MAPPINGS),
        version.offers(Feature.CANDIDATES_TRAITS),
        version.offers(Feature.ALL_CLASSES_IN_SUMMARIES),
    )


class _ElementWriter:
    """A writer of the elements of one answer, a batch of candidates at a time."""

    def __init__(self, search: SearchResult, version: Microversion) -> None:
        self._slots = search.answer.slots
        self._classes = search.names.classes
        self._answer = search.answer
        self._form = _form_of(version)
        self._giving = [number for number, slot in enumerate(self._slots) if slot.resources]
        self._groups: dict[str, list[int]] = {}
        for number, slot in enumerate(self._slots):
            self._groups.setdefault(slot.group.suffix, []).append(number)
        self._amounts_of: dict[tuple[int, ...], bytes] = {}
        # For the present batch, by slot.
        self._uuids_of: dict[int, TextTable] = {}

    def written(self, batch: Batch, scores: Pieces | None) -> bytes:
        """Return the elements, a comma behind each."""
        patterns = batch.patterns(_MOST_PATTERNS)
        if patterns is None:
            # Each column costs in this case, so the scores become one.
            whole = None if scores is None else Pieces((scores.whole,))
            return joined(len(batch), self._parts(batch, whole))
        if len(patterns) == 1:
            return table(self._parts(patterns[0][1], scores)).tobytes()
        texts = [b""] * len(batch)
        for places, alike in patterns:
            rows = table(self._parts(alike, None if scores is None else scores.at(places)))
            for place, text in zip(places.tolist(), lines(rows), strict=True):
                texts[place] = text
        return b"".join(texts)

    def _parts(self, batch: Batch, scores: Pieces | None) -> Iterator[Part]:
        self._uuids_of.clear()
        yield b"{"
        yield from self._allocations(batch)
        if self._form.has_mappings:
            yield from self._mappings(batch)
        if scores is not None:
            yield b","
            yield from scores.parts
        yield b"},"

    def _allocations(self, batch: Batch) -> Iterator[Part]:
        """Yield the amounts of a candidate by provider, in order of the slots that use it first."""
        before, after = _ALLOCATION if self._form.is_by_uuid else _LISTED_ALLOCATION
        yield b'"allocations":' + (b"{" if self._form.is_by_uuid else b"[")
        comma = b""
        for use in batch.first_uses(self._giving):
            yield from self._provider(use, comma + before, after)
            which, sets = batch.companions(use, self._giving)
            amounts = [self._amounts(slots) for slots in sets]
            if len(amounts) == 1 and not use.is_partial:
                yield amounts[0]
            else:
                yield TextColumn(objects([*amounts, b""]), which)
            comma = b","
        yield b"}" if self._form.is_by_uuid else b"]"

    def _amounts(self, slots: tuple[int, ...]) -> bytes:
        """Return the sum that some slots take, by class, and the end of the allocation."""
        text = self._amounts_of.get(slots)
        if text is None:
            amounts: dict[str, int] = {}
            for slot in slots:
                for class_id, amount in self._slots[slot].resources:
                    name = self._classes[class_id]
                    amounts[name] = amounts.get(name, 0) + amount
            text = self._amounts_of[slots] = orjson.dumps(amounts) + b"}"
        return text

    def _mappings(self, batch: Batch) -> Iterator[Part]:
        """Yield which providers serve which group, each once."""
        opening = b',"mappings":{'
        for suffix, slots in self._groups.items():
            yield opening + orjson.dumps(suffix) + b":["
            comma = b""
            for use in batch.first_uses(slots):
                yield from self._provider(use, comma + b'"', b'"')
                comma = b","
            yield b"]"
            opening = b","
        yield b"}"

    def _provider(self, use: SlotUse, before: bytes, after: bytes) -> Iterator[Part]:
        """Yield the uuids of the providers with a text on either side, and nothing where there is no use."""
        if use.is_partial:
            yield TextColumn(objects([before, b""]), use.presence)
            yield self._answer.uuid_column(use.rows)
            yield TextColumn(objects([after, b""]), use.presence)
        else:
            if use.slot not in self._uuids_of:
                self._uuids_of[use.slot] = self._answer.uuid_table(use.rows)
            yield before
            yield self._uuids_of[use.slot]
            yield after


def _summary_writer(
    search: SearchResult, version: Microversion
) -> Callable[[Iterable[ProviderSummary]], bytes]:
    """Return a function that writes the summaries of providers in the fields of the version."""
    classes, traits = search.names.classes, search.names.traits
    asked = {class_id for slot in search.answer.slots for class_id, _ in slot.resources}
    form = _form_of(version)
    shows_all, with_traits, nested = form.shows_all_classes, form.has_traits, form.is_nested

    def summary(provider_summary: ProviderSummary) -> bytes:
        body: dict[str, object] = {
            "resources": {
                classes[id_]: {"capacity": capacity, "used": used}
                for id_, capacity, used in provider_summary.resources
                if shows_all or id_ in asked
            }
        }
        if with_traits:
            # By id, so standard ones come first and custom ones in the order of their creation.
            body["traits"] = [traits[trait] for trait in sorted(provider_summary.trait_ids)]
        if nested:
            body["parent_provider_uuid"] = provider_summary.parent_uuid
            body["root_provider_uuid"] = provider_summary.root_uuid
        return b'"%b":%b' % (provider_summary.uuid.encode(), orjson.dumps(body))

    return lambda members: b",".join([summary(member) for member in members])


# Scores of candidates, as members of bodies.


# Stands for a figure in a template; no name in an answer has such a character.
_FIGURE = b"\0"


def score_members(table: ScoreTable, preferences: Sequence[SoftCondition]) -> Pieces:
    """Return per candidate its score and the parts of it, as members of its element, of one width for all.

    Candidates on which the same classes count differ only in numbers, so one template writes them all.
    """
    kinds = table.kinds()
    if len(kinds) == 1:
        return _pieces(table, preferences, kinds[0])
    return Pieces((assembled([(places, _pieces(table, preferences, places).whole) for places in kinds]),))


def _pieces(table: ScoreTable, preferences: Sequence[SoftCondition], places: Rows) -> Pieces:
    """Return the texts of the candidates at these places, which are alike."""
    at = int(places[0])
    figures = [ScoreFigure("score", table.scores)]
    members = []
    for each in table.strategies:
        figures.append(ScoreFigure("score", each.scores))
        classes = []
        for part in each.parts:
            if part.counted[at]:
                figures.extend(part.figures)
                parts = [b'"%b":\0' % figure.name.encode() for figure in part.figures]
                if part.weight is not None:
                    parts.append(b'"weight":%d' % part.weight)
            else:
                parts = [b'"skipped":"%b"' % part.skipped(at).encode()]
            classes.append(b"%b:{%b}" % (orjson.dumps(part.name), b",".join(parts)))
        strategy, name = each.strategy, each.strategy.type.encode()
        members.append(
            b'{"type":"%b","weight":%d,"score":\0,"max_score":%d,"resources":{%b}}'
            % (name, strategy.weight, strategy.max_score, b",".join(classes))
        )
    for soft, met in zip(preferences, table.preferences, strict=True):
        members.append(orjson.dumps({"prefer": soft.text, "weight": soft.weight, "met": bool(met[at])}))
    text = b'"score":\0,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(members))
    first, *others = text.split(_FIGURE)
    found: list[bytes | TextTable] = [first]
    for figure, behind in zip(figures, others, strict=True):
        amounts, below = figure.amounts[places], figure.below
        found += (numbers(amounts) if below is None else fractions(amounts, below[places]), behind)
    return Pieces(tuple(found))
