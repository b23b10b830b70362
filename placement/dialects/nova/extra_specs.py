"""Extra specs that name resources and traits: `resources<S>:CLASS`, `trait<S>:TRAIT`, `group_policy`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from placement.dialects.nova.flavor import ImageProperties, integer
from placement.dialects.nova.groups import BASE, FlavorGroup, Groups
from placement.dialects.nova.resource_classes import is_known_class

GROUP_POLICIES = ("none", "isolate")
REQUIRED = "required"
FORBIDDEN = "forbidden"
GROUP_KEY = re.compile(r"(?P<kind>resources|trait)(?P<suffix>[a-zA-Z0-9_-]{1,64})?:(?P<name>.*)")

# `!`, `,` and `:` mean something in a query value, so a name with them would ask for something else.
_TRAIT_NAME = re.compile(r"[^!,:]+")
_IMAGE_TRAIT = "trait:"


@dataclass(frozen=True, slots=True)
class ExplicitRequests:
    """What the extra specs ask for by name, zero amounts included, and sorted codes of ignored entries."""

    groups: Groups
    group_policy: str | None
    warnings: tuple[str, ...]

    @property
    def base(self) -> FlavorGroup:
        """The un-numbered group, empty if no entry is in it."""
        return self.groups.get(BASE, FlavorGroup())

    def total(self, resource_class: str) -> int:
        """The amounts of one class added up over all groups, whatever their suffixes."""
        return sum(group.resources.get(resource_class, 0) for group in self.groups.values())


class _Reader:
    """Sorts entries into groups; bad ones leave only a warning, keys of other forms leave nothing."""

    def __init__(self) -> None:
        self.resources: dict[str, dict[str, int]] = {}
        self.traits: dict[str, dict[str, str]] = {}
        self.group_policy: str | None = None
        self.warnings: list[str] = []

    def read(self, key: str, text: str) -> None:
        if key == "group_policy":
            self._read_group_policy(text)
            return
        match = GROUP_KEY.fullmatch(key)
        if match is None:
            return
        if match["kind"] == "resources":
            self._read_amount(match["suffix"] or BASE, match["name"], text)
        elif _TRAIT_NAME.fullmatch(match["name"]):
            self._read_trait(match["suffix"] or BASE, match["name"], text)

    def _read_group_policy(self, text: str) -> None:
        if text in GROUP_POLICIES:
            self.group_policy = text
        else:
            self.warnings.append("group_policy_ignored")

    def _read_amount(self, suffix: str, resource_class: str, text: str) -> None:
        amount = integer(text)
        if not is_known_class(resource_class):
            self.warnings.append("resource_class_ignored")
        elif amount is None or amount < 0:
            self.warnings.append("amount_ignored")
        else:
            self.resources.setdefault(suffix, {})[resource_class] = amount

    def _read_trait(self, suffix: str, trait: str, text: str) -> None:
        if text in (REQUIRED, FORBIDDEN):
            self.traits.setdefault(suffix, {})[trait] = text
        else:
            self.warnings.append("trait_value_ignored")

    def group(self, suffix: str) -> FlavorGroup:
        traits = self.traits.get(suffix, {})
        return FlavorGroup(
            self.resources.get(suffix, {}),
            frozenset(trait for trait, text in traits.items() if text == REQUIRED),
            frozenset(trait for trait, text in traits.items() if text == FORBIDDEN),
        )


def read_extra_specs(extra_specs: Mapping[str, str]) -> ExplicitRequests:
    """The groups an operator wrote out; the suffix is all between the keyword and the first colon.

    Source: nova-flavors.md, "Extra specs that name resources and traits".
    """
    reader = _Reader()
    for key, text in extra_specs.items():
        reader.read(key, text)
    suffixes = sorted(reader.resources.keys() | reader.traits.keys())
    return ExplicitRequests(
        {suffix: reader.group(suffix) for suffix in suffixes},
        reader.group_policy,
        tuple(sorted(reader.warnings)),
    )


def image_traits(image: ImageProperties) -> FlavorGroup:
    """The traits an image requires of the base group; images cannot forbid and know no suffixes.

    Source: nova-flavors.md, "Image traits".
    """
    names = {
        key.removeprefix(_IMAGE_TRAIT): text for key, text in image.items() if key.startswith(_IMAGE_TRAIT)
    }
    return FlavorGroup(
        required=frozenset(
            name for name, text in names.items() if text == REQUIRED and _TRAIT_NAME.fullmatch(name)
        )
    )
