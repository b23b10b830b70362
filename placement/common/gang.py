"""Gangs: pods that are placed together in a certain number, or not at all."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.common.manifest import Field, Manifest, ManifestReport, read_duration

GANG_NAME = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
GANG_TOTAL_NUMBER = "gang.scheduling.koordinator.sh/total-number"
GANG_MODE = "gang.scheduling.koordinator.sh/mode"
GANG_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
GANG_GROUPS = "gang.scheduling.koordinator.sh/groups"
POD_GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
POD_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
_STRICT, _NON_STRICT = "Strict", "NonStrict"
_WAITING_TIME = datetime.timedelta(minutes=10)
_LONGEST_WAIT = datetime.timedelta(days=1)
POD_GROUP = "PodGroup"
NUMBER_OF_PODS = "a number of pods from 1 on"


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang of a pod: `least` members are placed together, or none.

    `together` are all gangs, by `namespace/name` like its own, that have to be whole at once. Members that
    have places wait for the others as long as `waiting_time`; if `is_strict`, not when one finds no place.
    """

    name: str
    least: int
    is_strict: bool
    waiting_time: datetime.timedelta
    together: frozenset[str]


@dataclass(frozen=True, slots=True)
class Membership:
    """The record of a pod about its gang; it waits for the others until then, if it does."""

    gang: str
    least: int
    waits_until: datetime.datetime | None = None

    def document(self) -> dict[str, Any]:
        """Return the membership as JSON."""
        waits = {} if self.waits_until is None else {"waits_until": self.waits_until.isoformat()}
        return {"gang": self.gang, "least": self.least, **waits}


def stored_membership(document: Mapping[str, Any]) -> Membership:
    """Return the membership that a stored document describes."""
    until = document.get("waits_until")
    waits_until = None if until is None else datetime.datetime.fromisoformat(until)
    name = document["gang"]
    if not isinstance(name, str):
        raise ValueError("gang is not text")
    return Membership(name, int(document["least"]), waits_until)


def read_gang(manifest: Manifest, namespace: str) -> Gang | None:
    """Return the gang that a pod in this namespace says it is of, if any; what is wrong is reported.

    Source: koordinator.md, "Gangs".
    """
    name = manifest.annotation(GANG_NAME).text()
    label = manifest.label(POD_GROUP_LABEL)
    label = label if label.text() else manifest.label(POD_GROUP_NAME)
    group = label.text()
    least = manifest.annotation(GANG_MIN_AVAILABLE)
    if least.value is None:
        least = manifest.label(POD_GROUP_MIN_AVAILABLE)
    if not name and least.value is None:
        if group:
            label.warn(f"{POD_GROUP} {group} is not known here; the pod is placed alone")
        return None
    if not name and not group:
        return None
    number = _number(least)
    if number is None:
        return None
    own = f"{namespace}/{name or group}"
    total = manifest.annotation(GANG_TOTAL_NUMBER)
    if total.value is not None and (_number(total) or number) < number:
        total.warn(f"is less than {number}, the minimum of the gang; ignored")
    is_strict = _read_mode(manifest.annotation(GANG_MODE)) != _NON_STRICT
    waiting_time = _read_waiting_time(manifest.annotation(GANG_WAITING_TIME))
    others = (each.text() for each in manifest.annotation(GANG_GROUPS).json().elements())
    return Gang(own, number, is_strict, waiting_time, frozenset([own, *filter(None, others)]))


def _read_mode(annotation: Field) -> str:
    mode = annotation.text() or _STRICT
    if mode not in (_STRICT, _NON_STRICT):
        annotation.warn(f"{mode[:60]!r} is neither {_STRICT} nor {_NON_STRICT}; {_STRICT} counts")
    return mode


def _read_waiting_time(annotation: Field) -> datetime.timedelta:
    if annotation.value is None:
        return _WAITING_TIME
    return min(read_duration(annotation.softly()) or _WAITING_TIME, _LONGEST_WAIT)


def gang_of(pod: Mapping[str, Any], namespace: str) -> Gang | None:
    """Return the gang of a pod with an unchecked manifest; None if it names none, or names it wrongly."""
    report = ManifestReport()
    gang = read_gang(Manifest(Field("Pod", pod, report)), namespace)
    return None if report.findings else gang


def _number(field: Field) -> int | None:
    text = field.text() or ""
    number = number_of_pods(text)
    if number is None:
        field.complain(f"must be {NUMBER_OF_PODS}, not {text[:60]!r}")
    return number


def number_of_pods(text: str) -> int | None:
    """Return the number of pods in a text; None if it is not one from 1 on."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= 9
    return int(text) if is_number and int(text) > 0 else None
