"""Explanations of refusals, in one form for candidates, nodes and flavors.

A request states conditions in a certain order. Providers, trees or nodes that meet one condition come to the
next. Nothing fits because of the first condition that none of them meets; what came to it almost fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from placement.engine.domain.units import figure_of, of_resource

MOST_MISSES = 5
"""The most near misses that an explanation lists."""


class ConditionKind(StrEnum):
    """A kind of condition: what it is about."""

    # Conditions on one provider, or on a node.
    AMOUNT = "amount"
    RESOURCE_CLASS = "resource_class"
    TRAITS = "traits"
    AGGREGATES = "aggregates"
    IN_TREE = "in_tree"
    ANY = "any"
    # Conditions on a tree.
    GROUPS = "groups"
    TRAITS_TOGETHER = "traits_together"
    ROOT_TRAITS = "root_traits"
    ROOT_AGGREGATES = "root_aggregates"
    TREE_KIND = "tree_kind"
    COMBINATION = "combination"
    # Conditions of a pod on a node.
    CLOSED = "closed"
    CORDON = "cordon"
    TAINTS = "taints"
    LABELS = "labels"
    AFFINITY = "affinity"
    NUMA_POLICY = "numa_policy"
    WHOLE_CPUS = "whole_cpus"
    AMPLIFIED_CPU = "amplified_cpu"
    CPU_BINDING = "cpu_binding"
    NUMA = "numa"
    CPUS = "cpus"
    SHARED_POOL = "shared_pool"
    INVENTORIES = "inventories"
    TOPOLOGY_SPREAD = "topology_spread"
    POD_AFFINITY = "pod_affinity"
    POD_ANTI_AFFINITY = "pod_anti_affinity"
    PLACED_ANTI_AFFINITY = "anti_affinity_of_placed_pods"


class Obstacle(NamedTuple):
    """The first condition that was not met: its kind, and the class or label that it is about."""

    kind: ConditionKind
    of: str = ""


class CountedUnit(StrEnum):
    """A kind of thing that a stage counts."""

    PROVIDERS = "providers"
    TREES = "trees"
    NODES = "nodes"


class Reason(StrEnum):
    """A reason that keeps a provider, a tree or a node from serving groups, or a pod."""

    AMOUNT = "amount"
    UNITS = "units"
    NO_PROVIDER = "no_provider"
    BELOW = "below"
    APART = "apart"
    SPLIT = "split"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a request, in words and as data.

    It asks for `wanted` units of `resource_class`, for one of each set in `required`, and for nothing that is
    `forbidden`. These are traits, aggregates or labels, depending on the kind.
    """

    kind: ConditionKind
    text: str
    resource_class: str | None = None
    wanted: int | None = None
    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: how many providers, trees or nodes came to a condition and passed it, in how many trees.

    `group` is the suffix, "" for the unsuffixed group, None for conditions on whole trees or nodes. All
    providers that offer the resource class come to the first condition of a group.
    """

    condition: Condition
    counted: CountedUnit
    came: int
    passed: int
    trees: int
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """A shortage that keeps a provider, a tree or a node from serving; amounts in units of the class.

    AMOUNT: more of a class is wanted than `provider` has free (None: than several providers of the tree have
    together). UNITS: `provider` has room, but min_unit, max_unit or step_size forbid the amount. The next
    reason: no provider of the tree meets `condition`, or none offers the class. BELOW: no provider is left
    below `provider`, where same_subtree wants the groups. APART: other isolated groups take all providers
    that could serve. SPLIT: the providers below `provider` (None: of the whole tree) that meet `condition`
    give too little of an amount that is split; `is_numa`: this provider is a NUMA node. TOGETHER: each group
    could be served alone, but not beside the others; with a `condition`, the nearest providers miss it.
    `counted` says of what there are `free`.
    """

    reason: Reason
    groups: tuple[str, ...] = ()
    provider: str | None = None
    resource_class: str | None = None
    wanted: int = 0
    free: int = 0
    missing: int = 0
    condition: Condition | None = None
    is_numa: bool = False
    counted: str = "free"


class Alternative(NamedTuple):
    """A provider below which several providers have enough of a class free to split an amount over them."""

    provider: str
    resource_class: str
    wanted: int
    free: int
    givers: int


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider, node or root (its uuid) that came to the first empty stage, and why it did not pass.

    `shortages`: the amounts it lacks. `lacking`: what is required and missing; `unwanted`: what it has that
    is forbidden; `lacking_groups`: the suffixes that no provider of its tree serves. `words`: the reasons as
    kube-scheduler words them.
    """

    provider: str
    shortages: tuple[Shortage, ...] = ()
    lacking: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    lacking_groups: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The stages in order, the place of the first that nothing passed, and what came closest there.

    `complete`: the search went through everything; else it stopped at its limit, and the last stage counts
    what it had seen by then. `names`: the names of providers by uuid, as far as they were looked up.
    `resources`: the names that Kubernetes has for classes, for pods. `alternative`: where the amount of the
    first empty stage could be split.
    """

    stages: tuple[Stage, ...]
    misses: tuple[Miss, ...] = ()
    complete: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    alternative: Alternative | None = None

    @property
    def first_empty(self) -> int | None:
        """The place of the first stage that nothing passed; None if something passed all of them."""
        return first_empty(self.stages)

    @property
    def providers(self) -> set[str]:
        """The uuids of the providers that are mentioned."""
        mentioned = {miss.provider for miss in self.misses}
        for miss in self.misses:
            mentioned |= {shortage.provider for shortage in miss.shortages if shortage.provider is not None}
        return mentioned | ({self.alternative.provider} if self.alternative else set())


def first_empty(stages: tuple[Stage, ...]) -> int | None:
    """Return the place of the first stage that nothing passed."""
    return next((at for at, stage in enumerate(stages) if not stage.passed), None)


# The sentences of an explanation, which candidates, flavors and pods share.
_UNITS = "min_unit, max_unit or step_size"
_MOST_NAMES = 4
Names = Mapping[str, str]


def sentences(explanation: Explanation) -> list[str]:
    """Return a sentence per stage; what came closest follows the first stage that nothing passed."""
    given, empty, names = [], explanation.first_empty, explanation.names
    for at, stage in enumerate(explanation.stages):
        given.append(stage_sentence(stage, explanation))
        if at == empty and explanation.misses:
            given += [text for miss in explanation.misses for text in lacks(miss, stage, explanation)]
        elif at == empty:
            condition = stage.condition
            if stage.came:
                near = "nothing that came to this condition is on a host that the others admit: "
                near += condition.text
            elif condition.resource_class is not None:
                near = f"no provider offers {condition.resource_class}"
            else:
                near = f"nothing came to this condition: {condition.text}"
            given.append(near)
    split = explanation.alternative
    if split is not None:
        given.append(
            f"split would help: {split.givers} providers below {names.get(split.provider, split.provider)} "
            f"have {split.free} {split.resource_class} free, of {split.wanted} wanted"
        )
    return given


def stage_sentence(stage: Stage, explanation: Explanation) -> str:
    """Return the condition of a stage and how many passed it, in one sentence."""
    if stage.counted is CountedUnit.PROVIDERS:
        passed = f"{stage.passed} of {_count(stage.came, 'provider')}, in {_count(stage.trees, 'tree')}"
    else:
        at_least = stage.condition.kind is ConditionKind.COMBINATION and not explanation.complete
        passed = f"{'at least ' if at_least else ''}{stage.passed} of {stage.came} {stage.counted}"
    return f"{describe(stage)}: {passed}"


def describe(stage: Stage) -> str:
    """Return the condition of a stage, with the group that states it."""
    text = stage.condition.text
    return f"group {stage.group}, {text}" if stage.group else text


def first_obstacle(explanation: Explanation) -> str:
    """Return the first stage that nothing passed and its nearest miss as a sentence; empty if all passed."""
    empty = explanation.first_empty
    if empty is None:
        return ""
    stage = explanation.stages[empty]
    nearest = [text for miss in explanation.misses[:1] for text in lacks(miss, stage, explanation)]
    return "; ".join([stage_sentence(stage, explanation), *nearest])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def lacks(miss: Miss, stage: Stage, explanation: Explanation) -> list[str]:
    """Return sentences on what a near miss lacked to pass the stage; each once."""
    names = explanation.names
    name = names.get(miss.provider, miss.provider)
    if miss.shortages and stage.counted is CountedUnit.TREES:
        return [_in_tree(shortage, name, names) for shortage in miss.shortages]
    if miss.shortages:
        shortages = (_alone(shortage, name, explanation.resources) for shortage in miss.shortages)
        return list(dict.fromkeys(shortages))
    if miss.words:
        return [f"{name}: {words}" for words in miss.words]
    subject = f"the tree of {name}" if stage.counted is CountedUnit.TREES else name
    given = [f"{subject} met everything before"]
    if miss.lacking:
        given.append(f"missing: {', '.join(miss.lacking)}")
    if miss.unwanted:
        given.append(f"forbidden: {', '.join(miss.unwanted)}")
    return ["; ".join(given)]


def _alone(shortage: Shortage, name: str, resources: Mapping[str, str]) -> str:
    if shortage.reason is Reason.UNITS:
        return f"{name} has enough free, but the amount breaks its {_UNITS}"
    class_ = shortage.resource_class or ""
    missing, free, resource = f"{shortage.missing} {class_}", str(shortage.free), resources.get(class_)
    if resource is not None:
        missing = of_resource(shortage.missing, class_, resource)
        free = figure_of(shortage.free, class_, resource)
    return f"{name} lacks {missing}: it has {free} {shortage.counted}"


def _in_tree(shortage: Shortage, root: str, names: Names) -> str:
    """Return a sentence on a shortage of a tree, by its reason."""
    tree, groups, class_ = f"the tree of {root}", _groups(shortage), shortage.resource_class
    provider = names.get(shortage.provider or "", shortage.provider or "")
    condition = shortage.condition.text if shortage.condition is not None else None
    if shortage.reason is Reason.AMOUNT:
        wants = f"for {groups}: {shortage.wanted} wanted, {shortage.free} free"
        lacks = f"lacks {shortage.missing} {class_} {wants}"
        return f"{tree} {lacks} on several providers" if shortage.provider is None else f"{provider} {lacks}"
    if shortage.reason is Reason.UNITS:
        return f"{provider} offers {class_} for {groups}, but the amount breaks its {_UNITS}"
    if shortage.reason is Reason.NO_PROVIDER:
        if class_ is not None:
            return f"{tree} lacks {shortage.missing} {class_} for {groups}: no suitable provider offers any"
        why = "" if condition is None else f": none that could serve it has {condition}"
        return f"{tree} has no provider for {groups}{why}"
    if shortage.reason is Reason.BELOW:
        return f"no provider is left for {groups} below {provider}"
    if shortage.reason is Reason.APART:
        return f"{tree} has no provider left for {groups}: the groups are kept apart"
    if shortage.reason is Reason.SPLIT:
        place = tree if shortage.provider is None else f"below {provider}"
        place = f"NUMA node {provider}" if shortage.provider is not None and shortage.is_numa else place
        among = "" if condition is None else f" with {condition}"
        return f"{place}: {shortage.free} of {shortage.wanted} {class_}{among} for {groups}"
    if condition is not None:
        return f"{tree} has most free for {groups} on providers without {condition}"
    return f"{tree} could serve {groups} each alone, not side by side"


def _groups(shortage: Shortage) -> str:
    """Return the groups by name; of many groups the last ones as a number."""
    names = [suffix or "the unsuffixed group" for suffix in shortage.groups]
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1} more groups"]
    plain = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    only_named = shortage.groups[0] and len(names) == 1
    return f"group {plain}" if only_named else plain
