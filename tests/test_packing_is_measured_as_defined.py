"""Figures of the packing simulation are what their definitions say, on clusters small enough to count."""

from __future__ import annotations

import pytest

from benchmarks.packing.measures import measured
from benchmarks.packing.stream import BIG, COMMON, GIB, MIX, WHOLE, Dedicated, arrivals


def provider(name: str, root: str, parent: str | None = None, **offers: tuple[int, int]) -> dict:
    """One provider as the service lists it; an offer is (total, used)."""
    return {
        "uuid": name,
        "root_provider_uuid": root,
        "parent_provider_uuid": parent,
        "inventories": {kind: {"total": total} for kind, (total, _) in offers.items()},
        "usages": {kind: used for kind, (_, used) in offers.items()},
    }


def flat(name: str, vcpu: int, gib: int, used: int = 0) -> list[dict]:
    offers = {"VCPU": (vcpu, used), "MEMORY_MB": (gib * GIB, 0), "DISK_GB": (1000, 0)}
    return [provider(name, name, **offers)]


def tree(name: str, *nodes: tuple[int, int]) -> list[dict]:
    """A tree whose nodes have eight cores each; a node is (cores used, GiB free)."""
    found = [provider(name, name, DISK_GB=(1000, 0))]
    for number, (used, gib) in enumerate(nodes):
        node = f"{name}-{number}"
        found.append(provider(node, name, name, MEMORY_MB=(gib * GIB, 0), VCPU=(4, 0)))
        found += [provider(f"{node}-{core}", name, node, PCPU=(1, int(core < used))) for core in range(8)]
    return found


def test_cores_are_stranded_for_want_of_cores_or_of_memory() -> None:
    assert (COMMON.cores, COMMON.memory) == (4, 16 * GIB)
    figures = measured([*tree("a", (0, 64), (5, 64)), *tree("b", (0, 15), (8, 64))])
    assert figures.free_cores == 8 + 3 + 8 + 0
    assert figures.stranded_cores == 3 + 8


def test_fragmentation_compares_with_one_host() -> None:
    """Four requests of 16 VCPU would fit one host; apart, two of the hosts have too few left."""
    assert (BIG.vcpu, BIG.memory) == (16, 64 * GIB)
    apart = [*flat("a", 32, 512), *flat("b", 32, 512, used=20), *flat("c", 32, 512, used=12)]
    figures = measured(apart)
    assert figures.fragmentation_shared == pytest.approx(1 - 3 / 4)
    assert measured(flat("a", 64, 512)).fragmentation_shared == 0
    assert measured(flat("a", 8, 512)).fragmentation_shared == 0
    assert figures.fragmentation_dedicated == 0


def test_memory_beside_no_cores_does_not_count_for_dedicated_requests() -> None:
    """Of twelve free cores eight could serve if the memory beside them did; a flat host's does not help."""
    assert (WHOLE.cores, WHOLE.memory) == (8, 48 * GIB)
    figures = measured([*tree("a", (4, 64), (4, 64)), *flat("b", 0, 4096)])
    assert figures.fragmentation_dedicated == 1
    assert measured(tree("a", (0, 64), (4, 64))).fragmentation_dedicated == 0


def test_empty_hosts_and_stranded_vcpu_are_counted() -> None:
    figures = measured([*flat("a", 8, 3, used=2), *flat("b", 8, 64), *tree("c", (0, 64), (0, 64))])
    assert figures.empty_hosts == 2
    assert figures.stranded_vcpu == 6
    assert figures.use["VCPU"] == pytest.approx(2 / 24)


def test_a_stream_is_the_same_for_a_seed_and_mixed_as_it_says() -> None:
    stream = arrivals(5000, 7)
    assert stream == arrivals(5000, 7) != arrivals(5000, 8)
    assert sum(MIX.values()) == 100
    dedicated = sum(isinstance(arrival.kind, Dedicated) for arrival in stream) / len(stream)
    assert dedicated == pytest.approx(0.23, abs=0.02)
    assert all(arrival.leaves is None or arrival.leaves > arrival.number for arrival in stream)
    assert sum(arrival.leaves is None for arrival in stream) / len(stream) == pytest.approx(0.5, abs=0.03)
