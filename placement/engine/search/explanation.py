"""The explanation of a search: how many hosts each condition leaves, which leaves none, and what came near.

Each number counts the hosts that meet a condition and all before it. Conditions on places come first, then
what the request asks of providers, then all of it together. It is one more pass of the filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from placement.engine.domain.explanation import (
    MOST_MISSES,
    Alternative,
    Condition,
    CountedUnit,
    Explanation,
    Miss,
    Stage,
    first_empty,
)
from placement.engine.forest.arrays import Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.forest.texts import to_text
from placement.engine.search.conditions import (
    Carries,
    Combines,
    Exists,
    Fits,
    GivesPart,
    InTree,
    IsIn,
    OffersClass,
    PlaceCondition,
    ProviderCondition,
    Together,
)
from placement.engine.search.filters import FilledSlots, filled_slots, flags_of
from placement.engine.search.instead import elsewhere_of, margin_of, offered_of, with_candidate
from placement.engine.search.near_misses import NearMisses
from placement.engine.search.places import PlaceMasks, place_conditions
from placement.engine.search.query import ForestQuery
from placement.engine.search.trace import ProvidersPassed, Trace
from placement.engine.search.vocabulary import Vocabulary

_Chain = Sequence[ProvidersPassed]


class FoundCount(NamedTuple):
    """How many candidates a search found, and whether these are all there are."""

    candidates: int
    complete: bool = True


def explain(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    found_count: FoundCount,
    vocabulary: Vocabulary,
    most: int = MOST_MISSES,
    *,
    in_full: bool = True,
) -> Explanation:
    """Return the explanation of a search just ended on this very forest, with up to `most` misses.

    Providers are named by their uuids. Unless it is `in_full`, compound conditions are one stage, and what
    there is instead is not looked for. Raises SearchEnded.
    """
    trace = Trace(one_by_one=in_full)
    filled = filled_slots(forest, sharing, query, trace)
    funnel = _Funnel(filled, trace, vocabulary)
    with_candidate = funnel.run(found_count.candidates, _roots(filled, with_storage=False))
    if not with_candidate.any() and (found_count.candidates or not funnel.steps[0].stage.trees_came):
        # Shared storage counts as a host where it alone has a candidate, or there is nothing else.
        with_candidate = funnel.run(found_count.candidates, _roots(filled, with_storage=True))
    stages = tuple(step.stage for step in funnel.steps)
    empty = first_empty(stages)
    explanation = Explanation(
        stages,
        complete=found_count.complete,
        in_trees=frozenset(
            group.in_tree
            for group in query.groups
            if group.in_tree is not None and forest.row_of_uuid(group.in_tree) >= 0
        ),
        aggregate_ids=frozenset(vocabulary.aggregates),
    )
    if empty is None:
        if in_full:
            return replace(explanation, margin=margin_of(filled, vocabulary, with_candidate))
        return explanation
    step = funnel.steps[empty]
    misses = tuple(funnel.misses(step, NearMisses(forest, sharing, query, vocabulary, most)))
    # Of an explanation in brief one sentence is read, and what came near goes first.
    alternative = funnel.alternative(step) if in_full or not misses else None
    explanation = replace(explanation, misses=misses, alternative=alternative, is_vacant=step.is_vacant)
    if not in_full:
        return explanation
    if not funnel.is_met(step):
        offered = offered_of(filled, vocabulary, step.asked or step.place, step.hosts, stages[:empty])
        explanation = replace(explanation, offered=offered)
    return replace(explanation, elsewhere=elsewhere_of(filled))


@dataclass(frozen=True, slots=True)
class _ChainStep:
    """A stage and the hosts that came to it.

    `place`: what it asks of places. `asked`: what it asks of providers; then `rows` came, of the slot with
    the number `chain`. With neither, it asks hosts for everything at once. `is_vacant`: no host meets it.
    """

    stage: Stage
    hosts: Mask
    place: PlaceCondition | None = None
    asked: ProviderCondition | None = None
    rows: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    chain: int = -1
    is_vacant: bool = False


class _Funnel:
    """The hosts that are left, as flags of their roots, while conditions are asked one after the other."""

    def __init__(self, filled: FilledSlots, trace: Trace, vocabulary: Vocabulary) -> None:
        self.steps: list[_ChainStep] = []
        self._filled = filled
        self._trace = trace
        self._forest, self._sharing = filled.forest, filled.sharing
        self._words = vocabulary
        self._places = PlaceMasks(filled.forest, filled.sharing)
        # The hosts that are left, the ones of the place once this was asked for, and what serves each chain.
        self._left = self._place = flags_of(filled.forest.count, filled.forest.roots)
        self._serving: list[tuple[str, Mask]] = []

    def run(self, candidates: int, hosts: Mask) -> Mask:
        """Ask for everything in turn, beginning with these hosts; return the ones with a candidate."""
        self.steps, self._serving = [], []
        self._left = self._place = hosts
        for condition in place_conditions(self._filled.query):
            self._pass_place(condition)
        for chain in self._trace.chains:
            self._pass_chain(chain)
        for any_of in self._filled.collective_traits:
            self._pass_together(any_of)
        return self._pass_all(candidates)

    def _pass_place(self, condition: PlaceCondition) -> None:
        """Leave the hosts that meet a condition on places."""
        met = self._places.meeting(condition)
        stated = self._words.stated(condition)
        came, self._place = self._left, self._left & met
        alike = next((at for at, each in enumerate(self.steps) if each.stage.condition == stated), None)
        if alike is None or (came != self._place).any():
            stage = self._whole(stated, self._place)
            self.steps.append(_ChainStep(stage, came, condition, is_vacant=not met.any()))
        self._left = self._place

    def _pass_chain(self, chain: _Chain) -> None:
        """Leave the hosts with providers that meet the conditions of one slot."""
        began, number, first = self._left, len(self._serving), chain[0]
        is_split = isinstance(first.condition, GivesPart)
        foreign = self._foreign(first, is_split=is_split)
        rows = self._within(_all_for(first, self._forest), foreign, began, is_split=is_split)
        for passed in chain:
            came, hosts_came = rows, self._left
            rows = self._within(passed.rows, foreign, began, is_split=is_split)
            self._left = began & self._places.serving(rows, rows[foreign[rows]])
            if len(rows) == len(came) and _is_stated_before(passed):
                continue
            trees, suffix = int(self._left.sum()), passed.group.suffix
            counts = len(came), len(rows), trees, suffix, int(hosts_came.sum())
            stage = Stage(self._words.stated(passed.condition), CountedUnit.PROVIDERS, *counts)
            self.steps.append(_ChainStep(stage, hosts_came, None, passed.condition, came, number))
        everywhere = self._within(passed.rows, foreign, self._place, is_split=is_split)
        serving = self._places.serving(everywhere, everywhere[foreign[everywhere]])
        self._serving.append((first.group.suffix, serving & self._place))

    def _pass_together(self, any_of: frozenset[int]) -> None:
        """Leave the hosts where a provider that serves the unsuffixed group has one of the traits."""
        left = self._left & self._filled.covered(any_of)
        if (left != self._left).any():
            stage = self._whole(self._words.stated(Together(any_of)), left)
            self.steps.append(_ChainStep(stage, self._left))
            self._left = left

    def _pass_all(self, candidates: int) -> Mask:
        """Leave the hosts with a candidate, and return them; none if the search found none."""
        roots = np.flatnonzero(self._left).astype(np.int32)
        served, is_counted = (roots[:0], True) if not candidates else with_candidate(self._filled, roots)
        left = flags_of(self._forest.count, served)
        stage = self._whole(self._words.stated(Combines()), left)
        if not is_counted:
            count = max(stage.passed, 1)
            stage = replace(stage, passed=count, trees=count, at_least=True)
        self.steps.append(_ChainStep(stage, self._left))
        return left

    def _whole(self, condition: Condition, left: Mask) -> Stage:
        """Return a stage that counts hosts."""
        came, passed = int(self._left.sum()), int(left.sum())
        return Stage(condition, CountedUnit.TREES, came, passed, passed, trees_came=came)

    def _foreign(self, first_passed: ProvidersPassed, *, is_split: bool) -> Mask:
        """Return which providers may serve other trees in this chain."""
        group, sharers = first_passed.group, self._sharing.providers
        if is_split or (group.in_tree is not None and not group.suffix):
            sharers = sharers[:0]
        elif not group.suffix:
            sharers = sharers[IsIn(group.member_of).among(self._forest, sharers)]
        return flags_of(self._forest.count, sharers)

    def _within(self, rows: Rows, foreign: Mask, hosts: Mask, *, is_split: bool) -> Rows:
        """Return the providers that serve some of the hosts."""
        if is_split:
            rows = rows[~self._sharing.mask(self._forest.count)[rows]]
        serve = hosts[self._forest.roots_of(rows)]
        if not len(self._sharing.pair_provider):
            return rows[serve]
        pairs = hosts[self._sharing.pair_anchor]
        shares = flags_of(self._forest.count, self._sharing.pair_provider[pairs])
        return rows[serve | (shares & foreign)[rows]]

    def misses(self, step: _ChainStep, near: NearMisses) -> Iterator[Miss]:
        """Yield the near misses of the first empty stage; all of them met the conditions on places."""
        if step.place is not None:
            yield from near.outside(step.place, step.hosts)
        elif step.asked is None:
            yield from near.hosts(step.hosts)
        elif self.is_met(step):
            # Others serve the parts before this one.
            yield from near.by_parts(self._place, self._serving)
        elif isinstance(step.asked, GivesPart):
            yield from near.hosts(step.hosts)
        else:
            yield from near.providers(step.asked, step.rows, step.stage.group or "")

    def is_met(self, step: _ChainStep) -> bool:
        """Return whether hosts of the place serve the part of the request that a stage is about."""
        return step.chain >= 0 and bool(self._serving[step.chain][1].any())

    def alternative(self, step: _ChainStep) -> Alternative | None:
        """Return where the amount of the first empty stage can be split, on a host that came to it."""
        return self._split(step.asked, step.hosts) if isinstance(step.asked, Fits) else None

    def _split(self, fits: Fits, hosts: Mask) -> Alternative | None:
        """Return where providers could split an amount that none has: below one parent, or in a tree."""
        forest, column, amount = self._forest, self._forest.column(fits.class_id), fits.amount
        rows = column.entries.provider[column.occupied()].astype(np.intp)
        shares = self._sharing.mask(forest.count)
        rows = rows[hosts[forest.roots_of(rows)] & ~shares[rows]]
        fitting = flags_of(forest.count, column.fitting(amount))
        if fitting[rows].any() or fitting[self._sharing.providers].any():
            return None
        headroom = np.maximum(column.headroom(rows), 0)
        parents = forest.providers.parent[rows]
        for tops in (np.where(parents >= 0, parents, rows), forest.roots_of(rows)):
            free = np.zeros(forest.count, np.int64)
            np.add.at(free, tops, headroom)
            if len(rows) and free.max() >= amount:
                # Among equals the first by its id: rows differ from process to process.
                fullest = np.flatnonzero(free == free.max())
                top = int(fullest[np.argmin(forest.providers.id[fullest])])
                givers = int(np.count_nonzero(headroom[tops == top]))
                uuid = to_text(forest.providers.uuid[[top]])[0]
                name = self._words.resource_class(fits.class_id)
                return Alternative(uuid, name, amount, int(free[top]), givers)
        return None


def _roots(filled: FilledSlots, *, with_storage: bool) -> Mask:
    """Return the roots that may have candidates; shared storage has a root that shares."""
    forest = filled.forest
    roots = flags_of(forest.count, forest.roots)
    if filled.query.among is not None:
        roots &= filled.query.among[: forest.count]
    if not with_storage:
        roots[filled.sharing.providers] = False
    return roots


def _all_for(first_passed: ProvidersPassed, forest: Forest) -> Rows:
    """Return the providers that come to the first condition of a slot: the ones that offer its class."""
    if isinstance(first_passed.condition, Fits | GivesPart):
        return OffersClass(first_passed.condition.class_id).everywhere(forest)
    return Exists().everywhere(forest)


def _is_stated_before(passed: ProvidersPassed) -> bool:
    """Return whether a condition of providers was asked of whole hosts as well."""
    condition = passed.condition
    if isinstance(condition, IsIn):
        return not passed.group.suffix or not condition.forbidden
    return isinstance(condition, InTree) or (isinstance(condition, Carries) and not passed.group.suffix)
