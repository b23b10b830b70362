"""`placement host`: machines of any kind, with what they use and have left."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from placement.client.display import Listing, argument, limit
from placement.client.formats import TextCell
from placement.common.host_use import Use, cpus, disk, memory

HOSTS = "/ext/v1/hosts"
_SHOWN = 50


def share(use: Use) -> TextCell:
    """Return a cell of a use in percent of the capacity, empty without a capacity."""
    percent = round(100 * use.used / use.capacity) if use.capacity else None
    return TextCell(percent, () if percent is None else (f"{percent}%",))


def number(amount: float) -> TextCell:
    """Return a cell of a number of CPUs, with at most one digit behind the point."""
    return TextCell(amount, (f"{amount:.1f}".removesuffix(".0"),))


def gibibytes(mebibytes: float) -> TextCell:
    """Return a cell of MiB that shows GiB to people."""
    return TextCell(int(mebibytes), (f"{mebibytes / 1024:.1f} GiB",))


class ListHosts(Listing):
    """List hosts, of OpenStack and of Kubernetes, with what is used of them and what they have left."""

    arguments = (
        argument("--cluster", help="in this cluster only"),
        limit(f"N hosts at most (else {_SHOWN} for people)"),
    )
    left_out_first = ("uuid", "disk_free", "cluster")
    only_wide = ("uuid",)
    nothing = "hosts"
    filters = ("cluster",)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        wanted = {"cluster": parsed_args.cluster}
        hosts = self.pages(parsed_args, HOSTS, "hosts", "after", wanted, _SHOWN)
        columns = (
            "name",
            "cluster",
            "cpu_use",
            "cpus_free",
            "memory_use",
            "memory_free",
            "disk_free",
            "uuid",
        )
        return columns, map(_row, hosts)


def _row(host: Mapping[str, Any]) -> tuple[Any, ...]:
    resources = host["resources"]
    of_cpus, of_memory, of_disk = cpus(resources), memory(resources), disk(resources)
    return (
        host["name"],
        host["cluster"],
        *(share(of_cpus), number(of_cpus.free), share(of_memory), gibibytes(of_memory.free)),
        TextCell(int(of_disk.free), (f"{of_disk.free:.0f} GB",)) if of_disk.capacity else None,
        host["uuid"],
    )
