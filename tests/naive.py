"""A naive enumerator of allocation candidates, to check the real search against.

It follows the definition word by word: every anchor, every choice of providers for every group, every
combination of the groups, and then one rule after the other. No rule is skipped because another one seems to
imply it and nothing is pruned, so it is only fit for forests of a handful of providers.

Words: an *anchor* is the root of the tree a candidate is for; a *sharing provider* serves, besides its own
tree, every tree that has a member in one of its aggregates.
Source: placement-api.md, "Allocation candidates".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup, SplitRule
from placement.engine.domain.inventories import Inventory

SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"

Amount = tuple[str, str, int]
"""Provider uuid, resource class, amount."""

Mapped = tuple[str, frozenset[str]]
"""Suffix, uuids of the providers that serve the group."""


@dataclass(frozen=True)
class NaiveProvider:
    """A resource provider with all that is known of it; `parent` is a uuid, None for a root."""

    uuid: str
    parent: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def shares(self) -> bool:
        """Whether the provider is in the sharing set."""
        return SHARING_TRAIT in self.traits


@dataclass(frozen=True)
class Candidate:
    """One way to meet the query; equal iff allocations and mappings are equal, whatever the anchor."""

    allocations: frozenset[Amount]
    mappings: frozenset[Mapped]


@dataclass(frozen=True)
class Solution:
    """One way to meet one group at one anchor: who gives what, and who is mapped to the group.

    `whole`: the providers that give something that is not split, or serve a group without resources.
    """

    suffix: str
    amounts: tuple[Amount, ...]
    providers: frozenset[str]
    whole: tuple[str, ...] = ()


class Forest:
    """The providers by uuid, with the relations between them."""

    def __init__(self, providers: Iterable[NaiveProvider]) -> None:
        self._by_uuid = {provider.uuid: provider for provider in providers}

    def __iter__(self) -> Iterator[NaiveProvider]:
        return iter(self._by_uuid.values())

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._by_uuid

    def __getitem__(self, uuid: str) -> NaiveProvider:
        return self._by_uuid[uuid]

    def lineage(self, uuid: str) -> list[str]:
        """The provider itself, its parent, and so on up to the root."""
        above = self[uuid].parent
        return [uuid] if above is None else [uuid, *self.lineage(above)]

    def root(self, uuid: str) -> str:
        """The topmost ancestor, the provider itself if it has no parent."""
        return self.lineage(uuid)[-1]

    def anchors(self, provider: NaiveProvider) -> set[str]:
        """The roots of the trees the provider serves: its own and, if it shares, those of its aggregates."""
        roots = {self.root(provider.uuid)}
        if provider.shares:
            roots |= {self.root(other.uuid) for other in self if other.aggregates & provider.aggregates}
        return roots


def enumerate_candidates(providers: Iterable[NaiveProvider], query: CandidateQuery) -> set[Candidate]:
    """All candidates of the query. The query must be valid; its `limit` is not looked at."""
    return {merge(combination) for _, combination in combinations(Forest(providers), query)}


def enumerate_splits(
    providers: Iterable[NaiveProvider], query: CandidateQuery
) -> dict[tuple[str, ...], set[Candidate]]:
    """All candidates by their anchor and who gives what is not split: a search finds one of each set.

    Of a query with something else for core trees, these have the candidates of that.
    """
    forest = Forest(providers)
    found: dict[tuple[str, ...], set[Candidate]] = {}
    for asked in filter(None, (query, query.on_core_trees)):
        for anchor, combination in combinations(forest, asked):
            if query.on_core_trees and is_core_tree(forest, anchor) != (asked is query.on_core_trees):
                continue
            whole = tuple(uuid for each in combination for uuid in each.whole)
            found.setdefault((anchor, *whole), set()).add(merge(combination))
    return found


def is_core_tree(forest: Forest, root: str) -> bool:
    """Whether in the tree PCPU is given below MEMORY_MB, without a NUMA node from there up to the memory.

    Source: nova-flavors.md, "Core trees".
    """
    ways = [
        forest.lineage(cpus.uuid)[: forest.lineage(cpus.uuid).index(memory.uuid)]
        for cpus in forest
        for memory in forest
        if "PCPU" in cpus.inventories
        and "MEMORY_MB" in memory.inventories
        and forest.root(cpus.uuid) == root
        and memory.uuid in forest.lineage(cpus.uuid)[1:]
    ]
    return bool(ways) and not any("HW_NUMA_ROOT" in forest[uuid].traits for way in ways for uuid in way)


def combinations(forest: Forest, query: CandidateQuery) -> Iterator[tuple[str, Combination]]:
    """The anchor and one solution of every group, in every way that the rules on whole candidates allow."""
    for anchor in forest:
        if not is_allowed_anchor(anchor, query):
            continue
        per_group = [list(solutions(forest, group, anchor)) for group in query.groups]
        for combination in product(*per_group):
            if all(rule(forest, query, combination) for rule in COMBINATION_RULES):
                yield anchor.uuid, combination


def is_allowed_anchor(provider: NaiveProvider, query: CandidateQuery) -> bool:
    """Set A: only providers without parent, with every root-required and no root-forbidden trait.

    Beyond Placement: in one of the aggregates of every root_member_of.
    """
    return (
        provider.parent is None
        and query.root_required <= provider.traits
        and not query.root_forbidden & provider.traits
        and all(any_of & provider.aggregates for any_of in query.root_member_of)
    )


def solutions(forest: Forest, group: RequestGroup, anchor: NaiveProvider) -> Iterator[Solution]:
    """All ways to meet one group at one anchor."""
    if group.suffix == UNSUFFIXED:
        return unsuffixed_solutions(forest, group, anchor)
    if group.split:
        return split_solutions(forest, group, anchor)
    return suffixed_solutions(forest, group, anchor)


# suffixed groups: one provider serves the whole group


def suffixed_solutions(forest: Forest, group: RequestGroup, anchor: NaiveProvider) -> Iterator[Solution]:
    """Every provider for which all rules of a suffixed group hold."""
    for provider in forest:
        if all(rule(forest, group, anchor, provider) for rule in SUFFIXED_RULES):
            amounts = tuple((provider.uuid, name, amount) for name, amount in group.resources.items())
            yield Solution(group.suffix, amounts, frozenset((provider.uuid,)), (provider.uuid,))


def suffixed_1_anchor(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, provider: NaiveProvider
) -> bool:
    """Rule 1: the provider serves the tree of the anchor."""
    return anchor.uuid in forest.anchors(provider)


def suffixed_2_fit(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, provider: NaiveProvider
) -> bool:
    """Rule 2: the provider alone fits all resources of the group; vacuous for a resource-less group."""
    return all(fits(provider, name, amount) for name, amount in group.resources.items())


def suffixed_3_traits(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, provider: NaiveProvider
) -> bool:
    """Rule 3: the provider has a trait of every required set and no forbidden one."""
    return all(wanted & provider.traits for wanted in group.required) and not (
        group.forbidden & provider.traits
    )


def suffixed_4_aggregates(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, provider: NaiveProvider
) -> bool:
    """Rule 4: the provider itself is in an aggregate of every value and in no forbidden one."""
    return is_member(provider, group) and not group.forbidden_aggregates & provider.aggregates


def suffixed_5_in_tree(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, provider: NaiveProvider
) -> bool:
    """Rule 5: the provider is in the tree of the provider that `in_tree` names."""
    return is_in_named_tree(forest, group, provider)


SUFFIXED_RULES = (
    suffixed_1_anchor,
    suffixed_2_fit,
    suffixed_3_traits,
    suffixed_4_aggregates,
    suffixed_5_in_tree,
)


# suffixed groups that split amounts: one provider serves the rest, and several below it each such amount


def split_solutions(forest: Forest, group: RequestGroup, anchor: NaiveProvider) -> Iterator[Solution]:
    """Every choice of a provider for what is not split with every way to split the rest below it."""
    rest = {name: amount for name, amount in group.resources.items() if name not in group.split}
    plain = replace(group, resources=rest, split=frozenset())
    homes = (
        list(suffixed_solutions(forest, plain, anchor)) if rest else [Solution(group.suffix, (), frozenset())]
    )
    for home in homes:
        givers = [
            provider
            for provider in forest
            if forest.root(provider.uuid) == anchor.uuid
            and not provider.shares
            and all(uuid in forest.lineage(provider.uuid) for uuid in home.whole)
            and all(rule(forest, plain, anchor, provider) for rule in SUFFIXED_RULES[2:])
        ]
        ways = [list(parts(givers, name, group)) for name in group.resources if name in group.split]
        for chosen in product(*ways):
            amounts = tuple(amount for each in chosen for amount in each)
            uuids = frozenset(uuid for uuid, _, _ in amounts)
            yield Solution(group.suffix, home.amounts + amounts, home.providers | uuids, home.whole)


def parts(givers: Sequence[NaiveProvider], name: str, group: RequestGroup) -> Iterator[tuple[Amount, ...]]:
    """Every way in which some providers give the amount of one class between them."""
    choices = [(0, *amounts_of(provider, name, group)) for provider in givers]
    for taken in product(*choices):
        counted = sum(map(bool, taken)) if group.split_rule is SplitRule.ISOLATE else sum(taken)
        if counted == group.resources[name]:
            yield tuple(
                (provider.uuid, name, amount)
                for provider, amount in zip(givers, taken, strict=True)
                if amount
            )


def amounts_of(provider: NaiveProvider, name: str, group: RequestGroup) -> list[int]:
    """What one provider may give: its units allow it, and some rules take all of an unused one."""
    if name not in provider.inventories:
        return []
    capacity = provider.inventories[name].capacity
    if group.split_rule in (SplitRule.PACK, SplitRule.SPREAD):
        wanted = range(1, group.resources[name] + 1)
    elif provider.used.get(name, 0):
        wanted = range(0)
    else:
        siblings = 2 if group.split_rule is SplitRule.REQUIRE else 1
        wanted = range(max(capacity, siblings), capacity + 1)
    return [amount for amount in wanted if fits(provider, name, amount)]


# the unsuffixed group: one provider per resource class

Choice = Mapping[str, NaiveProvider]
"""Resource class -> the provider that gives all of it."""


def unsuffixed_solutions(forest: Forest, group: RequestGroup, anchor: NaiveProvider) -> Iterator[Solution]:
    """Every choice of one provider per resource class for which all rules of the unsuffixed group hold."""
    for chosen in product(forest, repeat=len(group.resources)):
        choice = dict(zip(group.resources, chosen, strict=True))
        if all(rule(forest, group, anchor, choice) for rule in UNSUFFIXED_RULES):
            amounts = tuple((choice[name].uuid, name, amount) for name, amount in group.resources.items())
            uuids = tuple(provider.uuid for provider in chosen)
            yield Solution(group.suffix, amounts, frozenset(uuids), uuids)


def unsuffixed_1_anchor(forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice) -> bool:
    """Rule 1: every provider is of the anchor's tree or shares with it.

    A sharing provider of another tree is out if `in_tree` is given, and has to meet a positive `member_of`
    itself.
    """
    return all(
        forest.root(provider.uuid) == anchor.uuid
        or (
            provider.shares
            and anchor.uuid in forest.anchors(provider)
            and group.in_tree is None
            and is_member(provider, group)
        )
        for provider in choice.values()
    )


def unsuffixed_2_fit(forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice) -> bool:
    """Rule 2: every provider fits the amount of its class."""
    return all(fits(choice[name], name, amount) for name, amount in group.resources.items())


def unsuffixed_3_member_of(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice
) -> bool:
    """Rule 3: for every provider, it or the anchor meets all values of a positive `member_of` alone."""
    return all(is_member(provider, group) or is_member(anchor, group) for provider in choice.values())


def unsuffixed_4_forbidden_aggregates(
    forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice
) -> bool:
    """Rule 4: neither a provider nor the anchor is in a forbidden aggregate."""
    return not any(
        group.forbidden_aggregates & (provider.aggregates | anchor.aggregates) for provider in choice.values()
    )


def unsuffixed_5_in_tree(forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice) -> bool:
    """Rule 5: every provider is in the tree of the provider that `in_tree` names."""
    return all(is_in_named_tree(forest, group, provider) for provider in choice.values())


def unsuffixed_6_traits(forest: Forest, group: RequestGroup, anchor: NaiveProvider, choice: Choice) -> bool:
    """Rule 6: the providers together have a trait of every required set; none has a forbidden one."""
    together = frozenset().union(*(provider.traits for provider in choice.values()))
    return all(wanted & together for wanted in group.required) and not group.forbidden & together


UNSUFFIXED_RULES = (
    unsuffixed_1_anchor,
    unsuffixed_2_fit,
    unsuffixed_3_member_of,
    unsuffixed_4_forbidden_aggregates,
    unsuffixed_5_in_tree,
    unsuffixed_6_traits,
)


# what the rules of both kinds ask of one provider


def fits(provider: NaiveProvider, name: str, amount: int) -> bool:
    """fit(p, rc, n): an inventory has room for the amount, which respects min_unit, max_unit, step_size."""
    inventory = provider.inventories.get(name)
    return (
        inventory is not None
        and has_room(provider, name, amount)
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


def has_room(provider: NaiveProvider, name: str, amount: int) -> bool:
    """used + n <= (total - reserved) * ratio."""
    inventory = provider.inventories[name]
    limit = (inventory.total - inventory.reserved) * inventory.allocation_ratio
    return provider.used.get(name, 0) + amount <= limit


def is_member(provider: NaiveProvider, group: RequestGroup) -> bool:
    """Whether the provider's own aggregates meet every value of a positive `member_of`."""
    return all(wanted & provider.aggregates for wanted in group.member_of)


def is_in_named_tree(forest: Forest, group: RequestGroup, provider: NaiveProvider) -> bool:
    """Whether the provider is in the tree `in_tree` names; nobody is in the tree of an unknown provider."""
    if group.in_tree is None:
        return True
    return group.in_tree in forest and forest.root(provider.uuid) == forest.root(group.in_tree)


# combinations: one solution of every group, all at the same anchor

Combination = Sequence[Solution]


def combination_isolate(forest: Forest, query: CandidateQuery, combination: Combination) -> bool:
    """isolate: the providers of all suffixed groups, resource-less ones too, are pairwise different."""
    if not query.isolate:
        return True
    taken = [uuid for each in combination if each.suffix != UNSUFFIXED for uuid in each.providers]
    return len(taken) == len(set(taken))


def combination_same_subtree(forest: Forest, query: CandidateQuery, combination: Combination) -> bool:
    """same_subtree: among the providers of the named groups is one that is ancestor-or-self of them all.

    It is one that gives something whole; where a query splits everything, nothing is said.
    """
    for suffixes in query.same_subtree:
        members = {uuid for each in combination if each.suffix in suffixes for uuid in each.providers}
        tops = {uuid for each in combination if each.suffix in suffixes for uuid in each.whole}
        if tops and not any(all(top in forest.lineage(member) for member in members) for top in tops):
            return False
    return True


def combination_merged_capacity(forest: Forest, query: CandidateQuery, combination: Combination) -> bool:
    """merged capacity: sums per provider and class fit the free capacity and max_unit."""
    return all(
        has_room(forest[uuid], name, amount) and amount <= forest[uuid].inventories[name].max_unit
        for uuid, name, amount in merge(combination).allocations
    )


def combination_one_provider_per_tree(
    forest: Forest, query: CandidateQuery, combination: Combination
) -> bool:
    """one provider per tree: before 1.29 no two different providers of a candidate have the same root."""
    if not query.one_provider_per_tree:
        return True
    used = {uuid for each in combination for uuid in each.providers}
    return len(used) == len({forest.root(uuid) for uuid in used})


COMBINATION_RULES = (
    combination_isolate,
    combination_same_subtree,
    combination_merged_capacity,
    combination_one_provider_per_tree,
)


def merge(combination: Combination) -> Candidate:
    """The candidate of a combination: amounts summed per provider and class, mappings per suffix."""
    sums: Counter[tuple[str, str]] = Counter()
    for each in combination:
        for uuid, name, amount in each.amounts:
            sums[uuid, name] += amount
    return Candidate(
        allocations=frozenset((uuid, name, amount) for (uuid, name), amount in sums.items()),
        mappings=frozenset((each.suffix, each.providers) for each in combination),
    )


# which providers an answer describes


def summarised_providers(
    providers: Iterable[NaiveProvider], candidates: Iterable[Candidate], query: CandidateQuery
) -> set[str]:
    """Uuids of the providers in the summaries of an answer that consists of the candidates.

    From 1.29 on all providers of the trees that the contributing providers are in; before, the contributing
    providers only. One that is merely mapped to a resource-less group does not contribute.
    """
    forest = Forest(providers)
    contributing = {uuid for candidate in candidates for uuid, _, _ in candidate.allocations}
    if query.one_provider_per_tree:
        return contributing
    roots = {forest.root(uuid) for uuid in contributing}
    return {provider.uuid for provider in forest if forest.root(provider.uuid) in roots}
