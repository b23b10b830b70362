"""Scores of candidates, as members of bodies."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from placement.api.rendering.candidates import Remarks
from placement.candidates.numbers import to_text
from placement.candidates.ranking import ScoreTable, StrategyScores
from placement.candidates.scoring.vectors import ClassParts
from placement.services.wishes import SoftCondition

Columns = list[list[bytes]]


def score_remarks(table: ScoreTable, preferences: Sequence[SoftCondition]) -> Remarks:
    """Per candidate its score and what it is made of, as members of its element.

    Candidates on which the same classes count differ only in numbers, so one template writes them all.
    """
    kinds = table.kinds()
    if len(kinds) == 1:
        return Remarks(*_template(table, preferences, 0))
    texts = [b""] * len(table.scores)
    for places in kinds:
        template, columns = _template(table, preferences, places[0])
        chosen = [[column[at] for at in places] for column in columns]
        for at, numbers in zip(places, zip(*chosen, strict=True), strict=True):
            texts[at] = template % numbers
    return Remarks(b"%b", [texts])


def _template(table: ScoreTable, preferences: Sequence[SoftCondition], at: int) -> tuple[bytes, Columns]:
    """The text of candidates like the one at this place, and the columns of its numbers in order."""
    columns = [to_text(table.scores)]
    parts = [_strategy_template(strategy, table, at, columns) for strategy in table.strategies]
    for soft, met in zip(preferences, table.preferences, strict=True):
        parts.append(orjson.dumps({"prefer": soft.label, "weight": soft.weight, "met": bool(met[at])}))
    text = b'"score":%%b,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(parts))
    return text, columns


def _strategy_template(scores: StrategyScores, table: ScoreTable, at: int, columns: Columns) -> bytes:
    columns.append(columns[0] if scores.scores is table.scores else to_text(scores.scores))
    classes = b",".join(_class_template(part, at, columns) for part in scores.parts)
    strategy = scores.strategy
    return b'{"type":"%b","weight":%d,"score":%%b,"max_score":%d,"resources":{%b}}' % (
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
        columns.append(to_text(field.amounts))
        form = b'"%b":%%b'
        if field.below is not None:
            columns.append(to_text(field.below))
            form = b'"%b":"%%b/%%b"'
        figures.append(form % field.name.encode())
    if part.weight is not None:
        figures.append(b'"weight":%d' % part.weight)
    return b"%b:{%b}" % (name, b",".join(figures))
