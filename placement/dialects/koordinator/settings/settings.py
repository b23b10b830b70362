"""The scheduler settings of a cluster: they count where pods and hosts say nothing."""

from __future__ import annotations

from dataclasses import dataclass

from placement.dialects.koordinator.profile import Profile
from placement.dialects.koordinator.qos import QosClass
from placement.numa.policies import (
    BindPolicy,
    ExclusiveLevel,
    NumaPolicy,
    NumaStrategy,
)
from placement.scoring.host import favours_full
from placement.scoring.strategy import DEFAULT_SCORING, Strategy


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The scheduler settings of a cluster (koordinator.md, "Scheduler settings", "Profiles").

    `guaranteed_qos` is the class that Kubernetes' Guaranteed stands for when a priority class is derived.
    `keeps_sub_priority`: that label of a pod must not change. A CPU may be held `share_limit` times. The
    defaults for exclusivity and the NUMA policy only count under `design`; a NUMA strategy of None follows
    the NUMA scoring.
    """

    profile: Profile = Profile.DESIGN
    default_bind_policy: BindPolicy = BindPolicy.FULL_PCPUS
    default_exclusive_level: ExclusiveLevel = ExclusiveLevel.NONE
    default_numa_policy: NumaPolicy = NumaPolicy.NONE
    default_numa_strategy: NumaStrategy | None = None
    host_scoring: Strategy = DEFAULT_SCORING
    numa_scoring: Strategy = DEFAULT_SCORING
    guaranteed_qos: QosClass = QosClass.LSR
    keeps_sub_priority: bool = True
    share_limit: int = 1

    @property
    def follows_design(self) -> bool:
        """Whether what the design documents promise beats what the running scheduler does."""
        return self.profile is Profile.DESIGN

    @property
    def numa_strategy(self) -> NumaStrategy:
        """The strategy of hosts that name none."""
        strategy = self.default_numa_strategy
        if strategy is None:
            fullest_first = favours_full(self.numa_scoring)
            return NumaStrategy.MOST_ALLOCATED if fullest_first else NumaStrategy.LEAST_ALLOCATED
        if strategy is NumaStrategy.DISTRIBUTE_EVENLY and not self.follows_design:
            return NumaStrategy.LEAST_ALLOCATED
        return strategy
