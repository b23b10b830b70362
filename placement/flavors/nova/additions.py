"""Keys that stand for resources and traits: memory encryption, persistent memory, TPM and others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from placement.flavors.nova import flavor
from placement.flavors.nova.agreed_values import agreed_value
from placement.flavors.nova.extra_specs import MEM_ENCRYPTION_CONTEXT, custom_class
from placement.flavors.nova.flavor_groups import FlavorGroup
from placement.flavors.nova.problems import Problems, shown

ENCRYPTION_KEY = "hw:mem_encryption"
ENCRYPTION_IMAGE_KEY = "hw_mem_encryption"
MODEL_KEYS = ("hw:mem_encryption_model", "hw_mem_encryption_model")
MACHINE_TYPE_KEY = "hw_machine_type"
_DEFAULT_MODEL = "amd-sev"
_STATELESS_MODEL = "amd-sev-snp"
MODEL_TRAITS = {
    _DEFAULT_MODEL: "HW_CPU_X86_AMD_SEV",
    "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
    _STATELESS_MODEL: "HW_CPU_X86_AMD_SEV_SNP",
}
TPM_VERSION_KEYS = ("hw:tpm_version", "hw_tpm_version")
TPM_MODEL_KEYS = ("hw:tpm_model", "hw_tpm_model")
TPM_VERSION_TRAITS = {"1.2": "COMPUTE_SECURITY_TPM_1_2", "2.0": "COMPUTE_SECURITY_TPM_2_0"}
TPM_MODEL_TRAITS = {"tpm-tis": "COMPUTE_SECURITY_TPM_TIS", "tpm-crb": "COMPUTE_SECURITY_TPM_CRB"}
PCI_AFFINITIES = ("required", "preferred", "legacy", "socket")
PMEM_KEY = "hw:pmem"
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


def memory_encryption(
    extra_specs: Mapping[str, str], image: flavor.ImageProperties, problems: Problems
) -> FlavorGroup:
    """Return one encryption context and the trait of the model if flavor or image asks for it, else nothing.

    Adds `flavor_image_conflict`, `value_invalid`, `machine_type_invalid` or `stateless_firmware_required`.
    Source: nova-flavors.md, "Optional additions".
    """
    ours = flavor.is_true(extra_specs[ENCRYPTION_KEY]) if ENCRYPTION_KEY in extra_specs else None
    theirs = flavor.is_true(image[ENCRYPTION_IMAGE_KEY]) if ENCRYPTION_IMAGE_KEY in image else None
    if not ours and not theirs:
        return FlavorGroup()
    if ours is not None and theirs is not None and ours != theirs:
        problems.add(
            "flavor_image_conflict",
            ENCRYPTION_KEY,
            f"one of flavor and image ({ENCRYPTION_IMAGE_KEY}) asks for it, the other not",
        )
        return FlavorGroup()
    asking = ENCRYPTION_KEY if ours else ENCRYPTION_IMAGE_KEY
    model = agreed_value(extra_specs, image, MODEL_KEYS, tuple(MODEL_TRAITS), problems) or _DEFAULT_MODEL
    _check_encrypted_image(image, asking, model, problems)
    traits = frozenset((MODEL_TRAITS[model],)) if model in MODEL_TRAITS else frozenset[str]()
    return FlavorGroup({MEM_ENCRYPTION_CONTEXT: 1}, required=traits)


def _check_encrypted_image(
    image: flavor.ImageProperties, asking: str, model: str, problems: Problems
) -> None:
    """Add a problem for each property of an image that memory encryption needs otherwise."""
    if not flavor.is_uefi(image):
        problems.add("flavor_image_conflict", flavor.FIRMWARE_KEY, f"must be uefi for {asking}")
    machine_type = flavor.given(image, MACHINE_TYPE_KEY)
    if machine_type is not None and "q35" not in machine_type:
        problems.add(
            "machine_type_invalid",
            MACHINE_TYPE_KEY,
            f"{shown(machine_type)} is not q35, {asking} needs one",
        )
    if model == _STATELESS_MODEL and not flavor.is_stateless(image):
        problems.add(
            "stateless_firmware_required", flavor.STATELESS_FIRMWARE_KEY, f"must be true for {model}"
        )


def persistent_memory(extra_specs: Mapping[str, str]) -> FlavorGroup:
    """Return one CUSTOM_PMEM_NAMESPACE_<LABEL> for each time a label is listed; empty labels do not count.

    Source: nova-flavors.md, "Optional additions".
    """
    labels = (label.strip() for label in extra_specs.get(PMEM_KEY, "").split(","))
    return FlavorGroup(Counter(custom_class(f"PMEM_NAMESPACE_{label}") for label in labels if label))


def platform_traits(
    extra_specs: Mapping[str, str], image: flavor.ImageProperties, problems: Problems
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
            problems.add("value_invalid", f"{' or '.join(TPM_MODEL_KEYS)}", "tpm-crb needs version 2.0")
        traits |= {TPM_VERSION_TRAITS.get(version), TPM_MODEL_TRAITS.get(model or _DEFAULT_TPM_MODEL)}
    for keys, trait_of in _TRAITS_BY_VALUE.items():
        value = agreed_value(extra_specs, image, keys, tuple(trait_of), problems)
        traits.add(trait_of.get(value) if value is not None else None)
    if flavor.is_stateless(image):
        traits.add(_STATELESS_FIRMWARE)
    return FlavorGroup(required=frozenset(trait for trait in traits if trait is not None))
