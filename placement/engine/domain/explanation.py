"""Explanations of refusals, in one form for candidates, nodes and flavors.

A request states conditions in a certain order. Providers, trees or nodes that meet one condition come to the
next. Nothing fits because of the first condition that none of them meets; the ones before it almost fitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from placement.engine.domain.units import figure_of, of_resource

MOST_MISSES = 5
"""The most near misses that an explanation lists."""


class ConditionKind(StrEnum):
    """The kind of a condition."""

    # Conditions on one provider, or on a node.
    AMOUNT = "amount"
    RESOURCE_CLASS = "resource_class"
    TRAITS = "traits"
    AGGREGATES = "aggregates"
    IN_TREE = "in_tree"
    ANY = "any"
    # Conditions on a tree.
    TRAITS_TOGETHER = "traits_together"
    ROOT_TRAITS = "root_traits"
    ROOT_AGGREGATES = "root_aggregates"
    TREE_KIND = "tree_kind"
    OPEN_HOSTS = "open_hosts"
    COMBINATION = "combination"
    # Conditions of a pod on a node.
    RESERVATION_AFFINITY = "reservation_affinity"
    CLOSED = "closed"
    CORDON = "cordon"
    TAINTS = "taints"
    LABELS = "labels"
    AFFINITY = "affinity"
    HOST_PORTS = "host_ports"
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


IN_CLUSTER = "cluster "
"""The start of the name that a condition has for the aggregate of a cluster."""


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

    `group` is the suffix, "" for the base group, None for conditions on whole trees or nodes. On the
    trees that met all conditions before (`trees_came`), all providers that offer the resource class come to
    the first condition of a group. `at_least`: not all of the trees were tried.
    """

    condition: Condition
    counted: CountedUnit
    came: int
    passed: int
    trees: int
    group: str | None = None
    trees_came: int = 0
    at_least: bool = False


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


class OfferedInstead(NamedTuple):
    """What the `hosts` that met the conditions on places have, instead of a class or trait that none has.

    `names`, most common first, are classes, or traits if `is_trait`. `place` has the texts of the conditions
    that a host meets by where it is, if it was asked for nothing else before; else it `is_narrowed`.
    """

    missing: str
    is_trait: bool
    hosts: int
    names: tuple[str, ...]
    place: tuple[str, ...] = ()
    is_narrowed: bool = False


class OtherPlace(NamedTuple):
    """An aggregate with hosts where the request fits; `is_cluster`: a cluster has its hosts and its name."""

    id: int
    hosts: int
    uuid: str = ""
    name: str | None = None
    is_cluster: bool = False


class Elsewhere(NamedTuple):
    """How many hosts of all places a request fits on, and in which aggregates these are, the most first."""

    hosts: int
    places: tuple[OtherPlace, ...] = ()


class Margin(NamedTuple):
    """The class that ends first on the `hosts` with a candidate: what is free is enough `room` times.

    A request takes `wanted` units of it. Other classes are enough as often, or more often.
    """

    resource_class: str
    wanted: int
    free: int
    room: int
    hosts: int


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider, node or root (its uuid) that came to the first empty stage, and why it did not pass.

    `shortages`: the amounts it lacks. `lacking`: what is required and missing; `unwanted`: what it has that
    is forbidden; `lacking_groups`: the suffixes that no provider of its tree serves. `words`: the reasons as
    kube-scheduler words them. `is_tree`: shortages are of the whole request on a tree.
    """

    provider: str
    shortages: tuple[Shortage, ...] = ()
    lacking: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    lacking_groups: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    is_tree: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """The stages in order, the place of the first that nothing passed, and the nearest misses there.

    `complete`: the search went through everything; else it stopped at its limit. `names`: the names of
    providers and aggregates by uuid, as far as they were looked up. `resources`: the names that Kubernetes
    has for classes, for pods. `alternative`: where the amount of the first empty stage could be split.
    `is_vacant`: no host at all meets the first empty stage, a condition on places. `in_trees`: the known
    providers with trees that conditions ask for; `aggregate_ids`: the aggregates. The rest says what the
    place has instead, where else the request fits, and what ends first where it fits.
    """

    stages: tuple[Stage, ...]
    misses: tuple[Miss, ...] = ()
    complete: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    alternative: Alternative | None = None
    is_vacant: bool = False
    in_trees: frozenset[str] = frozenset()
    aggregate_ids: frozenset[int] = frozenset()
    offered: OfferedInstead | None = None
    elsewhere: Elsewhere | None = None
    margin: Margin | None = None

    @property
    def first_empty(self) -> int | None:
        """The place of the first stage that nothing passed; None if something passed all of them."""
        return first_empty(self.stages)

    @property
    def shown_misses(self) -> tuple[Miss, ...]:
        """The near misses, of a request that fits nowhere."""
        return () if self.first_empty is None else self.misses

    @property
    def providers(self) -> set[str]:
        """The uuids of the providers that are mentioned."""
        mentioned = {miss.provider for miss in self.misses} | self.in_trees
        for miss in self.misses:
            mentioned |= {shortage.provider for shortage in miss.shortages if shortage.provider is not None}
        return mentioned | ({self.alternative.provider} if self.alternative else set())


def first_empty(stages: tuple[Stage, ...]) -> int | None:
    """Return the place of the first stage that nothing passed."""
    return next((at for at, stage in enumerate(stages) if not stage.passed), None)


# The sentences of an explanation, which candidates, flavors and pods share.
_UNITS = "min_unit, max_unit or step_size"
_MOST_NAMES = 4
_MOST_OFFERED = 8
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The kinds of conditions on where a host is.
_LOCATIONS = (ConditionKind.AGGREGATES, ConditionKind.ROOT_AGGREGATES, ConditionKind.IN_TREE)
ProviderNames = Mapping[str, str]


def sentences(explanation: Explanation) -> list[str]:
    """Return a sentence per stage; the nearest misses and the hints follow the first that nothing passed.

    The last one says where splitting an amount would help.
    """
    given, empty = [], explanation.first_empty
    for at, stage in enumerate(explanation.stages):
        given.append(stage_sentence(stage, explanation))
        if at == empty:
            given += [text for miss in explanation.misses for text in lacks(miss, stage, explanation)]
            given += hints(explanation)
    if empty is None:
        given += hints(explanation)
    elif explanation.alternative is not None:
        given.append(_of_split(explanation.alternative, explanation.names))
    return given


def hints(explanation: Explanation) -> list[str]:
    """Return sentences on what there is instead, in the place or elsewhere.

    Of a request that fits, return which class ends first.
    """
    empty = explanation.first_empty
    if empty is None:
        return [_of_margin(explanation.margin)] if explanation.margin else []
    stage = explanation.stages[empty]
    given = []
    if is_of_place(stage):
        given.append(_of_place(stage, explanation))
    if explanation.offered is not None:
        given.append(_of_offered(explanation.offered, explanation))
    elif not (given or explanation.misses):
        given.append(_without_miss(stage, explanation))
    if explanation.elsewhere is not None:
        given.append(_of_elsewhere(explanation.elsewhere))
    return given


def _of_split(alternative: Alternative, names: ProviderNames) -> str:
    called = names.get(alternative.provider, alternative.provider)
    return (
        f"split would help: {alternative.givers} providers below {called} "
        f"have {alternative.free} {alternative.resource_class} free, of {alternative.wanted} wanted"
    )


def is_of_place(stage: Stage) -> bool:
    """Return whether a stage counts hosts by where they are."""
    return stage.counted is CountedUnit.TREES and stage.condition.kind in _LOCATIONS


def _of_place(stage: Stage, explanation: Explanation) -> str:
    text = named(_without_lead(stage.condition.text), explanation.names)
    if not explanation.is_vacant:
        before = f"none of the {_count(stage.came, 'host')} that met the conditions before"
        return f"{before} is {text}"
    return f"no host is {text}"


def _of_offered(offered: OfferedInstead, explanation: Explanation) -> str:
    where = " and ".join(named(_without_lead(text), explanation.names) for text in offered.place)
    subject = f"no host {where}".rstrip()
    if not offered.place and offered.is_narrowed:
        subject = "no host that met the conditions before"
    verb, have = ("has trait", "have") if offered.is_trait else ("offers", "offer")
    names = list(offered.names[:_MOST_OFFERED])
    if len(offered.names) > _MOST_OFFERED:
        names.append(f"{len(offered.names) - _MOST_OFFERED} more")
    instead = f"they {have} {_listed(names)}" if names else f"they {have} none at all"
    return f"{subject} {verb} {offered.missing}; {instead}"


def _of_elsewhere(elsewhere: Elsewhere) -> str:
    if not elsewhere.hosts:
        return "it fits in no other place either"
    called = [
        f"{'cluster' if each.is_cluster else 'aggregate'} {each.name} ({_count(each.hosts, 'host')})"
        for each in elsewhere.places
        if each.name
    ]
    if len(called) > _MOST_NAMES:
        called[_MOST_NAMES:] = [f"{len(called) - _MOST_NAMES} more places"]
    return f"it fits on {_count(elsewhere.hosts, 'host')} elsewhere" + (
        f": in {_listed(called)}" if called else ""
    )


def _of_margin(margin: Margin) -> str:
    hosts, times = _count(margin.hosts, "host"), _count(margin.room, "such request")
    free = f"{margin.free} {margin.resource_class} free on {hosts} with a candidate"
    return f"{margin.resource_class} ends first: {free}, room for {times}"


def _without_miss(stage: Stage, explanation: Explanation) -> str:
    condition = stage.condition
    if stage.came:
        return f"nothing that is left comes near this condition: {named(condition.text, explanation.names)}"
    if condition.resource_class is not None:
        return f"no provider on the hosts that are left offers {condition.resource_class}"
    return f"no host was left for this condition: {named(condition.text, explanation.names)}"


def _without_lead(text: str) -> str:
    return text.removeprefix("hosts ")


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def named(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names in place of the uuids that have one."""
    return _UUID.sub(lambda found: names.get(found[0], found[0]), text) if names else text


def stage_sentence(stage: Stage, explanation: Explanation) -> str:
    """Return the condition of a stage and how many passed it, in one sentence."""
    counted = "nodes" if stage.counted is CountedUnit.NODES else "hosts"
    if stage.counted is CountedUnit.PROVIDERS:
        passed = f"{stage.trees} of {stage.trees_came} {counted}"
        if (stage.passed, stage.came) != (stage.trees, stage.trees_came):
            passed += f", {stage.passed} of {_count(stage.came, 'provider')}"
    else:
        passed = f"{'at least ' if stage.at_least else ''}{stage.passed} of {stage.came} {counted}"
    return f"{describe(stage, explanation)}: {passed}"


def describe(stage: Stage, explanation: Explanation) -> str:
    """Return the condition of a stage by names, with the group that states it."""
    text = named(stage.condition.text, explanation.names)
    return f"group {stage.group}, {text}" if stage.group else text


def first_obstacle(explanation: Explanation) -> str:
    """Return the first stage that nothing passed and its nearest miss as a sentence; empty if all passed.

    Where nothing came near, what there is instead follows.
    """
    empty = explanation.first_empty
    if empty is None:
        return ""
    stage = explanation.stages[empty]
    nearest = [text for miss in explanation.misses[:1] for text in lacks(miss, stage, explanation)]
    return "; ".join([stage_sentence(stage, explanation), *(nearest or hints(explanation))])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def lacks(miss: Miss, stage: Stage, explanation: Explanation) -> list[str]:
    """Return sentences on the shortages of a near miss at the stage; each once."""
    names = explanation.names
    name = names.get(miss.provider, miss.provider)
    if miss.is_tree:
        return [_in_tree(shortage, name, names) for shortage in miss.shortages]
    if miss.shortages:
        shortages = (_alone(shortage, name, explanation.resources) for shortage in miss.shortages)
        return list(dict.fromkeys(shortages))
    if miss.words:
        return [f"{name}: {words}" for words in miss.words]
    subject = f"host {name}" if stage.counted is CountedUnit.TREES else name
    given = [f"{subject} meets all earlier conditions"]
    if miss.lacking:
        given.append(f"missing: {named(', '.join(miss.lacking), names)}")
    if miss.unwanted:
        given.append(f"forbidden: {named(', '.join(miss.unwanted), names)}")
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


def _in_tree(shortage: Shortage, root: str, names: ProviderNames) -> str:
    """Return a sentence on a shortage of a tree, by its reason."""
    tree, groups, class_ = f"host {root}", _groups(shortage), shortage.resource_class
    provider = names.get(shortage.provider or "", shortage.provider or "")
    condition = named(shortage.condition.text, names) if shortage.condition is not None else None
    if shortage.reason is Reason.AMOUNT:
        wants = f"for {groups}: {shortage.wanted} wanted, {shortage.free} free"
        lacks = f"lacks {shortage.missing} {class_} {wants}"
        return f"{tree} {lacks} on several providers" if shortage.provider is None else f"{provider} {lacks}"
    if shortage.reason is Reason.UNITS:
        return f"{provider} offers {class_} for {groups}, but the amount breaks its {_UNITS}"
    if shortage.reason is Reason.NO_PROVIDER:
        return _without_provider(shortage, tree, groups, condition)
    if shortage.reason is Reason.BELOW:
        return f"no provider is left for {groups} below {provider}"
    if shortage.reason is Reason.APART:
        return f"{tree} has no provider left for {groups}: the groups are kept apart"
    if shortage.reason is Reason.SPLIT:
        place = tree if shortage.provider is None else f"below {provider}"
        place = f"NUMA node {provider}" if shortage.provider is not None and shortage.is_numa else place
        return _split_over(shortage, place, groups, condition)
    if condition is not None:
        return f"{tree} has most of the free amount for {groups} on providers without {condition}"
    return f"{tree} can serve {groups} one at a time, but not together"


def _without_provider(shortage: Shortage, tree: str, groups: str, condition: str | None) -> str:
    class_ = shortage.resource_class
    if class_ is not None:
        return f"{tree} lacks {shortage.missing} {class_} for {groups}: no suitable provider offers any"
    why = "" if condition is None else f": none that could serve it has {condition}"
    return f"{tree} has no provider for {groups}{why}"


def _split_over(shortage: Shortage, place: str, groups: str, condition: str | None) -> str:
    among = "" if condition is None else f" with {condition}"
    amounts = f"{shortage.free} of {shortage.wanted} {shortage.resource_class}"
    return f"{place}: {amounts}{among} for {groups}"


def _groups(shortage: Shortage) -> str:
    """Return the groups by name; of many groups the last ones as a number."""
    names = [suffix or "the base group" for suffix in shortage.groups]
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES - 1 :] = [f"{len(names) - _MOST_NAMES + 1} more groups"]
    plain = _listed(names)
    only_named = shortage.groups[0] and len(names) == 1
    return f"group {plain}" if only_named else plain
