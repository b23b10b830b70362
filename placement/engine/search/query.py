"""A candidates query with ids instead of names, as the forest knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind
from placement.engine.domain.groups import SplitRule
from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.scoring.order import Order
from placement.engine.search.budget import Budget

Ids = frozenset[int]


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
        """Return which of the roots meet it."""
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
class GroupQuery:
    """A request group by ids; amounts are in units of the class. `in_tree` stays a provider uuid.

    `split`: the classes with amounts that may come from several providers.
    """

    suffix: str
    resources: tuple[tuple[int, int], ...]
    required: tuple[Ids, ...] = ()
    forbidden: Ids = frozenset()
    member_of: tuple[Ids, ...] = ()
    forbidden_aggregates: Ids = frozenset()
    in_tree: str | None = None
    split: Ids = frozenset()
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
    traits: Ids = frozenset()
    aggregates: Ids = frozenset()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class ForestOrder:
    """An order of candidates, best first. `class_ids` has the listed resource classes that exist."""

    order: Order
    class_ids: Mapping[str, int]
    preferences: tuple[Preference, ...] = ()


@dataclass(frozen=True, slots=True)
class ForestQuery:
    """A whole query by ids, in the terms of engine.domain.groups.CandidateQuery.

    `sharing_trait` is the id of MISC_SHARES_VIA_AGGREGATE. `maximum` bounds the candidates. `order` asks for
    the best of all instead of the first found, or the best of the first `considered` where candidates have to
    be built. `budget`: how long the search and its explanation may go on. `tree_kind`: only core trees, or
    only others. `among`: which rows of the forest may be roots of candidates, None for all.
    """

    groups: tuple[GroupQuery, ...]
    sharing_trait: int
    maximum: int
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: tuple[Ids, ...] = ()
    root_forbidden: Ids = frozenset()
    root_member_of: tuple[Ids, ...] = ()
    tree_kind: IsCoreTree | None = None
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
    is split. The unsuffixed group is one slot per resource class.
    """

    group: GroupQuery
    resources: tuple[tuple[int, int], ...]
    rule: SplitRule | None = None

    @property
    def suffix(self) -> str:
        """Return the suffix of the group, empty for the unsuffixed one."""
        return self.group.suffix

    @property
    def suffixed(self) -> bool:
        """Return whether the slot belongs to a suffixed group."""
        return self.group.suffix != ""

    @property
    def condition(self) -> tuple[object, ...]:
        """Return all but the suffix: slots with equal conditions can be filled by the same providers."""
        return (self.suffixed, self.resources, self.rule, self.group.condition)


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
    """Return by class what each slot that is not split asks for; 0 where it does not ask for the class."""
    demands: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        for class_id, amount in () if slot.rule else slot.resources:
            demands.setdefault(class_id, [0] * len(slots))[number] = amount
    return {class_id: tuple(demand) for class_id, demand in demands.items()}


# What a group asks of one provider, condition by condition.
#
# Each condition tells which of some providers meet it. A search applies few compound conditions; a search
# that is to be explained applies their parts one by one, through the same code.


@dataclass(frozen=True, slots=True)
class Fits:
    """A condition that the provider can take one allocation of `amount` now.

    Source: placement-api.md, "When does an allocation fit".
    """

    class_id: int
    amount: int

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column."""
        return forest.column(self.class_id).fitting(self.amount)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return which of the rows meet it."""
        return forest.column(self.class_id).among_fitting(rows, self.amount)


@dataclass(frozen=True, slots=True)
class OffersClass:
    """A condition that the provider has an inventory of the class, however much of it is free."""

    class_id: int

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column."""
        column = forest.column(self.class_id)
        return column.entries.provider[column.occupied()].astype(np.intp)

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return which of the rows meet it."""
        met: Mask = forest.column(self.class_id).entries_of(rows) >= 0
        return met


@dataclass(frozen=True, slots=True)
class GivesPart:
    """A condition that the provider can give a part of the amount; under some rules only all that it has.

    Source: placement-api.md, "Split amounts".
    """

    class_id: int
    amount: int
    rule: SplitRule

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers that meet it, ascending by entry of the column: others are not looked at."""
        rows = OffersClass(self.class_id).everywhere(forest)
        return rows[self.among(forest, rows)]

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return which of the rows meet it."""
        column = forest.column(self.class_id)
        room, least, step, whole = column.parts(rows)
        met: Mask = column.entries_of(rows) >= 0
        if self.rule in (SplitRule.REQUIRE, SplitRule.ISOLATE):
            return met & (whole >= 1)
        return met & (np.minimum(room, self.amount) >= -(-least // step) * step)


@dataclass(frozen=True, slots=True)
class Carries:
    """A condition to have a trait of every set in `required` and none that is `forbidden`.

    `at_root`: it is asked of roots of trees.
    """

    required: tuple[Ids, ...] = ()
    forbidden: Ids = frozenset()
    at_root: bool = False

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return which of the rows meet it."""
        return forest.traits.satisfying(rows, self.required, self.forbidden)


@dataclass(frozen=True, slots=True)
class IsIn:
    """A condition to be in an aggregate of every `required` set and in no `forbidden` one.

    `or_root`: the root of the provider may be so instead, as the aggregates of a root span its tree.
    `at_root`: it is asked of roots of trees.
    """

    required: tuple[Ids, ...] = ()
    forbidden: Ids = frozenset()
    or_root: bool = False
    at_root: bool = False

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return which of the rows meet it."""
        met = forest.aggregates.satisfying(rows, self.required, self.forbidden)
        if self.or_root:
            roots = forest.providers.root[rows]
            met = met | forest.aggregates.satisfying(roots, self.required, self.forbidden)
        return met


@dataclass(frozen=True, slots=True)
class InTree:
    """A condition that the provider is in the tree of the named provider; an unknown one has no tree."""

    uuid: str

    def among(self, forest: Forest, rows: Rows | Indices) -> Mask:
        """Return which of the rows meet it."""
        named = forest.row_of_uuid(self.uuid)
        if named < 0:
            return np.zeros(len(rows), bool)
        met: Mask = forest.providers.root[rows] == forest.providers.root[named]
        return met


@dataclass(frozen=True, slots=True)
class Exists:
    """A condition that every provider meets."""

    def everywhere(self, forest: Forest) -> Rows:
        """Return all providers, ascending."""
        return np.flatnonzero(forest.alive())

    def among(self, forest: Forest, rows: Rows) -> Mask:
        """Return all of the rows."""
        return np.ones(len(rows), bool)


ProviderCondition = Fits | GivesPart | OffersClass | Carries | IsIn | InTree | Exists


def conditions_of(group: GroupQuery, *, one_by_one: bool) -> Iterator[ProviderCondition]:
    """Yield the conditions of a suffixed group on its provider, beside resources."""
    if group.required or group.forbidden:
        yield from split(Carries(group.required, group.forbidden), one_by_one=one_by_one)
    if group.member_of or group.forbidden_aggregates:
        yield from split(IsIn(group.member_of, group.forbidden_aggregates), one_by_one=one_by_one)
    if group.in_tree is not None:
        yield InTree(group.in_tree)


def split(condition: Carries | IsIn, *, one_by_one: bool = True) -> Iterator[Carries | IsIn]:
    """Yield the condition itself, or all its parts if `one_by_one`."""
    if not one_by_one:
        yield condition
        return
    yield from (
        replace(condition, required=(any_of,), forbidden=frozenset()) for any_of in condition.required
    )
    for id_ in sorted(condition.forbidden):
        yield replace(condition, required=(), forbidden=frozenset((id_,)))


# What a search asks of whole trees, beside conditions on their roots.


@dataclass(frozen=True, slots=True)
class AllGroups:
    """A condition that the tree has a provider for every group up to this one."""

    suffix: str


@dataclass(frozen=True, slots=True)
class Together:
    """A condition that some provider serving the unsuffixed group has a trait of the set."""

    any_of: Ids


@dataclass(frozen=True, slots=True)
class Combines:
    """A condition that all groups fit together: sums, group_policy and same_subtree included."""


TreeCondition = AllGroups | Together | Carries | IsIn | IsCoreTree | Combines


# Conditions in words: ids become names, conditions sentences.


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of ids."""

    classes: Mapping[int, str]
    traits: Mapping[int, str]
    aggregates: Mapping[int, str] = field(default_factory=dict)

    def resource_class(self, class_id: int) -> str:
        """Return the name of a resource class."""
        return self.classes.get(class_id, "of an unknown class")

    def trait(self, trait_id: int) -> str:
        """Return the name of a trait."""
        return self.traits.get(trait_id, "an unknown trait")

    def aggregate(self, aggregate_id: int) -> str:
        """Return the name of an aggregate."""
        return self.aggregates.get(aggregate_id, "without members")

    def stated(self, condition: ProviderCondition | TreeCondition) -> Condition:
        """Return a condition in words and by names."""
        match condition:
            case Fits(class_id, wanted):
                return amount(self.resource_class(class_id), wanted)
            case GivesPart(class_id, wanted):
                return amount(self.resource_class(class_id), wanted, "a part of {} free")
            case OffersClass(class_id):
                name = self.resource_class(class_id)
                return Condition(ConditionKind.RESOURCE_CLASS, name, name)
            case Carries(required, forbidden, at_root):
                kind = ConditionKind.ROOT_TRAITS if at_root else ConditionKind.TRAITS
                form = "roots with {}" if at_root else "{}"
                return _of_sets(kind, form, "trait", self.trait, required, forbidden)
            case Together(any_of):
                kind, form = ConditionKind.TRAITS_TOGETHER, "trees that can give {} between them"
                return _of_sets(kind, form, "trait", self.trait, (any_of,), frozenset())
            case IsIn(required, forbidden, or_root, at_root):
                kind = ConditionKind.ROOT_AGGREGATES if at_root else ConditionKind.AGGREGATES
                form = "roots in {}" if at_root else "{}, itself or its root" if or_root else "{}"
                return _of_sets(kind, form, "aggregate", self.aggregate, required, forbidden)
            case InTree(uuid):
                return Condition(ConditionKind.IN_TREE, f"in the tree of {uuid}", required=((uuid,),))
            case Exists():
                return Condition(ConditionKind.ANY, "any provider")
            case IsCoreTree(wanted=wanted):
                text = f"trees {'with' if wanted else 'without'} cores below their memory"
                return Condition(ConditionKind.TREE_KIND, text)
            case AllGroups(suffix):
                last = f"group {suffix}" if suffix else "the group without suffix"
                return Condition(ConditionKind.GROUPS, f"trees with a provider for each part up to {last}")
            case Combines():
                return Condition(ConditionKind.COMBINATION, "trees that give all parts at once")


def amount(resource_class: str, wanted: int, form: str = "{} free") -> Condition:
    """Return the condition that an amount is free."""
    text = form.format(f"{wanted} {resource_class}")
    return Condition(ConditionKind.AMOUNT, text, resource_class, wanted)


def _of_sets(
    kind: ConditionKind,
    form: str,
    noun: str,
    name: Callable[[int], str],
    required: Iterable[Ids],
    forbidden: Ids,
) -> Condition:
    """Return the condition to have one of each required set and no forbidden one, called by their names."""
    wanted = tuple(tuple(sorted(map(name, any_of))) for any_of in required)
    unwanted = tuple(sorted(map(name, forbidden)))
    parts = [f"{noun} {' or '.join(any_of)}" for any_of in wanted]
    parts += [f"no {noun} {label}" for label in unwanted]
    return Condition(kind, form.format(", ".join(parts)), required=wanted, forbidden=unwanted)


# The trace of a search, from which it is explained afterwards.
#
# The stages of the search note what passed each condition. A note is an append, and only an explanation
# evaluates the notes, so a search that is not explained pays next to nothing.


@dataclass(frozen=True, slots=True)
class ProvidersPassed:
    """The providers left after a condition of a group; `before` is None for all there are."""

    group: GroupQuery
    condition: ProviderCondition
    before: Rows | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class TreesPassed:
    """The roots left after a condition on whole trees; `alone`: roots that meet this one, if known apart.

    `passed` is either rows of roots or a mask over all rows.
    """

    condition: TreeCondition
    passed: Mask | Indices
    alone: Mask | None = None

    @property
    def roots(self) -> Indices:
        """Return the rows of the roots that passed."""
        rows = np.flatnonzero(self.passed) if self.passed.dtype == bool else self.passed
        return rows.astype(np.int32)


@dataclass(slots=True)
class Trace:
    """A trace: the notes of one search, in order.

    `one_by_one`: compound conditions are taken apart, so that each part is noted. `candidates` are the result
    of the search, `complete` unless it stopped at its limit.
    """

    one_by_one: bool = False
    providers: list[ProvidersPassed] = field(default_factory=list)
    trees: list[TreesPassed] = field(default_factory=list)
    candidates: Indices | None = None
    complete: bool = True
