"""What somebody may have asked for who was not claimed here: what it holds says so, as far as it can.

The same amounts, each from a provider with the traits of the one that gives it now, on a host with the traits
of the one it is on; what is given below one part of a host stays together below one part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from placement.forest.forest import Forest
from placement.search.answer import Draw
from placement.search.query import ForestQuery, GroupQuery, Ids

DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
"""The trait of hosts to which nova sends nobody: a state, for which nobody asked."""


def guessed_query(
    forest: Forest, draws: Sequence[Draw], sharing_trait: int, disabled_trait: int | None
) -> ForestQuery:
    """The query that a consumer with these draws, on one host and what it shares, may have asked."""
    states = frozenset(() if disabled_trait is None else (disabled_trait,))
    amounts: dict[int, dict[int, int]] = defaultdict(dict)
    for draw in draws:
        amounts[draw.row][draw.class_id] = draw.amount
    suffixes: dict[int, str] = {}
    groups: list[GroupQuery] = []
    for rows in _alike(forest, amounts):
        suffix = f"_{len(groups)}"
        suffixes.update(dict.fromkeys(rows, suffix))
        groups.append(_group(forest, rows, amounts, suffix, states))
    tops: dict[int, set[int]] = defaultdict(set)
    for row in amounts:
        tops[_top(forest, row)].add(row)
    subtrees = []
    for top, members in sorted(tops.items()):
        if forest.providers.parent[top] >= 0 and (len(members) > 1 or top not in members):
            names = {suffixes[row] for row in members}
            if top not in members:
                suffix = f"_{len(groups)}"
                groups.append(GroupQuery(suffix, (), _traits(forest, top, states)))
                names.add(suffix)
            subtrees.append(frozenset(names))
    host = int(forest.providers.root[next(row for row in amounts if not _shares(forest, row, sharing_trait))])
    return ForestQuery(
        groups=tuple(groups),
        sharing_trait=sharing_trait,
        maximum=2**31,
        isolate=True,
        same_subtree=tuple(each for each in subtrees if len(each) > 1),
        root_required=_traits(forest, host, states),
        root_forbidden=states,
    )


def _alike(forest: Forest, amounts: dict[int, dict[int, int]]) -> list[list[int]]:
    """The providers that give something; like ones below one part of a host, such as cores, are together."""
    groups: dict[object, list[int]] = defaultdict(list)
    for row, held in sorted(amounts.items()):
        parent = int(forest.providers.parent[row])
        key: object = row
        if len(held) == 1 and parent >= 0 and forest.providers.parent[parent] >= 0:
            key = (parent, *held.items(), forest.traits.of(row))
        groups[key].append(row)
    return list(groups.values())


def _group(
    forest: Forest, rows: Sequence[int], amounts: dict[int, dict[int, int]], suffix: str, states: Ids
) -> GroupQuery:
    resources = {class_id: amount * len(rows) for class_id, amount in amounts[rows[0]].items()}
    return GroupQuery(
        suffix,
        tuple(sorted(resources.items())),
        _traits(forest, rows[0], states),
        split=frozenset(resources) if len(rows) > 1 else frozenset(),
    )


def _traits(forest: Forest, row: int, states: Ids) -> tuple[Ids, ...]:
    return tuple(frozenset((trait,)) for trait in sorted(forest.traits.of(row) - states))


def _shares(forest: Forest, row: int, sharing_trait: int) -> bool:
    return sharing_trait in forest.traits.of(row)


def _top(forest: Forest, row: int) -> int:
    """The provider right below the root that another one is below, or is; the root itself for the root."""
    parents = forest.providers.parent
    top = row
    while parents[top] >= 0 and parents[int(parents[top])] >= 0:
        top = int(parents[top])
    return top
