"""How long it takes to choose CPUs on a host with 128 of them.

python -m benchmarks.accumulator
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.measure import Timing
from benchmarks.report import print_table
from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.cpus import CpuTopology, LogicalCpu, layout_of, mask_of
from placement.engine.numa.host import (
    BindPolicy,
    CpuDemand,
    CpuUse,
    Distribution,
    ExclusiveLevel,
    PickRules,
    PodRefused,
)

CPUS = 128


def main() -> None:
    """Measure and print."""
    print_table("accumulator, 128 CPUs", ["host", "runs", "p50", "p99", "longest"], list(_accumulator()))


def topology(numa_nodes: int, threads: int) -> CpuTopology:
    """The CPUs of a host with two sockets; siblings are as far apart as the host has cores."""
    cores = CPUS // threads
    return CpuTopology(
        tuple(
            LogicalCpu(
                core + thread * cores,
                core,
                core * numa_nodes // cores,
                core * numa_nodes // cores // (numa_nodes // 2),
            )
            for core in range(cores)
            for thread in range(threads)
        )
    )


def _accumulator() -> Iterator[list[str]]:
    """Every policy, level and strategy on hosts filled to various degrees, for pods of all sizes."""
    for numa_nodes, threads in ((2, 2), (4, 2), (8, 2), (2, 1)):
        layout = layout_of(topology(numa_nodes, threads))
        chance, timing = random.Random(1), Timing()
        for used, bind, level, fullest, distribution in itertools.product(
            (0, 32, 64, 96), BindPolicy, ExclusiveLevel, (True, False), Distribution
        ):
            held = mask_of(chance.sample(range(CPUS), used))
            use = CpuUse().plus(held, chance.choice(list(ExclusiveLevel)))
            rules = PickRules(fullest_first=fullest, distribution=distribution, downgrades=True)
            for need in (1, 2, 8, 25, 64, 70):
                demand = CpuDemand(need, bind, False, level)
                spent = []
                # The quickest of three: the others only tell who else wanted the processor.
                for _ in range(3):
                    started = time.perf_counter()
                    with suppress(PodRefused):
                        take_cpus(layout, use, layout.cpus & ~held, demand, rules)
                    spent.append((time.perf_counter() - started) * 1000)
                timing.milliseconds.append(min(spent))
        name = f"{numa_nodes} NUMA nodes, {threads} threads per core"
        yield [name, str(len(timing.milliseconds)), *timing.figures()]


if __name__ == "__main__":
    main()
