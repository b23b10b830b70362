"""Explanations as members of bodies: of candidates, of flavors and of pods alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placement.domain.explanation import (
    Condition,
    Counted,
    Explanation,
    Miss,
    Shortage,
    Stage,
)
from placement.explain.sentences import Names, describe, lacks, sentences, told
from placement.services.placement.candidates import Search


def explanation_member(search: Search) -> dict[str, Any]:
    """The explanation of a search that was asked for one, as a member."""
    assert search.explanation is not None
    return {"explanation": explanation_body(search.explanation)}


def explanation_body(explanation: Explanation) -> dict[str, Any]:
    """Every stage with its figures, the first empty one, the near misses, and all of it in sentences."""
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
        "providers": None if stage.counted is Counted.TREES else stage.passed,
        "trees": stage.trees,
        "sentence": told(stage, explanation),
    }


def _condition(condition: Condition) -> dict[str, Any]:
    """A condition as data; what it says nothing about is left out."""
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
    if stage.counted is not Counted.TREES and miss.shortages:
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
