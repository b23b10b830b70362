"""Claims of consumers, and filters for allocations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN_CONSUMER_TYPE = "unknown"
MOVE_HEADER = "X-Placement-Move"
"""The header of a PUT of allocations that is "true" if the request of the consumer is unchanged."""
UNKNOWN_OWNER = "00000000-0000-0000-0000-000000000000"
"""The project and user of consumers that were written without one, unless the configuration names others."""


@dataclass(frozen=True, slots=True)
class AnyGeneration:
    """A mark that the caller gives no generation of the consumer (before microversion 1.28)."""


ANY_GENERATION = AnyGeneration()


@dataclass(frozen=True, slots=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on; it replaces what the consumer held.

    `resources` maps provider uuid -> resource class -> amount; empty means "release everything".
    `generation`: the consumer's generation, None if it must not exist yet, or ANY_GENERATION.
    `consumer_type` None leaves the type as it is. `request` is its request (engine.domain.groups), None if
    that is not known; `is_move`: the stored request stays valid.
    """

    consumer_uuid: str
    resources: Mapping[str, Mapping[str, int]]
    project_id: str
    user_id: str
    generation: int | AnyGeneration | None = ANY_GENERATION
    consumer_type: str | None = None
    request: str | None = None
    is_move: bool = False


@dataclass(frozen=True, slots=True)
class AllocationFilter:
    """A filter for allocations that match all given fields; `untyped`: of consumers without a type."""

    project_id: str | None = None
    user_id: str | None = None
    consumer_type: str | None = None
    untyped: bool = False
    consumer_uuid: str | None = None
    provider_uuid: str | None = None
    cluster: str | None = None
