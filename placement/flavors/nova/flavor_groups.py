"""Request groups of a flavor: amounts and traits that one suffix of the query asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from placement.flavors.nova.problems import Problems

BASE = ""
"""The suffix of the un-numbered group."""


@dataclass(frozen=True, slots=True)
class FlavorGroup:
    """Amounts by resource class (in the units of the class), required traits and forbidden traits."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.resources or self.required or self.forbidden)

    @property
    def traits(self) -> tuple[str, ...]:
        """Return required traits sorted, then forbidden traits sorted with `!` in front, as in a query."""
        return (*sorted(self.required), *(f"!{trait}" for trait in sorted(self.forbidden)))


FlavorGroups = Mapping[str, FlavorGroup]
"""Suffix -> group."""


def merged(groups: Iterable[FlavorGroup]) -> FlavorGroup:
    """Return one group of all: traits are united, a later amount of a class overwrites an earlier one."""
    parts = tuple(groups)
    return FlavorGroup(
        {name: amount for part in parts for name, amount in part.resources.items()},
        frozenset().union(*(part.required for part in parts)),
        frozenset().union(*(part.forbidden for part in parts)),
    )


def stripped(groups: FlavorGroups) -> dict[str, FlavorGroup]:
    """Return the groups without amounts of 0, and without groups that have no resources or traits then.

    Source: nova-flavors.md, "Zero stripping".
    """
    kept = {}
    for suffix, group in groups.items():
        amounts = {name: amount for name, amount in group.resources.items() if amount}
        kept[suffix] = FlavorGroup(amounts, group.required, group.forbidden)
    return {suffix: group for suffix, group in kept.items() if group}


def check_trait_conflicts(groups: FlavorGroups, problems: Problems) -> None:
    """Add `trait_conflict` for each trait that a group both requires and forbids."""
    for suffix, group in groups.items():
        for trait in sorted(group.required & group.forbidden):
            problems.add("trait_conflict", f"trait{suffix}:{trait}", "is both required and forbidden")


def check_groups(groups: FlavorGroups, group_policy: str | None, problems: Problems) -> None:
    """Add the errors of Placement with status 400: traits alone, no group, several groups without a policy.

    Source: nova-flavors.md, "Checks after zero stripping".
    """
    for suffix, group in groups.items():
        if not group.resources:
            traits = ", ".join(f"trait{suffix}:{trait.lstrip('!')}" for trait in group.traits)
            message = f"nothing is requested in the same group (resources{suffix}:...)"
            problems.add("traits_without_resources", traits, message)
    if not groups:
        problems.add("no_resources", "resources", "every amount is 0, nothing is left to ask for")
    suffixes = [suffix for suffix in groups if suffix != BASE]
    if len(suffixes) > 1 and group_policy is None:
        names = ", ".join(f"resources{suffix}" for suffix in suffixes)
        problems.add("group_policy_required", "group_policy", f"must be none or isolate, there are {names}")
