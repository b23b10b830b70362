"""Example queries for an empty form, of classes that some provider offers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from placement.engine.domain.units import VIRTUAL_FUNCTION, unit_of


class Example(NamedTuple):
    """A query and what it asks for, in words."""

    words: str
    query: str


_ON_ONE_NUMA_NODE = (
    "resources_1=PCPU:4&split_1=PCPU&resources_2=MEMORY_MB:16384&group_policy=none"
    "&required_numa=HW_NUMA_ROOT&same_subtree=_numa,_1,_2"
)
_KNOWN = (
    ({"PCPU", "MEMORY_MB"}, "4 dedicated CPUs and 16 GiB on one NUMA node", _ON_ONE_NUMA_NODE),
    ({"VCPU", "MEMORY_MB"}, "2 vCPUs and 4 GiB", "resources=VCPU:2,MEMORY_MB:4096"),
    ({"DISK_GB"}, "100 GiB of disk", "resources=DISK_GB:100"),
    ({"VGPU"}, "1 vGPU", "resources=VGPU:1"),
)
_MOST_NETWORKS = 2
_NETWORK = re.compile(r"PHYSNET_?(\w+)$")


def examples(classes: Collection[str]) -> Iterator[Example]:
    """Yield queries that these classes can serve."""
    for needed, words, query in _KNOWN:
        if needed.issubset(classes):
            yield Example(words, query)
    functions = [name for name in classes if unit_of(name).name == VIRTUAL_FUNCTION]
    for name in functions[:_MOST_NETWORKS]:
        network = _NETWORK.search(name)
        where = f" on physnet {network[1].lower()}" if network else ""
        yield Example(f"a VF{where}", f"resources={name}:1")
