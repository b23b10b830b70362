"""What is translated: a flavor, the properties of an image, and the options of the translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FLAT = "flat"
GRANULAR = "granular"

ImageProperties = Mapping[str, str]
"""Image property name (`hw_cpu_policy`, `trait:NAME`) to its text."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A nova flavor: guest CPUs 0 .. vcpus-1, memory and swap in MiB, disks in GiB, extra specs as texts."""

    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """How to translate.

    `boot_from_volume` leaves the root disk out; `limit` caps the candidates asked for; `strict` refuses what
    nova's extra spec validation refuses; `pcpu_fallback` adds the second query for hosts without PCPU; `numa`
    is `flat` (totals) or `granular` (one group per guest NUMA cell); `device_cells` ties a suffixed group to
    a guest cell (suffix -> cell id, granular only).
    """

    boot_from_volume: bool = False
    limit: int | None = None
    strict: bool = False
    pcpu_fallback: bool = False
    numa: str = FLAT
    device_cells: Mapping[str, int] = field(default_factory=dict)


def given(texts: Mapping[str, str], key: str) -> str | None:
    """The text under this key; an empty text means the same as a missing key (nova-flavors.md, "Input")."""
    return texts.get(key) or None
