"""What the image says about its firmware."""

from __future__ import annotations

from placement.dialects.nova.flavor import ImageProperties
from placement.dialects.nova.literals import is_true

TYPE_KEY = "hw_firmware_type"
STATELESS_KEY = "hw_firmware_stateless"


def is_uefi(image: ImageProperties) -> bool:
    """Whether the image boots with UEFI."""
    return image.get(TYPE_KEY) == "uefi"


def is_stateless(image: ImageProperties) -> bool:
    """Whether the image boots with UEFI that keeps no state (nova-flavors.md, "Optional additions")."""
    return is_uefi(image) and is_true(image.get(STATELESS_KEY, ""))
