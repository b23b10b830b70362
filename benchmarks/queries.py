"""The queries of each data set."""

from __future__ import annotations

from benchmarks.data import ZONES, identifier

_SIMPLE = "resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20"
_ONE_GROUP = "resources1=VCPU:2,MEMORY_MB:4096,DISK_GB:20&required1=COMPUTE_NODE"
_NOVA = f"{_SIMPLE}&member_of={ZONES[1]}&required=HW_CPU_X86_AVX&root_required=!CUSTOM_GOLD"
_TWO_VF = (
    f"{_SIMPLE}&resources1=SRIOV_NET_VF:1&required1=CUSTOM_PHYSNET1"
    "&resources2=SRIOV_NET_VF:1&required2=CUSTOM_PHYSNET2&group_policy=isolate"
)
_AFFINITY = (
    "resources=DISK_GB:20&resources_N=PCPU:4,MEMORY_MB:4096&required_N=HW_NUMA_ROOT"
    "&resources_V=SRIOV_NET_VF:1,NET_BW_EGR_KILOBIT_PER_SEC:1000&required_V=CUSTOM_PHYSNET1"
    "&same_subtree=_N,_V&group_policy=none"
)
_TWO_NUMA = (
    "resources=DISK_GB:20&resources_A=VCPU:4,MEMORY_MB:4096&resources_B=VCPU:4,MEMORY_MB:4096"
    "&group_policy=isolate"
)
_EIGHT_CORES = "&".join(f"resources_{number}=PCPU:1" for number in range(8)) + "&group_policy=isolate"

QUERIES: dict[str, dict[str, str]] = {
    "flat": {
        "simple": _SIMPLE,
        "simple limit 1": f"{_SIMPLE}&limit=1",
        "simple limit 10": f"{_SIMPLE}&limit=10",
        "simple limit 1000": f"{_SIMPLE}&limit=1000",
        "traits limit 1000": f"{_SIMPLE}&required=HW_CPU_X86_AVX,!CUSTOM_GOLD&limit=1000",
        "one group limit 1000": f"{_ONE_GROUP}&limit=1000",
        "nova limit 1000": f"{_NOVA}&limit=1000",
        "in_tree": f"{_SIMPLE}&in_tree={identifier('flat-5')}",
        "impossible": "resources=VCPU:2,MEMORY_MB:99999999,DISK_GB:20",
    },
    "numa": {
        "simple": _SIMPLE,
        "simple limit 1000": f"{_SIMPLE}&limit=1000",
        "two_vf_isolate": _TWO_VF,
        "two_vf_isolate limit 10": f"{_TWO_VF}&limit=10",
        "two_vf_isolate limit 1000": f"{_TWO_VF}&limit=1000",
        "numa_affinity": _AFFINITY,
        "numa_affinity limit 1000": f"{_AFFINITY}&limit=1000",
        "two_numa limit 1000": f"{_TWO_NUMA}&limit=1000",
    },
    "cores": {"8 isolated cores limit 1000": f"{_EIGHT_CORES}&limit=1000"},
    "sharing": {"simple": _SIMPLE, "simple limit 1000": f"{_SIMPLE}&limit=1000"},
}
# What the incumbent cannot finish; asked of ours alone.
ONLY_OURS = frozenset({"8 isolated cores limit 1000"})
