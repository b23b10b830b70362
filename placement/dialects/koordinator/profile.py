"""The two readings of Koordinator that a cluster may carry."""

from __future__ import annotations

from enum import StrEnum


class Profile(StrEnum):
    """What the design documents promise, or what the running scheduler does (koordinator.md, "Profiles")."""

    DESIGN = "design"
    KOORD_SCHEDULER = "koord-scheduler"
