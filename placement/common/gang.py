"""Gangs: pods that are placed together in a certain number, or not at all."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
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
    if text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0:
        return int(text)
    field.complain(f"must be a number of pods from 1 on, not {text[:60]!r}")
    return None


def with_pod_groups(
    pods: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the pods with annotations about their gangs from the PodGroups to which labels assign them."""
    stated = {}
    for group in groups:
        root = Field(POD_GROUP, group, ManifestReport(), soft=True)
        metadata, spec = root.member("metadata"), root.member("spec")
        given = {
            key: text
            for key in (GANG_MODE, GANG_GROUPS, GANG_TOTAL_NUMBER)
            if (text := metadata.member("annotations").member(key).text())
        }
        least, seconds = spec.member("minMember").value, spec.member("scheduleTimeoutSeconds").value
        if least is not None:
            given[GANG_MIN_AVAILABLE] = str(least)
        if seconds is not None:
            given[GANG_WAITING_TIME] = f"{seconds}s"
        namespace = metadata.member("namespace").text() or "default"
        stated[namespace, metadata.member("name").text()] = given
    return [_annotated(pod, stated) for pod in pods]


def _annotated(
    pod: Mapping[str, Any], stated: Mapping[tuple[str, str | None], Mapping[str, str]]
) -> Mapping[str, Any]:
    metadata = pod.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("labels"), Mapping):
        return pod
    labels, annotations = metadata["labels"], metadata.get("annotations") or {}
    name = labels.get(POD_GROUP_LABEL) or labels.get(POD_GROUP_NAME)
    namespace = metadata.get("namespace") or "default"
    if not isinstance(name, str) or not isinstance(namespace, str) or not isinstance(annotations, Mapping):
        return pod
    added = stated.get((namespace, name))
    if not added:
        return pod
    return {**pod, "metadata": {**metadata, "annotations": {**added, **annotations}}}
