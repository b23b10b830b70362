"""Explanations: the one form in which refusals of candidates, of nodes and of flavors are explained.

A request states conditions in a certain order. Providers, trees or nodes that meet one come to the next. The
first condition that none of them meets is why nothing fits; the ones that came to it almost fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

MOST_MISSES = 5
"""So many near misses an explanation lists at most."""


class Kind(StrEnum):
    """What a condition is about."""

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
    """The first condition that was not met: its kind, and which class or label it is about."""

    kind: Kind
    of: str = ""


class Counted(StrEnum):
    """What is counted at a stage."""

    PROVIDERS = "providers"
    TREES = "trees"
    NODES = "nodes"


class Reason(StrEnum):
    """What keeps a provider, a tree or a node from serving groups, or a pod."""

    AMOUNT = "amount"
    UNITS = "units"
    NOBODY = "nobody"
    BELOW = "below"
    APART = "apart"
    SPLIT = "split"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class Condition:
    """What is asked for, in words and as data.

    `wanted` units of `resource_class`; of each set in `required` one must be there, and nothing that is
    `forbidden`: traits, aggregates or labels, as the kind says.
    """

    kind: Kind
    text: str
    resource_class: str | None = None
    wanted: int | None = None
    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """How many providers, trees or nodes came to a condition, how many passed it, and in how many trees.

    `group` is the suffix, "" for the unsuffixed group, None for conditions on whole trees or nodes. To the
    first condition of a group come all that offer the resource class.
    """

    condition: Condition
    counted: Counted
    came: int
    passed: int
    trees: int
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """What keeps a provider, a tree or a node from serving; amounts in units of the class.

    AMOUNT: more of a class is wanted than `provider` has free, or several providers of the tree if it is
    None. UNITS: `provider` has room, but min_unit, max_unit or step_size forbid the amount. NOBODY: no
    provider of the tree meets `condition`, or none offers the class. BELOW: no provider is left below
    `provider`, where same_subtree wants the groups. APART: isolated groups take all that could serve. SPLIT:
    the providers below `provider` (None: of the whole tree) that meet `condition` give too little of an
    amount that is split; `is_numa` tells that this provider is a NUMA node. TOGETHER: each group could be
    served alone, but not beside the others; with a `condition`, those that lack least do not meet it.
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


class Alternative(NamedTuple):
    """A provider below which several have so much of a class free that an amount could be split."""

    provider: str
    resource_class: str
    wanted: int
    free: int
    givers: int


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider, node or root (its uuid) that came to the first empty stage, and why it did not pass.

    `shortages`: the amounts it lacks. `lacking`: what it lacks of what is required; `unwanted`: what it has
    that is forbidden; `lacking_groups`: the suffixes that no provider of its tree serves. `words`: how a
    scheduler says it.
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

    `complete`: everything was gone through; else the search stopped at its limit and the last stage counts
    what it had seen by then. `names` of providers by uuid, as far as they were looked up. `alternative`:
    where the amount of the first empty stage could be split.
    """

    stages: tuple[Stage, ...]
    misses: tuple[Miss, ...] = ()
    complete: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
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
    """The place of the first stage that nothing passed."""
    return next((at for at, stage in enumerate(stages) if not stage.passed), None)
