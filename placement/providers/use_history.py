"""How much was in use over the last day: a sample every half hour, of each group of hosts and of each host.

A sample is some rows of one moment. One has the sums of all groups, as JSON. Each other one has the levels of
some hosts. So the day of one host is read from as many rows as there are samples, however many hosts there
are. Storage ids of hosts are never used again, so a host has no history of another one.

Removed samples do not come back, and clocks may be wrong. So samples older than a day go only when the day
up to the new one is whole. A machine that boots 400 days ahead has no whole day until it has sampled for one,
and loses none until then.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson
import sqlalchemy as sa

from placement.common.host_use import ALL_CPUS, ALL_MEMORY, NODE_CPU, CapacityUse, cpus, memory
from placement.engine.domain import request_scope
from placement.engine.domain.units import percent
from placement.engine.forest.fleet import levels_of
from placement.providers.fleet import Hosts, UsedCapacity
from placement.providers.statements import clusters
from placement.storage import tables
from placement.storage.database import Database
from placement.storage.retention import ClockDoubt, Doubts, refuse_other_clock

SLOT_SECONDS = 1800
DAY_SECONDS = 86_400
# A day has a sample at both ends.
_WHOLE = DAY_SECONDS // SLOT_SECONDS + 1
# Where each day lacks some sample, for example because the service rests at night, three days more are kept.
_MOST_OUTSIDE = 3 * _WHOLE
_SUMS = -1
_NEITHER = "none"
_table = tables.use_samples
_is_sums = _table.c.block == _SUMS


class Point(NamedTuple):
    """How much of a capacity was in use, in percent; `taken_at` in seconds since 1970."""

    taken_at: int
    percent: int


Days = Mapping[str, Sequence[Point]]
"""The samples of a day by resource class, in their order."""


class UseHistory:
    """A use case that samples how much is in use, once for all processes, and shows the last day."""

    for_bound_callers = True

    def __init__(self, database: Database, hosts: Hosts) -> None:
        self._database = database
        self._hosts = hosts
        self._last = 0
        self._doubts = Doubts("samples of use")

    def sample(self, now: float) -> None:
        """Take the sample of this half hour unless some process did, and remove samples older than a day.

        `now` is in seconds since 1970. While the database has another clock nothing is taken or removed.
        Raises Unavailable.
        """
        taken_at = int(now // SLOT_SECONDS) * SLOT_SECONDS
        if taken_at == self._last:
            return
        taken = _table.c.taken_at == taken_at
        with self._database.read() as connection:
            is_taken = connection.execute(sa.select(_table.c.block).where(taken).limit(1)).first()
        if not is_taken:
            try:
                refuse_other_clock(self._database)
            except ClockDoubt as doubt:
                self._doubts.note(doubt)
                return
            self._doubts.clear()
            self._write(taken_at)
        self._last = taken_at

    def _write(self, taken_at: int) -> None:
        look = self._hosts.look()
        sums = {
            group.aggregate: {name: each for name, each in use.resources.items() if each.capacity}
            for group, use in look.by_group().items()
        }
        blocks = [
            {"taken_at": taken_at, "block": block, "body": zlib.compress(body)}
            for block, body in ((_SUMS, json.dumps(sums).encode()), *look.level_blocks())
        ]
        with self._database.write() as transaction:
            first = transaction.insert_or_ignore(_table).values(blocks[0]).returning(_table.c.block)
            if transaction.execute(first).first() is None:
                # Another process was faster.
                return
            if blocks[1:]:
                transaction.execute(sa.insert(_table), blocks[1:])
            times = sa.select(_table.c.taken_at).where(_is_sums).order_by(_table.c.taken_at)
            if due := _due(list(transaction.execute(times).scalars()), taken_at):
                transaction.execute(sa.delete(_table).where(_table.c.taken_at.in_(due)))

    def of_groups(self) -> Mapping[str | None, Days]:
        """Return the day of each group by its name, and under None of all together. Raises Unavailable.

        Of all together it has all CPUs and all memory, too.

        A group is a cluster, or the uuid of an aggregate, or "none". Callers bound to clusters see these.
        """
        seen = request_scope.visible_clusters()
        with self._database.read() as connection:
            called = clusters.aggregates_called(connection)
            samples = connection.execute(
                sa.select(_table.c.taken_at, _table.c.body)
                .where(_is_sums, _is_of_last_day())
                .order_by("taken_at")
            ).all()
        names = {
            each.uuid: each.cluster or each.uuid for each in called if seen is None or each.cluster in seen
        }
        if seen is None:
            names[""] = _NEITHER
        found: dict[str | None, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
        for taken_at, body in samples:
            whole: dict[str, tuple[float, float]] = {}
            for uuid, of_class in orjson.loads(zlib.decompress(body)).items():
                if seen is not None and uuid not in names:
                    continue
                for name, (capacity, used) in {**of_class, **_together(of_class)}.items():
                    # Groups that are gone count in the whole only.
                    if uuid in names and name in of_class:
                        found[names[uuid]][name].append(Point(taken_at, percent(used, capacity)))
                    others = whole.get(name, (0, 0))
                    whole[name] = others[0] + used, others[1] + capacity
            for name, sums in whole.items():
                found[None][name].append(Point(taken_at, percent(*sums)))
        return found

    def of_host(self, id_: int) -> Days:
        """Return the day of a host that the caller sees, by the id of its root. Raises Unavailable."""
        first = (
            sa.select(_table.c.taken_at, sa.func.max(_table.c.block).label("block"))
            .where(_table.c.block.between(0, id_), _is_of_last_day())
            .group_by(_table.c.taken_at)
            .subquery()
        )
        has_it = (_table.c.taken_at == first.c.taken_at) & (_table.c.block == first.c.block)
        statement = sa.select(_table.c.taken_at, _table.c.body).join(first, has_it).order_by("taken_at")
        with self._database.read() as connection:
            samples = connection.execute(statement).all()
        found: dict[str, list[Point]] = defaultdict(list)
        for taken_at, body in samples:
            for name, level in levels_of(id_, zlib.decompress(body)).items():
                found[name].append(Point(taken_at, level))
        return found


def _together(of_class: Mapping[str, tuple[int, int]]) -> dict[str, CapacityUse]:
    """Return all CPUs and all memory, whatever their classes, where there are any."""
    resources = {name: UsedCapacity(*each)._asdict() for name, each in of_class.items()}
    found = {ALL_MEMORY: memory(resources)}
    if NODE_CPU in resources:
        found[ALL_CPUS] = cpus(resources)
    return {name: use for name, use in found.items() if use.capacity}


def _due(times: Sequence[int], taken_at: int) -> Sequence[int]:
    """Return which samples go, of these in order of their times, when one was taken at `taken_at`."""
    others = [each for each in times if not taken_at - DAY_SECONDS <= each <= taken_at]
    # What is not in a whole day was written more than a day ago, whatever its time says.
    if len(times) - len(others) == _WHOLE:
        return others
    return others[: max(0, len(others) - _MOST_OUTSIDE)]


def _is_of_last_day() -> sa.ColumnElement[bool]:
    """Return the condition for samples of the day that ends with the last one until now.

    Samples of a clock that was ahead are later than now.
    """
    last = sa.select(sa.func.max(_table.c.taken_at)).where(_table.c.taken_at <= int(time.time()))
    return _table.c.taken_at.between(last.scalar_subquery() - DAY_SECONDS, last.scalar_subquery())
