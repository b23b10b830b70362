"""Koordinator cases that run several steps on one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.common.manifest import Profile
from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.cpus import CpuLayout, format_cpu_list, layout_of, members_of, parse_cpu_list
from placement.engine.numa.host import ExclusiveLevel, Holding, HostLedger, PodRefused
from tests.cases import koordinator_inputs as read
from tests.cases.koordinator_choices import cpu_demand
from tests.cases.koordinator_inputs import Json

Outcome = Mapping[str, Any]


def sequence(given: Json, profile: Profile) -> Outcome:
    """Steps on one host; the differences to what each step expects."""
    layout = layout_of(read.topology(given["topology"]))
    held: dict[str, Holding] = {}
    differences = []
    for place, step in enumerate(given["steps"]):
        step = read.Given({**given, **step})
        if step["op"] == "add":
            holding = Holding(parse_cpu_list(step["cpus"] or ""), read.level(step.get("exclusive")))
            held.setdefault(step["pod"], holding)
        elif step["op"] == "release":
            held.pop(step["pod"], None)
        ledger = HostLedger(dict(held))
        outcome: Outcome = {}
        if step["op"] == "take":
            outcome = _taken(layout, ledger, step, profile)
            if "cpuset" in outcome:
                cpus = parse_cpu_list(outcome["cpuset"])
                held.setdefault(step["pod"], Holding(cpus, read.level(step.get("record_exclusive"))))
        elif step["op"] == "available":
            outcome = {"cpuset": read.text(_available(layout, ledger, step))}
        elif step["op"] == "state":
            outcome = _state(layout, ledger)
        for key, expected in {"error": None, **step.get("expect", {})}.items():
            if outcome.get(key) != _by_cpu(expected):
                differences.append(f"step {place}: {key} is {outcome.get(key)}, not {expected}")
    return {"differences": differences}


def _available(layout: CpuLayout, ledger: HostLedger, step: Json) -> int:
    use = ledger.cpu_use(layout).without(read.mask(cpus) for cpus in step["returned"] or ())
    return layout.cpus & ~use.saturated(step["max_ref_count"] or 1)


def _taken(layout: CpuLayout, ledger: HostLedger, step: Json, profile: Profile) -> Outcome:
    use = ledger.cpu_use(layout)
    rules = read.rules(step["numa_strategy"], profile, step["max_ref_count"])
    available, preferred = _available(layout, ledger, step), read.mask(step.get("preferred"))
    try:
        taken = take_cpus(layout, use, available, cpu_demand(step), rules, preferred)
    except PodRefused as refused:
        return {"error": True, "message": str(refused)}
    return {"cpuset": read.text(taken)}


def _state(layout: CpuLayout, ledger: HostLedger) -> Outcome:
    use = ledger.cpu_use(layout)
    levels = dict.fromkeys(members_of(use.held), ExclusiveLevel.NONE)
    levels |= dict.fromkeys(members_of(use.pcpu_level), ExclusiveLevel.PCPU_LEVEL)
    levels |= dict.fromkeys(members_of(use.numa_level), ExclusiveLevel.NUMA_NODE_LEVEL)
    return {
        "pods": {pod: format_cpu_list(holding.cpus) for pod, holding in ledger.holdings.items()},
        "refs": {cpu: use.sum_of_counts(1 << cpu) for cpu in members_of(use.held)},
        "exclusive": levels,
    }


def _by_cpu(expected: Any) -> Any:
    """What is said about the lists of `refs` and `exclusive`, CPU by CPU."""
    if not isinstance(expected, Mapping) or not all(key[:1].isdigit() for key in expected):
        return expected
    return {cpu: value for cpus, value in expected.items() for cpu in parse_cpu_list(cpus)}


KINDS = {"sequence": sequence}
