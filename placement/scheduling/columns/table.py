"""Numbers of nodes as columns, and what is decided once for all nodes of one kind or with one guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.forest.arrays import Amounts, Mask, Rows
from placement.kubernetes.node_selection import Taint
from placement.numa.amounts import bound_cost
from placement.numa.demand import BindPolicy, NumaPolicy
from placement.scheduling.binding import HostBinding
from placement.scheduling.columns.node_numbers import MOST, NUMA_NODES, ColumnKey, Numbers
from placement.scheduling.host import Host


class HostKind(NamedTuple):
    """The policies of hosts, and what a bound CPU costs there."""

    bind: HostBinding
    numa_policy: NumaPolicy
    ratio: Fraction


def kind_of(host: Host) -> HostKind:
    """The kind of a host."""
    return HostKind(host.bind, host.numa_policy, host.state.cpu_ratio)


def binds(request: PodRequest, kind: HostKind) -> bool:
    """Whether a pod gets CPUs of its own on hosts of a kind."""
    return kind.bind.binds(request)


def cpu_cost(request: PodRequest, kind: HostKind) -> int:
    """The millicores that a pod costs on hosts of a kind."""
    milli = request.milli_cpus
    return bound_cost(milli, kind.ratio) if binds(request, kind) else milli


def thinning(request: PodRequest, kind: HostKind) -> BindPolicy | None:
    """The strict bind policy that leaves a pod some free CPUs of a host only; NONE if it has all of them.

    None if the pod is not bound there.
    """
    cpus = kind.bind.demand(request)
    if cpus is None:
        return None
    return cpus.bind if cpus.strict else BindPolicy.NONE


def effective_policy(request: PodRequest, kind: HostKind) -> NumaPolicy | None:
    """The NUMA policy of a pod on hosts of a kind, None if theirs and its own differ."""
    policies = {kind.numa_policy, request.numa.policy} - {NumaPolicy.NONE}
    return next(iter(policies), NumaPolicy.NONE) if len(policies) < 2 else None


GUARD, KIND = ColumnKey("guard"), ColumnKey("kind of host")


class Guard(NamedTuple):
    """What keeps pods off a node unless they tolerate it."""

    taints: tuple[Taint, ...]
    unschedulable: bool


@dataclass(frozen=True, eq=False)
class Table:
    """The numbers of nodes, row by row; never changed.

    `GUARD` and `KIND` are the places of a node's guard and kind among `guards` and `kinds`.
    """

    count: int = 0
    columns: Mapping[ColumnKey, Amounts] = field(default_factory=dict)
    guards: Mapping[Guard, int] = field(default_factory=dict)
    kinds: Mapping[HostKind, int] = field(default_factory=dict)
    places: Rows | None = None
    """The rows of the columns that are looked at; None if all are."""

    def __len__(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return sum(numbers.nbytes for numbers in self.columns.values())

    def __getitem__(self, column: ColumnKey) -> Amounts:
        """The numbers of a column, only to be read."""
        found = self.columns.get(column)
        if found is None:
            return np.zeros(self.count, np.int64)
        return found if self.places is None else found[self.places]

    def rows(self, rows: Rows) -> Table:
        """Some of the rows, in that order."""
        return replace(self, count=len(rows), places=rows if self.places is None else self.places[rows])

    @property
    def numa_nodes(self) -> int:
        """The most NUMA nodes that any node has."""
        return int(self[NUMA_NODES].max(initial=0))

    def where_guard(self, admits: Callable[[Guard], bool]) -> Mask:
        """The nodes whose guard admits somebody, who is asked once per distinct guard."""
        return np.array([admits(guard) for guard in self.guards], np.bool_)[self[GUARD]]

    def where_kind(self, holds: Callable[[HostKind], bool]) -> Mask:
        """The nodes of whose kind something holds, which is asked once per distinct kind."""
        return np.array([holds(kind) for kind in self.kinds], np.bool_)[self[KIND]]

    def by_kind(self, number: Callable[[HostKind], int]) -> Amounts:
        """A number that depends on the kind of a node alone, up to what is counted."""
        return np.array([min(MOST, number(kind)) for kind in self.kinds], np.int64)[self[KIND]]

    def rearranged(self, source: Rows) -> Table:
        """The rows in another order; -1 stands for a node of which nothing is known yet."""
        moved = {
            column: np.where(source < 0, 0, self[column][source])
            for column, numbers in self.columns.items()
            if self.count and numbers.any()
        }
        return replace(self, count=len(source), columns=moved, places=None)


Written = tuple[int, Guard, HostKind, Numbers]
"""A row and what it is to say: the guard and the kind of the node, and its numbers."""


def written(table: Table, rows: Iterable[Written]) -> Table:
    """The table after some rows changed; columns in which nothing changes are shared."""
    if table.places is not None:
        table = table.rearranged(np.arange(table.count))
    guards, kinds, columns = dict(table.guards), dict(table.kinds), dict(table.columns)
    own: set[ColumnKey] = set()
    # Like nodes have the same object for numbers.
    alike: dict[tuple[Guard, HostKind, int], tuple[list[int], Numbers]] = {}
    for row, guard, kind, numbers in rows:
        alike.setdefault((guard, kind, id(numbers)), ([], numbers))[0].append(row)
    for (guard, kind, _), (group, numbers) in alike.items():
        codes = {GUARD: _code(guard, guards), KIND: _code(kind, kinds)}
        _write(columns, own, table.count, group, {**numbers, **codes})
    return Table(table.count, columns, guards, kinds)


def _write(
    columns: dict[ColumnKey, Amounts],
    own: set[ColumnKey],
    count: int,
    rows: Sequence[int],
    numbers: Numbers,
) -> None:
    """Let rows say these numbers, and 0 in all other columns; only columns of our `own` are written to."""
    # For one row, as with each pod that is placed, plain numbers are much faster.
    at: int | Rows = rows[0] if len(rows) == 1 else np.array(rows, np.intp)
    is_any: Callable[[Any], bool] = bool if len(rows) == 1 else np.any
    for column in numbers.keys() - columns.keys():
        columns[column] = np.zeros(count, np.int64)
        own.add(column)
    for column, present in list(columns.items()):
        number = numbers.get(column, 0)
        if is_any(present[at] != number):
            if column not in own:
                present = columns[column] = present.copy()
                own.add(column)
            present[at] = number


_Distinct = TypeVar("_Distinct", Guard, HostKind)


def _code(value: _Distinct, codes: dict[_Distinct, int]) -> int:
    return codes.setdefault(value, len(codes))
