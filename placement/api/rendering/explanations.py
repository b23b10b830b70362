"""Explanations of searches, as members of bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placement.explain.explanation import Explanation
from placement.explain.messages import (
    Vocabulary,
    describe,
    lacks,
    sentences,
    told,
)
from placement.explain.near_misses import Miss
from placement.explain.shortages import Shortage


def explanation_body(explanation: Explanation, words: Vocabulary) -> dict[str, Any]:
    """Every stage with its figures, the first empty one, the near misses, and all of it in sentences."""
    return {
        "stages": [
            {
                "group": stage.group,
                "condition": describe(stage, words),
                "came": stage.came,
                "providers": stage.providers,
                "trees": stage.trees,
                "sentence": told(stage, explanation, words),
            }
            for stage in explanation.stages
        ],
        "first_empty": explanation.first_empty,
        "nearest": list(_nearest(explanation, words)),
        "complete": explanation.complete,
        "sentences": sentences(explanation, words),
    }


def _nearest(explanation: Explanation, words: Vocabulary) -> Iterator[dict[str, Any]]:
    if explanation.first_empty is None:
        return
    stage = explanation.stages[explanation.first_empty]
    for miss in explanation.misses:
        yield {**_miss(miss, words), "sentences": lacks(miss, stage, words)}


def _miss(miss: Miss, words: Vocabulary) -> dict[str, Any]:
    body: dict[str, Any] = {"resource_provider": _provider(miss.provider, words)}
    if miss.class_id is not None:
        body["resource_class"] = words.classes[miss.class_id]
        body |= {"wanted": miss.wanted, "free": max(miss.free, 0), "missing": miss.missing}
    if miss.lacking:
        body["lacking_groups"] = list(miss.lacking)
    if miss.shortages:
        body["shortages"] = [_shortage(shortage, words) for shortage in miss.shortages]
    return body


def _shortage(shortage: Shortage, words: Vocabulary) -> dict[str, Any]:
    body: dict[str, Any] = {"reason": shortage.reason, "groups": list(shortage.groups)}
    if shortage.provider is not None:
        body["resource_provider"] = _provider(shortage.provider, words)
    if shortage.class_id is not None:
        body["resource_class"] = words.classes.get(shortage.class_id)
    if shortage.missing:
        body |= {"wanted": shortage.wanted, "free": shortage.free, "missing": shortage.missing}
    return body


def _provider(uuid: str, words: Vocabulary) -> dict[str, str | None]:
    return {"uuid": uuid, "name": words.providers.get(uuid)}
