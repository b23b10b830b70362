"""The cpu-topology annotation, and CPU lists that refer to it."""

from __future__ import annotations

from placement.kubernetes.field import Field
from placement.numa.consistency import find_inconsistencies
from placement.numa.cpus import CpuTopology, LogicalCpu
from placement.numa.cpuset import CpuSet, format_cpu_list

_KEYS = {"cpu": "id", "core": "core", "numa": "node", "socket": "socket"}


def read_cpu_topology(annotation: Field) -> CpuTopology:
    """The topology of `{"detail": [{"id", "core", "socket", "node"}]}`; absent = empty.

    Refused: members that are not integers, and every inconsistency, each named with its row.
    Source: koordinator.md, "CPU topology".
    """
    details = annotation.json().member("detail").elements()
    read = [_read_row(detail) for detail in details]
    rows = [row for row in read if row is not None]
    if len(rows) < len(details):
        return CpuTopology()
    inconsistencies = find_inconsistencies(rows)
    for found in inconsistencies:
        details[found.row].member(_KEYS[found.field]).refuse(found.text)
    return CpuTopology() if inconsistencies else CpuTopology(tuple(rows))


def _read_row(detail: Field) -> LogicalCpu | None:
    ids = {field: detail.member(key).integer() for field, key in _KEYS.items()}
    known = {field: number for field, number in ids.items() if number is not None}
    return LogicalCpu(**known) if len(known) == len(ids) else None


def read_known_cpus(field: Field, topology: CpuTopology) -> CpuSet:
    """The CPUs of a list that the topology has; the others are left out with a warning.

    Source: koordinator.md, "CPU topology".
    """
    named = field.cpu_list() or frozenset()
    unknown = named - topology.cpus
    if unknown:
        field.warn(f"CPUs {format_cpu_list(unknown)} are not in the cpu-topology; left out")
    return named - unknown
