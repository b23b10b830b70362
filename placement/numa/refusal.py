"""Why a host cannot take a pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement.domain.errors import Conflict

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


class RefusalClass(StrEnum):
    """Whether a refusal may go away when other pods leave, will not, or is an error."""

    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The words that people search for, at least one, and their class (koordinator.md, "Filter")."""

    reasons: tuple[str, ...]
    status: RefusalClass = RefusalClass.UNSCHEDULABLE


class Refused(Conflict):
    """A host, or every host, cannot take a pod; `refusal` says why."""

    def __init__(self, *reasons: str, status: RefusalClass = RefusalClass.UNSCHEDULABLE) -> None:
        super().__init__("; ".join(reasons))
        self.refusal = Refusal(reasons, status)
