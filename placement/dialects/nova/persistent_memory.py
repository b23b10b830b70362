"""`hw:pmem`: persistent memory namespaces by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from placement.dialects.nova.groups import FlavorGroup
from placement.dialects.nova.resource_classes import custom_class

KEY = "hw:pmem"


def persistent_memory(extra_specs: Mapping[str, str]) -> FlavorGroup:
    """One CUSTOM_PMEM_NAMESPACE_<LABEL> for each time a label is listed; empty labels do not count.

    Source: nova-flavors.md, "Optional additions".
    """
    labels = (label.strip() for label in extra_specs.get(KEY, "").split(","))
    return FlavorGroup(Counter(custom_class(f"PMEM_NAMESPACE_{label}") for label in labels if label))
