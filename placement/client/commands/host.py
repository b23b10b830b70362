"""`placement host`: machines of any kind, with what they use and have left."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from placement.client.commands.aggregate import uuid_of
from placement.client.display import Listing, argument, given, limit, pages_of
from placement.client.formats import TextCell

HOSTS = "/ext/v1/hosts"
_SHOWN = 50
# CPUs and memory are counted by what a Kubernetes node as a whole offers, else by the class of nova. With
# each class comes how many units of it are a CPU, or a MiB. VCPU and PCPU may be the same CPUs, so they have
# no sum.
_CPUS = (("CUSTOM_NODE_CPU_MILLI", 1000), ("VCPU", 1))
_DEDICATED = (("PCPU", 1),)
_MEMORY = (("CUSTOM_NODE_MEMORY_MB", 1), ("MEMORY_MB", 1))
_DISK = (("DISK_GB", 1),)
_COLUMNS = (
    *("name", "cluster", "cpu_use", "cpus_free", "pcpu_free"),
    *("memory_use", "memory_free_mib", "disk_free_gb", "uuid"),
)

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
    """Return the CPUs of a host or of several: all of a Kubernetes node, else the shared ones."""
    return _use(resources, _CPUS)


def cpu_share(resources: Resources) -> TextCell:
    """Return a cell of the use of CPUs: of all, of the shared or of the dedicated ones, what is fuller."""
    uses = [each for each in (cpus(resources), _use(resources, _DEDICATED)) if each.capacity]
    return max(uses, key=lambda each: each.used / each.capacity, default=Use(0, 0)).share


def memory(resources: Resources) -> Use:
    """Return the memory of a host or of several in MiB."""
    return _use(resources, _MEMORY)


def _use(resources: Resources, ways: Iterable[tuple[str, int]]) -> Use:
    for name, unit in ways:
        if name in resources:
            return Use(*(resources[name][part] / unit for part in ("capacity", "used")))
    return Use(0, 0)


def number(amount: float) -> TextCell:
    """Return a cell of a number of CPUs, with at most one digit behind the point."""
    return TextCell(int(amount) if amount == int(amount) else amount, (f"{amount:.1f}".removesuffix(".0"),))


def gibibytes(mebibytes: float) -> TextCell:
    """Return a cell of MiB that shows GiB to people."""
    return TextCell(int(mebibytes), (f"{mebibytes / 1024:.1f} GiB",))


class ListHosts(Listing):
    """List hosts, of OpenStack and of Kubernetes, with what is used of them and what they have left."""

    arguments = (
        argument("--cluster", help="in this cluster only"),
        argument("--aggregate", metavar="UUID_OR_NAME", help="with a provider in this aggregate only"),
        limit(f"N hosts at most (else {_SHOWN} for people)"),
    )
    left_out_first = ("uuid", "disk_free_gb", "pcpu_free", "cluster")
    only_wide = ("uuid",)
    nothing = "hosts"
    filters = ("cluster", "aggregate")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        client, wanted = self.client, given(cluster=parsed_args.cluster)
        hosts: Iterable[Mapping[str, Any]] = pages_of(client, HOSTS, "hosts", "after", [*wanted.items()])
        if parsed_args.aggregate is not None:
            query = [("member_of", uuid_of(client, parsed_args.aggregate))]
            members = client.get("/resource_providers", query)["resource_providers"]
            roots = {member["root_provider_uuid"] for member in members}
            hosts = (host for host in hosts if host["uuid"] in roots)
        # All are read where they are sorted, so that the first ones are the first of all.
        rows = self.in_order(parsed_args, _COLUMNS, map(_row, hosts))
        if parsed_args.limit is not None:
            return _COLUMNS, islice(rows, parsed_args.limit)
        return _COLUMNS, self.first(parsed_args, rows, _SHOWN)


def _row(host: Mapping[str, Any]) -> tuple[Any, ...]:
    resources = host["resources"]
    of_memory, of_disk = memory(resources), _use(resources, _DISK)
    of_cpus = (cpus(resources), _use(resources, _DEDICATED))
    return (
        *(host["name"], host["cluster"], cpu_share(resources)),
        *(number(each.free) if each.capacity else None for each in of_cpus),
        *(of_memory.share, gibibytes(of_memory.free)),
        TextCell(int(of_disk.free), (f"{of_disk.free:.0f} GB",)) if of_disk.capacity else None,
        host["uuid"],
    )
