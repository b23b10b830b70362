"""Memory encryption and host traits: `hw:mem_encryption` with what it needs of the image, and other keys."""

from __future__ import annotations

from collections.abc import Mapping

from placement.flavors.nova.errors import Problems, shown
from placement.flavors.nova.extra_specs import MEM_ENCRYPTION_CONTEXT, FlavorGroup
from placement.flavors.nova.flavor import (
    FIRMWARE_KEY,
    STATELESS_FIRMWARE_KEY,
    ImageProperties,
    agreed_value,
    given,
    is_stateless,
    is_true,
    is_uefi,
)

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
