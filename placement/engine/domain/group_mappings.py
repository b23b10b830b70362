"""The mapping of request groups to providers, also rebuilt from stored amounts.

Stored allocations do not record groups. Groups that ask for the same amounts may swap their providers. Such
groups get them in order of suffixes and uuids, in the first answer and in every later one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from placement.engine.domain.claims import AmountsByProvider
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup

GroupMappings = Mapping[str, list[str]]


# Amounts can be split over groups in very many ways, and a long search would keep other requests waiting.
_MOST_STEPS = 10_000


def settled(query: CandidateQuery, mappings: GroupMappings) -> GroupMappings:
    """Return the mappings of a candidate, with the providers of like groups in order of uuids."""
    found = dict(mappings)
    for group in query.groups:
        if group.split:
            found[group.suffix] = sorted(found[group.suffix])
    for block in _blocks(query):
        providers = sorted(found[group.suffix] for group in block)
        found.update(zip((group.suffix for group in block), providers, strict=True))
    return found


def rebuilt(query: CandidateQuery, held: AmountsByProvider) -> GroupMappings | None:
    """Return the mappings of a consumer that holds the amounts of the query, as `settled` gave them.

    `held`: amounts by provider uuid and class, in sum the amounts of the query. Return None if they
    fit the groups in several ways, if a group asks for no resources, or if two groups ask for a class that is
    split: the amounts are ambiguous then.
    """
    if not all(group.resources for group in query.groups):
        return None
    if any(group.split for group in query.groups):
        return _rebuilt_splits(query, held)
    ways = _Fitting(query, held).walk()
    try:
        first = next(ways, None)
        ambiguous = any(way != first for way in ways)
    except _TooManySteps:
        return None
    return None if ambiguous else first


def _rebuilt_splits(query: CandidateQuery, held: AmountsByProvider) -> GroupMappings | None:
    """Return the mappings if all amounts of a split class serve the one group that asks for it."""
    asked = Counter(name for group in query.groups for name in group.resources)
    split = {name: group.suffix for group in query.groups for name in group.split}
    if any(asked[name] > 1 for name in split):
        return None
    whole = tuple(_whole_groups(query, split))
    found = rebuilt(replace(query, groups=whole), _whole_amounts(held, split)) if whole else {}
    if found is None:
        return None
    providers = {group.suffix: set(found.get(group.suffix, ())) for group in query.groups}
    for uuid, amounts in held.items():
        for name in amounts.keys() & split.keys():
            providers[split[name]].add(uuid)
    return {
        group.suffix: sorted(providers[group.suffix]) if group.split else found[group.suffix]
        for group in query.groups
    }


def _whole_groups(query: CandidateQuery, split: Collection[str]) -> Iterator[RequestGroup]:
    """Yield the groups without their split classes, if they also ask for others."""
    for group in query.groups:
        resources = {name: amount for name, amount in group.resources.items() if name not in split}
        if resources:
            yield replace(group, resources=resources, split=frozenset())


def _whole_amounts(held: AmountsByProvider, split: Collection[str]) -> AmountsByProvider:
    """Return the amounts of classes that are not split, by provider."""
    found = {}
    for uuid, amounts in held.items():
        kept = {name: amount for name, amount in amounts.items() if name not in split}
        if kept:
            found[uuid] = kept
    return found


def _blocks(query: CandidateQuery) -> list[list[RequestGroup]]:
    """Return the suffixed groups in order of suffixes, in blocks that may swap their providers."""
    blocks: dict[object, list[RequestGroup]] = {}
    for group in sorted(query.groups, key=lambda group: group.suffix):
        if group.suffix != UNSUFFIXED:
            roles = tuple(group.suffix in names for names in query.same_subtree)
            blocks.setdefault((group.condition, roles), []).append(group)
    return list(blocks.values())


@dataclass(frozen=True, slots=True)
class _Slot:
    """Amounts that one provider gives; `follows`: the slot before belongs to a like group."""

    suffix: str
    amounts: Mapping[str, int]
    follows: bool = False


class _TooManySteps(Exception):
    pass


class _Fitting:
    """A search for the ways to split the held amounts over the groups.

    The slots are one per suffixed group, like groups in a row, and one per class of the base group.
    """

    def __init__(self, query: CandidateQuery, held: AmountsByProvider) -> None:
        self._isolate = query.isolate
        self._left = {uuid: dict(amounts) for uuid, amounts in sorted(held.items())}
        self._slots = [
            _Slot(group.suffix, group.resources, follows=at > 0)
            for block in _blocks(query)
            for at, group in enumerate(block)
        ]
        self._slots += [
            _Slot(UNSUFFIXED, {name: amount})
            for group in query.groups
            if group.suffix == UNSUFFIXED
            for name, amount in group.resources.items()
        ]
        self._suffixes = [group.suffix for group in query.groups]
        self._chosen: list[str] = []
        self._steps = 0

    def walk(self) -> Iterator[GroupMappings]:
        """Yield all mappings, some more than once. Raises _TooManySteps."""
        if len(self._chosen) == len(self._slots):
            found: dict[str, list[str]] = {suffix: [] for suffix in self._suffixes}
            for slot, uuid in zip(self._slots, self._chosen, strict=True):
                if uuid not in found[slot.suffix]:
                    found[slot.suffix].append(uuid)
            yield found
            return
        slot = self._slots[len(self._chosen)]
        for uuid, left in self._left.items():
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise _TooManySteps
            if self._may_serve(slot, uuid, left):
                self._chosen.append(uuid)
                _add(left, slot.amounts, -1)
                yield from self.walk()
                _add(left, slot.amounts, 1)
                self._chosen.pop()

    def _may_serve(self, slot: _Slot, uuid: str, left: Mapping[str, int]) -> bool:
        if slot.follows and uuid < self._chosen[-1]:
            return False
        if self._isolate and slot.suffix != UNSUFFIXED:
            taken = zip(self._slots, self._chosen, strict=False)
            if any(other.suffix != UNSUFFIXED and uuid == chosen for other, chosen in taken):
                return False
        return all(left.get(name, 0) >= amount for name, amount in slot.amounts.items())


def _add(amounts: dict[str, int], others: Mapping[str, int], sign: int) -> None:
    for name, amount in others.items():
        amounts[name] += sign * amount
