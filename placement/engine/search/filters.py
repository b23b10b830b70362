"""The first stage of a search: which providers can fill which slot, by vectorised conditions in turn.

The second one are the viable roots: every slot can be filled there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search import conditions
from placement.engine.search.query import (
    ForestQuery,
    GroupQuery,
    IdSet,
    IsCoreTree,
    IsOpen,
    Slot,
    slots_of,
)
from placement.engine.search.trace import ProvidersPassed, Trace


@dataclass(frozen=True)
class Choices:
    """A slot's possible providers: `own` for their own tree, `foreign` as sharing ones for others.

    `count` is the number of rows of the forest.
    """

    count: int
    own: Rows
    foreign: Rows

    @cached_property
    def own_mask(self) -> Mask:
        """Return `own` as one flag per row of the forest."""
        return flags_of(self.count, self.own)

    @cached_property
    def foreign_mask(self) -> Mask:
        """Return `foreign` as one flag per row of the forest."""
        return flags_of(self.count, self.foreign)

    @staticmethod
    def union(choices: Iterable[Choices]) -> Choices:
        """Return the providers that are among any of the choices."""
        found = list({id(choice): choice for choice in choices}.values())
        if len(found) == 1:
            return found[0]
        own = reduce(np.logical_or, (choice.own_mask for choice in found))
        foreign = reduce(np.logical_or, (choice.foreign_mask for choice in found))
        return Choices(found[0].count, np.flatnonzero(own), np.flatnonzero(foreign))

    def served(self, forest: Forest, sharing: Sharing) -> tuple[Rows, Rows]:
        """Return (root, provider) for each tree that a provider can serve, the own trees first."""
        roots, rows = forest.roots_of(self.own), self.own
        if len(self.foreign):
            serving = self.foreign_mask[sharing.pair_provider]
            roots = np.concatenate([roots, sharing.pair_anchor[serving].astype(np.intp)])
            rows = np.concatenate([rows, sharing.pair_provider[serving].astype(np.intp)])
        return roots, rows


def flags_of(count: int, rows: Rows | Indices) -> Mask:
    """Return one flag for each of `count` rows, set at these rows."""
    flags = np.zeros(count, bool)
    flags[rows] = True
    return flags


@dataclass(frozen=True, slots=True)
class FilledSlots:
    """The slots of a query, each with the providers that can fill it; like slots share one object."""

    forest: Forest
    sharing: Sharing
    query: ForestQuery
    slots: tuple[Slot, ...]
    choices: Sequence[Choices]

    def viable_roots(self) -> Indices:
        """Return the roots at which every slot can be filled, in order of their ids."""
        forest = self.forest
        filled = list({id(choice): choice for choice in self.choices}.values())
        if not filled:
            return np.empty(0, np.int32)
        viable = reduce(np.logical_and, map(self.anchors, filled))
        for any_of in self.collective_traits:
            viable = viable & self.covered(any_of)
        roots = np.flatnonzero(viable).astype(np.int32)
        for condition in root_conditions(self.query):
            roots = roots[condition.among(forest, roots)]
        if self.query.among is not None:
            roots = roots[self.query.among[roots]]
        ids = forest.providers.id[roots]
        return roots if (ids[1:] > ids[:-1]).all() else roots[np.argsort(ids)]

    @property
    def collective_traits(self) -> tuple[IdSet, ...]:
        """Return the sets of traits that the providers of the base group must have between them."""
        return next((slot.group.required for slot in self.slots if not slot.group.suffix), ())

    def covered(self, any_of: IdSet) -> Mask:
        """Return the roots at which a provider with one of the traits can serve the base group."""
        covered = np.zeros(self.forest.count, bool)
        for slot, choice in zip(self.slots, self.choices, strict=True):
            if not slot.group.suffix:
                able = (
                    rows[self.forest.traits.satisfying(rows, (any_of,))]
                    for rows in (choice.own, choice.foreign)
                )
                covered |= self.anchors(Choices(self.forest.count, *able))
        return covered

    def anchors(self, choice: Choices) -> Mask:
        """Return the roots at which at least one of the choices can serve."""
        if self.forest.is_flat and not len(choice.foreign):
            return choice.own_mask
        return flags_of(self.forest.count, choice.served(self.forest, self.sharing)[0])


def root_conditions(
    query: ForestQuery,
) -> Iterator[conditions.Carries | conditions.IsIn | IsCoreTree | IsOpen]:
    """Yield the conditions of the query on roots. The base group forbids aggregates also to roots."""
    if query.open_hosts is not None:
        yield query.open_hosts
    if query.tree_kind is not None:
        yield query.tree_kind
    if query.root_required or query.root_forbidden:
        yield conditions.Carries(query.root_required, query.root_forbidden, at_root=True)
    unsuffixed = (group for group in query.groups if not group.suffix and group.resources)
    banned = next((group.forbidden_aggregates for group in unsuffixed), frozenset())
    if query.root_member_of or banned:
        yield conditions.IsIn(query.root_member_of, banned, at_root=True)


def filled_slots(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    trace: Trace | None = None,
    among: Rows | None = None,
    *,
    with_room: bool = True,
) -> FilledSlots:
    """Return the slots of a query with their choices, as in `choices_of`. Raises SearchEnded."""
    slots = asking = slots_of(query)
    if trace is None and forest.is_flat and sharing.is_empty and not any(slot.rule for slot in slots):
        # One provider serves a whole group in a flat forest, with all resources of the group.
        resources: dict[str, tuple[tuple[int, int], ...]] = {}
        for slot in slots:
            resources[slot.group.suffix] = resources.get(slot.group.suffix, ()) + slot.resources
        asking = tuple(replace(slot, resources=resources[slot.group.suffix]) for slot in slots)
    known: dict[object, Choices] = {}
    choices = []
    for slot in asking:
        key = slot.condition
        if key not in known:
            query.budget.look()
            known[key] = choices_of(forest, slot, sharing, trace, among, with_room=with_room)
        choices.append(known[key])
    return FilledSlots(forest, sharing, query, slots, choices)


_Serves = Callable[[int, int], conditions.Fits | conditions.GivesPart | conditions.OffersClass]
_NO_ROWS: Rows = np.empty(0, np.intp)


def providers_matching(forest: Forest, group: GroupQuery) -> Rows:
    """Return the providers that alone satisfy everything in a group, ascending.

    This is the rule of suffixed groups and of the provider list.
    """
    narrowing = _Narrowing(forest, group, None, None, conditions.Fits)
    narrowing.serve(group.resources)
    return narrowing.rows


def choices_of(
    forest: Forest,
    slot: Slot,
    sharing: Sharing,
    trace: Trace | None = None,
    among: Rows | None = None,
    *,
    with_room: bool = True,
) -> Choices:
    """Return the providers that can fill the slot, of all or `among` some.

    Without `with_room`, return the providers that could if amounts did not matter.
    """
    group = slot.group
    serves: _Serves = _offers
    if with_room:
        serves = conditions.Fits if slot.rule is None else partial(conditions.GivesPart, rule=slot.rule)
    narrowing = _Narrowing(forest, group, trace, among, serves)
    if slot.group.suffix:
        narrowing.serve(slot.resources)
        rows = narrowing.rows
        if slot.rule is None:
            return Choices(forest.count, rows, _sharing_among(rows, sharing))
        # A sharing provider would give its parts to several trees.
        return Choices(forest.count, rows[~np.isin(rows, sharing.providers)], _NO_ROWS)
    narrowing.begin(slot.resources)
    for ban in (conditions.Carries((), group.forbidden), conditions.IsIn((), group.forbidden_aggregates)):
        if ban.forbidden:
            for condition in conditions.split(ban, one_by_one=narrowing.one_by_one):
                narrowing.keep(condition)
    foreign = _NO_ROWS
    if group.in_tree is None and not sharing.is_empty:
        members = narrowing.rows[conditions.IsIn(group.member_of).among(forest, narrowing.rows)]
        foreign = _sharing_among(members, sharing)
    if group.member_of:
        # Not one by one: the same provider, or the root, must be in an aggregate of every set.
        narrowing.keep(conditions.IsIn(group.member_of, or_root=True))
    if group.in_tree is not None:
        narrowing.keep(conditions.InTree(group.in_tree))
    return Choices(forest.count, narrowing.rows, foreign)


def _offers(class_id: int, _amount: int) -> conditions.OffersClass:
    return conditions.OffersClass(class_id)


def _sharing_among(rows: Rows, sharing: Sharing) -> Rows:
    if sharing.is_empty:
        return _NO_ROWS
    return np.intersect1d(rows, sharing.providers).astype(np.intp)


class _Narrowing:
    """A set of providers that each condition makes smaller."""

    def __init__(
        self, forest: Forest, group: GroupQuery, trace: Trace | None, among: Rows | None, serves: _Serves
    ) -> None:
        self.rows: Rows = _NO_ROWS
        self.one_by_one = trace is not None and trace.one_by_one
        self._forest = forest
        self._group = group
        self._trace = trace
        self._among = among
        self._serves = serves

    def serve(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Start with the providers that give the resources, and keep the ones that meet all of the group."""
        self.begin(resources)
        for condition in conditions.conditions_of(self._group, one_by_one=self.one_by_one):
            self.keep(condition)

    def begin(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Start with the providers that serve all the resources; with all providers if none are asked for."""
        forest = self._forest
        if (
            self._among is None
            and self._trace is None
            and len(resources) > 1
            and self._serves is conditions.Fits
        ):
            # Of all providers, flags are quicker than narrowing rows.
            flags = (
                forest.column(class_id).fitting_flags(amount, forest.count) for class_id, amount in resources
            )
            self.rows = np.flatnonzero(reduce(np.logical_and, flags))
            return
        asked = [self._serves(*resource) for resource in resources]
        first, *others = asked or (conditions.Exists(),)
        if self._among is None:
            self._take(first, None, first.everywhere(forest))
        else:
            self.rows = self._among
            self.keep(first)
        for condition in others:
            self.keep(condition)

    def keep(self, condition: conditions.ProviderCondition) -> None:
        """Keep only the providers that also meet the condition."""
        self._take(condition, self.rows, self.rows[condition.among(self._forest, self.rows)])

    def _take(self, condition: conditions.ProviderCondition, before: Rows | None, rows: Rows) -> None:
        self.rows = rows
        if self._trace is not None:
            self._trace.providers.append(ProvidersPassed(self._group, condition, before, rows))
