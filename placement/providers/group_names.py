"""Request groups by ids: the names of classes, traits and aggregates looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import RequestGroup
from placement.engine.search.query import GroupQuery
from placement.providers.statements import names
from placement.providers.statements.names import Names
from placement.storage.database import Database

# No aggregate has this id: it stands for aggregates that never had a member.
_NO_AGGREGATE = -1
# Amounts beyond this fit nowhere and need not be distinguished.
_LARGEST_AMOUNT = 2**60


def resolve_group(
    known: Names, group: RequestGroup, aggregates: Mapping[str, int], prefix: str = ""
) -> GroupQuery:
    """Return a request group by ids. Raises BadRequest naming what does not exist."""
    for name in group.resources:
        if name not in known.class_ids:
            raise BadRequest(f"Invalid resource class in resources parameter: No such resource class {name}.")
    return GroupQuery(
        suffix=group.suffix,
        resources=tuple(
            (known.class_ids[name], min(amount, _LARGEST_AMOUNT)) for name, amount in group.resources.items()
        ),
        required=tuple(trait_set(known, any_of, prefix) for any_of in group.required),
        forbidden=trait_set(known, group.forbidden, prefix),
        member_of=aggregate_sets(aggregates, group.member_of),
        forbidden_aggregates=frozenset(
            aggregates[uuid] for uuid in group.forbidden_aggregates if uuid in aggregates
        ),
        in_tree=group.in_tree,
        split=frozenset(known.class_ids[name] for name in group.split),
        split_rule=group.split_rule,
    )


def trait_set(known: Names, traits: Iterable[str], prefix: str = "") -> frozenset[int]:
    """Return the ids of traits. Raises BadRequest naming the traits that do not exist."""
    unknown = sorted(trait for trait in traits if trait not in known.trait_ids)
    if unknown:
        raise BadRequest(f"{prefix}No such trait(s): {', '.join(unknown)}.")
    return frozenset(known.trait_ids[trait] for trait in traits)


def group_aggregates(database: Database, group: RequestGroup) -> Mapping[str, int]:
    """Return the ids of the aggregates of one group; an aggregate that never had a member has none."""
    return aggregate_ids(database, aggregates_of(group))


def aggregates_of(group: RequestGroup) -> tuple[frozenset[str], ...]:
    """Return the sets of aggregates that a group names."""
    return (*group.member_of, group.forbidden_aggregates)


def aggregate_ids(database: Database, sets: Iterable[frozenset[str]]) -> Mapping[str, int]:
    """Return the ids of aggregates by uuid; an aggregate that never had a member has none."""
    wanted = frozenset().union(*sets)
    if not wanted:
        return {}
    with database.read() as connection:
        return names.aggregate_ids(connection, wanted)


def aggregate_sets(ids: Mapping[str, int], sets: Iterable[frozenset[str]]) -> tuple[frozenset[int], ...]:
    """Return sets of uuids as sets of ids."""
    return tuple(frozenset(ids.get(uuid, _NO_AGGREGATE) for uuid in any_of) for any_of in sets)
