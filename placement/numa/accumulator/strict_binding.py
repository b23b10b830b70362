"""Bind policies that a pod or a host requires: CPUs that may be used at all, and a last check."""

from __future__ import annotations

from placement.numa.layout import CpuLayout
from placement.numa.policies import BindPolicy
from placement.numa.refusal import Refused


def thinned(layout: CpuLayout, available: int, bind: BindPolicy) -> int:
    """The available CPUs that a strict policy leaves: of complete cores, or the lowest one of every core.

    Source: koordinator.md, "Strict bind policy".
    """
    if bind is BindPolicy.FULL_PCPUS:
        return layout.whole_cores(available)
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return layout.lowest_threads(available)
    return available


def check_binding(layout: CpuLayout, cpus: int, bind: BindPolicy) -> None:
    """Raise Refused if chosen CPUs break a strict policy: they must fill cores, or lie on one core each.

    Source: koordinator.md, "Strict bind policy".
    """
    cores = sum(1 for core in layout.cores if core & cpus)
    size = cpus.bit_count()
    if (bind is BindPolicy.FULL_PCPUS and cores * layout.threads != size) or (
        bind is BindPolicy.SPREAD_BY_PCPUS and cores != size
    ):
        raise Refused(f"insufficient CPUs to satisfy required cpu bind policy {bind}")
