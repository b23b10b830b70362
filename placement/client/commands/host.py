"""`placement host`: machines of any kind, with what they use and have left."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from placement.client.display import Listing, argument, limit
from placement.client.formats import TextCell

HOSTS = "/ext/v1/hosts"
_SHOWN = 50
# CPUs and memory are counted by what a Kubernetes node as a whole offers, else by the classes of nova. With
# each list of classes comes how many units of it are a CPU, or a MiB.
_CPUS = ((("CUSTOM_NODE_CPU_MILLI",), 1000), (("PCPU", "VCPU"), 1))
_MEMORY = ((("CUSTOM_NODE_MEMORY_MB",), 1), (("MEMORY_MB",), 1))
_DISK = ((("DISK_GB",), 1),)

Resources = Mapping[str, Mapping[str, int]]


class Use(NamedTuple):
    """The capacity and the use of something, in CPUs, MiB or GB."""

    capacity: float
    used: float

    @property
    def free(self) -> float:
        """Return what is left, less than nothing where more is used than there is."""
        return self.capacity - self.used

    @property
    def share(self) -> TextCell:
        """Return a cell of the use in percent of the capacity, empty without a capacity."""
        percent = round(100 * self.used / self.capacity) if self.capacity else None
        return TextCell(percent, () if percent is None else (f"{percent}%",))


def cpus(resources: Resources) -> Use:
    """Return the CPUs of a host or of several: all of them, or the dedicated and the shared ones together."""
    return _use(resources, _CPUS)


def memory(resources: Resources) -> Use:
    """Return the memory of a host or of several in MiB."""
    return _use(resources, _MEMORY)


def _use(resources: Resources, ways: tuple[tuple[tuple[str, ...], int], ...]) -> Use:
    for classes, unit in ways:
        found = [resources[name] for name in classes if name in resources]
        if found:
            return Use(*(sum(each[part] for each in found) / unit for part in ("capacity", "used")))
    return Use(0, 0)


def number(amount: float) -> TextCell:
    """Return a cell of a number of CPUs, with at most one digit behind the point."""
    whole = int(amount)
    return TextCell(whole if whole == amount else amount, (f"{amount:.1f}".removesuffix(".0"),))


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
    of_cpus, of_memory, of_disk = cpus(resources), memory(resources), _use(resources, _DISK)
    return (
        host["name"],
        host["cluster"],
        *(of_cpus.share, number(of_cpus.free), of_memory.share, gibibytes(of_memory.free)),
        TextCell(int(of_disk.free), (f"{of_disk.free:.0f} GB",)) if of_disk.capacity else None,
        host["uuid"],
    )
