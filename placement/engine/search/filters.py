"""The first stage of a search: which providers can fill which slot, by vectorised conditions in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search.query import (
    AllGroups,
    Carries,
    Exists,
    Fits,
    ForestQuery,
    GivesPart,
    GroupQuery,
    InTree,
    IsCoreTree,
    IsIn,
    OffersClass,
    ProviderCondition,
    ProvidersPassed,
    RootCarries,
    RootIsIn,
    Slot,
    Together,
    Trace,
    TreeCondition,
    TreesPassed,
    conditions_of,
    slots_of,
    split,
)


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
        return _flags(self.count, self.own)

    @cached_property
    def foreign_mask(self) -> Mask:
        """Return `foreign` as one flag per row of the forest."""
        return _flags(self.count, self.foreign)


def _flags(count: int, rows: Rows) -> Mask:
    flags = np.zeros(count, bool)
    flags[rows] = True
    return flags


_Serves = Callable[[int, int], Fits | GivesPart | OffersClass]
_NO_ROWS: Rows = np.empty(0, np.intp)


def providers_matching(forest: Forest, group: GroupQuery) -> Rows:
    """Return the providers that alone satisfy everything in a group, ascending.

    This is the rule of suffixed groups and of the provider list.
    """
    narrowing = _Narrowing(forest, group)
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
    serves: _Serves = _offers
    if with_room:
        serves = Fits if slot.rule is None else partial(GivesPart, rule=slot.rule)
    narrowing = _Narrowing(forest, slot.group, trace, among, serves)
    if slot.rule is not None:
        narrowing.serve(slot.resources)
        # A sharing provider would give its parts to several trees.
        own = narrowing.rows[~np.isin(narrowing.rows, sharing.providers)]
        return Choices(forest.count, own, _NO_ROWS)
    if slot.suffixed:
        narrowing.serve(slot.resources)
        return Choices(forest.count, narrowing.rows, _sharing_among(narrowing.rows, sharing))
    return _unsuffixed_choices(forest, slot, sharing, narrowing)


def _offers(class_id: int, _amount: int) -> OffersClass:
    return OffersClass(class_id)


def _unsuffixed_choices(forest: Forest, slot: Slot, sharing: Sharing, narrowing: _Narrowing) -> Choices:
    group = slot.group
    narrowing.begin(slot.resources)
    for ban in (Carries((), group.forbidden), IsIn((), group.forbidden_aggregates)):
        if ban.forbidden:
            for condition in split(ban, one_by_one=narrowing.one_by_one):
                narrowing.keep(condition)
    foreign = _NO_ROWS
    if group.in_tree is None and not sharing.is_empty:
        members = narrowing.rows[IsIn(group.member_of).among(forest, narrowing.rows)]
        foreign = _sharing_among(members, sharing)
    if group.member_of:
        # Not one by one: the same provider, or the root, must be in an aggregate of every set.
        narrowing.keep(IsIn(group.member_of, or_root=True))
    if group.in_tree is not None:
        narrowing.keep(InTree(group.in_tree))
    return Choices(forest.count, narrowing.rows, foreign)


def _sharing_among(rows: Rows, sharing: Sharing) -> Rows:
    if sharing.is_empty:
        return _NO_ROWS
    return np.intersect1d(rows, sharing.providers).astype(np.intp)


def _fitting(forest: Forest, resources: tuple[tuple[int, int], ...]) -> Rows:
    """Return the providers that can take an allocation of every amount now, ascending."""
    flags = (forest.column(class_id).fitting_flags(amount, forest.count) for class_id, amount in resources)
    return np.flatnonzero(reduce(np.logical_and, flags))


class _Narrowing:
    """A set of providers that each condition makes smaller."""

    def __init__(
        self,
        forest: Forest,
        group: GroupQuery,
        trace: Trace | None = None,
        among: Rows | None = None,
        serves: _Serves = Fits,
    ) -> None:
        self.rows: Rows = _NO_ROWS
        self._among = among
        self.one_by_one = trace is not None and trace.one_by_one
        self._forest = forest
        self._group = group
        self._trace = trace
        self._serves = serves

    def serve(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Begin with the providers that give the resources, and keep the ones that meet all of the group."""
        self.begin(resources)
        for condition in conditions_of(self._group, one_by_one=self.one_by_one):
            self.keep(condition)

    def begin(self, resources: tuple[tuple[int, int], ...]) -> None:
        """Begin with the providers that serve all the resources; with all providers if none are asked for."""
        first, *others = (
            (self._serves(class_id, amount) for class_id, amount in resources) if resources else (Exists(),)
        )
        if self._among is None and self._trace is None and others and self._serves is Fits:
            # Of all providers, flags are quicker than narrowing rows.
            self.rows = _fitting(self._forest, resources)
            return
        if self._among is None:
            self._take(first, None, first.everywhere(self._forest))
        else:
            self.rows = self._among
            self.keep(first)
        for condition in others:
            self.keep(condition)

    def keep(self, condition: ProviderCondition) -> None:
        """Keep only the providers that meet the condition, too."""
        self._take(condition, self.rows, self.rows[condition.among(self._forest, self.rows)])

    def _take(self, condition: ProviderCondition, before: Rows | None, rows: Rows) -> None:
        self.rows = rows
        if self._trace is not None:
            self._trace.providers.append(ProvidersPassed(self._group, condition, before, rows))


# Second stage of a search: the anchors, that is the roots at which every slot can be filled.


def viable_roots(
    forest: Forest,
    query: ForestQuery,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    sharing: Sharing,
    trace: Trace | None = None,
) -> Indices:
    """Return the roots at which every slot can be filled, in order of their ids."""
    viable: Mask | None = None
    for slot, choice in {
        id(choice): (slot, choice) for slot, choice in zip(slots, choices, strict=True)
    }.values():
        reached = _anchors(forest, choice, sharing)
        viable = reached if viable is None else viable & reached
        _note(trace, AllGroups(slot.suffix), viable, reached)
    if viable is None:
        return np.empty(0, np.int32)
    for any_of in _collective_sets(slots):
        viable = viable & _anchors_covering(forest, slots, choices, sharing, any_of)
        _note(trace, Together(any_of), viable)
    roots = np.flatnonzero(viable).astype(np.int32)
    for condition in root_conditions(query, slots):
        roots = roots[condition.among(forest, roots)]
        _note(trace, condition, roots)
    if query.among is not None:
        roots = roots[query.among[roots]]
    ids = forest.providers.id[roots]
    return roots if (ids[1:] > ids[:-1]).all() else roots[np.argsort(ids)]


def root_conditions(
    query: ForestQuery, slots: Sequence[Slot]
) -> Iterator[RootCarries | RootIsIn | IsCoreTree]:
    """Yield the conditions of the query on roots."""
    if query.tree_kind is not None:
        yield query.tree_kind
    if query.root_required or query.root_forbidden:
        yield RootCarries(query.root_required, query.root_forbidden)
    banned = next(_forbidden_at_root(slots), frozenset())
    if query.root_member_of or banned:
        yield RootIsIn(query.root_member_of, banned)


def _note(
    trace: Trace | None, condition: TreeCondition, passed: Mask | Indices, alone: Mask | None = None
) -> None:
    if trace is not None:
        trace.trees.append(TreesPassed(condition, passed, alone))


def _anchors(forest: Forest, choice: Choices, sharing: Sharing) -> Mask:
    """Return the roots at which at least one of the choices can serve."""
    if forest.is_flat:
        reached = choice.own_mask
    else:
        reached = np.zeros(forest.count, bool)
        reached[forest.roots_of(choice.own)] = True
    if len(choice.foreign):
        serving = choice.foreign_mask[sharing.pair_provider]
        reached = reached.copy()
        reached[sharing.pair_anchor[serving]] = True
    return reached


def _collective_sets(slots: Sequence[Slot]) -> tuple[frozenset[int], ...]:
    return next((slot.group.required for slot in slots if not slot.suffixed), ())


def _forbidden_at_root(slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """Yield the forbidden aggregates of the unsuffixed group; the anchor must be in none of them, either."""
    for slot in slots:
        if not slot.suffixed and slot.group.forbidden_aggregates:
            yield slot.group.forbidden_aggregates
            return


def _anchors_covering(
    forest: Forest,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    sharing: Sharing,
    any_of: frozenset[int],
) -> Mask:
    """Return the roots at which a provider of the unsuffixed group meets a trait condition."""
    covered = np.zeros(forest.count, bool)
    for slot, choice in zip(slots, choices, strict=True):
        if not slot.suffixed:
            able = Choices(
                forest.count,
                choice.own[forest.traits.satisfying(choice.own, (any_of,))],
                choice.foreign[forest.traits.satisfying(choice.foreign, (any_of,))],
            )
            covered |= _anchors(forest, able, sharing)
    return covered


def at_admitted_roots(forest: Forest, query: ForestQuery, rows: Rows) -> Rows:
    """Return the providers among `rows` that stand below a root which meets the conditions on roots."""
    for condition in root_conditions(query, slots_of(query)):
        rows = rows[condition.among(forest, forest.roots_of(rows).astype(np.int32))]
    return rows
