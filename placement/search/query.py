"""A candidates query with ids instead of names, as the forest knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement.domain.groups import SplitRule
from placement.forest.arrays import Mask
from placement.scoring.order import Order
from placement.search.budget import Budget
from placement.search.core_trees import IsCoreTree

Ids = frozenset[int]


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """One request group by ids; amounts in units of the class. `in_tree` stays a provider uuid.

    `split`: the classes whose amounts may come from several providers.
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
        """The same without its suffix: groups with equal conditions ask for the same thing."""
        return replace(self, suffix="") if self.suffix else self


@dataclass(frozen=True, slots=True)
class Preference:
    """A soft condition: the host carries one of the traits or is in one of the aggregates, or is not.

    A host that meets it gains 100 times the weight, as from a strategy that scores all or nothing.
    """

    weight: int
    traits: Ids = frozenset()
    aggregates: Ids = frozenset()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class ForestOrder:
    """Candidates best first. `class_ids` knows the listed resource classes that exist."""

    order: Order
    class_ids: Mapping[str, int]
    preferences: tuple[Preference, ...] = ()


@dataclass(frozen=True, slots=True)
class ForestQuery:
    """A whole query by ids; the words are those of domain.groups.CandidateQuery.

    `sharing_trait` is the id of MISC_SHARES_VIA_AGGREGATE. `maximum` bounds the candidates. `order`: the best
    of all instead of the first found; where that takes building them, the best of the first `considered`.
    `budget`: how long the search and its explanation may go on. `tree_kind`: only core trees, or only others.
    `among`: which rows of the forest may be roots of candidates, None for all.
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
    """One place of a candidate to fill with one provider, or with several where it has a `rule`.

    A suffixed group is one slot with all its resources but those that are split; the unsuffixed group is one
    slot per resource class, and so is each class that is split.
    """

    group: GroupQuery
    resources: tuple[tuple[int, int], ...]
    rule: SplitRule | None = None

    @property
    def suffix(self) -> str:
        """The suffix of the group, empty for the unsuffixed one."""
        return self.group.suffix

    @property
    def suffixed(self) -> bool:
        """Whether the slot belongs to a suffixed group."""
        return self.group.suffix != ""

    @property
    def condition(self) -> tuple[object, ...]:
        """All but the suffix: slots with equal conditions can be filled by the same providers."""
        return (self.suffixed, self.resources, self.rule, self.group.condition)


def slots_of(query: ForestQuery) -> tuple[Slot, ...]:
    """The slots of a query, in the order of its groups."""
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
    """What each slot that is not split asks for, by class; 0 where it does not ask for the class."""
    demands: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        for class_id, amount in () if slot.rule else slot.resources:
            demands.setdefault(class_id, [0] * len(slots))[number] = amount
    return {class_id: tuple(demand) for class_id, demand in demands.items()}
