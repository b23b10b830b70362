"""Queries for allocation candidates as parts, and as the strings they are sent as."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import quote

ISOLATE = "isolate"


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """A suffixed group: what it asks for of one provider."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    traits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FallbackQuery:
    """One of the queries for a pod: what it stands for, and its parts."""

    meaning: str
    resources: tuple[tuple[str, int], ...]
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    aggregate: str
    groups: tuple[QueryGroup, ...] = ()
    subtrees: tuple[tuple[str, ...], ...] = ()
    group_policy: str = ISOLATE

    @property
    def classes(self) -> set[str]:
        """Every resource class that is asked for."""
        return {
            name for part in (self.resources, *(each.resources for each in self.groups)) for name, _ in part
        }

    @property
    def traits(self) -> set[str]:
        """Every trait that a provider must have."""
        return {*self.required, *(trait for group in self.groups for trait in group.traits)}

    def query(self, known_traits: Collection[str]) -> str:
        """The query string; forbidden traits that do not exist are left out."""
        root = [*self.required, *(f"!{trait}" for trait in self.forbidden if trait in known_traits)]
        pairs = [("resources", _amounts(self.resources)), ("member_of", self.aggregate)]
        if root:
            pairs.append(("root_required", ",".join(root)))
        for group in self.groups:
            pairs.append((f"resources{group.suffix}", _amounts(group.resources)))
            if group.traits:
                pairs.append((f"required{group.suffix}", ",".join(group.traits)))
        pairs.extend(("same_subtree", ",".join(subtree)) for subtree in self.subtrees)
        if len(self.groups) > 1:
            pairs.append(("group_policy", self.group_policy))
        return "&".join(f"{key}={quote(value, safe=':,!_-')}" for key, value in pairs)


def _amounts(resources: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"{name}:{amount}" for name, amount in resources)
