"""The query that a consumer may have been claimed with, guessed from its allocations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import Draw
from placement.engine.search.query import ForestQuery, GroupQuery, IdSet


def guessed_query(
    forest: Forest, draws: Sequence[Draw], sharing_trait: int, disabled_trait: int | None
) -> ForestQuery:
    """Return the query that may have led to these draws on one host and on providers shared with it.

    It stands for the request of a consumer that was not claimed here: equal amounts, each from a provider
    with the traits of the one that gives it now, on a host with the traits and aggregates (cluster,
    availability zone, storage) of the host it is on. Amounts from below one part of a host stay together
    below one part.
    """
    states = frozenset(() if disabled_trait is None else (disabled_trait,))
    amounts: dict[int, dict[int, int]] = defaultdict(dict)
    for draw in draws:
        amounts[draw.row][draw.class_id] = draw.amount
    groups, suffixes = _groups(forest, amounts, states)
    subtrees = _subtrees(forest, groups, suffixes, states)
    own = next(row for row in amounts if sharing_trait not in forest.traits.of(row))
    root = int(forest.providers.root[own])
    return ForestQuery(
        groups=tuple(groups),
        sharing_trait=sharing_trait,
        maximum=2**31,
        isolate=True,
        same_subtree=tuple(each for each in subtrees if len(each) > 1),
        root_required=_traits(forest, root, states),
        root_member_of=tuple(frozenset((each,)) for each in sorted(forest.aggregates.of(root))),
    )


def _traits(forest: Forest, row: int, states: IdSet) -> tuple[IdSet, ...]:
    """Return the traits that a request asks for to get this provider; states of a host are none."""
    return tuple(frozenset((trait,)) for trait in sorted(forest.traits.of(row) - states))


def _groups(
    forest: Forest, amounts: Mapping[int, Mapping[int, int]], states: IdSet
) -> tuple[list[GroupQuery], dict[int, str]]:
    """Return a group for each provider, or for several like ones, and the suffixes by provider."""
    groups: list[GroupQuery] = []
    suffixes: dict[int, str] = {}
    for rows in _alike(forest, amounts):
        suffix = f"_{len(groups)}"
        suffixes.update(dict.fromkeys(rows, suffix))
        resources = {class_id: amount * len(rows) for class_id, amount in amounts[rows[0]].items()}
        split = frozenset(resources) if len(rows) > 1 else frozenset[int]()
        required = _traits(forest, rows[0], states)
        groups.append(GroupQuery(suffix, tuple(sorted(resources.items())), required, split=split))
    return groups, suffixes


def _subtrees(
    forest: Forest, groups: list[GroupQuery], suffixes: Mapping[int, str], states: IdSet
) -> list[frozenset[str]]:
    """Return the suffixes of groups that stay together below one part of the host.

    The part gets a group without resources, if it gives nothing itself.
    """
    parents = forest.providers.parent
    # The part of its host that each provider is, or is below; the root for the root.
    tops: dict[int, set[int]] = defaultdict(set)
    for row in suffixes:
        top = row
        while _is_below_part(forest, top):
            top = int(parents[top])
        tops[top].add(row)
    subtrees = []
    for top, members in sorted(tops.items()):
        if parents[top] >= 0 and (len(members) > 1 or top not in members):
            names = {suffixes[row] for row in members}
            if top not in members:
                suffix = f"_{len(groups)}"
                groups.append(GroupQuery(suffix, (), _traits(forest, top, states)))
                names.add(suffix)
            subtrees.append(frozenset(names))
    return subtrees


def _is_below_part(forest: Forest, row: int) -> bool:
    parents = forest.providers.parent
    return bool(parents[row] >= 0 and parents[int(parents[row])] >= 0)


def _alike(forest: Forest, amounts: Mapping[int, Mapping[int, int]]) -> Iterable[list[int]]:
    """Return the providers that give something; like ones below one part of a host (cores) are together."""
    groups: dict[object, list[int]] = defaultdict(list)
    for row, held in sorted(amounts.items()):
        key: object = row
        if len(held) == 1 and _is_below_part(forest, row):
            key = (int(forest.providers.parent[row]), *held.items(), forest.traits.of(row))
        groups[key].append(row)
    return groups.values()
