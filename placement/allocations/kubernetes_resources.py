"""Kubernetes resource names, and the resource classes and units they have here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import NamedTuple

from placement.common.manifest import Field, QuantityError, parse_quantity
from placement.engine.domain.units import LARGEST_AMOUNT

_MIB = 2**20
_GIB = 2**30
_LONGEST_CLASS = 255
_OTHER = re.compile(r"[^A-Z0-9_]")
HUGEPAGES = "hugepages-"
# So many resources are remembered with their classes.
_KEPT = 1024

CORE_CLASS = "PCPU"
CPU_CLASS = "CUSTOM_CPU_MILLI"
_GPU_MEMORY = "CUSTOM_KOORDINATOR_SH_GPU_MEMORY_MB"
# Candidates are scored by resource classes, pods by Kubernetes' names; both take either name.
_CLASS_OF = {"cpu": "VCPU", "memory": "MEMORY_MB"}
_CLASS = re.compile(r"[A-Z][A-Z0-9_]*")


class ResourceClass(NamedTuple):
    """A resource class and how many base units (see `base_amount`) make one of it."""

    name: str
    unit: int = 1


# Hosts and NUMA nodes are two ledgers: every pod consumes from its host, aligned ones from NUMA nodes too.
# So what exists on both levels needs two classes, or one request could be answered from either.
# By Kubernetes' name: the class of hosts, that of NUMA nodes, and the unit.
_CLASSES: Mapping[str, tuple[str, str, int]] = {
    "cpu": ("CUSTOM_NODE_CPU_MILLI", CPU_CLASS, 1),
    "memory": ("CUSTOM_NODE_MEMORY_MB", "MEMORY_MB", _MIB),
    "pods": ("CUSTOM_PODS", "CUSTOM_PODS", 1),
    "kubernetes.io/batch-cpu": ("CUSTOM_BATCH_CPU", "CUSTOM_NUMA_BATCH_CPU", 1),
    "kubernetes.io/batch-memory": ("CUSTOM_BATCH_MEMORY_MB", "CUSTOM_NUMA_BATCH_MEMORY_MB", _MIB),
    "kubernetes.io/mid-cpu": ("CUSTOM_MID_CPU", "CUSTOM_NUMA_MID_CPU", 1),
    "kubernetes.io/mid-memory": ("CUSTOM_MID_MEMORY_MB", "CUSTOM_NUMA_MID_MEMORY_MB", _MIB),
    "ephemeral-storage": ("DISK_GB", "DISK_GB", _GIB),
    # Bytes of one modern accelerator overflow the largest amount an inventory can hold.
    "koordinator.sh/gpu-memory": (_GPU_MEMORY, _GPU_MEMORY, _MIB),
}
_NUMA_ONLY = frozenset(on_numa for on_host, on_numa, _ in _CLASSES.values() if on_numa != on_host)


def base_amount(resource: str, quantity: Fraction, rounded: Callable[[Fraction], int] = floor) -> int:
    """Return a quantity in base units: millicores (rounded up) for `cpu`, else bytes or pieces.

    It is 2^63-1 at most, as in Kubernetes, also where containers of a pod add up to more.
    """
    return min(LARGEST_AMOUNT, ceil(quantity * 1000) if resource == "cpu" else rounded(quantity))


@lru_cache(_KEPT)
def host_class(resource: str) -> ResourceClass:
    """Return the class in which a host as a whole offers a resource (koordinator.md, "Resource classes")."""
    name, _, unit = _CLASSES.get(resource) or _common_class(resource)
    return ResourceClass(name, unit)


@lru_cache(_KEPT)
def numa_class(resource: str) -> ResourceClass:
    """Return the class in which a NUMA node offers a resource (koordinator.md, "Resource classes")."""
    _, name, unit = _CLASSES.get(resource) or _common_class(resource)
    return ResourceClass(name, unit)


def _common_class(resource: str) -> tuple[str, str, int]:
    unit, name = 1, f"CUSTOM_{_OTHER.sub('_', resource.upper())}"
    if resource.startswith(HUGEPAGES):
        # The bytes of a page of `hugepages-<size>`.
        with suppress(QuantityError):
            unit = max(1, floor(parse_quantity(resource.removeprefix(HUGEPAGES))))
    return name, name, unit


def is_numa_only(resource_class: str) -> bool:
    """Return whether only NUMA nodes offer the class, as hosts offer the resource in a class of their own."""
    return resource_class in _NUMA_ONLY


def class_names() -> dict[str, str]:
    """Return the Kubernetes name of each class that is given out under a name of its own."""
    return {name: resource for resource, names in _CLASSES.items() for name in names[:2]} | {
        CORE_CLASS: "cpu"
    }


def resource_names(requested: Iterable[str]) -> dict[str, str]:
    """Return the Kubernetes name of each class with a name of its own, and of classes of these resources."""
    return class_names() | {host_class(resource).name: resource for resource in requested}


_BUILT_IN = frozenset(class_names().values())


def is_built_in(resource: str) -> bool:
    """Return whether a resource has a class of its own here or is huge pages: no extended resource."""
    return resource in _BUILT_IN or resource.startswith(HUGEPAGES)


class ResourceNames:
    """The Kubernetes resource that each of our classes stands for on one host; no class stands for two."""

    def __init__(self) -> None:
        self._names = class_names()

    def admit(self, field: Field, resource: str, resource_class: str) -> bool:
        """Return whether the class may stand for the resource at a field; refuse the field otherwise."""
        if not resource:
            field.refuse("a resource needs a name")
        elif len(resource_class) > _LONGEST_CLASS:
            field.refuse(f"its resource class would be longer than {_LONGEST_CLASS} characters")
        elif (other := self._names.setdefault(resource_class, resource)) != resource:
            field.refuse(f"{resource!r} and {other!r} would both be the resource class {resource_class}")
        else:
            return True
        return False

    def of(self, resource_class: str) -> str:
        """Return the Kubernetes name of an admitted class."""
        return self._names[resource_class]


_RESOURCE_OF = {**class_names(), "VCPU": "cpu"}


def is_class(name: str) -> bool:
    """Return whether this is the name of a resource class rather than one that Kubernetes has."""
    return _CLASS.fullmatch(name) is not None


def class_of(name: str) -> str:
    """Return the class that candidates are scored by; a name that is a class already stays."""
    core = _CLASS_OF.get(name.lower())
    if core is not None:
        return core
    return name if is_class(name) else host_class(name).name


def resource_of(name: str) -> str:
    """Return the Kubernetes name that pods are scored by; a name that is none of our classes stays."""
    return name.lower() if name.lower() in _CLASS_OF else _RESOURCE_OF.get(name, name)


_NODE_CLASS_OF = {name: host_class(resource).name for resource, name in _CLASS_OF.items()}
_INSTANCE_CLASSES = frozenset(_NODE_CLASS_OF)
_POD_CLASSES = frozenset(_NODE_CLASS_OF.values())


def node_class_of(name: str) -> str:
    """Return the class in which pods consume cpu or memory of nodes for VCPU or MEMORY_MB; others stay.

    Source: scoring.md, "cpu and memory".
    """
    return _NODE_CLASS_OF.get(name, name)


def is_for_pods(classes: Set[str], *, has_nodes: bool) -> bool:
    """Return whether cpu and memory are what pods consume of nodes, for a request of these classes.

    `has_nodes`: it looks in a cluster that has Kubernetes nodes. Source: scoring.md, "cpu and memory".
    """
    return bool(classes & _POD_CLASSES) or (has_nodes and not classes & _INSTANCE_CLASSES)
