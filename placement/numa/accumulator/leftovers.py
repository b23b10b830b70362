"""The part of the CPU accumulator that takes what is left, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from placement.numa.accumulator.run import Run
from placement.numa.cpuset import mask_of


def take_leftovers(run: Run) -> None:
    """Take free CPUs from anywhere on the host, near what the run has taken and from broken cores first.

    Source: koordinator.md, "Part C: leftovers".
    """
    for avoided in dict.fromkeys((*run.avoided(cores=True, numa_nodes=True), 0)):
        if run.need:
            run.take(mask_of(islice(leftover_order(run, run.free & ~avoided), run.need)))


def leftover_order(run: Run, usable: int) -> Iterator[int]:
    """All CPUs of a mask in the order in which they are taken as leftovers."""
    cores = [list(run.in_cpu_order(core)) for core in _ordered_cores(run, usable)]
    if usable.bit_count() <= run.layout.threads:
        return chain.from_iterable(cores)
    return _spread(cores)


def _ordered_cores(run: Run, usable: int) -> list[int]:
    layout = run.layout
    on_socket = {
        socket: (-(run.taken & mask).bit_count(), run.by_size((usable & mask).bit_count()))
        for socket, mask in layout.sockets.items()
    }
    on_numa = {numa: run.by_size((usable & mask).bit_count()) for numa, mask in layout.numa_nodes.items()}
    keyed = []
    for index, (mask, numa, socket) in enumerate(layout.core_places):
        rest = usable & mask
        if rest:
            shared = run.use.sum_of_counts(rest) if run.shares else 0
            key = (*on_socket[socket], on_numa[numa], rest.bit_count(), socket, shared, index)
            keyed.append((key, rest))
    return [rest for _, rest in sorted(keyed)]


def _spread(cores: list[list[int]]) -> Iterator[int]:
    """First threads of all cores in turn, then second threads, and so on."""
    for sweep in range(max(map(len, cores), default=0)):
        for core in cores:
            if sweep < len(core):
                yield core[sweep]
