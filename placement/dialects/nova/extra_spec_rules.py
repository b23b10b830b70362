"""Strict mode: what nova's own extra spec validation would refuse, one extra spec at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from placement.dialects.nova.errors import Problems, shown
from placement.dialects.nova.extra_specs import (
    FORBIDDEN,
    GROUP_KEY,
    GROUP_POLICIES,
    REQUIRED,
)
from placement.dialects.nova.flavor import integer, is_boolean
from placement.dialects.nova.guest import cpu_policy, emulator_threads, thread_policy
from placement.dialects.nova.memory_encryption import MODEL_TRAITS
from placement.dialects.nova.platform_traits import (
    PCI_AFFINITIES,
    TPM_MODEL_TRAITS,
    TPM_VERSION_TRAITS,
)
from placement.dialects.nova.resource_classes import is_well_formed_class


@dataclass(frozen=True, slots=True)
class _Rule:
    expects: str
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> _Rule:
    return _Rule(f"one of {', '.join(values)}", values.__contains__)


def _whole_number(least: int, most: int | None = None) -> _Rule:
    def accepts(text: str) -> bool:
        number = integer(text)
        return number is not None and number >= least and (most is None or number <= most)

    return _Rule(f"a whole number from {least}" + ("" if most is None else f" to {most}"), accepts)


def _pattern(expects: str, pattern: str) -> _Rule:
    compiled = re.compile(pattern)
    return _Rule(expects, lambda text: compiled.fullmatch(text) is not None)


_BOOLEAN = _Rule("a word for true or false", is_boolean)
_CPU_SET = _pattern(
    "CPU numbers and ranges joined by single commas, without blanks",
    r"\^?[0-9]+(-[0-9]+)?(,\^?[0-9]+(-[0-9]+)?)*",
)
_TRAIT_VALUE = _one_of(REQUIRED, FORBIDDEN)
_AMOUNT = _whole_number(0)
_ANYTHING = _Rule("anything", lambda _: True)

_RULES: Mapping[str, _Rule] = {
    "group_policy": _one_of(*GROUP_POLICIES),
    "hw:cpu_policy": _one_of(*cpu_policy.POLICIES),
    "hw:cpu_thread_policy": _one_of(*thread_policy.POLICIES),
    "hw:emulator_threads_policy": _one_of(*emulator_threads.POLICIES),
    "os:secure_boot": _one_of("disabled", "required"),
    "hw:pci_numa_affinity_policy": _one_of(*PCI_AFFINITIES),
    "hw:tpm_model": _one_of(*TPM_MODEL_TRAITS),
    "hw:tpm_version": _one_of(*TPM_VERSION_TRAITS),
    "hw:tpm_secret_security": _one_of("user", "host", "deployment"),
    "hw:mem_encryption_model": _one_of(*MODEL_TRAITS),
    "hw:viommu_model": _one_of("intel", "smmuv3", "virtio", "auto"),
    "hw:watchdog_action": _one_of("none", "pause", "poweroff", "reset", "disabled"),
    "hw:sound_model": _one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw:usb_model": _one_of(
        "piix3-uhci",
        "piix4-uhci",
        "ehci",
        "ich9-ehci1",
        "ich9-uhci1",
        "ich9-uhci2",
        "ich9-uhci3",
        "vt82c686b-uhci",
        "pci-ohci",
        "nec-xhci",
        "qusb1",
        "qusb2",
        "qemu-xhci",
        "none",
    ),
    "hw:ephemeral_encryption_format": _one_of("plain", "luks", "luksv2"),
    **dict.fromkeys(("hw:cpu_dedicated_mask", "hw:cpu_realtime_mask"), _CPU_SET),
    **dict.fromkeys(
        (
            "hw:numa_nodes",
            "hw:cpu_sockets",
            "hw:cpu_cores",
            "hw:cpu_threads",
            "hw:cpu_max_sockets",
            "hw:cpu_max_cores",
            "hw:cpu_max_threads",
        ),
        _whole_number(1),
    ),
    "hw:serial_port_count": _whole_number(0),
    "hw:redirected_usb_ports": _whole_number(0, 15),
    **dict.fromkeys(
        (
            "hw:cpu_realtime",
            "hw:mem_encryption",
            "hw:locked_memory",
            "hw:boot_menu",
            "hw:pmu",
            "hw:hide_hypervisor_id",
            "hw:vif_multiqueue_enabled",
            "hw:virtio_packed_ring",
            "hw:ephemeral_encryption",
        ),
        _BOOLEAN,
    ),
    "hw:mem_page_size": _pattern(
        "small, large, any, or digits with an optional unit",
        r"small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?",
    ),
    "hw:pmem": _pattern("letters, digits, _ and commas", r"[a-zA-Z0-9_,]+"),
    # Nova has no rule for it; its value is checked where it is used.
    "hw:maxphysaddr_mode": _ANYTHING,
}

_PER_CELL_RULES = (
    (re.compile(r"hw:numa_cpus\.[0-9]+"), _CPU_SET),
    (re.compile(r"hw:numa_mem\.[0-9]+"), _whole_number(1)),
)
_OUR_NAMESPACES = re.compile(r"(hw|os|(resources|trait)[a-zA-Z0-9_-]{0,64}):.*", re.DOTALL)
_STRICT_TRAIT = re.compile(r"[A-Z0-9_]+")


def extra_spec_fault(key: str, text: str) -> str | None:
    """What is wrong with one extra spec taken on its own, None if nothing is.

    Keys of foreign namespaces and keys without a namespace are accepted unseen.
    Source: nova-flavors.md, "Strict mode".
    """
    rule = _rule_for(key)
    if rule is not None:
        return None if rule.accepts(text) else f"{shown(text)} is not {rule.expects}"
    return "there is no such extra spec" if _OUR_NAMESPACES.fullmatch(key) else None


def check_extra_specs(extra_specs: Mapping[str, str], problems: Problems) -> None:
    """Add `extra_spec_invalid` for each extra spec that has a fault."""
    for key, text in extra_specs.items():
        fault = extra_spec_fault(key, text)
        if fault is not None:
            problems.add("extra_spec_invalid", f"{key}: {fault}")


def _rule_for(key: str) -> _Rule | None:
    if key in _RULES:
        return _RULES[key]
    for pattern, rule in _PER_CELL_RULES:
        if pattern.fullmatch(key):
            return rule
    match = GROUP_KEY.fullmatch(key)
    if match is None:
        return None
    if match["kind"] == "resources":
        return _AMOUNT if is_well_formed_class(match["name"]) else None
    return _TRAIT_VALUE if _STRICT_TRAIT.fullmatch(match["name"]) else None
