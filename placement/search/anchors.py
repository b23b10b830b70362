"""Second stage of a search: the anchors, that is the roots at which every slot can be filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placement.forest.arrays import Indices, Mask, Rows
from placement.forest.forest import Forest
from placement.forest.sharing import Sharing
from placement.search.core_trees import IsCoreTree
from placement.search.filters import Choices
from placement.search.query import ForestQuery, Slot, slots_of
from placement.search.trace import (
    AllGroups,
    RootCarries,
    RootIsIn,
    Together,
    Trace,
    TreeCondition,
    TreesPassed,
)


def viable_roots(
    forest: Forest,
    query: ForestQuery,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    sharing: Sharing,
    trace: Trace | None = None,
) -> Indices:
    """The roots at which every slot can be filled, in order of their ids."""
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
    """The conditions of the query on roots."""
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
    """The roots at which at least one of the choices can serve."""
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
    """The forbidden aggregates of the unsuffixed group; the anchor must be in none of them, either."""
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
    """The roots at which a provider of the unsuffixed group meets a trait condition."""
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
    """The providers among `rows` that stand below a root which meets the conditions on roots."""
    for condition in root_conditions(query, slots_of(query)):
        rows = rows[condition.among(forest, forest.roots_of(rows).astype(np.int32))]
    return rows
