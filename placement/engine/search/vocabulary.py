"""Conditions in words: ids become names, conditions sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from placement.engine.domain.explanation import IN_CLUSTER, Condition, ConditionKind
from placement.engine.search import conditions
from placement.engine.search.query import IdSet, IsCoreTree, IsOpen


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of ids."""

    classes: Mapping[int, str]
    traits: Mapping[int, str]
    aggregates: Mapping[int, str] = field(default_factory=dict)

    def resource_class(self, class_id: int) -> str:
        """Return the name of a resource class."""
        return self.classes.get(class_id, "of an unknown class")

    def trait(self, trait_id: int) -> str:
        """Return the name of a trait."""
        return self.traits.get(trait_id, "an unknown trait")

    def aggregate(self, aggregate_id: int) -> str:
        """Return the name of an aggregate."""
        return self.aggregates.get(aggregate_id, "without members")

    def stated(self, condition: conditions.ProviderCondition | conditions.TreeCondition) -> Condition:
        """Return a condition in words and by names."""
        match condition:
            case conditions.Fits(class_id, wanted):
                return amount(self.resource_class(class_id), wanted)
            case conditions.GivesPart(class_id, wanted):
                return amount(self.resource_class(class_id), wanted, "a part of {} free")
            case conditions.OffersClass(class_id):
                name = self.resource_class(class_id)
                return Condition(ConditionKind.RESOURCE_CLASS, name, name)
            case conditions.Carries(required, forbidden, at_root):
                kind = ConditionKind.ROOT_TRAITS if at_root else ConditionKind.TRAITS
                return _of_sets(kind, _WITH if at_root else "{}", "trait", self.trait, required, forbidden)
            case conditions.IsIn(required, forbidden, or_root, at_root):
                kind = ConditionKind.ROOT_AGGREGATES if at_root else ConditionKind.AGGREGATES
                form = _IN if at_root else "{} (the provider or its host)" if or_root else "{}"
                return _of_sets(kind, form, "aggregate", self.aggregate, required, forbidden)
            case conditions.InTree(uuid):
                return Condition(ConditionKind.IN_TREE, f"on the host of {uuid}", required=((uuid,),))
            case conditions.Exists():
                return Condition(ConditionKind.ANY, "any provider")
            case _:
                return self._stated_of_trees(condition)

    def _stated_of_trees(
        self,
        condition: conditions.OnHost | conditions.Together | IsCoreTree | IsOpen | conditions.Combines,
    ) -> Condition:
        match condition:
            case conditions.OnHost(condition=inner):
                return self._stated_of_host(inner)
            case conditions.Together(any_of):
                kind, form = ConditionKind.TRAITS_TOGETHER, "hosts with {} on a provider with room"
                return _of_sets(kind, form, "trait", self.trait, (any_of,), frozenset())
            case IsCoreTree(wanted=wanted):
                text = f"hosts {'with' if wanted else 'without'} cores below their memory"
                return Condition(ConditionKind.TREE_KIND, text)
            case IsOpen():
                return Condition(ConditionKind.OPEN_HOSTS, "open hosts", required=(("an open host",),))
            case conditions.Combines():
                return Condition(ConditionKind.COMBINATION, "hosts that can serve the whole request at once")

    def _stated_of_host(
        self, condition: conditions.Carries | conditions.IsIn | conditions.InTree
    ) -> Condition:
        """Return what a group asks of a whole host."""
        match condition:
            case conditions.IsIn(required, forbidden):
                kind = ConditionKind.AGGREGATES
                return _of_sets(kind, _IN, "aggregate", self.aggregate, required, forbidden)
            case conditions.Carries(required, forbidden):
                return _of_sets(ConditionKind.TRAITS, _WITH, "trait", self.trait, required, forbidden)
            case _:
                return self.stated(condition)


_IN, _WITH = "hosts in {}", "hosts with {}"


def amount(resource_class: str, wanted: int, form: str = "{} free") -> Condition:
    """Return the condition that an amount is free."""
    text = form.format(f"{wanted} {resource_class}")
    return Condition(ConditionKind.AMOUNT, text, resource_class, wanted)


def _of_sets(
    kind: ConditionKind,
    form: str,
    noun: str,
    name: Callable[[int], str],
    required: Iterable[IdSet],
    forbidden: IdSet,
) -> Condition:
    """Return the condition to have one of each required set and no forbidden one, called by their names."""
    wanted = tuple(tuple(sorted(map(name, any_of))) for any_of in required)
    unwanted = tuple(sorted(map(name, forbidden)))
    called = [" or ".join(any_of) for any_of in wanted]
    parts = [each if each.startswith(IN_CLUSTER) else f"{noun} {each}" for each in called]
    parts += [f"no {noun} {label}" for label in unwanted]
    return Condition(kind, form.format(", ".join(parts)), required=wanted, forbidden=unwanted)
