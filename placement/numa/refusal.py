"""Why a host cannot take a pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement.domain.errors import Conflict
from placement.domain.explanation import Kind, Obstacle

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


class RefusalClass(StrEnum):
    """Whether a refusal may go away when other pods leave, will not, or is an error."""

    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


NO_CPUS, UNALIGNED = Obstacle(Kind.CPUS), Obstacle(Kind.NUMA)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The words that people search for, at least one, and their class (koordinator.md, "Filter").

    `obstacle` is the condition that the host failed; CPUs unless something else is told.
    """

    reasons: tuple[str, ...]
    status: RefusalClass = RefusalClass.UNSCHEDULABLE
    obstacle: Obstacle = NO_CPUS


class Refused(Conflict):
    """A host, or every host, cannot take a pod; `refusal` says why."""

    def __init__(
        self,
        *reasons: str,
        status: RefusalClass = RefusalClass.UNSCHEDULABLE,
        obstacle: Obstacle = NO_CPUS,
    ) -> None:
        super().__init__("; ".join(reasons))
        self.refusal = Refusal(reasons, status, obstacle)
