"""Koordinator cases about the choice of CPUs and NUMA nodes (`placement.engine.numa`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from placement.common.manifest import Profile
from placement.engine.numa.accumulator import Run, leftover_order, take_cpus
from placement.engine.numa.alignment import (
    Hint,
    HintTable,
    MergeCriteria,
    admits,
    collect_rows,
    is_allowed,
    select_affinity,
    single_numa_rows,
    summarize,
)
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.combinations import NumaCombinations
from placement.engine.numa.cpus import layout_of, mask_of, members_of
from placement.engine.numa.host import (
    NOTHING,
    BindPolicy,
    CpuDemand,
    CpuUse,
    HostState,
    NumaAmounts,
    NumaExclusivity,
    NumaNeighbours,
    NumaPolicy,
    PodDemand,
    numa_used,
)
from placement.pods.state.host import merged_numa_policy
from tests.cases import koordinator_inputs as read
from tests.cases.koordinator_inputs import Json

Outcome = Mapping[str, Any]


def accumulator(given: Json, profile: Profile) -> Outcome:
    """Take CPUs next to what is allocated."""
    layout, limit = layout_of(read.topology(given["topology"])), given["max_ref_count"] or 1
    use = CpuUse()
    for held in given["allocated"] or ():
        for _ in range(held.get("ref_count", 1)):
            use = use.plus(read.mask(held["cpus"]) & layout.cpus, read.level(held.get("exclusive")))
    available = layout.cpus & ~use.saturated(limit)
    if given.get("available") is not None:
        available = read.mask(given["available"])
    demand = cpu_demand(given)
    rules = read.rules(given["numa_strategy"], profile, limit)
    taken = take_cpus(layout, use, available, demand, rules, read.mask(given.get("preferred")))
    return {"cpuset": read.text(taken)}


def cpu_demand(given: Json) -> CpuDemand:
    return CpuDemand(
        given["need"] or 0,
        BindPolicy(given["bind"] or ""),
        bool(given["required"]),
        read.level(given.get("exclusive")),
    )


def accumulator_order(given: Json, profile: Profile) -> Outcome:
    """All CPUs of an empty host as leftovers."""
    layout = layout_of(read.topology(given["topology"]))
    rules = read.rules(given["numa_strategy"], profile, given["max_ref_count"])
    run = Run(layout, CpuUse(), layout.cpus, CpuDemand(0), rules)
    return {"order": list(leftover_order(run, layout.cpus))}


def numa_accounts(given: Json, profile: Profile) -> Outcome:
    """What is used and left on NUMA nodes whose capacity is multiplied already."""
    host = HostState(
        layout_of(read.topology(given["topology"])),
        use=CpuUse().plus(read.mask(given.get("bound_cpus"))),
        capacity=read.numa_amounts(given["numa_resources"]),
        held=read.numa_amounts(given.get("allocated")),
        cpu_ratio=read.ratio(given.get("amplification")),
    )
    available = NumaAllocator(host, PodDemand({})).available
    used = numa_used(host, host.use, NOTHING)
    return {"available": NumaAmounts(available), "allocated": NumaAmounts(used)}


def manager_allocator(given: Json, profile: Profile) -> NumaAllocator:
    """The allocator of a `manager-` kind, whose capacities are still to be multiplied."""
    layout, ledger = layout_of(read.topology(given["topology"])), read.ledger(given.get("existing"))
    ratios = given.get("amplification") or {}
    capacity = {
        numa: {
            name: math.ceil(amount * read.ratio({"cpu": ratios.get(name, 1)})) for name, amount in row.items()
        }
        for numa, row in read.numa_amounts(given["numa_resources"]).items()
    }
    host = HostState(
        layout,
        use=ledger.cpu_use(layout),
        capacity=NumaAmounts(capacity),
        held=ledger.amounts(),
        neighbours=ledger.numa_neighbours(layout),
        cpu_ratio=read.ratio(ratios),
        rules=read.rules(given["numa_strategy"], profile),
    )
    request = given["request"]
    bound = request["bound"]
    amounts = read.amounts(request["original_requests" if bound else "requests"])
    return NumaAllocator(host, PodDemand(amounts, cpu_demand(request) if bound else None))


def manager_allocate(given: Json, profile: Profile) -> Outcome:
    """Allocate on given NUMA nodes."""
    allocation = manager_allocator(given, profile).allocate(given["request"].get("affinity"))
    return {"cpuset": read.text(allocation.cpus), "numa_resources": allocation.amounts}


def manager_hints(given: Json, profile: Profile) -> Outcome:
    """The hints of all combinations of NUMA nodes."""
    allocator = manager_allocator(given, profile)
    restricted = given["policy"] == NumaPolicy.RESTRICTED
    combinations = NumaCombinations(allocator)
    table = HintTable(allocator, combinations, allocator.fits, lambda numa_ids: 0, all_preferred=restricted)
    for size in combinations.sizes:
        table.add_combinations(size)
    return {"hints": {name: _shown(hints) for name, hints in table.hints.items()}}


def _hint(given: Json) -> Hint:
    affinity = given.get("affinity")
    return Hint(
        None if affinity is None else mask_of(affinity),
        bool(given["preferred"]),
        given.get("unsatisfied", False),
        given.get("score", 0),
    )


def _shown(hints: Iterable[Hint]) -> list[dict[str, Any]]:
    return [
        {
            "affinity": _numa_ids(hint.affinity),
            "preferred": hint.preferred,
            **({"unsatisfied": True} if hint.unsatisfied else {}),
        }
        for hint in hints
    ]


def _numa_ids(affinity: int | None) -> list[int] | None:
    return None if affinity is None else list(members_of(affinity))


def _providers(given: Json) -> list[dict[str, list[Hint] | None] | None]:
    return [
        provider and {name: hints and [_hint(hint) for hint in hints] for name, hints in provider.items()}
        for provider in given["providers"] or ()
    ]


def _allowed(given: Json) -> Any:
    statuses: dict[str, set[int]] = {"idle": set(), "single": set(), "shared": set()}
    for numa, status in enumerate(given.get("numa_status") or ()):
        statuses[status].add(numa)
    return partial(
        is_allowed,
        exclusivity=NumaExclusivity(given.get("exclusive") or ""),
        neighbours=NumaNeighbours(mask_of(statuses["single"]), mask_of(statuses["shared"])),
    )


def policy_merge(given: Json, profile: Profile) -> Outcome:
    """The selection of a policy from the hints of all providers."""
    selection = select_affinity(
        NumaPolicy(given["policy"] or "None"),
        _providers(given),
        mask_of(given["numa_nodes"] or ()),
        MergeCriteria(_allowed(given)),
    )
    return {
        **selection._asdict(),
        "affinity": _numa_ids(selection.affinity),
        "reasons": list(selection.reasons),
    }


def policy_admit(given: Json, profile: Profile) -> Outcome:
    """Whether a policy admits."""
    return {"admit": admits(NumaPolicy(given["policy"] or "None"), bool(given["preferred"]))}


def numa_exclusive(given: Json, profile: Profile) -> Outcome:
    """Whether exclusivity allows an affinity."""
    return {"allowed": _allowed(given)(mask_of(given["affinity"] or ()))}


def hint_filter(given: Json, profile: Profile) -> Outcome:
    """Hints as rows, and rows reduced to single NUMA nodes."""
    if given["mode"] == "single":
        rows = [[_hint(hint) for hint in row] for row in given["rows"] or ()]
        return {"rows": [_shown(row) for row in single_numa_rows(rows)]}
    providers = _providers(given)
    collected = collect_rows(providers)
    return {
        "rows": [_shown(row) for row in collected.rows],
        "reasons": list(collected.reasons),
        "summary": summarize(providers),
    }


def numa_policy_merge(given: Json, profile: Profile) -> Outcome:
    """The policy that host and pod agree on."""
    policies = (NumaPolicy(given[side] or "None") for side in ("node", "pod"))
    policy = merged_numa_policy(*policies)
    return {"policy": "" if policy is NumaPolicy.NONE else policy}


KINDS = {
    "accumulator": accumulator,
    "accumulator-order": accumulator_order,
    "numa-available": numa_accounts,
    "manager-allocate": manager_allocate,
    "manager-hints": manager_hints,
    "policy-merge": policy_merge,
    "policy-admit": policy_admit,
    "numa-exclusive": numa_exclusive,
    "hint-filter": hint_filter,
    "numa-policy-merge": numa_policy_merge,
}
