"""What the runs say, as Markdown tables: the mean over the seeds, and its range where that matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.packing.simulation import Run
from benchmarks.packing.stream import MIX

Figure = Callable[[Run], float]

_GIB = 1024
_END: dict[str, Figure] = {
    "placed": lambda run: run.placed.total(),
    "refused": lambda run: run.refused.total(),
    "VCPU placed": lambda run: run.amounts["VCPU"],
    "cores placed": lambda run: run.amounts["PCPU"],
    "GiB placed": lambda run: run.amounts["MEMORY_MB"] / _GIB,
    "free cores": lambda run: run.end.free_cores,
    "stranded": lambda run: run.end.stranded_cores,
    "stranded VCPU": lambda run: run.end.stranded_vcpu,
}
_HALF: dict[str, Figure] = {
    "empty hosts": lambda run: run.half.empty_hosts,
    "stranded": lambda run: run.half.stranded_cores,
    "fragmentation, shared large": lambda run: run.half.fragmentation_shared,
    "fragmentation, dedicated 8": lambda run: run.half.fragmentation_dedicated,
}


def tables(runs: Sequence[Run]) -> str:
    """All tables of each load."""
    loads = {load: [run for run in runs if run.load == load] for load in sorted({run.load for run in runs})}
    return "\n".join(f"### {load} requests\n\n{_tables(alike)}" for load, alike in loads.items())


def _tables(runs: Sequence[Run]) -> str:
    refusals: dict[str, Figure] = {
        kind.name: lambda run, name=kind.name: run.refused[name]  # type: ignore[misc]
        for kind in MIX
    }
    return "\n".join(
        [
            "After all arrivals, mean over the seeds (least to most):\n",
            _table(runs, _END, ranges=True),
            "When half of the requests had arrived:\n",
            _table(runs, _HALF),
            "Refused, by kind:\n",
            _table(runs, refusals),
        ]
    )


def _table(runs: Sequence[Run], figures: dict[str, Figure], *, ranges: bool = False) -> str:
    orders = list(dict.fromkeys(run.order for run in runs))
    lines = [f"| order | {' | '.join(figures)} |", f"| --- |{' ---: |' * len(figures)}"]
    for order in orders:
        mine = [run for run in runs if run.order == order]
        cells = [_cell([figure(run) for run in mine], ranges=ranges) for figure in figures.values()]
        lines.append(f"| {order} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float], *, ranges: bool) -> str:
    mean = sum(values) / len(values)
    digits = 2 if 0 < mean < 1 else 0 if mean >= 100 else 1
    text = f"{mean:.{digits}f}"
    if ranges and len(values) > 1:
        text += f" ({min(values):.0f}–{max(values):.0f})"
    return text
