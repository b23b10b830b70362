"""Scores of candidates, as members of bodies."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from placement.forest.arrays import Rows
from placement.forest.texts import Pieces, Texts, assembled, fractions, numbers
from placement.scoring.columns import Figure
from placement.scoring.vectors import ClassParts
from placement.search.ranking import ScoreTable, StrategyScores
from placement.services.placement.search_options import SoftCondition

# Stands for a figure in a template; no name in an answer has such a character.
_FIGURE = b"\0"


def score_members(table: ScoreTable, preferences: Sequence[SoftCondition]) -> Pieces:
    """Per candidate its score and what it is made of, as members of its element, of one width for all.

    Candidates on which the same classes count differ only in numbers, so one template writes them all.
    """
    kinds = table.kinds()
    if len(kinds) == 1:
        return _pieces(table, preferences, kinds[0])
    return Pieces((assembled([(places, _pieces(table, preferences, places).whole) for places in kinds]),))


def _pieces(table: ScoreTable, preferences: Sequence[SoftCondition], places: Rows) -> Pieces:
    """The texts of the candidates at these places, which are alike."""
    at = int(places[0])
    figures = [Figure("score", table.scores)]
    members = [_strategy_template(strategy, at, figures) for strategy in table.strategies]
    for soft, met in zip(preferences, table.preferences, strict=True):
        members.append(orjson.dumps({"prefer": soft.text, "weight": soft.weight, "met": bool(met[at])}))
    text = b'"score":\0,"max_score":%d,"score_parts":[%b]' % (table.max_score, b",".join(members))
    first, *others = text.split(_FIGURE)
    parts: list[bytes | Texts] = [first]
    for figure, behind in zip(figures, others, strict=True):
        parts += (_written(figure, places), behind)
    return Pieces(tuple(parts))


def _written(figure: Figure, places: Rows) -> Texts:
    if figure.below is None:
        return numbers(figure.amounts[places])
    return fractions(figure.amounts[places], figure.below[places])


def _strategy_template(scores: StrategyScores, at: int, figures: list[Figure]) -> bytes:
    figures.append(Figure("score", scores.scores))
    classes = b",".join(_class_template(part, at, figures) for part in scores.parts)
    strategy = scores.strategy
    return b'{"type":"%b","weight":%d,"score":\0,"max_score":%d,"resources":{%b}}' % (
        strategy.type.encode(),
        strategy.weight,
        strategy.max_score,
        classes,
    )


def _class_template(part: ClassParts, at: int, figures: list[Figure]) -> bytes:
    name = orjson.dumps(part.name)
    if not part.counted[at]:
        return b'%b:{"skipped":"%b"}' % (name, part.skipped(at).encode())
    figures.extend(part.figures)
    members = [b'"%b":\0' % figure.name.encode() for figure in part.figures]
    if part.weight is not None:
        members.append(b'"weight":%d' % part.weight)
    return b"%b:{%b}" % (name, b",".join(members))
