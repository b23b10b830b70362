"""Priority classes of pods."""

from __future__ import annotations

from enum import StrEnum

from placement.dialects.koordinator import keys
from placement.kubernetes.pod import Pod


class PriorityClass(StrEnum):
    """How important a pod is; `UNSET` if nobody says."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    UNSET = ""


_BANDS = {
    PriorityClass.PROD: range(9000, 10000),
    PriorityClass.MID: range(7000, 8000),
    PriorityClass.BATCH: range(5000, 6000),
    PriorityClass.FREE: range(3000, 4000),
}


def raw_priority(pod: Pod) -> PriorityClass:
    """The class of the label, even if it names none that exists, else of the band of `spec.priority`.

    Source: Koordinator semantics, priority class.
    """
    label = pod.label(keys.PRIORITY_CLASS)
    if pod.manifest.label(keys.PRIORITY_CLASS).value is not None:
        return PriorityClass(label) if label in set(PriorityClass) else PriorityClass.UNSET
    bands = (priority for priority, band in _BANDS.items() if pod.priority in band)
    return next(bands, PriorityClass.UNSET)
