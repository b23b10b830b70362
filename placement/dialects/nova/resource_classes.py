"""The resource class names a flavor may ask for."""

from __future__ import annotations

import re

VCPU = "VCPU"
PCPU = "PCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
MEM_ENCRYPTION_CONTEXT = "MEM_ENCRYPTION_CONTEXT"
CUSTOM_PREFIX = "CUSTOM_"

STANDARD_CLASSES = frozenset(
    (
        VCPU,
        MEMORY_MB,
        DISK_GB,
        "PCI_DEVICE",
        "SRIOV_NET_VF",
        "NUMA_SOCKET",
        "NUMA_CORE",
        "NUMA_THREAD",
        "NUMA_MEMORY_MB",
        "IPV4_ADDRESS",
        "VGPU",
        "VGPU_DISPLAY_HEAD",
        "NET_BW_EGR_KILOBIT_PER_SEC",
        "NET_BW_IGR_KILOBIT_PER_SEC",
        PCPU,
        MEM_ENCRYPTION_CONTEXT,
        "FPGA",
        "PGPU",
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
        "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
    )
)

# `,` and `:` separate the entries of a query value: such a name would ask for something else.
_CUSTOM = re.compile(r"CUSTOM_[^,:]*")
_WELL_FORMED_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Z0-9]+")


def is_known_class(name: str) -> bool:
    """Whether an entry for this class is kept: a standard class, or anything that starts with `CUSTOM_`.

    Source: nova-flavors.md, "Values of resource entries".
    """
    return name in STANDARD_CLASSES or _CUSTOM.fullmatch(name) is not None


def is_well_formed_class(name: str) -> bool:
    """Whether strict mode takes this class: a standard class, or `CUSTOM_` and `A-Z 0-9 _`.

    Source: nova-flavors.md, "Strict mode".
    """
    return name in STANDARD_CLASSES or _WELL_FORMED_CUSTOM.fullmatch(name) is not None


def custom_class(text: str) -> str:
    """The custom class for a free text: upper case, every run of other characters one `_`."""
    return CUSTOM_PREFIX + _NOT_ALPHANUMERIC.sub("_", text.upper())
