"""NUMA policies: which affinity the hints of all providers lead to, and whether the pod is admitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placement.numa.alignment.hint_rows import (
    ProviderHints,
    collect_rows,
    single_numa_rows,
    summarize,
)
from placement.numa.alignment.merging import (
    Merged,
    Ranking,
    Row,
    merge_hints,
    merge_preferred,
)
from placement.numa.demand import NumaPolicy


class Selection(NamedTuple):
    """The chosen mask of NUMA ids (None: no affinity), what it is worth, and why it is not admitted."""

    affinity: int | None
    preferred: bool = False
    unsatisfied: bool = False
    reasons: tuple[str, ...] = ()


def admits(policy: NumaPolicy, preferred: bool) -> bool:
    """Whether a policy admits a pod whose merged hint is preferred, or is not.

    Source: koordinator.md, "Policies".
    """
    return preferred or policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT)


def select_affinity(
    policy: NumaPolicy, providers: Sequence[ProviderHints | None], numa_ids: int, ranking: Ranking
) -> Selection:
    """The affinity a policy makes of all hints on a host with these NUMA nodes (a mask).

    A selection with reasons is not admitted.
    Source: koordinator.md, "Policies".
    """
    if policy is NumaPolicy.NONE:
        return Selection(None)
    rows, reasons = collect_rows(providers)
    if reasons and policy is not NumaPolicy.BEST_EFFORT:
        return Selection(numa_ids if policy is NumaPolicy.RESTRICTED else None, reasons=reasons)
    best = merge_hints(_relevant(policy, rows), numa_ids, ranking)
    if not admits(policy, best.preferred):
        separator = " & " if policy is NumaPolicy.RESTRICTED else ","
        reasons = (f"Unaligned NUMA Hint cause {separator.join(summarize(providers))}",)
        return _selected(policy, best, numa_ids)._replace(reasons=reasons)
    return _selected(policy, best, numa_ids)


def select_preferred(
    policy: NumaPolicy, providers: Sequence[ProviderHints | None], numa_ids: int, ranking: Ranking
) -> Selection | None:
    """What `select_affinity` would select if that is preferred, found more cheaply; else None."""
    best = merge_preferred(_relevant(policy, collect_rows(providers).rows), numa_ids, ranking)
    return None if best is None else _selected(policy, best, numa_ids)


def _relevant(policy: NumaPolicy, rows: Sequence[Row]) -> Sequence[Row]:
    return single_numa_rows(rows) if policy is NumaPolicy.SINGLE_NUMA_NODE else rows


def _selected(policy: NumaPolicy, best: Merged, numa_ids: int) -> Selection:
    if policy is NumaPolicy.BEST_EFFORT and best.unsatisfied:
        return Selection(numa_ids)
    # A host with a single NUMA node needs no accounts per NUMA node.
    aligned = policy is not NumaPolicy.SINGLE_NUMA_NODE or best.affinity != numa_ids
    return Selection(best.affinity if aligned else None, best.preferred, best.unsatisfied)
