"""Extra specs that name resources and traits, `resources<S>:CLASS` and `trait<S>:NAME`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import os_resource_classes

from placement.engine.domain.identifiers import meant, near
from placement.flavors.nova.flavor import ImageProperties, integer
from placement.flavors.nova.flavor_groups import BASE, FlavorGroup, FlavorGroups
from placement.flavors.nova.problems import Problems, shown

VCPU = "VCPU"
PCPU = "PCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
MEM_ENCRYPTION_CONTEXT = "MEM_ENCRYPTION_CONTEXT"
CUSTOM_PREFIX = "CUSTOM_"
STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
GROUP_POLICIES = ("none", "isolate")
REQUIRED = "required"
FORBIDDEN = "forbidden"
GROUP_KEY = re.compile(r"(?P<kind>resources|trait)(?P<suffix>[a-zA-Z0-9_-]{1,64})?:(?P<name>.*)")
# `,` and `:` separate the entries of a query value: such a name would ask for something else.
_CUSTOM = re.compile(r"CUSTOM_[^,:]*")
_WELL_FORMED_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Z0-9]+")
# `!`, `,` and `:` mean something in a query value, so a name with them would ask for something else.
_is_trait_name = re.compile(r"[^!,:]+").fullmatch
_IMAGE_TRAIT = "trait:"
_MOST_TO_COMPARE = 100


@dataclass(frozen=True, slots=True)
class ExplicitRequests:
    """What the extra specs ask for by name, zero amounts included, and why other entries are ignored."""

    groups: FlavorGroups
    group_policy: str | None
    problems: Problems

    @property
    def base(self) -> FlavorGroup:
        """Return the un-numbered group, empty if no entry is in it."""
        return self.groups.get(BASE, FlavorGroup())

    def total(self, resource_class: str) -> int:
        """Return the amounts of one class added up over all groups, whatever their suffixes."""
        return sum(group.resources.get(resource_class, 0) for group in self.groups.values())


def read_extra_specs(extra_specs: Mapping[str, str], known: Collection[str] = ()) -> ExplicitRequests:
    """Return the groups an operator wrote out; the suffix is all between the keyword and the first colon.

    Bad entries leave only the reason why they are ignored, other keys leave nothing. An unknown class may be
    meant for one of the `known`.
    Source: nova-flavors.md, "Extra specs that name resources and traits".
    """
    resources: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, str]] = {}
    group_policy: str | None = None
    problems = Problems()
    for key, text in extra_specs.items():
        match = GROUP_KEY.fullmatch(key)
        if key == "group_policy":
            if text in GROUP_POLICIES:
                group_policy = text
            else:
                problems.add("group_policy_ignored", key, f"{shown(text)} is neither none nor isolate")
        elif match is not None and match["kind"] == "resources":
            amount = _amount(key, text, match["name"], known, problems)
            if amount is not None:
                resources.setdefault(match["suffix"] or BASE, {})[match["name"]] = amount
        elif match is not None and _is_trait_name(match["name"]):
            if text in (REQUIRED, FORBIDDEN):
                traits.setdefault(match["suffix"] or BASE, {})[match["name"]] = text
            else:
                message = f"{shown(text)} is neither required nor forbidden"
                problems.add("trait_value_ignored", key, message)
    return ExplicitRequests(_groups(resources, traits), group_policy, problems)


def _amount(key: str, text: str, name: str, known: Collection[str], problems: Problems) -> int | None:
    """Return the amount of a class that an entry asks for; None if it is ignored, with the reason."""
    amount = integer(text)
    if not is_known_class(name):
        like = meant(near(name, known, 1))
        problems.add("resource_class_ignored", key, f"there is no such resource class{like}")
        return None
    if amount is None or amount < 0:
        problems.add("amount_ignored", key, f"{shown(text)} is not a whole number of 0 or more")
        return None
    return amount


def _groups(
    resources: Mapping[str, Mapping[str, int]], traits: Mapping[str, Mapping[str, str]]
) -> dict[str, FlavorGroup]:
    def traits_of(suffix: str, wanted: str) -> frozenset[str]:
        return frozenset(trait for trait, text in traits.get(suffix, {}).items() if text == wanted)

    return {
        suffix: FlavorGroup(
            resources.get(suffix, {}), traits_of(suffix, REQUIRED), traits_of(suffix, FORBIDDEN)
        )
        for suffix in sorted(resources.keys() | traits.keys())
    }


def image_traits(image: ImageProperties) -> FlavorGroup:
    """Return the traits an image requires of the base group; images cannot forbid and know no suffixes.

    Source: nova-flavors.md, "Image traits".
    """
    required = (key for key, text in image.items() if key.startswith(_IMAGE_TRAIT) and text == REQUIRED)
    names = (key.removeprefix(_IMAGE_TRAIT) for key in required)
    return FlavorGroup(required=frozenset(filter(_is_trait_name, names)))


def is_entry(key: str) -> bool:
    """Return whether the key names a resource or a trait, so that its value counts or leaves a reason."""
    match = GROUP_KEY.fullmatch(key)
    return match is not None and (match["kind"] == "resources" or _is_trait_name(match["name"]) is not None)


def suggestible(names: Collection[str], extra_specs: Mapping[str, str]) -> Collection[str]:
    """Return the names to compare unknown ones with; none for more extra specs than can be compared soon."""
    return names if len(extra_specs) <= _MOST_TO_COMPARE else ()


def is_known_class(name: str) -> bool:
    """Return whether an entry for this class is kept: a standard class, or `CUSTOM_` and no `,` or `:`.

    Source: nova-flavors.md, "Values of resource entries".
    """
    return name in STANDARD_CLASSES or _CUSTOM.fullmatch(name) is not None


def is_well_formed_class(name: str) -> bool:
    """Return whether strict mode takes this class: a standard class, or `CUSTOM_` and `A-Z 0-9 _`.

    Source: nova-flavors.md, "Strict mode".
    """
    return name in STANDARD_CLASSES or _WELL_FORMED_CUSTOM.fullmatch(name) is not None


def custom_class(text: str) -> str:
    """Return the custom class for a free text: upper case, every run of other characters one `_`."""
    return CUSTOM_PREFIX + _NOT_ALPHANUMERIC.sub("_", text.upper())
