"""The extra specs that nova knows: what its validation asks of each, and which are not decided here."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from placement.engine.domain.errors import Finding
from placement.engine.domain.identifiers import meant, near
from placement.flavors.nova import cpu_facts
from placement.flavors.nova import extra_specs as nova_extra_specs
from placement.flavors.nova.additions import (
    MODEL_TRAITS,
    PCI_AFFINITIES,
    TPM_MODEL_TRAITS,
    TPM_VERSION_TRAITS,
)
from placement.flavors.nova.flavor import integer, is_boolean, is_true
from placement.flavors.nova.problems import Code, shown


@dataclass(frozen=True, slots=True)
class _SpecRule:
    expects: str
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> _SpecRule:
    return _SpecRule(f"one of {', '.join(values)}", values.__contains__)


def _whole_number(least: int, most: int | None = None) -> _SpecRule:
    def accepts(text: str) -> bool:
        number = integer(text)
        return number is not None and number >= least and (most is None or number <= most)

    return _SpecRule(f"a whole number from {least}" + ("" if most is None else f" to {most}"), accepts)


def _pattern(expects: str, pattern: str) -> _SpecRule:
    compiled = re.compile(pattern)
    return _SpecRule(expects, lambda text: compiled.fullmatch(text) is not None)


_BOOLEAN = _SpecRule("a word for true or false", is_boolean)
_CPU_SET = _pattern(
    "CPU numbers and ranges joined by single commas, without blanks",
    r"\^?[0-9]+(-[0-9]+)?(,\^?[0-9]+(-[0-9]+)?)*",
)
_TRAIT_VALUE = _one_of(nova_extra_specs.REQUIRED, nova_extra_specs.FORBIDDEN)
_AMOUNT = _whole_number(0)
_ANYTHING = _SpecRule("anything", lambda _: True)
_CHOICES = {
    "group_policy": nova_extra_specs.GROUP_POLICIES,
    "hw:cpu_policy": cpu_facts.CPU_POLICIES,
    "hw:cpu_thread_policy": cpu_facts.THREAD_POLICIES,
    "hw:emulator_threads_policy": cpu_facts.EMULATOR_POLICIES,
    "os:secure_boot": ("disabled", "required"),
    "hw:pci_numa_affinity_policy": PCI_AFFINITIES,
    "hw:tpm_model": TPM_MODEL_TRAITS,
    "hw:tpm_version": TPM_VERSION_TRAITS,
    "hw:tpm_secret_security": ("user", "host", "deployment"),
    "hw:mem_encryption_model": MODEL_TRAITS,
    "hw:viommu_model": ("intel", "smmuv3", "virtio", "auto"),
    "hw:watchdog_action": ("none", "pause", "poweroff", "reset", "disabled"),
    "hw:sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw:usb_model": (
        *("piix3-uhci", "piix4-uhci", "ehci", "ich9-ehci1", "ich9-uhci1", "ich9-uhci2", "ich9-uhci3"),
        *("vt82c686b-uhci", "pci-ohci", "nec-xhci", "qusb1", "qusb2", "qemu-xhci", "none"),
    ),
    "hw:ephemeral_encryption_format": ("plain", "luks", "luksv2"),
}
_TOPOLOGY = [f"hw:cpu_{most}{part}" for most in ("", "max_") for part in ("sockets", "cores", "threads")]
_SWITCHES = (
    *("cpu_realtime", "mem_encryption", "locked_memory", "boot_menu", "pmu", "hide_hypervisor_id"),
    *("vif_multiqueue_enabled", "virtio_packed_ring", "ephemeral_encryption"),
)
_RULES_BY_KEY: Mapping[str, _SpecRule] = {
    **{key: _one_of(*values) for key, values in _CHOICES.items()},
    **dict.fromkeys(("hw:cpu_dedicated_mask", "hw:cpu_realtime_mask"), _CPU_SET),
    **dict.fromkeys(("hw:numa_nodes", *_TOPOLOGY), _whole_number(1)),
    "hw:serial_port_count": _whole_number(0),
    "hw:redirected_usb_ports": _whole_number(0, 15),
    **{f"hw:{name}": _BOOLEAN for name in _SWITCHES},
    "hw:mem_page_size": _pattern(
        "small, large, any, or digits with an optional unit",
        r"small|large|any|[0-9]+([kKMGT]i?)?(b|bit|B)?",
    ),
    "hw:pmem": _pattern("letters, digits, _ and commas", r"[a-zA-Z0-9_,]+"),
    # Nova has no rule for them; the value of the mode is checked where it is used.
    **dict.fromkeys(("hw:maxphysaddr_mode", "hw:maxphysaddr_bits"), _ANYTHING),
}
_PER_CELL_RULES = (
    (re.compile(r"hw:numa_cpus\.[0-9]+"), _CPU_SET),
    (re.compile(r"hw:numa_mem\.[0-9]+"), _whole_number(1)),
)


@dataclass(frozen=True, slots=True)
class UndecidedSpec:
    """What an extra spec asks of hosts that is not decided here, and which of its values ask for nothing."""

    whether: str
    is_idle: Callable[[str], bool] = operator.not_


def _unless(*idle: str) -> Callable[[str], bool]:
    return ("", *idle).__contains__


def _is_off(text: str) -> bool:
    return not is_true(text)


_METADATA = UndecidedSpec("whether the aggregates of a host have this metadata")
_HYPERVISOR = "whether the hypervisor of a host has this"
UNDECIDED: Mapping[str, UndecidedSpec] = {
    "pci_passthrough:alias": UndecidedSpec("whether a host has these PCI devices free"),
    "accel:device_profile": UndecidedSpec("whether a host has the devices of this profile free"),
    "aggregate_instance_extra_specs:": _METADATA,
    "capabilities:": UndecidedSpec("whether a host has this capability"),
    "vmware:hw_version": UndecidedSpec("whether a host has this hardware version"),
    "vmware:storage_policy": UndecidedSpec("whether a host has storage of this policy"),
    "powervm:": UndecidedSpec("whether a host has PowerVM with this"),
    "hw:mem_page_size": UndecidedSpec("whether a host has free pages of this size", _unless("small")),
    "hw:pci_numa_affinity_policy": UndecidedSpec(
        "whether devices and memory are near each other", _unless("preferred")
    ),
    "hw:maxphysaddr_bits": UndecidedSpec("whether the CPUs of a host have as many address bits"),
    "hw:virtio_packed_ring": UndecidedSpec(_HYPERVISOR, _is_off),
    "hw:ephemeral_encryption": UndecidedSpec(_HYPERVISOR, _is_off),
    "hw:ephemeral_encryption_format": UndecidedSpec(_HYPERVISOR),
    "hw:viommu_model": UndecidedSpec(_HYPERVISOR),
    "hw:sound_model": UndecidedSpec(_HYPERVISOR, _unless("none")),
    "hw:usb_model": UndecidedSpec(_HYPERVISOR, _unless("none")),
    "hw:tpm_secret_security": UndecidedSpec("whether a host keeps the secrets of a TPM in this way"),
}
"""What nova's scheduler asks of hosts beside its query; a key that ends with `:` is a whole namespace."""
_LIMITS = ("limit", "reservation", "shares_level", "shares_share")
GUEST_ONLY = frozenset(
    (
        *(f"quota:{part}_{limit}" for part in ("cpu", "memory", "disk_io", "vif") for limit in _LIMITS),
        *(f"quota:cpu_{limit}" for limit in ("shares", "period", "quota")),
        *(f"quota:disk_{way}_{unit}_sec" for way in ("read", "write", "total") for unit in ("bytes", "iops")),
        *(
            f"quota:vif_{way}_{rate}"
            for way in ("inbound", "outbound")
            for rate in ("average", "peak", "burst")
        ),
        *("hw_rng:allowed", "hw_rng:rate_bytes", "hw_rng:rate_period", "hw_video:ram_max_mb"),
        "hide_hypervisor_id",
    )
)
"""What a host does for a guest, wherever that is; `hw:` has more of them, such as `hw:watchdog_action`."""
KNOWN_EXTRA_SPECS = (
    *(*_RULES_BY_KEY, "hw:numa_cpus.N", "hw:numa_mem.N", *sorted(GUEST_ONLY)),
    *(key for key in UNDECIDED if not key.endswith(":") and key not in _RULES_BY_KEY),
    *(f"resources:{name}" for name in sorted(nova_extra_specs.STANDARD_CLASSES)),
)
_LIKE_OURS = re.compile(r"(hw|os):|resources|trait")
# Of what has no code among the warnings.
UNUSED, NOT_DECIDED = "extra_spec_ignored", "extra_spec_undecided"
_OUR_NAMESPACES = re.compile(r"(hw|os|(resources|trait)[a-zA-Z0-9_-]{0,64}):.*", re.DOTALL)
_STRICT_TRAIT = re.compile(r"[A-Z0-9_]+")


def extra_spec_fault(key: str, text: str, known: Collection[str] = ()) -> str | None:
    """Return the fault of one extra spec taken on its own, or None if it has none.

    An unknown one may be meant for one of the known. Keys of foreign namespaces and keys without a namespace
    are accepted unseen. Source: nova-flavors.md, "Strict mode".
    """
    rule = _rule(key)
    match = nova_extra_specs.GROUP_KEY.fullmatch(key)
    if rule is None and match is not None:
        if match["kind"] == "resources":
            rule = _AMOUNT if nova_extra_specs.is_well_formed_class(match["name"]) else None
        else:
            rule = _TRAIT_VALUE if _STRICT_TRAIT.fullmatch(match["name"]) else None
    if rule is not None:
        return None if rule.accepts(text) else f"{shown(text)} is not {rule.expects}"
    return _no_such(near(key, known, 1)) if _OUR_NAMESPACES.fullmatch(key) else None


def ignored_extra_specs(extra_specs: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return why a translation ignores some, sorted: bad entries, unknown ones, what is not decided here.

    Words that are no booleans are among them. Source: nova-flavors.md, "Keys", "Values of resource entries",
    "Extra specs that are not decided".
    """
    problems = nova_extra_specs.read_extra_specs(
        extra_specs, nova_extra_specs.suggestible(nova_extra_specs.STANDARD_CLASSES, extra_specs)
    ).problems
    known = nova_extra_specs.suggestible(KNOWN_EXTRA_SPECS, extra_specs)
    for key, text in extra_specs.items():
        rule, undecided = _rule(key), _undecided(key)
        if rule is _BOOLEAN and not rule.accepts(text):
            problems.add(UNUSED, key, f"{shown(text)} is not {rule.expects}, so it counts as false")
        elif undecided is not None and not undecided.is_idle(text):
            problems.add(NOT_DECIDED, key, _not_decided(undecided))
        elif undecided is None and rule is None and not _has_meaning(key):
            problems.add(*_unknown(key, known))
    return tuple(sorted(problems, key=lambda each: (each.code, str(each))))


def _has_meaning(key: str) -> bool:
    """Return whether the key concerns guests only, or names a resource or a trait."""
    return key in GUEST_ONLY or nova_extra_specs.is_entry(key)


def _unknown(key: str, known: Collection[str]) -> tuple[Code, str, str]:
    """Return the code, the name and the reason of a problem with a key that has no rule."""
    # Properties of images have names such as hw_cpu_policy.
    flavors = key.replace("_", ":", 1)
    like = [flavors] if _rule(flavors) is not None else near(key, known, 1)
    if ":" in key or like or _LIKE_OURS.match(key):
        return UNUSED, key, _no_such(like)
    # A filter of nova compares keys without a namespace with aggregates.
    return NOT_DECIDED, key, _not_decided(_METADATA)


def _undecided(key: str) -> UndecidedSpec | None:
    namespace, colon, _ = key.partition(":")
    return UNDECIDED.get(key) or UNDECIDED.get(f"{namespace}:" if colon else "")


def _not_decided(undecided: UndecidedSpec) -> str:
    return f"not decided here: {undecided.whether}"


def _rule(key: str) -> _SpecRule | None:
    per_cell = (rule for pattern, rule in _PER_CELL_RULES if pattern.fullmatch(key))
    return _RULES_BY_KEY.get(key) or next(per_cell, None)


def _no_such(like: Sequence[str]) -> str:
    return f"there is no such extra spec{meant(like)}"
