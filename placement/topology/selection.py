"""NUMA policies: which affinity the hints of all providers lead to, and whether the pod is admitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from placement.topology.hint_rows import HintRows, ProviderHints, collect_rows, single_numa_rows
from placement.topology.merging import Merged, merge_hints
from placement.topology.policies import NumaPolicy


class Selection(NamedTuple):
    """The chosen mask of NUMA ids (None: no affinity), what it is worth, and why it is not admitted."""

    affinity: int | None
    preferred: bool = False
    unsatisfied: bool = False
    reasons: tuple[str, ...] = ()


def admits(policy: NumaPolicy, preferred: bool) -> bool:
    """Whether a policy admits a pod whose merged hint is preferred, or is not.

    Source: Koordinator semantics, policies.
    """
    return preferred or policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT)


def select_affinity(
    policy: NumaPolicy,
    providers: Iterable[ProviderHints | None],
    numa_ids: int,
    allowed: Callable[[int], bool],
) -> Selection:
    """The affinity a policy makes of all hints on a host with these NUMA nodes (a mask).

    `allowed` says which affinities may be preferred. A selection with reasons is not admitted.
    Source: Koordinator semantics, policies.
    """
    if policy is NumaPolicy.NONE:
        return Selection(None)
    collected = collect_rows(providers)
    if policy is NumaPolicy.BEST_EFFORT:
        best = merge_hints(collected.rows, numa_ids, allowed)
        return Selection(numa_ids) if best.unsatisfied else Selection(*best[:3])
    if collected.reasons:
        return Selection(None, reasons=collected.reasons)
    if policy is NumaPolicy.RESTRICTED:
        best = merge_hints(collected.rows, numa_ids, allowed)
        return _admitted(policy, best, best.affinity, collected, " & ")
    best = merge_hints(single_numa_rows(collected.rows), numa_ids, allowed)
    return _admitted(policy, best, None if best.affinity == numa_ids else best.affinity, collected, ",")


def _admitted(
    policy: NumaPolicy, best: Merged, affinity: int | None, collected: HintRows, separator: str
) -> Selection:
    reasons: tuple[str, ...] = ()
    if not admits(policy, best.preferred):
        reasons = (f"Unaligned NUMA Hint cause {separator.join(collected.summaries)}",)
    return Selection(affinity, best.preferred, best.unsatisfied, reasons)
