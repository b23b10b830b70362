"""The search as a use case: names to ids, the search on the caught-up forest, the answer for rendering."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from placement.candidates.answer import Answer
from placement.candidates.query import ForestQuery, GroupQuery
from placement.candidates.search import search, shuffled
from placement.domain.errors import BadRequest
from placement.domain.groups import CandidateQuery, RequestGroup
from placement.services.forest_keeper import ForestKeeper
from placement.storage import names
from placement.storage.database import Database
from placement.storage.names import SHARING_TRAIT, Names

# No aggregate has this id; an aggregate nobody was ever in matches nobody.
_NO_AGGREGATE = -1
# Amounts beyond this fit nowhere and need not be told apart.
_LARGEST_AMOUNT = 2**60


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How candidates are generated: `maximum` candidates at most (None: no bound), in which order.

    `randomize`: a query with a limit gets a random choice of all that were generated, others a random order.
    """

    maximum: int | None = 100_000
    depth_first: bool = False
    randomize: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """One finished search."""

    answer: Answer
    names: Names


class Candidates:
    """Finds where a request fits."""

    def __init__(self, database: Database, keeper: ForestKeeper, settings: SearchSettings) -> None:
        self._database = database
        self._keeper = keeper
        self._settings = settings

    @contextmanager
    def find(self, query: CandidateQuery) -> Iterator[Search]:
        """Search; the answer may be read only inside the block, while the forest stands still.

        Raises BadRequest for unknown names, Unavailable.
        """
        with self._keeper.current() as view:
            found = search(view.forest, view.sharing, self._resolve(view.names, query))
            if self._settings.randomize:
                found = shuffled(found, query.limit, random.getrandbits(32))
            yield Search(Answer(view.forest, found), view.names)

    def _resolve(self, known: Names, query: CandidateQuery) -> ForestQuery:
        # A random choice needs all of the candidates to choose from.
        limit = None if self._settings.randomize else query.limit
        bounds = [bound for bound in (limit, self._settings.maximum) if bound is not None]
        return ForestQuery(
            groups=tuple(resolve_group(self._database, known, group) for group in query.groups),
            sharing_trait=known.trait_ids[SHARING_TRAIT],
            maximum=max(1, min(bounds)) if bounds else 2**31,
            isolate=query.isolate,
            same_subtree=query.same_subtree,
            root_required=tuple(trait_set(known, [trait]) for trait in sorted(query.root_required)),
            root_forbidden=trait_set(known, query.root_forbidden),
            root_member_of=_aggregate_sets(
                _aggregate_ids(self._database, query.root_member_of), query.root_member_of
            ),
            one_provider_per_tree=query.one_provider_per_tree,
            depth_first=self._settings.depth_first,
        )


def resolve_group(database: Database, known: Names, group: RequestGroup, prefix: str = "") -> GroupQuery:
    """A request group by ids. Raises BadRequest naming what does not exist."""
    for name in group.resources:
        if name not in known.class_ids:
            raise BadRequest(f"Invalid resource class in resources parameter: No such resource class {name}.")
    aggregates = _aggregate_ids(database, (*group.member_of, group.forbidden_aggregates))
    return GroupQuery(
        suffix=group.suffix,
        resources=tuple(
            (known.class_ids[name], min(amount, _LARGEST_AMOUNT)) for name, amount in group.resources.items()
        ),
        required=tuple(trait_set(known, any_of, prefix) for any_of in group.required),
        forbidden=trait_set(known, group.forbidden, prefix),
        member_of=_aggregate_sets(aggregates, group.member_of),
        forbidden_aggregates=frozenset(
            aggregates[uuid] for uuid in group.forbidden_aggregates if uuid in aggregates
        ),
        in_tree=group.in_tree,
    )


def trait_set(known: Names, traits: Iterable[str], prefix: str = "") -> frozenset[int]:
    """Trait names by ids. Raises BadRequest naming those that do not exist."""
    unknown = sorted(trait for trait in traits if trait not in known.trait_ids)
    if unknown:
        raise BadRequest(f"{prefix}No such trait(s): {', '.join(unknown)}.")
    return frozenset(known.trait_ids[trait] for trait in traits)


def _aggregate_ids(database: Database, sets: Iterable[frozenset[str]]) -> Mapping[str, int]:
    wanted = frozenset().union(*sets)
    if not wanted:
        return {}
    with database.read() as connection:
        return names.aggregate_ids(connection, wanted)


def _aggregate_sets(ids: Mapping[str, int], sets: Iterable[frozenset[str]]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(ids.get(uuid, _NO_AGGREGATE) for uuid in any_of) for any_of in sets)
