"""The two readings of Koordinator; each cluster follows one of them. Commands know them without numpy."""

from __future__ import annotations

from enum import StrEnum


class Profile(StrEnum):
    """What the design documents promise, or what the running scheduler does (koordinator.md, "Profiles")."""

    DESIGN = "design"
    KOORD_SCHEDULER = "koord-scheduler"
