"""Type and range checks of a flavor, an image and the options, before any rule reads them."""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.nova.errors import Code, Problems
from placement.dialects.nova.flavor import (
    FLAT,
    GRANULAR,
    Flavor,
    Options,
)
from placement.domain.inventory import MAX_INT

MAX_VCPUS = 65536
"""Far above any hypervisor; the translation lists guest CPUs one by one, so there has to be an end."""


def check_input(flavor: Flavor, image: Mapping[str, str], options: Options, problems: Problems) -> None:
    """Refuse whatever the rules could not even read: wrong types, negative amounts, unknown option values.

    Source: nova-flavors.md, "Input".
    """
    _check_amount(flavor.vcpus, "flavor.vcpus", 1, MAX_VCPUS, "flavor_invalid", problems)
    for name in ("memory_mb", "root_gb", "ephemeral_gb", "swap_mb"):
        _check_amount(getattr(flavor, name), f"flavor.{name}", 0, MAX_INT, "flavor_invalid", problems)
    _check_texts(flavor.extra_specs, "flavor.extra_specs", "flavor_invalid", problems)
    _check_texts(image, "image", "image_invalid", problems)
    _check_options(options, problems)


def _check_options(options: Options, problems: Problems) -> None:
    for name in ("boot_from_volume", "strict", "pcpu_fallback"):
        if not isinstance(getattr(options, name), bool):
            problems.add("options_invalid", f"options.{name}: must be true or false")
    if options.limit is not None:
        _check_amount(options.limit, "options.limit", 1, MAX_INT, "options_invalid", problems)
    if options.numa not in (FLAT, GRANULAR):
        problems.add("options_invalid", f"options.numa: must be {FLAT} or {GRANULAR}")
    _check_device_cells(options.device_cells, problems)


def _check_device_cells(device_cells: object, problems: Problems) -> None:
    if not isinstance(device_cells, Mapping):
        problems.add("options_invalid", "options.device_cells: must map group suffixes to cell ids")
        return
    for suffix, cell in device_cells.items():
        if not _is_text(suffix):
            problems.add("options_invalid", "options.device_cells: every group suffix must be text")
        _check_amount(cell, "options.device_cells", 0, MAX_VCPUS, "options_invalid", problems)


def _check_amount(value: object, name: str, least: int, most: int, code: Code, problems: Problems) -> None:
    # bool is a kind of int in Python, but `true` vcpus is a slip of the caller.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        problems.add(code, f"{name}: must be a whole number from {least} to {most}")


def _check_texts(texts: object, name: str, code: Code, problems: Problems) -> None:
    if not isinstance(texts, Mapping):
        problems.add(code, f"{name}: must map names to texts")
        return
    for key, text in texts.items():
        if not _is_text(key):
            problems.add(code, f"{name}: every name must be text")
        elif not _is_text(text):
            problems.add(code, f"{key}: must be text")


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: JSON can carry it, a query string cannot.
        return False
    return True
