"""The part of a running pod's resource-status that counts: no more than the pod may have.

Users that may write pods may write that annotation, so it does not prove that CPUs were given.
"""

from __future__ import annotations

from dataclasses import replace

from placement.engine.numa.cpus import CpuSet, CpuTopology, format_cpu_list
from placement.engine.numa.host import Holding, NumaAmounts, ResourceAmounts


def limited_claim(
    claimed_holding: Holding,
    requests: ResourceAmounts,
    kept_holding: Holding,
    topology: CpuTopology,
    taken_cpus: CpuSet,
    *,
    owns_cpus: bool,
) -> tuple[Holding, tuple[str, ...]]:
    """Return the part of a claim that counts, and warnings about the rest.

    If a claim has more CPUs than are requested or kept, only as many count: CPUs that exist and that no other
    pod has, first the ones it had before, then whole cores, then lowest numbers. `taken_cpus` are CPUs that
    other pods have or no pod may have. `kept_holding` was recorded before, and stays as long as the pod
    claims it: after a resize in place to less, a node agent still pins it to all CPUs of its annotation.
    """
    requested = requests.get("cpu", 0) // 1000
    most = max(requested, len(claimed_holding.cpus & kept_holding.cpus))
    cpus = claimed_holding.cpus if owns_cpus else frozenset()
    if len(cpus) > most:
        rows = topology.by_cpu
        usable = (cpus & rows.keys()) - taken_cpus

        def rank(cpu: int) -> tuple[bool, bool, int, int]:
            core = topology.cores[rows[cpu].core_id]
            return cpu not in kept_holding.cpus, not usable.issuperset(core), core[0], cpu

        cpus = frozenset(sorted(usable, key=rank)[:most])
    amounts = _limited_amounts(claimed_holding.amounts, requests, kept_holding.amounts)
    findings = []
    if cpus != claimed_holding.cpus:
        why = f"requests {requested} CPUs" if owns_cpus else "gets no CPUs of its own"
        claims = (
            f"resource-status claims CPUs {format_cpu_list(claimed_holding.cpus - cpus)}, but the pod {why}"
        )
        findings.append(f"{claims}; no pod is charged for them")
    for resource in sorted({name for row in claimed_holding.amounts.values() for name in row}):
        if _total(claimed_holding.amounts, resource) != _total(amounts, resource):
            claims = f"resource-status claims more {resource} of NUMA nodes than the pod requests"
            findings.append(f"{claims}; no pod is charged for the rest")
    return replace(claimed_holding, cpus=cpus, amounts=amounts), tuple(findings)


def _limited_amounts(
    claimed_amounts: NumaAmounts, requests: ResourceAmounts, kept_amounts: NumaAmounts
) -> NumaAmounts:
    """Count amounts of NUMA nodes in the order of their ids, up to the requested or kept amounts."""
    names = {name for row in claimed_amounts.values() for name in row}
    left = {name: max(requests.get(name, 0), _total(kept_amounts, name)) for name in names}
    counted: dict[int, dict[str, int]] = {}
    for numa, row in claimed_amounts.items():
        for resource, amount in row.items():
            share = min(amount, left[resource])
            if share > 0:
                left[resource] -= share
                counted.setdefault(numa, {})[resource] = share
    return NumaAmounts(counted)


def _total(amounts: NumaAmounts, resource: str) -> int:
    return sum(row.get(resource, 0) for row in amounts.values())
