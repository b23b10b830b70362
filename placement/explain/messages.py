"""The sentences of an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.explain.explanation import Explanation, Stage
from placement.explain.near_misses import Miss
from placement.explain.shortages import Reason, Shortage
from placement.explain.split_shortages import Alternative
from placement.search.conditions import (
    Carries,
    Condition,
    Exists,
    Fits,
    GivesPart,
    InTree,
    IsIn,
    Offers,
)
from placement.search.query import Ids
from placement.search.trace import (
    AllGroups,
    Combines,
    RootCarries,
    RootIsIn,
    Together,
    TreeCondition,
)

_UNITS = "min_unit, max_unit or step_size"
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of ids; `providers` maps uuids to names, missing ones stay uuids."""

    classes: Mapping[int, str]
    traits: Mapping[int, str]
    aggregates: Mapping[int, str] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)

    def provider(self, uuid: str) -> str:
        """The name of a provider."""
        return self.providers.get(uuid, uuid)


def sentences(explanation: Explanation, words: Vocabulary) -> list[str]:
    """One sentence per stage; after the first stage that nothing passed, what came closest."""
    said = []
    for at, stage in enumerate(explanation.stages):
        said.append(told(stage, explanation, words))
        if at == explanation.first_empty:
            said.extend(sentence for miss in explanation.misses for sentence in lacks(miss, stage, words))
    if explanation.alternative is not None:
        said.append(_splitting(explanation.alternative, words))
    return said


def _splitting(found: Alternative, words: Vocabulary) -> str:
    kind, name = words.classes[found.class_id], words.provider(found.provider)
    return (
        f"split would help: {found.givers} providers below {name} have {found.free} {kind} free, "
        f"of {found.amount} wanted"
    )


def told(stage: Stage, explanation: Explanation, words: Vocabulary) -> str:
    """The condition of a stage and how many passed it, in one sentence."""
    return f"{describe(stage, words)}: {_passed(stage, explanation)}"


def describe(stage: Stage, words: Vocabulary) -> str:
    """The condition of a stage, with the group that states it."""
    text = _MESSAGES[type(stage.condition)](stage.condition, words)
    if stage.group is None:
        return text
    return f"group {stage.group}, {text}" if stage.group else text


def first_obstacle(explanation: Explanation, words: Vocabulary) -> str:
    """The first stage that nothing passed and the nearest miss, in one sentence; empty if all passed."""
    if explanation.first_empty is None:
        return ""
    stage = explanation.stages[explanation.first_empty]
    nearest = "; ".join(lacks(explanation.misses[0], stage, words)) if explanation.misses else ""
    text = told(stage, explanation, words)
    return f"{text}; {nearest}" if nearest else text


def _passed(stage: Stage, explanation: Explanation) -> str:
    trees = f"{stage.trees} tree{'' if stage.trees == 1 else 's'}"
    if stage.providers is None:
        at_least = isinstance(stage.condition, Combines) and not explanation.complete
        return f"{'at least ' if at_least else ''}{stage.trees} of {stage.came} trees"
    came = f"{stage.came} provider{'' if stage.came == 1 else 's'}"
    return f"{stage.providers} of {came}, in {trees}"


def lacks(miss: Miss, stage: Stage, words: Vocabulary) -> list[str]:
    """Sentences on what a near miss lacked to pass the stage."""
    name = words.provider(miss.provider)
    if miss.class_id is not None and miss.missing:
        kind = words.classes[miss.class_id]
        return [f"{name} lacks {miss.missing} {kind}: it has {max(miss.free, 0)} free"]
    if miss.class_id is not None:
        return [f"{name} has room, but the amount breaks its {_UNITS}"]
    if miss.shortages:
        return [_SHORTAGE[shortage.reason](shortage, name, words) for shortage in miss.shortages]
    if stage.group is None:
        return [f"the tree of {name} met everything before"]
    return [f"{name} met everything before"]


def _amount(shortage: Shortage, root: str, words: Vocabulary) -> str:
    kind = _class(shortage, words)
    wants = f"for {_groups(shortage)}: {shortage.wanted} wanted, {shortage.free} free"
    if shortage.provider is None:
        return f"the tree of {root} lacks {shortage.missing} {kind} {wants} on several providers"
    return f"{words.provider(shortage.provider)} lacks {shortage.missing} {kind} {wants}"


def _units(shortage: Shortage, _root: str, words: Vocabulary) -> str:
    name, kind = words.provider(shortage.provider or ""), _class(shortage, words)
    return f"{name} offers {kind} for {_groups(shortage)}, but the amount breaks its {_UNITS}"


def _nobody(shortage: Shortage, root: str, words: Vocabulary) -> str:
    groups = _groups(shortage)
    if shortage.class_id is not None:
        kind = _class(shortage, words)
        return f"the tree of {root} lacks {shortage.missing} {kind} for {groups}: nobody suitable offers any"
    if shortage.condition is None:
        return f"the tree of {root} has nobody for {groups}"
    condition = _MESSAGES[type(shortage.condition)](shortage.condition, words)
    return f"the tree of {root} has nobody for {groups}: none of those who could has {condition}"


def _groups(shortage: Shortage) -> str:
    """The groups by name, many of them by number."""
    names = [suffix or "the unsuffixed group" for suffix in shortage.groups]
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1} more groups"]
    plain = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    only_named = shortage.groups[0] and len(names) == 1
    return f"group {plain}" if only_named else plain


def _class(shortage: Shortage, words: Vocabulary) -> str:
    return words.classes.get(shortage.class_id or 0, "of an unknown class")


def _fits(condition: Fits, words: Vocabulary) -> str:
    return f"room for {_amount_of(condition, words)}"


def _amount_of(condition: Fits | GivesPart, words: Vocabulary) -> str:
    return f"{condition.amount} {words.classes.get(condition.class_id, 'of an unknown class')}"


def _trait_sets(required: Iterable[Ids], forbidden: Ids, words: Vocabulary) -> str:
    return _sets(required, forbidden, lambda id_: words.traits.get(id_, "an unknown trait"), "trait")


def _aggregate_sets(required: Iterable[Ids], forbidden: Ids, words: Vocabulary) -> str:
    def name(id_: int) -> str:
        return words.aggregates.get(id_, "that nobody is in")

    return _sets(required, forbidden, name, "aggregate")


def _sets(required: Iterable[Ids], forbidden: Ids, name: Callable[[int], str], noun: str) -> str:
    parts = [f"{noun} {' or '.join(sorted(name(id_) for id_ in any_of))}" for any_of in required]
    parts += [f"no {noun} {label}" for label in sorted(name(id_) for id_ in forbidden)]
    return ", ".join(parts)


def _is_in(condition: IsIn, words: Vocabulary) -> str:
    text = _aggregate_sets(condition.required, condition.forbidden, words)
    return f"{text}, itself or its root" if condition.or_root else text


def _all_groups(condition: AllGroups, _words: Vocabulary) -> str:
    return f"trees with somebody for every group up to {condition.suffix or 'the unsuffixed one'}"


def _together(condition: Together, words: Vocabulary) -> str:
    return f"trees that can give {_trait_sets((condition.any_of,), frozenset(), words)} between them"


def _split(shortage: Shortage, root: str, words: Vocabulary) -> str:
    place = (
        f"the tree of {root}" if shortage.provider is None else f"below {words.provider(shortage.provider)}"
    )
    return f"{place}: {shortage.free} of {shortage.wanted} {_class(shortage, words)} for {_groups(shortage)}"


_SHORTAGE: Mapping[Reason, Callable[[Shortage, str, Vocabulary], str]] = {
    Reason.AMOUNT: _amount,
    Reason.UNITS: _units,
    Reason.SPLIT: _split,
    Reason.NOBODY: _nobody,
    Reason.BELOW: lambda shortage, _root, words: (
        f"nobody is left for {_groups(shortage)} below {words.provider(shortage.provider or '')}"
    ),
    Reason.APART: lambda shortage, root, _words: (
        f"the tree of {root} has nobody left for {_groups(shortage)}: the groups are kept apart"
    ),
}
_MESSAGES: Mapping[type[Condition | TreeCondition], Callable[[Any, Vocabulary], str]] = {
    Fits: _fits,
    GivesPart: lambda condition, words: f"room for a part of {_amount_of(condition, words)}",
    Carries: lambda condition, words: _trait_sets(condition.required, condition.forbidden, words),
    IsIn: _is_in,
    Offers: lambda condition, words: words.classes.get(condition.class_id, "an unknown class"),
    InTree: lambda condition, _: f"in the tree of {condition.uuid}",
    Exists: lambda _condition, _words: "any provider",
    AllGroups: _all_groups,
    Together: _together,
    RootCarries: lambda condition, words: (
        f"roots with {_trait_sets(condition.required, condition.forbidden, words)}"
    ),
    RootIsIn: lambda condition, words: (
        f"roots in {_aggregate_sets(condition.required, condition.forbidden, words)}"
    ),
    Combines: lambda _condition, _words: (
        "trees that serve all groups side by side (sums, group_policy, same_subtree)"
    ),
}
