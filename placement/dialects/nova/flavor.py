"""What is translated: a flavor, the properties of an image, options; and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# More digits than any amount has; keeps hostile texts away from the arithmetic.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
_FALSE = frozenset(("0", "f", "false", "off", "n", "no"))
FLAT = "flat"
GRANULAR = "granular"
ImageProperties = Mapping[str, str]
"""Image property name (`hw_cpu_policy`, `trait:NAME`) to its text."""
FIRMWARE_KEY = "hw_firmware_type"
STATELESS_FIRMWARE_KEY = "hw_firmware_stateless"


def integer(text: str) -> int | None:
    """The decimal integer the text spells, blanks around it allowed, else None."""
    trimmed = text.strip()
    return int(trimmed) if _INTEGER.fullmatch(trimmed) else None


def is_true(text: str) -> bool:
    """Whether the text is a word for true in any letter case; everything else is false.

    Source: nova-flavors.md, "Input".
    """
    return text.strip().lower() in _TRUE


def is_boolean(text: str) -> bool:
    """Whether the text is a word for true or for false in any letter case."""
    return text.strip().lower() in _TRUE | _FALSE


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


def is_uefi(image: ImageProperties) -> bool:
    """Whether the image boots with UEFI."""
    return image.get(FIRMWARE_KEY) == "uefi"


def is_stateless(image: ImageProperties) -> bool:
    """Whether the image boots with UEFI that keeps no state (nova-flavors.md, "Optional additions")."""
    return is_uefi(image) and is_true(image.get(STATELESS_FIRMWARE_KEY, ""))
