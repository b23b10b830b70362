"""Which part of a running pod's resource-status counts: no more than the pod may have.

A user who may write pods may write that annotation, so it does not prove that CPUs were given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.dialects.koordinator.status.pod_records import RunningPod
from placement.numa.amounts import Amounts, NumaAmounts
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet, format_cpu_list
from placement.numa.ledger import Holding


def may_own_cpus(pod: RunningPod, host_binds_all: bool) -> bool:
    """Whether a pod may have CPUs of its own: by its class, or because its host binds all pods."""
    return pod.qos.owns_cpus or host_binds_all


@dataclass(frozen=True, slots=True)
class Entitlement:
    """What a pod may have on its node: whether CPUs of its own, and how much it requests.

    `taken` are CPUs that other pods have or no pod may have, `kept` is what the pod was recorded with before.
    It stays as long as the pod claims it: after a resize in place to less a node agent goes on to pin the pod
    to all CPUs that its annotation names.
    """

    owns_cpus: bool
    requests: Amounts
    topology: CpuTopology
    taken: CpuSet
    kept: Holding

    def limit(self, claimed: Holding) -> tuple[Holding, tuple[str, ...]]:
        """The part of a claim that counts, and warnings about the rest.

        Of a claim for more CPUs than requested, or than are kept, as many count: of those that exist and that
        no other pod has, first those it had before, then whole cores, then lowest numbers.
        """
        cpus, amounts = self._cpus(claimed.cpus), self._amounts(claimed.amounts)
        findings = []
        if cpus != claimed.cpus:
            beyond = format_cpu_list(claimed.cpus - cpus)
            why = f"requests {self._requested} CPUs" if self.owns_cpus else "gets no CPUs of its own"
            findings.append(f"resource-status claims CPUs {beyond}, but the pod {why}; they count for nobody")
        for resource in sorted({name for row in claimed.amounts.values() for name in row}):
            given, counted = _total(claimed.amounts, resource), _total(amounts, resource)
            if given != counted:
                findings.append(
                    f"resource-status claims more {resource} of NUMA nodes than the pod requests; "
                    "the rest counts for nobody"
                )
        return replace(claimed, cpus=cpus, amounts=amounts), tuple(findings)

    @property
    def _requested(self) -> int:
        return self.requests.get("cpu", 0) // 1000

    def _cpus(self, claimed: CpuSet) -> CpuSet:
        if not self.owns_cpus:
            return frozenset()
        most = max(self._requested, len(claimed & self.kept.cpus))
        if len(claimed) <= most:
            return claimed
        rows = self.topology.by_cpu
        usable = (claimed & rows.keys()) - self.taken

        def rank(cpu: int) -> tuple[bool, bool, int, int]:
            core = self.topology.cores[rows[cpu].core_id]
            return cpu not in self.kept.cpus, not usable.issuperset(core), core[0], cpu

        return frozenset(sorted(usable, key=rank)[:most])

    def _amounts(self, claimed: NumaAmounts) -> NumaAmounts:
        """NUMA nodes in the order of their ids, until nothing that was requested or is kept is left."""
        names = {name for row in claimed.values() for name in row}
        left = {name: max(self.requests.get(name, 0), _total(self.kept.amounts, name)) for name in names}
        counted: dict[int, dict[str, int]] = {}
        for numa, row in claimed.items():
            for resource, amount in row.items():
                share = min(amount, left.get(resource, 0))
                if share > 0:
                    left[resource] -= share
                    counted.setdefault(numa, {})[resource] = share
        return NumaAmounts(counted)


def _total(amounts: NumaAmounts, resource: str) -> int:
    return sum(row.get(resource, 0) for row in amounts.values())
