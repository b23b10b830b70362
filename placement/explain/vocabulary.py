"""The conditions of a search in words: ids become names, conditions sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.domain.explanation import Condition, Kind
from placement.search import conditions, trace
from placement.search.core_trees import IsCoreTree
from placement.search.query import Ids

_Asked = conditions.Condition | trace.TreeCondition


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of ids."""

    classes: Mapping[int, str]
    traits: Mapping[int, str]
    aggregates: Mapping[int, str] = field(default_factory=dict)

    def resource_class(self, class_id: int) -> str:
        """The name of a resource class."""
        return self.classes.get(class_id, "of an unknown class")

    def trait(self, trait_id: int) -> str:
        """The name of a trait."""
        return self.traits.get(trait_id, "an unknown trait")

    def aggregate(self, aggregate_id: int) -> str:
        """What an aggregate is called."""
        return self.aggregates.get(aggregate_id, "that nobody is in")

    def condition(self, condition: _Asked) -> Condition:
        """A condition of a search in words and by names."""
        return _IN_WORDS[type(condition)](condition, self)


def _fits(condition: conditions.Fits, words: Vocabulary) -> Condition:
    return amount(words.resource_class(condition.class_id), condition.amount)


def amount(resource_class: str, wanted: int, form: str = "room for") -> Condition:
    """That there is room for an amount."""
    return Condition(Kind.AMOUNT, f"{form} {wanted} {resource_class}", resource_class, wanted)


def _offers(condition: conditions.OffersClass, words: Vocabulary) -> Condition:
    name = words.resource_class(condition.class_id)
    return Condition(Kind.RESOURCE_CLASS, name, name)


def _traits(kind: Kind, required: Iterable[Ids], forbidden: Ids, words: Vocabulary, form: str) -> Condition:
    return _sets(kind, required, forbidden, words.trait, "trait", form)


def _aggregates(
    kind: Kind, required: Iterable[Ids], forbidden: Ids, words: Vocabulary, form: str
) -> Condition:
    return _sets(kind, required, forbidden, words.aggregate, "aggregate", form)


def _sets(
    kind: Kind,
    required: Iterable[Ids],
    forbidden: Ids,
    name: Callable[[int], str],
    noun: str,
    form: str,
) -> Condition:
    wanted = tuple(tuple(sorted(name(id_) for id_ in any_of)) for any_of in required)
    unwanted = tuple(sorted(name(id_) for id_ in forbidden))
    parts = [f"{noun} {' or '.join(any_of)}" for any_of in wanted]
    parts += [f"no {noun} {label}" for label in unwanted]
    return Condition(kind, form.format(", ".join(parts)), required=wanted, forbidden=unwanted)


_IN_WORDS: Mapping[
    type[conditions.Condition | trace.TreeCondition], Callable[[Any, Vocabulary], Condition]
] = {
    conditions.Fits: _fits,
    conditions.GivesPart: lambda it, words: amount(
        words.resource_class(it.class_id), it.amount, "room for a part of"
    ),
    conditions.OffersClass: _offers,
    conditions.Carries: lambda it, words: _traits(Kind.TRAITS, it.required, it.forbidden, words, "{}"),
    conditions.IsIn: lambda it, words: _aggregates(
        Kind.AGGREGATES, it.required, it.forbidden, words, "{}, itself or its root" if it.or_root else "{}"
    ),
    conditions.InTree: lambda it, _: Condition(
        Kind.IN_TREE, f"in the tree of {it.uuid}", required=((it.uuid,),)
    ),
    conditions.Exists: lambda _it, _words: Condition(Kind.ANY, "any provider"),
    trace.AllGroups: lambda it, _: Condition(
        Kind.GROUPS, f"trees with somebody for every group up to {it.suffix or 'the unsuffixed one'}"
    ),
    trace.Together: lambda it, words: _traits(
        Kind.TRAITS_TOGETHER, (it.any_of,), frozenset(), words, "trees that can give {} between them"
    ),
    trace.RootCarries: lambda it, words: _traits(
        Kind.ROOT_TRAITS, it.required, it.forbidden, words, "roots with {}"
    ),
    trace.RootIsIn: lambda it, words: _aggregates(
        Kind.ROOT_AGGREGATES, it.required, it.forbidden, words, "roots in {}"
    ),
    IsCoreTree: lambda it, _: Condition(
        Kind.TREE_KIND,
        "trees with cores below their memory" if it.wanted else "trees without cores below their memory",
    ),
    trace.Combines: lambda _it, _words: Condition(
        Kind.COMBINATION, "trees that serve all groups side by side (sums, group_policy, same_subtree)"
    ),
}
