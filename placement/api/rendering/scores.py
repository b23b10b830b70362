"""Scores of candidates and explanations of searches, as members of bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from placement.candidates.explanation import Explanation
from placement.candidates.ranking import CandidateScore
from placement.candidates.scoring.strategy import Strategy
from placement.candidates.wording import Vocabulary, describe, sentences
from placement.services.wishes import SoftCondition


def score_remarks(
    scores: Sequence[CandidateScore],
    strategies: Sequence[Strategy],
    preferences: Sequence[SoftCondition],
) -> list[bytes]:
    """Per candidate its score and what it is made of, as members of its element."""
    known: dict[Any, bytes] = {}
    remarks = []
    for score in scores:
        key = (id(score.parts), score.preferences)
        if key not in known:
            known[key] = orjson.dumps(_score(score, strategies, preferences))[1:-1]
        remarks.append(known[key])
    return remarks


def _score(
    score: CandidateScore, strategies: Sequence[Strategy], preferences: Sequence[SoftCondition]
) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {
            "type": str(strategy.type),
            "weight": strategy.weight,
            "score": part.score,
            "max_score": part.max_score,
            "resources": part.resources,
        }
        for strategy, part in zip(strategies, score.parts, strict=True)
    ]
    parts += [
        {"prefer": soft.label, "weight": soft.weight, "met": met}
        for soft, met in zip(preferences, score.preferences, strict=True)
    ]
    return {"score": score.score, "max_score": score.max_score, "score_parts": parts}


def explanation_body(explanation: Explanation, words: Vocabulary) -> dict[str, Any]:
    """Every stage with its figures, the first empty one, who came closest, and all of it in sentences."""
    return {
        "stages": [
            {
                "group": stage.group,
                "condition": describe(stage, words),
                "came": stage.came,
                "providers": stage.providers,
                "trees": stage.trees,
            }
            for stage in explanation.stages
        ],
        "first_empty": explanation.first_empty,
        "nearest": [
            {
                "resource_provider": {
                    "uuid": miss.provider,
                    "name": words.providers.get(miss.provider),
                },
                **_amounts(miss.class_id, miss.missing, miss.free, words),
                **({"lacking_groups": list(miss.lacking)} if miss.lacking else {}),
            }
            for miss in explanation.misses
        ],
        "complete": explanation.complete,
        "sentences": sentences(explanation, words),
    }


def _amounts(class_id: int | None, missing: int, free: int, words: Vocabulary) -> dict[str, Any]:
    if class_id is None:
        return {}
    return {"resource_class": words.classes[class_id], "missing": missing, "free": max(free, 0)}
