"""Naive providers and queries in the forest's terms, and the forest's candidates in the naive ones."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from placement.engine.domain.groups import CandidateQuery, RequestGroup
from placement.engine.forest.forest import Forest
from placement.engine.forest.providers import (
    InventoryRow,
    NumberColumn,
    ProviderRecord,
    ProviderRow,
    ProviderStates,
    Snapshot,
)
from placement.engine.forest.sharing import SharingMap
from placement.engine.scoring.order import Order
from placement.engine.search.answer import Answer, JointAnswer
from placement.engine.search.query import ForestOrder, ForestQuery, GroupQuery, IsCoreTree, Preference
from placement.engine.search.ranking import ScoreCache
from placement.engine.search.search import FoundCandidates, search
from tests.naive import SHARING_TRAIT, Candidate, NaiveProvider
from tests.naive_scoring import SoftCondition

_UNKNOWN = -1


def snapshot_of(states: ProviderStates) -> Snapshot:
    """Providers that are all strangers and altered, as the feed tells all of them, each part by itself."""
    ids = states.providers[0]

    def parts(columns: Sequence[Any]) -> list[list[Any]]:
        return [[column[at : at + 1] for column in columns] for at in range(len(columns[0]))]

    def pairs(sets: Sequence[Any]) -> list[list[Any]]:
        carried = [(id_, members) for members, carriers in sets for id_ in carriers]
        return [[array("q", [id_] * len(members)), array("q", members)] for id_, members in carried]

    return Snapshot(
        states.providers,
        [(array("q", [id_]), states.uuids[int(id_)]) for id_ in ids],
        parts(states.inventories),
        pairs(states.traits),
        pairs(states.aggregates),
    )


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[NumberColumn]:
    """The rows by column, the ninth of floats."""
    return [array("d" if at == 8 else "q", [row[at] for row in rows]) for at in range(width)]


class World:
    """Ids for the names of some providers, and a forest that holds them."""

    def __init__(self, providers: Sequence[NaiveProvider]) -> None:
        self.providers = providers
        self.ids = {provider.uuid: number for number, provider in enumerate(providers, start=1)}
        self.classes: dict[str, int] = {}
        self.traits = {SHARING_TRAIT: 1}
        self.aggregates: dict[str, int] = {}
        for provider in providers:
            for name in sorted(provider.inventories):
                self._class(name)
            for name in sorted(provider.traits):
                self.traits.setdefault(name, len(self.traits) + 1)
            for name in sorted(provider.aggregates):
                self.aggregates.setdefault(name, len(self.aggregates) + 1)
        self.sharing = SharingMap()
        self.score_cache = ScoreCache()
        self.forest = Forest()

    def records(self) -> list[ProviderRecord]:
        """Every provider as the feed would tell it."""
        return [self.record(provider) for provider in self.providers]

    def record(self, provider: NaiveProvider, revision: int = 1) -> ProviderRecord:
        """One provider as the feed would tell it."""
        return ProviderRecord(
            ProviderRow(
                self.ids[provider.uuid],
                provider.uuid,
                0,
                self.ids[provider.parent] if provider.parent else None,
                self.ids[self._root(provider)],
                revision,
            ),
            tuple(
                InventoryRow(
                    self.classes[name],
                    inventory.capacity,
                    inventory.min_unit,
                    inventory.max_unit,
                    inventory.step_size,
                    provider.used.get(name, 0),
                )
                for name, inventory in provider.inventories.items()
            ),
            frozenset(self.traits[name] for name in provider.traits),
            frozenset(self.aggregates[name] for name in provider.aggregates),
        )

    def _root(self, provider: NaiveProvider) -> str:
        by_uuid = {other.uuid: other for other in self.providers}
        while provider.parent:
            provider = by_uuid[provider.parent]
        return provider.uuid

    def load(self) -> None:
        """Fill the forest at once."""
        records = self.records()
        rows = [record.row for record in records]
        heads = [
            (row.id, row.generation, row.parent_id or 0, row.root_id, row.revision, row.content)
            for row in rows
        ]
        offers = [
            (
                self.ids[provider.uuid],
                self.classes[name],
                inventory.total,
                inventory.reserved,
                inventory.min_unit,
                inventory.max_unit,
                inventory.step_size,
                provider.used.get(name, 0),
                inventory.allocation_ratio,
            )
            for provider in self.providers
            for name, inventory in provider.inventories.items()
        ]
        states = ProviderStates(
            _columns(heads, 6),
            {row.id: row.uuid for row in rows},
            (),
            [row.id for row in rows],
            _columns(offers, 9),
            [(record.trait_ids, array("q", [record.row.id])) for record in records],
            [(record.aggregate_ids, array("q", [record.row.id])) for record in records],
        )
        self.forest.load(snapshot_of(states))

    def query(
        self,
        query: CandidateQuery,
        maximum: int = 10**9,
        depth_first: bool = False,
        order: ForestOrder | None = None,
    ) -> ForestQuery:
        """The query by ids; traits and aggregates that nobody has match nobody."""
        return ForestQuery(
            groups=tuple(self._group(group) for group in query.groups),
            sharing_trait=self.traits[SHARING_TRAIT],
            maximum=maximum,
            isolate=query.isolate,
            same_subtree=query.same_subtree,
            root_required=tuple(frozenset({self.traits.get(name, _UNKNOWN)}) for name in query.root_required),
            root_forbidden=self._traits(query.root_forbidden),
            root_member_of=tuple(self._aggregates(names) for names in query.root_member_of),
            one_provider_per_tree=query.one_provider_per_tree,
            depth_first=depth_first,
            order=order,
        )

    def ordered(self, order: Order, preferences: Sequence[SoftCondition] = ()) -> ForestOrder:
        """The order by ids."""
        return ForestOrder(
            order,
            self.classes,
            tuple(
                Preference(
                    soft.weight, self._traits(soft.traits), self._aggregates(soft.aggregates), soft.absent
                )
                for soft in preferences
            ),
        )

    def _traits(self, names: frozenset[str]) -> frozenset[int]:
        return frozenset(self.traits.get(name, _UNKNOWN) for name in names)

    def _aggregates(self, names: frozenset[str]) -> frozenset[int]:
        return frozenset(self.aggregates.get(name, _UNKNOWN) for name in names)

    def _class(self, name: str) -> int:
        """As the database does, it knows classes that nobody offers."""
        return self.classes.setdefault(name, len(self.classes) + 1)

    def _group(self, group: RequestGroup) -> GroupQuery:
        return GroupQuery(
            suffix=group.suffix,
            resources=tuple((self._class(name), amount) for name, amount in group.resources.items()),
            required=tuple(self._traits(names) for names in group.required),
            forbidden=self._traits(group.forbidden),
            member_of=tuple(self._aggregates(names) for names in group.member_of),
            forbidden_aggregates=self._aggregates(group.forbidden_aggregates),
            in_tree=group.in_tree,
            split=frozenset(self._class(name) for name in group.split),
            split_rule=group.split_rule,
        )

    def search(
        self,
        query: CandidateQuery,
        maximum: int = 10**9,
        depth_first: bool = False,
        order: ForestOrder | None = None,
        first_trees: int = 1,
    ) -> FoundCandidates:
        """The search on the forest; it looks at few trees first, as it does in large forests.

        Scores are kept for the next search, as the service does.
        """
        wanted = self.query(query, maximum, depth_first, order)
        return search(
            self.forest, self.sharing, wanted, first_trees=first_trees, score_cache=self.score_cache
        )

    def search_jointly(
        self, query: CandidateQuery, maximum: int = 10**9, order: ForestOrder | None = None
    ) -> JointAnswer:
        """What the query finds in trees without cores, and what it asks of core trees finds there."""
        memory, cpus = self._class("MEMORY_MB"), self._class("PCPU")
        kind = IsCoreTree(memory, cpus, self.traits.get("HW_NUMA_ROOT", _UNKNOWN))
        assert query.on_core_trees is not None
        asked = [(query, replace(kind, wanted=False)), (query.on_core_trees, kind)]
        founds = [
            search(
                self.forest, self.sharing, replace(self.query(each, maximum, order=order), tree_kind=trees)
            )
            for each, trees in asked
        ]
        return JointAnswer(self.forest, founds, maximum)

    def elements(self, answer: Answer) -> list[Candidate]:
        """The candidates of an answer, in its order."""
        names = {number: name for name, number in self.classes.items()}
        return [
            Candidate(
                frozenset(
                    (uuid, names[class_id], amount)
                    for uuid, held in element.amounts.items()
                    for class_id, amount in held.items()
                ),
                frozenset((suffix, frozenset(uuids)) for suffix, uuids in element.mappings.items()),
            )
            for element in answer.elements()
        ]

    def candidates(self, found: FoundCandidates) -> list[Candidate]:
        """What was found, in its order."""
        names = {number: name for name, number in self.classes.items()}
        uuids = {
            self.forest.row_of_uuid(uuid): uuid
            for uuid, number in self.ids.items()
            if self.forest.knows(number)
        }
        candidates = []
        for at, row in enumerate(found.candidates.tolist()):
            amounts: dict[tuple[str, str], int] = {}
            mappings: dict[str, set[str]] = {}
            for number, (slot, provider) in enumerate(zip(found.slots, row, strict=True)):
                members = mappings.setdefault(slot.group.suffix, set())
                shares = {} if found.shares is None else found.shares[at]
                if number not in shares:
                    members.add(uuids[provider])
                for class_id, amount in slot.resources:
                    for giver, given in shares.get(number, {provider: amount}).items():
                        members.add(uuids[giver])
                        key = (uuids[giver], names[class_id])
                        amounts[key] = amounts.get(key, 0) + given
            candidates.append(
                Candidate(
                    frozenset((provider, name, amount) for (provider, name), amount in amounts.items()),
                    frozenset((suffix, frozenset(members)) for suffix, members in mappings.items()),
                )
            )
        return candidates

    def summarised(self, found: FoundCandidates, *, whole_trees: bool) -> set[str]:
        """The uuids of the providers that summaries would show."""
        answer = Answer(self.forest, found)
        if not len(answer):
            return set()
        if whole_trees:
            trees = answer.tree_summaries(answer.trees())
            return {member.uuid for tree in trees for member in tree}
        return {member.uuid for member in answer.contributor_summaries()}


def loaded(providers: Sequence[NaiveProvider]) -> World:
    """A world whose forest holds its providers."""
    world = World(providers)
    world.load()
    return world


def copied(provider: NaiveProvider, number: int) -> NaiveProvider:
    """The same provider in another forest of the same shape; the number, below 16, tells forests apart."""

    def renamed(uuid: str) -> str:
        return f"{number:x}{uuid[1:]}"

    parent = renamed(provider.parent) if provider.parent else provider.parent
    return replace(provider, uuid=renamed(provider.uuid), parent=parent)


def without(provider: NaiveProvider) -> NaiveProvider:
    """The same provider stripped of everything but its place."""
    return replace(provider, inventories={}, used={}, traits=frozenset(), aggregates=frozenset())
