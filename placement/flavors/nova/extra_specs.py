"""Extra specs that name resources and traits, `resources<S>:CLASS`, and keys that stand for some."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import os_resource_classes

from placement.engine.domain.identifiers import meant, near
from placement.flavors.nova.flavor import (
    FIRMWARE_KEY,
    STATELESS_FIRMWARE_KEY,
    ImageProperties,
    Problems,
    agreed_value,
    given,
    integer,
    is_stateless,
    is_true,
    is_uefi,
    shown,
)

# Request groups: amounts and traits that one suffix of the query asks for.


BASE = ""
"""The suffix of the un-numbered group."""


@dataclass(frozen=True, slots=True)
class FlavorGroup:
    """Amounts by resource class (in the units of the class), required traits and forbidden traits."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.resources or self.required or self.forbidden)

    @property
    def traits(self) -> tuple[str, ...]:
        """Return required traits sorted, then forbidden traits sorted with `!` in front, as in a query."""
        return (*sorted(self.required), *(f"!{trait}" for trait in sorted(self.forbidden)))


Groups = Mapping[str, FlavorGroup]
"""Suffix -> group."""


def merged(groups: Iterable[FlavorGroup]) -> FlavorGroup:
    """Return one group of all: traits are united, a later amount of a class overwrites an earlier one."""
    parts = tuple(groups)
    return FlavorGroup(
        {name: amount for part in parts for name, amount in part.resources.items()},
        frozenset().union(*(part.required for part in parts)),
        frozenset().union(*(part.forbidden for part in parts)),
    )


def stripped(groups: Groups) -> dict[str, FlavorGroup]:
    """Return the groups without amounts of 0, and without groups that have no resources or traits then.

    Source: nova-flavors.md, "Zero stripping".
    """
    kept = {}
    for suffix, group in groups.items():
        amounts = {name: amount for name, amount in group.resources.items() if amount}
        kept[suffix] = FlavorGroup(amounts, group.required, group.forbidden)
    return {suffix: group for suffix, group in kept.items() if group}


def check_trait_conflicts(groups: Groups, problems: Problems) -> None:
    """Add `trait_conflict` for each trait that a group both requires and forbids."""
    for suffix, group in groups.items():
        for trait in sorted(group.required & group.forbidden):
            problems.add("trait_conflict", f"trait{suffix}:{trait}: is both required and forbidden")


def check_groups(groups: Groups, group_policy: str | None, problems: Problems) -> None:
    """Add what Placement would answer with 400: traits alone, no group, several groups without a policy.

    Source: nova-flavors.md, "Checks after zero stripping".
    """
    for suffix, group in groups.items():
        if not group.resources:
            traits = ", ".join(f"trait{suffix}:{trait.lstrip('!')}" for trait in group.traits)
            message = f"{traits}: nothing is requested in the same group (resources{suffix}:...)"
            problems.add("traits_without_resources", message)
    if not groups:
        problems.add("no_resources", "resources: every amount is 0, nothing is left to ask for")
    suffixes = [suffix for suffix in groups if suffix != BASE]
    if len(suffixes) > 1 and group_policy is None:
        names = ", ".join(f"resources{suffix}" for suffix in suffixes)
        problems.add("group_policy_required", f"group_policy: must be none or isolate, there are {names}")


# The resource class names a flavor may ask for.


VCPU = "VCPU"
PCPU = "PCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
MEM_ENCRYPTION_CONTEXT = "MEM_ENCRYPTION_CONTEXT"
CUSTOM_PREFIX = "CUSTOM_"

STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)

# `,` and `:` separate the entries of a query value: such a name would ask for something else.
_CUSTOM = re.compile(r"CUSTOM_[^,:]*")
_WELL_FORMED_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Z0-9]+")


def is_known_class(name: str) -> bool:
    """Return whether an entry for this class is kept: a standard class, or `CUSTOM_` and no `,` or `:`.

    Source: nova-flavors.md, "Values of resource entries".
    """
    return name in STANDARD_CLASSES or _CUSTOM.fullmatch(name) is not None


def is_well_formed_class(name: str) -> bool:
    """Return whether strict mode takes this class: a standard class, or `CUSTOM_` and `A-Z 0-9 _`.

    Source: nova-flavors.md, "Strict mode".
    """
    return name in STANDARD_CLASSES or _WELL_FORMED_CUSTOM.fullmatch(name) is not None


def custom_class(text: str) -> str:
    """Return the custom class for a free text: upper case, every run of other characters one `_`."""
    return CUSTOM_PREFIX + _NOT_ALPHANUMERIC.sub("_", text.upper())


GROUP_POLICIES = ("none", "isolate")
REQUIRED = "required"
FORBIDDEN = "forbidden"
GROUP_KEY = re.compile(r"(?P<kind>resources|trait)(?P<suffix>[a-zA-Z0-9_-]{1,64})?:(?P<name>.*)")

# `!`, `,` and `:` mean something in a query value, so a name with them would ask for something else.
_is_trait_name = re.compile(r"[^!,:]+").fullmatch
_IMAGE_TRAIT = "trait:"


@dataclass(frozen=True, slots=True)
class ExplicitRequests:
    """What the extra specs ask for by name, zero amounts included, and why other entries are ignored."""

    groups: Groups
    group_policy: str | None
    ignored: Problems

    @property
    def base(self) -> FlavorGroup:
        """Return the un-numbered group, empty if no entry is in it."""
        return self.groups.get(BASE, FlavorGroup())

    def total(self, resource_class: str) -> int:
        """Return the amounts of one class added up over all groups, whatever their suffixes."""
        return sum(group.resources.get(resource_class, 0) for group in self.groups.values())


def is_entry(key: str) -> bool:
    """Return whether the key names a resource or a trait, so that its value counts or leaves a reason."""
    match = GROUP_KEY.fullmatch(key)
    return match is not None and (match["kind"] == "resources" or _is_trait_name(match["name"]) is not None)


_MOST_TO_COMPARE = 100


def suggestible(names: Collection[str], extra_specs: Mapping[str, str]) -> Collection[str]:
    """Return the names to compare unknown ones with; none for more extra specs than can be compared soon."""
    return names if len(extra_specs) <= _MOST_TO_COMPARE else ()


def read_extra_specs(extra_specs: Mapping[str, str], known: Collection[str] = ()) -> ExplicitRequests:
    """Return the groups an operator wrote out; the suffix is all between the keyword and the first colon.

    Bad entries leave only the reason why they are ignored, other keys leave nothing. An unknown class may be
    meant for one of the `known`.
    Source: nova-flavors.md, "Extra specs that name resources and traits".
    """
    resources: dict[str, dict[str, int]] = {}
    traits: dict[str, dict[str, str]] = {}
    group_policy: str | None = None
    ignored = Problems()
    for key, text in extra_specs.items():
        match = GROUP_KEY.fullmatch(key)
        if key == "group_policy":
            if text in GROUP_POLICIES:
                group_policy = text
            else:
                ignored.add("group_policy_ignored", f"{key}: {shown(text)} is neither none nor isolate")
        elif match is not None and match["kind"] == "resources":
            amount = integer(text)
            if not is_known_class(match["name"]):
                like = meant(near(match["name"], known, 1))
                ignored.add("resource_class_ignored", f"{key}: there is no such resource class{like}")
            elif amount is None or amount < 0:
                ignored.add("amount_ignored", f"{key}: {shown(text)} is no whole number from 0 on")
            else:
                resources.setdefault(match["suffix"] or BASE, {})[match["name"]] = amount
        elif match is not None and _is_trait_name(match["name"]):
            if text in (REQUIRED, FORBIDDEN):
                traits.setdefault(match["suffix"] or BASE, {})[match["name"]] = text
            else:
                message = f"{key}: {shown(text)} is neither required nor forbidden"
                ignored.add("trait_value_ignored", message)

    def traits_of(suffix: str, wanted: str) -> frozenset[str]:
        return frozenset(trait for trait, text in traits.get(suffix, {}).items() if text == wanted)

    groups = {
        suffix: FlavorGroup(
            resources.get(suffix, {}), traits_of(suffix, REQUIRED), traits_of(suffix, FORBIDDEN)
        )
        for suffix in sorted(resources.keys() | traits.keys())
    }
    return ExplicitRequests(groups, group_policy, ignored)


def image_traits(image: ImageProperties) -> FlavorGroup:
    """Return the traits an image requires of the base group; images cannot forbid and know no suffixes.

    Source: nova-flavors.md, "Image traits".
    """
    required = (key for key, text in image.items() if key.startswith(_IMAGE_TRAIT) and text == REQUIRED)
    names = (key.removeprefix(_IMAGE_TRAIT) for key in required)
    return FlavorGroup(required=frozenset(filter(_is_trait_name, names)))


# Memory encryption and host traits: `hw:mem_encryption` with what it needs of the image, and other keys.


FLAVOR_KEY = "hw:mem_encryption"
IMAGE_KEY = "hw_mem_encryption"
MODEL_KEYS = ("hw:mem_encryption_model", "hw_mem_encryption_model")
MACHINE_TYPE_KEY = "hw_machine_type"

_DEFAULT_MODEL = "amd-sev"
_STATELESS_MODEL = "amd-sev-snp"
MODEL_TRAITS = {
    _DEFAULT_MODEL: "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    _STATELESS_MODEL: "HW_CPU_X86_AMD_SEV_SNP",
}


def memory_encryption(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> FlavorGroup:
    """Return one encryption context and the trait of the model if either side asks for it, else nothing.

    Adds `flavor_image_conflict`, `value_invalid`, `machine_type_invalid` or `stateless_firmware_required`.
    Source: nova-flavors.md, "Optional additions".
    """
    ours = is_true(extra_specs[FLAVOR_KEY]) if FLAVOR_KEY in extra_specs else None
    theirs = is_true(image[IMAGE_KEY]) if IMAGE_KEY in image else None
    if not ours and not theirs:
        return FlavorGroup()
    if ours is not None and theirs is not None and ours != theirs:
        problems.add(
            "flavor_image_conflict",
            f"{FLAVOR_KEY}: one of flavor and image ({IMAGE_KEY}) asks for it, the other not",
        )
        return FlavorGroup()
    asking = FLAVOR_KEY if ours else IMAGE_KEY
    model = agreed_value(extra_specs, image, MODEL_KEYS, tuple(MODEL_TRAITS), problems) or _DEFAULT_MODEL
    if not is_uefi(image):
        problems.add("flavor_image_conflict", f"{FIRMWARE_KEY}: must be uefi for {asking}")
    machine_type = given(image, MACHINE_TYPE_KEY)
    if machine_type is not None and "q35" not in machine_type:
        problems.add(
            "machine_type_invalid", f"{MACHINE_TYPE_KEY}: {shown(machine_type)} is no q35, {asking} needs one"
        )
    if model == _STATELESS_MODEL and not is_stateless(image):
        problems.add("stateless_firmware_required", f"{STATELESS_FIRMWARE_KEY}: must be true for {model}")
    traits = frozenset((MODEL_TRAITS[model],)) if model in MODEL_TRAITS else frozenset[str]()
    return FlavorGroup({MEM_ENCRYPTION_CONTEXT: 1}, required=traits)


# Traits of the host that keys ask for one by one: TPM, PCI affinity, secure boot, address mode, firmware.


TPM_VERSION_KEYS = ("hw:tpm_version", "hw_tpm_version")
TPM_MODEL_KEYS = ("hw:tpm_model", "hw_tpm_model")
TPM_VERSION_TRAITS = {"1.2": "COMPUTE_SECURITY_TPM_1_2", "2.0": "COMPUTE_SECURITY_TPM_2_0"}
TPM_MODEL_TRAITS = {"tpm-tis": "COMPUTE_SECURITY_TPM_TIS", "tpm-crb": "COMPUTE_SECURITY_TPM_CRB"}
PCI_AFFINITIES = ("required", "preferred", "legacy", "socket")

_DEFAULT_TPM_MODEL = "tpm-tis"
_STATELESS_FIRMWARE = "COMPUTE_SECURITY_STATELESS_FIRMWARE"

# (flavor key, image key) -> every legal value and the trait it asks for, in the order of the checks.
_TRAITS_BY_VALUE: Mapping[tuple[str, str], Mapping[str, str | None]] = {
    ("hw:pci_numa_affinity_policy", "hw_pci_numa_affinity_policy"): {
        **dict.fromkeys(PCI_AFFINITIES),
        "socket": "COMPUTE_SOCKET_PCI_NUMA_AFFINITY",
    },
    ("os:secure_boot", "os_secure_boot"): {
        "required": "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        "disabled": None,
        "optional": None,
    },
    ("hw:maxphysaddr_mode", "hw_maxphysaddr_mode"): {
        "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH",
        "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED",
    },
}


def platform_traits(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> FlavorGroup:
    """Return the traits these keys require of the base group.

    A TPM is asked for by its version; a model alone, even a wrong one, does nothing.
    Adds `flavor_image_conflict` or `value_invalid`. Source: nova-flavors.md, "Optional additions".
    """
    traits: set[str | None] = set()
    version = agreed_value(extra_specs, image, TPM_VERSION_KEYS, tuple(TPM_VERSION_TRAITS), problems)
    if version is not None:
        model = agreed_value(extra_specs, image, TPM_MODEL_KEYS, tuple(TPM_MODEL_TRAITS), problems)
        if model == "tpm-crb" and version == "1.2":
            problems.add("value_invalid", f"{' or '.join(TPM_MODEL_KEYS)}: tpm-crb needs version 2.0")
        traits |= {TPM_VERSION_TRAITS.get(version), TPM_MODEL_TRAITS.get(model or _DEFAULT_TPM_MODEL)}
    for keys, trait_of in _TRAITS_BY_VALUE.items():
        value = agreed_value(extra_specs, image, keys, tuple(trait_of), problems)
        traits.add(trait_of.get(value) if value is not None else None)
    if is_stateless(image):
        traits.add(_STATELESS_FIRMWARE)
    return FlavorGroup(required=frozenset(trait for trait in traits if trait is not None))
