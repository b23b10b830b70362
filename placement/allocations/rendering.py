"""The body of allocation candidates.

A candidate is a row of texts, most of them shared by many candidates. They are looked up column by column,
so the cost is linear in the candidates, however these place their groups. The summaries of a tree are kept
as long as nothing in the tree changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import orjson

from placement.allocations.candidates import SearchResult, SoftCondition
from placement.common.microversions import Feature, Microversion
from placement.engine.domain.explanation import (
    Condition,
    CountedUnit,
    Explanation,
    Miss,
    Names,
    Shortage,
    Stage,
    describe,
    lacks,
    sentences,
    stage_sentence,
)
from placement.engine.forest.arrays import (
    Part,
    Pieces,
    Rows,
    TextColumn,
    Texts,
    assembled,
    fractions,
    joined,
    lines,
    numbers,
    objects,
    table,
)
from placement.engine.scoring.order import ClassParts
from placement.engine.scoring.rule import ScoreFigure
from placement.engine.search.answer import Answer, Batch, ProviderSummary, SlotUse, SummaryCache
from placement.engine.search.ranking import ScoreTable, StrategyScores
from placement.http.context import note_candidates

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
        note_candidates(len(search.answer))
        yield b'{"allocation_requests":['
        yield from _elements(search, version, scores)
        yield b'],"provider_summaries":{'
        if version.offers(Feature.NESTED_CANDIDATES):
            yield from _listed(self._whole_trees(search))
        else:
            yield b",".join(_contributors(search, version))
        yield b"}," + appendix + b"}" if appendix else b"}}"

    def elements(self, search: SearchResult, version: Microversion, scores: Pieces | None = None) -> bytes:
        """Return the candidates alone, as a JSON list."""
        note_candidates(len(search.answer))
        return b"[" + b"".join(_elements(search, version, scores)) + b"]"

    def _whole_trees(self, search: SearchResult) -> Iterator[list[bytes]]:
        names, kept = self._kept
        if names is not search.names:
            kept = SummaryCache(_CACHE_BYTES)
            self._kept = (search.names, kept)
        if len(search.answer):
            yield from search.answer.tree_texts(
                kept, lambda members: b",".join(_summary(member, search) for member in members), _AT_ONCE
            )


def _listed(parts: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Yield the texts with commas between them, part by part."""
    comma = b""
    for part in parts:
        yield comma + b",".join(part)
        comma = b","


def _elements(search: SearchResult, version: Microversion, scores: Pieces | None) -> Iterator[bytes]:
    """Yield all candidates, separated by commas."""
    if search.answer.splits:
        yield from _split_elements(search, scores)
        return
    writer = _ElementWriter(search, version)
    count = len(search.answer)
    done = 0
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


class _ElementWriter:
    """A writer of the elements of one answer, a batch of candidates at a time."""

    def __init__(self, search: SearchResult, version: Microversion) -> None:
        self._slots = search.answer.slots
        self._classes = search.names.classes
        self._answer = search.answer
        self._by_uuid = version.offers(Feature.ALLOCATIONS_BY_PROVIDER)
        self._with_mappings = version.offers(Feature.MAPPINGS)
        self._giving = [number for number, slot in enumerate(self._slots) if slot.resources]
        self._groups: dict[str, list[int]] = {}
        for number, slot in enumerate(self._slots):
            self._groups.setdefault(slot.suffix, []).append(number)
        self._amounts_of: dict[tuple[int, ...], bytes] = {}
        # For the present batch, by slot.
        self._uuids_of: dict[int, Texts] = {}

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
        if self._with_mappings:
            yield from self._mappings(batch)
        if scores is not None:
            yield b","
            yield from scores.parts
        yield b"},"

    def _allocations(self, batch: Batch) -> Iterator[Part]:
        """Yield what a candidate takes from which provider, in order of the slots that use it first."""
        before, after = _ALLOCATION if self._by_uuid else _LISTED_ALLOCATION
        yield b'"allocations":' + (b"{" if self._by_uuid else b"[")
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
        yield b"}" if self._by_uuid else b"]"

    def _amounts(self, slots: tuple[int, ...]) -> bytes:
        """Return what some slots take together, by class, and the end of the allocation."""
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


def _contributors(search: SearchResult, version: Microversion) -> Iterable[bytes]:
    """Yield the summaries before 1.29: only providers in use, in the fields of the version."""
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


def _summary(member: ProviderSummary, search: SearchResult) -> bytes:
    summary = {
        "resources": _resources(member.resources, search),
        "traits": _traits(member, search),
        "parent_provider_uuid": member.parent_uuid,
        "root_provider_uuid": member.root_uuid,
    }
    return b'"%b":%b' % (member.uuid.encode(), orjson.dumps(summary))


def _resources(offered: Iterable[tuple[int, int, int]], search: SearchResult) -> dict[str, dict[str, int]]:
    classes = search.names.classes
    return {classes[id_]: {"capacity": capacity, "used": used} for id_, capacity, used in offered}


def _traits(member: ProviderSummary, search: SearchResult) -> list[str]:
    # By id, so standard ones come first and custom ones in the order of their creation.
    return [search.names.traits[trait] for trait in sorted(member.trait_ids)]


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
    members = [_strategy_template(strategy, at, figures) for strategy in table.strategies]
    for soft, met in zip(preferences, table.preferences, strict=True):
        members.append(orjson.dumps({"prefer": soft.text, "weight": soft.weight, "met": bool(met[at])}))
    text = b'"score":\0,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(members))
    first, *others = text.split(_FIGURE)
    parts: list[bytes | Texts] = [first]
    for figure, behind in zip(figures, others, strict=True):
        parts += (_written(figure, places), behind)
    return Pieces(tuple(parts))


def _written(figure: ScoreFigure, places: Rows) -> Texts:
    if figure.below is None:
        return numbers(figure.amounts[places])
    return fractions(figure.amounts[places], figure.below[places])


def _strategy_template(scores: StrategyScores, at: int, figures: list[ScoreFigure]) -> bytes:
    figures.append(ScoreFigure("score", scores.scores))
    classes = b",".join(_class_template(part, at, figures) for part in scores.parts)
    strategy = scores.strategy
    return b'{"type":"%b","weight":%d,"score":\0,"max_score":%d,"resources":{%b}}' % (
        strategy.type.encode(),
        strategy.weight,
        strategy.max_score,
        classes,
    )


def _class_template(part: ClassParts, at: int, figures: list[ScoreFigure]) -> bytes:
    name = orjson.dumps(part.name)
    if not part.counted[at]:
        return b'%b:{"skipped":"%b"}' % (name, part.skipped(at).encode())
    figures.extend(part.figures)
    members = [b'"%b":\0' % figure.name.encode() for figure in part.figures]
    if part.weight is not None:
        members.append(b'"weight":%d' % part.weight)
    return b"%b:{%b}" % (name, b",".join(members))


# Explanations as members of bodies: of candidates, of flavors and of pods alike.


def explanation_member(search: SearchResult) -> dict[str, Any]:
    """Return the explanation of a search that was asked for one, as a member."""
    assert search.explanation is not None
    return {"explanation": explanation_body(search.explanation)}


def explanation_body(explanation: Explanation) -> dict[str, Any]:
    """Return every stage with its figures, the first empty one, the near misses, and all in sentences."""
    return {
        "stages": [_stage(stage, explanation) for stage in explanation.stages],
        "first_empty": explanation.first_empty,
        "nearest": list(_nearest(explanation)),
        "complete": explanation.complete,
        "sentences": sentences(explanation),
    }


def _nearest(explanation: Explanation) -> Iterator[dict[str, Any]]:
    empty = explanation.first_empty
    if empty is not None:
        stage = explanation.stages[empty]
        yield from (_miss(miss, stage, explanation.names) for miss in explanation.misses)


def _stage(stage: Stage, explanation: Explanation) -> dict[str, Any]:
    return {
        "group": stage.group,
        "condition": describe(stage),
        **_condition(stage.condition),
        "counted": str(stage.counted),
        "came": stage.came,
        "providers": None if stage.counted is CountedUnit.TREES else stage.passed,
        "trees": stage.trees,
        "sentence": stage_sentence(stage, explanation),
    }


def _condition(condition: Condition) -> dict[str, Any]:
    """Return a condition as data, without members that it says nothing about."""
    body: dict[str, Any] = {"kind": str(condition.kind)}
    if condition.resource_class is not None:
        body["resource_class"] = condition.resource_class
    if condition.wanted is not None:
        body["wanted"] = condition.wanted
    if condition.required:
        body["required"] = condition.required
    if condition.forbidden:
        body["forbidden"] = condition.forbidden
    return body


def _miss(miss: Miss, stage: Stage, names: Names) -> dict[str, Any]:
    body: dict[str, Any] = {"resource_provider": _provider(miss.provider, names)}
    if stage.counted is not CountedUnit.TREES and miss.shortages:
        # A near miss that is one provider or node has its first shortage outside of the list, too.
        first = miss.shortages[0]
        body["resource_class"] = first.resource_class
        body |= {"wanted": first.wanted, "free": first.free, "missing": first.missing}
    given = {"lacking_groups": miss.lacking_groups, "lacking": miss.lacking, "unwanted": miss.unwanted}
    body |= {name: texts for name, texts in given.items() if texts}
    if miss.shortages:
        body["shortages"] = [_shortage(shortage, names) for shortage in miss.shortages]
    if miss.words:
        body["reasons"] = miss.words
    return {**body, "sentences": lacks(miss, stage, names)}


def _shortage(shortage: Shortage, names: Names) -> dict[str, Any]:
    body: dict[str, Any] = {"reason": str(shortage.reason), "groups": shortage.groups}
    if shortage.provider is not None:
        body["resource_provider"] = _provider(shortage.provider, names)
    if shortage.resource_class is not None:
        body["resource_class"] = shortage.resource_class
    if shortage.missing:
        body |= {"wanted": shortage.wanted, "free": shortage.free, "missing": shortage.missing}
    if shortage.condition is not None:
        body["condition"] = _condition(shortage.condition)
    return body


def _provider(uuid: str, names: Names) -> dict[str, str | None]:
    return {"uuid": uuid, "name": names.get(uuid)}
