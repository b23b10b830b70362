"""The input of a translation: a flavor, image properties and options, checked before any rule reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from placement.engine.domain.identifiers import meant, near
from placement.engine.domain.inventories import MAX_INT
from placement.flavors.nova.problems import Code, Problems, shown

FLAT = "flat"
GRANULAR = "granular"
MAX_VCPUS = 65536
"""A bound far above any hypervisor, as the translation lists guest CPUs one by one."""
FIRMWARE_KEY = "hw_firmware_type"
STATELESS_FIRMWARE_KEY = "hw_firmware_stateless"
ImageProperties = Mapping[str, str]
"""Image property name (`hw_cpu_policy`, `trait:NAME`) to its text."""
# More digits than any amount has; keeps hostile texts away from the arithmetic.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
_FALSE = frozenset(("0", "f", "false", "off", "n", "no"))
_REQUIRED_FLAVOR_FIELDS = ("vcpus", "memory_mb")
_CODE_BY_PART: Mapping[str, Code] = {
    "flavor": "flavor_invalid",
    "image": "image_invalid",
    "options": "options_invalid",
}


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
    """The options of a translation.

    `boot_from_volume` leaves the root disk out; `limit` caps the candidates asked for; `strict` refuses the
    extra specs that nova's validation refuses; `pcpu_fallback` adds the second query for hosts without PCPU;
    `numa` is `flat` (totals) or `granular` (one group per guest NUMA cell); `device_cells` ties a suffixed
    group to a guest cell (suffix -> cell id, granular only).
    """

    boot_from_volume: bool = False
    limit: int | None = None
    strict: bool = False
    pcpu_fallback: bool = False
    numa: str = FLAT
    device_cells: Mapping[str, int] = field(default_factory=dict)


def check_input(flavor: Flavor, image: Mapping[str, str], options: Options, problems: Problems) -> None:
    """Refuse whatever the rules could not even read: wrong types, negative amounts, unknown option values.

    Source: nova-flavors.md, "Input".
    """
    _check_amount(flavor.vcpus, "flavor.vcpus", 1, MAX_VCPUS, "flavor_invalid", problems)
    for name in ("memory_mb", "root_gb", "ephemeral_gb", "swap_mb"):
        _check_amount(getattr(flavor, name), f"flavor.{name}", 0, MAX_INT, "flavor_invalid", problems)
    _check_texts(flavor.extra_specs, "flavor.extra_specs", "flavor_invalid", problems)
    _check_texts(image, "image", "image_invalid", problems)
    for name in ("boot_from_volume", "strict", "pcpu_fallback"):
        if not isinstance(getattr(options, name), bool):
            problems.add("options_invalid", f"options.{name}", "must be true or false")
    if options.limit is not None:
        _check_amount(options.limit, "options.limit", 1, MAX_INT, "options_invalid", problems)
    if options.numa not in (FLAT, GRANULAR):
        problems.add("options_invalid", "options.numa", f"must be {FLAT} or {GRANULAR}")
    if not isinstance(options.device_cells, Mapping):
        problems.add("options_invalid", "options.device_cells", "must map group suffixes to cell ids")
        return
    for suffix, cell in options.device_cells.items():
        if not _is_text(suffix):
            problems.add("options_invalid", "options.device_cells", "every group suffix must be text")
        _check_amount(cell, "options.device_cells", 0, MAX_VCPUS, "options_invalid", problems)


def _check_amount(value: object, name: str, least: int, most: int, code: Code, problems: Problems) -> None:
    # bool is a kind of int in Python, but `true` vcpus is a slip of the caller.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        problems.add(code, name, f"must be a whole number from {least} to {most}")


def _check_texts(texts: object, name: str, code: Code, problems: Problems) -> None:
    if not isinstance(texts, Mapping):
        problems.add(code, name, "must map names to texts")
        return
    for key, text in texts.items():
        if not _is_text(key):
            problems.add(code, name, "every name must be text")
        elif not _is_text(text):
            problems.add(code, key, "must be text")


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: JSON can carry it, a query string cannot.
        return False
    return True


def read_document(document: object) -> tuple[Flavor, ImageProperties, Options]:
    """Return the parts of a translation request; raises FlavorRefused for a missing or unknown field.

    Types and ranges of the values are checked by the translation.
    """
    problems = Problems()
    parts = _object(document, "request", "flavor_invalid", problems)
    for name in parts:
        if name not in _CODE_BY_PART:
            like = meant(near(str(name), _CODE_BY_PART.keys() - parts.keys(), 1)) if len(parts) < 10 else ""
            problems.add("flavor_invalid", _bare(name), f"is not part of a translation request{like}")
    flavor, image, options = (
        _object({} if parts.get(name) is None else parts[name], name, code, problems)
        for name, code in _CODE_BY_PART.items()
    )
    for part, name, shape in ((flavor, "flavor", Flavor), (options, "options", Options)):
        known = sorted(field.name for field in fields(shape))
        for field_name in part:
            if field_name not in known:
                message = f"is not one of its fields {', '.join(known)}"
                problems.add(_CODE_BY_PART[name], f"{name}.{_bare(field_name)}", message)
    for name in _REQUIRED_FLAVOR_FIELDS:
        if name not in flavor:
            problems.add("flavor_invalid", f"flavor.{name}", "is missing")
    problems.raise_if_any()
    return Flavor(**flavor), image, Options(**options)


def _bare(name: object) -> str:
    """Return the name without quotes, escaped and cut as `shown` does."""
    return shown(name).strip("'")


def _object(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value)
    problems.add(code, name, "must be an object")
    return {}


def integer(text: str) -> int | None:
    """Return the decimal integer the text spells, blanks around it allowed, else None."""
    trimmed = text.strip()
    return int(trimmed) if _INTEGER.fullmatch(trimmed) else None


def is_true(text: str) -> bool:
    """Return whether the text is a word for true in any letter case; everything else is false.

    Source: nova-flavors.md, "Input".
    """
    return text.strip().lower() in _TRUE


def is_boolean(text: str) -> bool:
    """Return whether the text is a word for true or for false in any letter case."""
    return text.strip().lower() in _TRUE | _FALSE


def given(texts: Mapping[str, str], key: str) -> str | None:
    """Return the text under this key; an empty text counts as missing (nova-flavors.md, "Input")."""
    return texts.get(key) or None


def is_uefi(image: ImageProperties) -> bool:
    return image.get(FIRMWARE_KEY) == "uefi"


def is_stateless(image: ImageProperties) -> bool:
    """Return whether the image boots with stateless UEFI (nova-flavors.md, "Optional additions")."""
    return is_uefi(image) and is_true(image.get(STATELESS_FIRMWARE_KEY, ""))
