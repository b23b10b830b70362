"""Scores of candidates, as members of bodies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import orjson

from placement.candidates.ranking import ScoreTable, StrategyScores
from placement.candidates.scoring.vectors import ClassParts
from placement.services.wishes import SoftCondition


def score_remarks(table: ScoreTable, preferences: Sequence[SoftCondition]) -> list[bytes]:
    """Per candidate its score and what it is made of, as members of its element.

    Candidates on which the same classes count differ only in numbers, so one template writes them all.
    """
    kinds: dict[tuple[bool, ...], list[int]] = defaultdict(list)
    for at, kind in enumerate(zip(*_differences(table), strict=True)):
        kinds[kind].append(at)
    remarks = [b""] * len(table.scores)
    for places in kinds.values():
        template, columns = _template(table, preferences, places[0])
        if len(kinds) > 1:
            columns = [[column[at] for at in places] for column in columns]
        for at, numbers in zip(places, zip(*columns, strict=True), strict=True):
            remarks[at] = template % numbers
    return remarks


def _differences(table: ScoreTable) -> Iterator[Sequence[bool]]:
    """What may tell the texts of two candidates apart beside numbers."""
    yield [True] * len(table.scores)
    yield from table.preferences
    for strategy in table.strategies:
        for part in strategy.parts:
            yield part.counted
            yield part.has_capacity


Columns = list[list[int]]


def _template(table: ScoreTable, preferences: Sequence[SoftCondition], at: int) -> tuple[bytes, Columns]:
    """The text of candidates like the one at this place, and the columns of its numbers in order."""
    columns: Columns = [table.scores]
    parts = [_strategy_template(strategy, at, columns) for strategy in table.strategies]
    for soft, met in zip(preferences, table.preferences, strict=True):
        parts.append(orjson.dumps({"prefer": soft.label, "weight": soft.weight, "met": met[at]}))
    text = b'"score":%%d,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(parts))
    return text, columns


def _strategy_template(scores: StrategyScores, at: int, columns: Columns) -> bytes:
    columns.append(scores.scores)
    classes = b",".join(_class_template(part, at, columns) for part in scores.parts)
    strategy = scores.strategy
    return b'{"type":"%b","weight":%d,"score":%%d,"max_score":%d,"resources":{%b}}' % (
        strategy.type.encode(),
        strategy.weight,
        strategy.max_score,
        classes,
    )


def _class_template(part: ClassParts, at: int, columns: Columns) -> bytes:
    name = orjson.dumps(part.name)
    if not part.counted[at]:
        return b'%b:{"skipped":"%b"}' % (name, part.skipped(at).encode())
    figures = []
    for field in part.fields:
        columns.append(field.amounts.tolist())
        form = b'"%b":%%d'
        if field.below is not None:
            columns.append(field.below.tolist())
            form = b'"%b":"%%d/%%d"'
        figures.append(form % field.name.encode())
    if part.weight is not None:
        figures.append(b'"weight":%d' % part.weight)
    return b"%b:{%b}" % (name, b",".join(figures))
