"""Claims of consumers, and filters for allocations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

UNKNOWN_CONSUMER_TYPE = "unknown"


MOVE_HEADER = "X-Placement-Move"
"""The header of a PUT of allocations that is "true" if the request of the consumer is unchanged."""


UNKNOWN_OWNER = "00000000-0000-0000-0000-000000000000"
"""The project and user of consumers that were written without one, unless the configuration names others."""


class UnknownOwner(NamedTuple):
    """The project and the user of consumers in versions that name none."""

    project_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class AnyGeneration:
    """A mark that the caller gives no generation of the consumer (before microversion 1.28)."""


ANY_GENERATION = AnyGeneration()
ExpectedGeneration = int | AnyGeneration | None
"""The generation that a consumer must have; None: it must not exist yet; ANY_GENERATION: any will do."""


AmountsByProvider = Mapping[str, Mapping[str, int]]
"""What consumers hold or ask for: provider uuid -> resource class -> amount."""


@dataclass(frozen=True, slots=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on; it replaces its former allocations.

    `resources` maps provider uuid -> resource class -> amount; empty means "release everything".
    `consumer_type` None leaves the type as it is. `request` is its request (domain.stored_requests), None if
    that is not known; `is_move`: the stored request stays valid.
    """

    consumer_uuid: str
    resources: AmountsByProvider
    project_id: str
    user_id: str
    generation: ExpectedGeneration = ANY_GENERATION
    consumer_type: str | None = None
    request: str | None = None
    is_move: bool = False

    def expects_generation(self, actual: int | None) -> bool:
        """Return whether a consumer with that generation, or one that does not exist, is as expected."""
        return isinstance(self.generation, AnyGeneration) or self.generation == actual


@dataclass(frozen=True, slots=True)
class AllocationFilter:
    """A filter for allocations that match all given fields; `untyped`: of consumers without a type.

    `host` is the uuid of a root: allocations of its whole tree match. `resource_class` is a name: allocations
    of this class alone match.
    """

    project_id: str | None = None
    user_id: str | None = None
    consumer_type: str | None = None
    untyped: bool = False
    consumer_uuid: str | None = None
    provider_uuid: str | None = None
    cluster: str | None = None
    host: str | None = None
    resource_class: str | None = None
