"""The part of the CPU accumulator that takes whole physical cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from placement.numa.accumulator.run import Run
from placement.numa.cpuset import lowest_bits


def take_whole_cores(run: Run) -> None:
    """Take CPUs core by core from one NUMA node, else one socket, else several sockets.

    What is needed beyond whole cores stays needed, unless one place offers it on one more whole core.
    Source: koordinator.md, "Part A: whole cores".
    """
    if run.need <= run.layout.numa_size and _take_from_numa_node(run):
        return
    whole = run.layout.whole_cores(run.free)
    sockets = _fitting_order(run, whole)
    if run.need <= run.layout.socket_size:
        for socket in sockets:
            if (whole & run.layout.sockets[socket]).bit_count() >= run.need:
                run.take(_first_cpus(_cores_of_socket(run, whole, socket), run.need))
                return
    _take_from_sockets(run, whole, sockets)


def _take_from_numa_node(run: Run) -> bool:
    layout = run.layout
    for avoided in dict.fromkeys((*run.avoided(cores=False, numa_nodes=True), 0)):
        usable = run.free & ~avoided
        whole = layout.whole_cores(usable)
        fitting = [
            (run.by_size(size), run.by_size((usable & layout.sockets[socket]).bit_count()), numa)
            for numa, socket in layout.socket_of_numa.items()
            if (size := (whole & layout.numa_nodes[numa]).bit_count()) >= run.need
        ]
        if fitting:
            cores = _in_core_order(run, whole, layout.cores_of_numa[min(fitting)[-1]])
            run.take(_first_cpus(cores, run.need))
            return True
    return False


def _fitting_order(run: Run, whole: int) -> list[int]:
    sockets = run.layout.sockets
    return sorted(sockets, key=lambda socket: (run.by_size((whole & sockets[socket]).bit_count()), socket))


def _take_from_sockets(run: Run, whole: int, sockets: list[int]) -> None:
    def size(socket: int) -> int:
        return (whole & run.layout.sockets[socket]).bit_count()

    remembered = []
    for socket in sorted(sockets, key=size, reverse=True):
        if size(socket) <= run.need:
            run.take(whole & run.layout.sockets[socket])
        else:
            remembered.append(socket)
    for socket in sorted(remembered, key=size):
        for core in _cores_of_socket(run, whole, socket):
            if run.need < run.layout.threads:
                return
            run.take(core)


def _cores_of_socket(run: Run, whole: int, socket: int) -> Iterator[int]:
    return _in_core_order(run, whole, run.layout.cores_of_socket[socket])


def _in_core_order(run: Run, whole: int, cores: tuple[int, ...]) -> Iterator[int]:
    """The whole cores among these, the least shared first."""
    rests = (rest for core in cores if (rest := whole & core))
    return iter(sorted(rests, key=run.use.sum_of_counts)) if run.shares else rests


def _first_cpus(cores: Iterable[int], count: int) -> int:
    taken = 0
    for core in cores:
        missing = count - taken.bit_count()
        if not missing:
            break
        taken |= lowest_bits(core, missing)
    return taken
