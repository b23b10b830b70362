"""Short ways to write a flavor and to read what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.flavors.nova.flavor import Flavor, Options
from placement.flavors.nova.translation import Translation, translate


def flavor(extra_specs: Mapping[str, str] | None = None, **fields: Any) -> Flavor:
    """A flavor of 4 vCPUs, 1024 MiB and 1 GiB of root disk, with these extra specs and fields."""
    return Flavor(**{"vcpus": 4, "memory_mb": 1024, "root_gb": 1, "extra_specs": extra_specs or {}, **fields})


def translated(
    extra_specs: Mapping[str, str] | None = None,
    image: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Translation:
    """The translation of such a flavor."""
    return translate(flavor(extra_specs, **fields), image, Options(**(options or {})))
