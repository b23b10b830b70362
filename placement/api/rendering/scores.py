"""Scores of candidates, as members of bodies."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from placement.forest.arrays import Rows
from placement.forest.texts import (
    Texts,
    assembled,
    filled,
    fractions,
    numbers,
)
from placement.scoring.columns import Field
from placement.scoring.vectors import ClassParts
from placement.search.ranking import ScoreTable, StrategyScores
from placement.services.placement.search_options import SoftCondition

# Stands for a figure in a template; no name in an answer has such a character.
_FIGURE = b"\0"


def score_members(table: ScoreTable, preferences: Sequence[SoftCondition]) -> Texts:
    """Per candidate its score and what it is made of, as members of its element, of one width for all.

    Candidates on which the same classes count differ only in numbers, so one template writes them all.
    """
    return assembled([(places, _texts(table, preferences, places)) for places in table.kinds()])


def _texts(table: ScoreTable, preferences: Sequence[SoftCondition], places: Rows) -> Texts:
    """The texts of the candidates at these places, which are alike."""
    at = int(places[0])
    columns = [Field("score", table.scores)]
    parts = [_strategy_template(strategy, at, columns) for strategy in table.strategies]
    for soft, met in zip(preferences, table.preferences, strict=True):
        parts.append(orjson.dumps({"prefer": soft.text, "weight": soft.weight, "met": bool(met[at])}))
    text = b'"score":\0,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(parts))
    return filled(text.split(_FIGURE), [_figures(column, places) for column in columns])


def _figures(field: Field, places: Rows) -> Texts:
    if field.below is None:
        return numbers(field.amounts[places])
    return fractions(field.amounts[places], field.below[places])


def _strategy_template(scores: StrategyScores, at: int, columns: list[Field]) -> bytes:
    columns.append(Field("score", scores.scores))
    classes = b",".join(_class_template(part, at, columns) for part in scores.parts)
    strategy = scores.strategy
    return b'{"type":"%b","weight":%d,"score":\0,"max_score":%d,"resources":{%b}}' % (
        strategy.type.encode(),
        strategy.weight,
        strategy.max_score,
        classes,
    )


def _class_template(part: ClassParts, at: int, columns: list[Field]) -> bytes:
    name = orjson.dumps(part.name)
    if not part.counted[at]:
        return b'%b:{"skipped":"%b"}' % (name, part.skipped(at).encode())
    figures = []
    for field in part.fields:
        columns.append(field)
        figures.append(b'"%b":\0' % field.name.encode())
    if part.weight is not None:
        figures.append(b'"weight":%d' % part.weight)
    return b"%b:{%b}" % (name, b",".join(figures))
