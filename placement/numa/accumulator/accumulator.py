"""Choosing logical CPUs for a pod, under the bind policy that it or the host requires."""

from __future__ import annotations

from placement.numa.accumulator.distribution import deal_over_numa_nodes
from placement.numa.accumulator.leftovers import take_leftovers
from placement.numa.accumulator.run import Run
from placement.numa.accumulator.spreading import take_spread
from placement.numa.accumulator.whole_cores import take_whole_cores
from placement.numa.cpus import CpuLayout
from placement.numa.demand import BindPolicy, CpuDemand, Distribution, PickRules
from placement.numa.ledger import CpuUse
from placement.numa.refusal import NOT_ENOUGH_CPUS, Refused


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


def take_cpus(
    layout: CpuLayout, use: CpuUse, available: int, demand: CpuDemand, rules: PickRules, preferred: int = 0
) -> int:
    """The mask of exactly `demand.need` CPUs out of the mask `available`, preferred ones before all others.

    The same arguments give the same CPUs. `strict` has no effect here (`strict_binding`). Raises Refused
    if there are not enough CPUs. Source: koordinator.md, "CPU accumulator", "Preferred CPUs".
    """
    first = available & preferred
    if not first:
        return _take_run(layout, use, available, demand, rules)
    reserved = min(demand.need, first.bit_count())
    taken = _take_run(layout, use, first, demand._replace(need=reserved), rules)
    rest = demand._replace(need=demand.need - reserved)
    return taken | _take_run(layout, use, available & ~first, rest, rules)


def _take_run(layout: CpuLayout, use: CpuUse, free: int, demand: CpuDemand, rules: PickRules) -> int:
    if demand.need < 1:
        return 0
    if demand.need > free.bit_count():
        raise Refused(NOT_ENOUGH_CPUS)
    if rules.distribution is not Distribution.PACKED:
        return _take_distributed(layout, use, free, demand, rules)
    run = Run(layout, use, free, demand, rules)
    if demand.bind is BindPolicy.FULL_PCPUS or layout.threads == 1:
        take_whole_cores(run)
    if run.need and demand.bind is not BindPolicy.FULL_PCPUS:
        take_spread(run)
    if run.need:
        take_leftovers(run)
    return run.taken


def _take_distributed(layout: CpuLayout, use: CpuUse, free: int, demand: CpuDemand, rules: PickRules) -> int:
    dealt = deal_over_numa_nodes(Run(layout, use, free, demand, rules))
    packed = rules._replace(distribution=Distribution.PACKED)
    if not dealt:
        return _take_run(layout, use, free, demand, packed)
    taken = 0
    for numa, share in dealt.items():
        place = free & layout.numa_nodes[numa]
        taken |= _take_run(layout, use, place, demand._replace(need=share), packed)
    return taken
