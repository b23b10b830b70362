"""Which resources count on a host. Source: scoring.md, "Which classes count for a host"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from placement.scoring.weights import Weighted

# Counted even where the request asks for none of them: the same things as Placement and Kubernetes name them.
ALWAYS_COUNTED = frozenset(
    {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"} | {"cpu", "memory", "ephemeral-storage", "pods"}
)


class Skipped(StrEnum):
    """Why a listed resource does not count on a host."""

    NO_CAPACITY = "no_capacity"
    NOT_REQUESTED = "not_requested"


def counts(name: str, request: Mapping[str, int]) -> bool:
    """Whether a listed resource counts on hosts that have any of it."""
    return bool(request.get(name, 0)) or name in ALWAYS_COUNTED


def counted(resources: Sequence[Weighted], request: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """(name, weight, what the request asks for) of the resources that count on hosts that have any."""
    for name, weight in resources:
        if counts(name, request):
            yield name, weight, request.get(name, 0)


def is_idle(resources: Sequence[Weighted], request: Mapping[str, int]) -> bool:
    """Whether the request asks for none of the listed resources."""
    return not any(request.get(name, 0) for name, _ in resources)
