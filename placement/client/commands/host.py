"""`placement host`: machines of any kind, with what they use and have left."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import islice
from typing import Any

from placement.client.arguments import argument, given, limit
from placement.client.cells import TextCell
from placement.client.command import Listing
from placement.client.tables import ShownTable
from placement.common.host_use import CapacityUse, cpus, dedicated_cpus, disk, memory, shared_cpus
from placement.engine.domain.units import percent

HOSTS = "/ext/v1/hosts"
_SHOWN = 50
_COLUMNS = (
    *("name", "cluster", "state", "cpu_use", "cpus_free", "pcpu_free"),
    *("memory_use", "memory_free_mib", "disk_free_gb", "uuid"),
)


def share(use: CapacityUse) -> TextCell:
    """Return a cell of a use in percent of the capacity, empty without a capacity."""
    if not use.capacity:
        return TextCell(None, ())
    level = percent(use.used, use.capacity)
    return TextCell(level, (f"{level}%",))


def number(amount: float) -> TextCell:
    """Return a cell of a number of CPUs, with at most one digit behind the point."""
    return TextCell(int(amount) if amount == int(amount) else amount, (f"{amount:.1f}".removesuffix(".0"),))


def gibibytes(mebibytes: float) -> TextCell:
    """Return a cell of MiB that shows GiB to people."""
    return TextCell(int(mebibytes), (f"{mebibytes / 1024:.1f} GiB",))


class ListHosts(Listing):
    """List hosts of OpenStack and Kubernetes, with their used and free amounts."""

    arguments = (
        argument("--cluster", help="in this cluster only"),
        argument("--aggregate", metavar="UUID_OR_NAME", help="in this aggregate only"),
        limit(f"N hosts at most (default {_SHOWN} in tables)"),
    )
    left_out_first = ("uuid", "disk_free_gb", "pcpu_free", "cluster")
    only_wide = ("uuid",)
    nothing = "hosts"
    filters = ("cluster", "aggregate")

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        wanted = given(cluster=parsed_args.cluster, aggregate=parsed_args.aggregate)
        hosts = self.client.entries(HOSTS, "hosts", "after", wanted.items())
        # All are read where they are sorted, so that the first ones are the first of all.
        rows = self.in_order(parsed_args, _COLUMNS, map(_row, hosts))
        if parsed_args.limit is not None:
            return _COLUMNS, islice(rows, parsed_args.limit)
        return _COLUMNS, self.first(parsed_args, rows, _SHOWN)


def _row(host: Mapping[str, Any]) -> tuple[Any, ...]:
    resources = host["resources"]
    of_memory, of_disk = memory(resources), disk(resources)
    of_cpus = (shared_cpus(resources), dedicated_cpus(resources))
    return (
        *(host["name"], host["cluster"], host["state"], share(cpus(resources))),
        *(number(each.free) if each.capacity else None for each in of_cpus),
        *(share(of_memory), gibibytes(of_memory.free)),
        TextCell(int(of_disk.free), (f"{of_disk.free:.0f} GB",)) if of_disk.capacity else None,
        host["uuid"],
    )
