"""Choosing logical CPUs for a pod."""

from __future__ import annotations

from placement.numa.accumulator.distribution import deal_over_numa_nodes
from placement.numa.accumulator.leftovers import take_leftovers
from placement.numa.accumulator.run import Run
from placement.numa.accumulator.spreading import take_spread
from placement.numa.accumulator.whole_cores import take_whole_cores
from placement.numa.cpu_use import CpuUse
from placement.numa.demand import CpuDemand, PickRules
from placement.numa.layout import CpuLayout
from placement.numa.policies import BindPolicy, Distribution
from placement.numa.refusal import NOT_ENOUGH_CPUS, Refused


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
