"""Traits of the host that keys ask for one by one: TPM, PCI affinity, secure boot, address mode, firmware."""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.nova.agreement import agreed_value
from placement.dialects.nova.errors import Problems
from placement.dialects.nova.flavor import ImageProperties, is_stateless
from placement.dialects.nova.groups import FlavorGroup

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
    """The traits these keys require of the base group.

    Adds `flavor_image_conflict` or `value_invalid`. Source: nova-flavors.md, "Optional additions".
    """
    traits = _tpm_traits(extra_specs, image, problems)
    for keys, trait_of in _TRAITS_BY_VALUE.items():
        value = agreed_value(extra_specs, image, keys, tuple(trait_of), problems)
        traits.add(trait_of.get(value) if value is not None else None)
    if is_stateless(image):
        traits.add(_STATELESS_FIRMWARE)
    return FlavorGroup(required=frozenset(trait for trait in traits if trait is not None))


def _tpm_traits(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> set[str | None]:
    """A TPM is asked for by its version; a model alone does nothing, not even a wrong one."""
    version = agreed_value(extra_specs, image, TPM_VERSION_KEYS, tuple(TPM_VERSION_TRAITS), problems)
    if version is None:
        return set()
    model = agreed_value(extra_specs, image, TPM_MODEL_KEYS, tuple(TPM_MODEL_TRAITS), problems)
    if model == "tpm-crb" and version == "1.2":
        problems.add("value_invalid", f"{' or '.join(TPM_MODEL_KEYS)}: tpm-crb needs version 2.0")
    return {TPM_VERSION_TRAITS.get(version), TPM_MODEL_TRAITS.get(model or _DEFAULT_TPM_MODEL)}
