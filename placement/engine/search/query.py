"""A candidates query with ids instead of names, as the forest knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.engine.domain.groups import SplitRule
from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.scoring.order import Order
from placement.engine.search.budget import Budget


@dataclass(frozen=True, slots=True)
class ForestQuery:
    """A whole query by ids, in the terms of engine.domain.groups.CandidateQuery.

    `sharing_trait` is the id of MISC_SHARES_VIA_AGGREGATE. `maximum` bounds the candidates. `order` asks for
    the best of all instead of the first found, or the best of the first `considered` where candidates have to
    be built. `budget`: how long the search and its explanation may go on. `tree_kind`: only core trees, or
    only others. `open_hosts`: closed hosts are left out; `open_elsewhere`: the same, of hosts that are not in
    the aggregates. `among`: which rows of the forest may be roots of candidates, None for all.
    """

    groups: tuple[GroupQuery, ...]
    sharing_trait: int
    maximum: int
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: tuple[IdSet, ...] = ()
    root_forbidden: IdSet = frozenset()
    root_member_of: tuple[IdSet, ...] = ()
    tree_kind: IsCoreTree | None = None
    open_hosts: IsOpen | None = None
    open_elsewhere: IsOpen | None = None
    among: Mask | None = field(default=None, compare=False)
    one_provider_per_tree: bool = False
    depth_first: bool = False
    order: ForestOrder | None = None
    considered: int = 2**31
    budget: Budget = field(default_factory=Budget, compare=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of a candidate to fill with one provider, or with several where it has a `rule`.

    A suffixed group is one slot with all its resources that are not split, and one slot for each class that
    is split. The base group is one slot per resource class.
    """

    group: GroupQuery
    resources: tuple[tuple[int, int], ...]
    rule: SplitRule | None = None

    @property
    def condition(self) -> tuple[object, ...]:
        """Return all but the suffix: slots with equal conditions can be filled by the same providers."""
        return (self.group.suffix != "", self.resources, self.rule, self.group.condition)


IdSet = frozenset[int]


@dataclass(frozen=True, slots=True)
class IsCoreTree:
    """A condition that `cpus` providers are below a `memory` provider, with no NUMA node on the way.

    Such hosts give dedicated CPUs below their memory. `numa_node` is the id of the trait HW_NUMA_ROOT. If not
    `wanted`, all other trees meet it. Source: nova-flavors.md, "Core trees".
    """

    memory: int
    cpus: int
    numa_node: int
    wanted: bool = True

    def among(self, forest: Forest, roots: Indices) -> Mask:
        """Return the mask of the roots that meet it."""
        below, apart = np.zeros((2, forest.count), bool)
        cpus, memory = forest.column(self.cpus), forest.column(self.memory)
        at: Indices = cpus.entries.provider[cpus.occupied()]
        passed = np.zeros(len(at), bool)
        while len(at) and not forest.is_flat:
            passed |= forest.traits.satisfying(at, (frozenset((self.numa_node,)),), frozenset())
            above = forest.providers.parent[at]
            at, passed = above[above >= 0], passed[above >= 0]
            gives = memory.entries_of(at) >= 0
            trees = forest.providers.root[at]
            below[trees[gives]] = True
            apart[trees[gives & passed]] = True
        meeting: Mask = (below & ~apart)[roots] == self.wanted
        return meeting


@dataclass(frozen=True, slots=True)
class IsOpen:
    """A condition that a host takes new consumers.

    A root with one of the `closing` traits is closed, and so are the `closed` roots, given by storage ids.
    """

    closing: IdSet
    closed: IdSet

    def among(self, forest: Forest, roots: Indices | Rows) -> Mask:
        """Return the mask of the roots that meet it."""
        met = forest.traits.satisfying(roots, (), self.closing)
        if self.closed:
            met = met & ~np.isin(forest.providers.id[roots], np.array(sorted(self.closed), np.int64))
        return met


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """A request group by ids; amounts are in units of the class. `in_tree` stays a provider uuid.

    `split`: the classes with amounts that may come from several providers.
    """

    suffix: str
    resources: tuple[tuple[int, int], ...]
    required: tuple[IdSet, ...] = ()
    forbidden: IdSet = frozenset()
    member_of: tuple[IdSet, ...] = ()
    forbidden_aggregates: IdSet = frozenset()
    in_tree: str | None = None
    split: IdSet = frozenset()
    split_rule: SplitRule = SplitRule.PACK

    @property
    def condition(self) -> GroupQuery:
        """Return the group without its suffix: groups with equal conditions ask for the same thing."""
        return replace(self, suffix="") if self.suffix else self


@dataclass(frozen=True, slots=True)
class Preference:
    """A soft condition: the host has one of the traits or is in one of the aggregates; if `absent`, neither.

    A host that meets it gains 100 times the weight, as from a strategy that scores all or nothing.
    """

    weight: int
    traits: IdSet = frozenset()
    aggregates: IdSet = frozenset()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class ForestOrder:
    """An order of candidates, best first. `class_ids` has the listed resource classes that exist."""

    order: Order
    class_ids: Mapping[str, int]
    preferences: tuple[Preference, ...] = ()


def slots_of(query: ForestQuery) -> tuple[Slot, ...]:
    """Return the slots of a query, in the order of its groups."""
    slots: list[Slot] = []
    for group in query.groups:
        if not group.suffix:
            slots.extend(Slot(group, (resource,)) for resource in group.resources)
            continue
        whole = tuple(resource for resource in group.resources if resource[0] not in group.split)
        if whole or not group.split:
            slots.append(Slot(group, whole))
        slots.extend(
            Slot(group, (resource,), group.split_rule)
            for resource in group.resources
            if resource[0] in group.split
        )
    return tuple(slots)


def demands_of(slots: Sequence[Slot]) -> dict[int, tuple[int, ...]]:
    """Return the amount of each slot that is not split, by class; 0 if it does not ask for the class."""
    demands: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        for class_id, amount in () if slot.rule else slot.resources:
            demands.setdefault(class_id, [0] * len(slots))[number] = amount
    return {class_id: tuple(demand) for class_id, demand in demands.items()}
