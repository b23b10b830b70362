"""The part of the CPU accumulator that spreads CPUs over physical cores."""

from __future__ import annotations

from collections.abc import Iterator

from placement.numa.accumulator.run import Run


def take_spread(run: Run) -> None:
    """Take CPUs of one NUMA node, else of one socket, from as many cores as possible; else take nothing.

    Source: koordinator.md, "Part B: spread".
    """
    if run.need <= run.layout.numa_size and _take_from_numa_node(run):
        return
    if run.need <= run.layout.socket_size:
        _take_from_socket(run)


def _passes(avoided: list[int]) -> Iterator[tuple[int, bool]]:
    """What to avoid in each pass, and whether a place must offer as many cores as CPUs."""
    yield from ((cpus, True) for cpus in avoided)
    yield 0, False


def _take_from_numa_node(run: Run) -> bool:
    layout = run.layout
    for avoided, thinned in _passes(run.avoided(cores=True, numa_nodes=True)):
        usable = run.free & ~avoided
        places = sorted(
            (run.by_size(size), run.by_size((usable & layout.sockets[socket]).bit_count()), numa)
            for numa, socket in layout.socket_of_numa.items()
            if (size := (usable & layout.numa_nodes[numa]).bit_count()) >= run.need
        )
        for _, _, numa in places:
            cores = layout.cores_of_numa[numa]
            listed = _listed(run, usable & layout.numa_nodes[numa], cores, thinned)
            if listed.bit_count() >= run.need:
                run.take(_first_spread(run, listed, cores))
                return True
    return False


def _take_from_socket(run: Run) -> None:
    layout = run.layout
    for avoided, thinned in _passes(run.avoided(cores=True, numa_nodes=False)):
        listed = {
            socket: _listed(run, run.free & ~avoided & mask, layout.cores_of_socket[socket], thinned)
            for socket, mask in layout.sockets.items()
        }
        places = sorted(
            (run.by_size(cpus.bit_count()), socket)
            for socket, cpus in listed.items()
            if cpus.bit_count() >= run.need
        )
        if places:
            socket = places[0][-1]
            run.take(_first_spread(run, listed[socket], layout.cores_of_socket[socket]))
            return


def _listed(run: Run, cpus: int, cores: tuple[int, ...], thinned: bool) -> int:
    return run.first_threads(cpus, cores) if thinned else cpus


def _first_spread(run: Run, cpus: int, cores: tuple[int, ...]) -> int:
    """The first needed CPUs of a list in CPU order after spreading it.

    Source: koordinator.md, "Spreading a list".
    """
    if cpus.bit_count() <= run.layout.threads:
        return run.first_cpus(cpus, run.need)
    chosen, missing = 0, run.need
    while missing:
        sweep = run.first_cpus(run.first_threads(cpus, cores), missing)
        chosen |= sweep
        cpus &= ~sweep
        missing -= sweep.bit_count()
    return chosen
