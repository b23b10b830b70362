"""The sentences of an explanation: the same for candidates, flavors and pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placement.domain.explanation import (
    Alternative,
    Counted,
    Explanation,
    Kind,
    Miss,
    Reason,
    Shortage,
    Stage,
)

_UNITS = "min_unit, max_unit or step_size"
_MOST_NAMES = 4
Names = Mapping[str, str]


def sentences(explanation: Explanation) -> list[str]:
    """One sentence per stage; after the first stage that nothing passed, what came closest."""
    said, empty = [], explanation.first_empty
    for at, stage in enumerate(explanation.stages):
        said.append(told(stage, explanation))
        if at == empty:
            said += [text for miss in explanation.misses for text in lacks(miss, stage, explanation.names)]
            if not explanation.misses:
                said.append(_nothing_near(stage))
    if explanation.alternative is not None:
        said.append(_splitting(explanation.alternative, explanation.names))
    return said


def _nothing_near(stage: Stage) -> str:
    """Why there is nothing that came close to a condition."""
    condition = stage.condition
    if condition.resource_class is not None and not stage.came:
        return f"no provider offers {condition.resource_class}"
    if not stage.came:
        return f"nothing came to this condition: {condition.text}"
    return f"nothing that came to this condition is on a host that the others admit: {condition.text}"


def _splitting(found: Alternative, names: Names) -> str:
    return (
        f"split would help: {found.givers} providers below {names.get(found.provider, found.provider)} have "
        f"{found.free} {found.resource_class} free, of {found.wanted} wanted"
    )


def told(stage: Stage, explanation: Explanation) -> str:
    """The condition of a stage and how many passed it, in one sentence."""
    return f"{describe(stage)}: {_passed(stage, explanation)}"


def describe(stage: Stage) -> str:
    """The condition of a stage, with the group that states it."""
    text = stage.condition.text
    return f"group {stage.group}, {text}" if stage.group else text


def first_obstacle(explanation: Explanation) -> str:
    """The first stage that nothing passed and the nearest miss, in one sentence; empty if all passed."""
    empty = explanation.first_empty
    if empty is None:
        return ""
    stage = explanation.stages[empty]
    misses = explanation.misses[:1]
    nearest = "; ".join(text for miss in misses for text in lacks(miss, stage, explanation.names))
    text = told(stage, explanation)
    return f"{text}; {nearest}" if nearest else text


def _passed(stage: Stage, explanation: Explanation) -> str:
    if stage.counted is Counted.PROVIDERS:
        return f"{stage.passed} of {_count(stage.came, 'provider')}, in {_count(stage.trees, 'tree')}"
    at_least = stage.condition.kind is Kind.COMBINATION and not explanation.complete
    return f"{'at least ' if at_least else ''}{stage.passed} of {stage.came} {stage.counted}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def lacks(miss: Miss, stage: Stage, names: Names) -> list[str]:
    """Sentences on what a near miss lacked to pass the stage."""
    name = names.get(miss.provider, miss.provider)
    if miss.shortages:
        tell = _in_tree if stage.counted is Counted.TREES else _alone
        return [tell(shortage, name, names) for shortage in miss.shortages]
    if miss.words:
        return [f"{name}: {words}" for words in miss.words]
    subject = f"the tree of {name}" if stage.counted is Counted.TREES else name
    said = [f"{subject} met everything before"]
    if miss.lacking:
        said.append(f"missing: {', '.join(miss.lacking)}")
    if miss.unwanted:
        said.append(f"forbidden: {', '.join(miss.unwanted)}")
    return ["; ".join(said)]


def _alone(shortage: Shortage, name: str, _names: Names) -> str:
    if shortage.reason is Reason.UNITS:
        return f"{name} has room, but the amount breaks its {_UNITS}"
    return f"{name} lacks {shortage.missing} {shortage.resource_class}: it has {shortage.free} free"


def _in_tree(shortage: Shortage, root: str, names: Names) -> str:
    return _SHORTAGE[shortage.reason](shortage, root, names)


def _amount(shortage: Shortage, root: str, names: Names) -> str:
    wants = f"for {_groups(shortage)}: {shortage.wanted} wanted, {shortage.free} free"
    lacking = f"{shortage.missing} {shortage.resource_class}"
    if shortage.provider is None:
        return f"the tree of {root} lacks {lacking} {wants} on several providers"
    return f"{names.get(shortage.provider, shortage.provider)} lacks {lacking} {wants}"


def _units(shortage: Shortage, _root: str, names: Names) -> str:
    kind = shortage.resource_class
    return (
        f"{_name(shortage, names)} offers {kind} for {_groups(shortage)}, but the amount breaks its {_UNITS}"
    )


def _nobody(shortage: Shortage, root: str, _names: Names) -> str:
    groups, kind = _groups(shortage), shortage.resource_class
    if kind is not None:
        return f"the tree of {root} lacks {shortage.missing} {kind} for {groups}: nobody suitable offers any"
    if shortage.condition is None:
        return f"the tree of {root} has nobody for {groups}"
    condition = shortage.condition.text
    return f"the tree of {root} has nobody for {groups}: none of those who could has {condition}"


def _below(shortage: Shortage, _root: str, names: Names) -> str:
    return f"nobody is left for {_groups(shortage)} below {_name(shortage, names)}"


def _apart(shortage: Shortage, root: str, _names: Names) -> str:
    return f"the tree of {root} has nobody left for {_groups(shortage)}: the groups are kept apart"


def _split(shortage: Shortage, root: str, names: Names) -> str:
    place = f"the tree of {root}"
    if shortage.provider is not None:
        place = f"{'NUMA node' if shortage.is_numa else 'below'} {_name(shortage, names)}"
    amount = f"{shortage.free} of {shortage.wanted} {shortage.resource_class}"
    if shortage.condition is not None:
        amount += f" with {shortage.condition.text}"
    return f"{place}: {amount} for {_groups(shortage)}"


def _together(shortage: Shortage, root: str, _names: Names) -> str:
    if shortage.condition is not None:
        condition = shortage.condition.text
        return f"the tree of {root} has most room for {_groups(shortage)} on providers without {condition}"
    return f"the tree of {root} could serve {_groups(shortage)} each alone, not side by side"


def _name(shortage: Shortage, names: Names) -> str:
    uuid = shortage.provider or ""
    return names.get(uuid, uuid)


def _groups(shortage: Shortage) -> str:
    """The groups by name, many of them by number."""
    names = [suffix or "the unsuffixed group" for suffix in shortage.groups]
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1} more groups"]
    plain = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    only_named = shortage.groups[0] and len(names) == 1
    return f"group {plain}" if only_named else plain


_SHORTAGE: Mapping[Reason, Callable[[Shortage, str, Names], str]] = {
    Reason.AMOUNT: _amount,
    Reason.UNITS: _units,
    Reason.NOBODY: _nobody,
    Reason.BELOW: _below,
    Reason.APART: _apart,
    Reason.SPLIT: _split,
    Reason.TOGETHER: _together,
}
