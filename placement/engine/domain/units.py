"""Units in which people read the amounts of a resource class, and amounts in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

# Amounts repeat from host to host; writing one takes longer than looking it up.
REMEMBERED = 4096
_GIBI = 1024
LARGEST_AMOUNT = 2**63 - 1
"""The largest amount that Kubernetes and databases count with; what is more counts as this."""


class Unit(NamedTuple):
    """A unit that people read, and how many units of a class make one of it."""

    name: str
    divisor: int = 1


VIRTUAL_FUNCTION = "VF"
_CPU, _GIB = "CPU", "GiB"
_KNOWN = {
    "VCPU": Unit("vCPU"),
    "PCPU": Unit(_CPU),
    "MEMORY_MB": Unit(_GIB, _GIBI),
    "MEM_ENCRYPTION_CONTEXT": Unit("contexts"),
    "DISK_GB": Unit(_GIB),
    "VGPU": Unit("vGPU"),
    "SRIOV_NET_VF": Unit(VIRTUAL_FUNCTION),
    "NET_BW_EGR_KILOBIT_PER_SEC": Unit("Mbit/s", 1000),
    "NET_BW_IGR_KILOBIT_PER_SEC": Unit("Mbit/s", 1000),
}
_BY_END = {
    "_CPU_MILLI": Unit(_CPU, 1000),
    # Koordinator counts these in thousandths, too.
    "_BATCH_CPU": Unit(_CPU, 1000),
    "_MID_CPU": Unit(_CPU, 1000),
    "_MILLI": Unit("thousandths"),
    "_MEMORY_MB": Unit(_GIB, _GIBI),
    "_MB": Unit(_GIB, _GIBI),
    "_GB": Unit(_GIB),
    "HUGEPAGES_1GI": Unit("pages of 1 GiB"),
    "HUGEPAGES_2MI": Unit("pages of 2 MiB"),
    "_PODS": Unit("pods"),
}
PIECES = Unit("pieces")


@lru_cache(REMEMBERED)
def unit_of(resource_class: str) -> Unit:
    """Return the unit of a class; unknown classes are counted in pieces."""
    found = _KNOWN.get(resource_class)
    if found is not None:
        return found
    if "SRIOV" in resource_class:
        return Unit(VIRTUAL_FUNCTION)
    return next((unit for end, unit in _BY_END.items() if resource_class.endswith(end)), PIECES)


def rounded_share(part: float, whole: float, steps: int) -> int:
    """Return a part of a whole in steps, rounded half up; 0 of nothing.

    Only nothing is 0 and only the whole is `steps`: 367 of 368 are 99 %, and 1 of 368 is 1 %. More than the
    whole is more than `steps`.
    """
    if part <= 0 or whole <= 0:
        return 0
    rounded = int((2 * steps * part + whole) // (2 * whole))
    if part == whole:
        return steps
    return max(rounded, steps + 1) if part > whole else min(max(rounded, 1), steps - 1)


def percent(part: float, whole: float) -> int:
    """Return a part of a whole in percent, as `rounded_share` rounds it."""
    return rounded_share(part, whole, 100)


# Resources of Kubernetes that are no pieces; extended resources are, whatever their classes end in.
_CPUS = frozenset({"cpu", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu"})
_BYTES = frozenset(
    {"memory", "kubernetes.io/batch-memory", "kubernetes.io/mid-memory"}
    | {"ephemeral-storage", "koordinator.sh/gpu-memory"}
)


def figure_of(value: int, resource_class: str, resource: str) -> str:
    """Return how much of a resource of Kubernetes an amount is: `0.5` CPUs, `1.5 GiB`, `2` pieces."""
    unit = unit_of(resource_class)
    if resource in _CPUS:
        return f"{value / unit.divisor:.3f}".rstrip("0").rstrip(".")
    if resource not in _BYTES:
        return str(value)
    size, names = value * _GIBI / unit.divisor, iter(("MiB", _GIB, "TiB", "PiB"))
    name = next(names)
    while size >= _GIBI and (larger := next(names, "")):
        size, name = size / _GIBI, larger
    return f"{size:.1f}".removesuffix(".0") + f" {name}"


def of_resource(value: int, resource_class: str, resource: str) -> str:
    """Return an amount of a resource of Kubernetes in words: `2 CPUs`, `1.5 GiB of memory`."""
    figure = figure_of(value, resource_class, resource)
    if resource == "pods":
        return f"{figure} pod slot{'' if value == 1 else 's'}"
    if resource in _CPUS:
        cpus = f"{figure} CPU{'' if value <= unit_of(resource_class).divisor else 's'}"
        return cpus if resource == "cpu" else f"{cpus} of {resource}"
    return f"{figure} {'of ' if resource in _BYTES else ''}{resource}"


def name_of(resource_class: str, resource: str) -> str:
    """Return a resource of Kubernetes by the class that counts it: `memory`, `memory of NUMA nodes`."""
    if resource_class == "PCPU":
        return "CPU of its own"
    name = "CPU" if resource == "cpu" else resource
    is_numa = resource_class in ("CUSTOM_CPU_MILLI", "MEMORY_MB") or resource_class.startswith("CUSTOM_NUMA_")
    return f"{name} of NUMA nodes" if is_numa else name


def each_once(amounts: Mapping[str, int], resources: Mapping[str, str]) -> list[str]:
    """Return amounts by class in words, each resource once; nodes count some of them in several classes.

    The largest figure is that of the node itself, which its NUMA nodes and cores count again.
    """
    classes = {resources[name]: name for name in sorted(amounts, key=lambda name: amounts[name])}
    return [of_resource(amounts[name], name, resource) for resource, name in sorted(classes.items())]
