"""The runs as bars, one panel for each figure, a dot for each seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

from benchmarks.packing.measures import PlanFigures
from benchmarks.packing.simulation import Run

matplotlib.use("svg")
# Text stays text, and nothing differs between two drawings of the same figures.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "packing"})
from matplotlib import pyplot  # noqa: E402

_PANELS: dict[str, Callable[[Run], float]] = {
    "refused requests": lambda run: run.refused.total(),
    "stranded cores, end": lambda run: run.end.stranded_cores,
    "empty hosts, half way": lambda run: run.half.empty_hosts,
    "fragmentation for dedicated 8, half way": lambda run: run.half.fragmentation_dedicated,
}


_COLOURS = ("#4477aa", "#cc6677", "#ddcc77")


def draw(runs: Sequence[Run], file: Path) -> None:
    """Write an SVG; the same runs give the same file."""
    orders = list(dict.fromkeys(run.order for run in runs))
    loads = sorted({run.load for run in runs})
    height = 0.8 / len(loads)
    figure, panels = pyplot.subplots(1, len(_PANELS), figsize=(13, 4), sharey=True, layout="constrained")
    for axes, (title, value) in zip(panels, _PANELS.items(), strict=True):
        for at, order in enumerate(orders):
            for number, load in enumerate(loads):
                values = [value(run) for run in runs if (run.order, run.load) == (order, load)]
                place = at + height * (number - (len(loads) - 1) / 2)
                label = f"{load} requests" if at == 0 else None
                axes.barh(place, sum(values) / len(values), height, color=_COLOURS[number], label=label)
                axes.plot(values, [place] * len(values), "k.", markersize=3)
        axes.set_title(title, fontsize=9)
        axes.set_yticks(range(len(orders)), orders, fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    panels[0].legend(fontsize=8)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def draw_moves(found: Sequence[PlanFigures], file: Path) -> None:
    """Write an SVG: stranded cores as the moves of a plan are made, a line for each order."""
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for each in found:
        steps = [at * each.moves / max(1, len(each.curve) - 1) for at in range(len(each.curve))]
        shares = [step / each.consumers * 100 for step in steps]
        axes.plot(shares, each.curve, marker=".", label=each.order)
    axes.set_xlabel("consumers moved, %", fontsize=9)
    axes.set_ylabel("stranded cores", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
