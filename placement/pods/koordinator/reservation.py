"""A Reservation manifest as values: the pod that it keeps a place for, and its terms."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.common.documents import RESERVATION_API_VERSION
from placement.common.manifest import Field, ManifestReport, read_duration, read_manifest
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.selection import read_owners
from placement.pods.model import AllocatePolicy, ReservationTerms

KIND = "Reservation"
DEFAULT_TTL = datetime.timedelta(hours=24)
_UNDERSTOOD = {"template", "owners", "allocateOnce", "allocatePolicy", "ttl", "expires", "unschedulable"}
_DEFAULT_POLICY = "Default"
_ORDER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ReservationImport:
    """A reservation as its manifest describes it; `template` is the Pod that it stands for, without a name.

    `dated`: it says when it was created. `ends`: it names the moment at which it expires, rather than how
    long it lasts.
    """

    name: str
    uid: str
    template: Mapping[str, Any]
    terms: ReservationTerms
    dated: bool
    ends: bool
    warnings: tuple[str, ...]

    def seen_first(self, since: datetime.datetime) -> ReservationImport:
        """Return the reservation with a time that began at `since`, unless it says when it was created."""
        if self.dated:
            return self
        end = self.terms.expires_at
        if end is not None and not self.ends:
            end += since - self.terms.since
        return replace(self, terms=replace(self.terms, since=since, expires_at=end))


def import_reservation(document: Mapping[str, Any], now: datetime.datetime) -> ReservationImport:
    """Return what a parsed Reservation says; its template is not judged, that is for `import_pod`.

    Its time begins at its creationTimestamp, else now. Raises ManifestError with everything that is wrong.
    Source: koordinator.md, "Reservations".
    """
    report = ManifestReport()
    manifest = read_manifest(document, RESERVATION_API_VERSION, KIND, report)
    metadata, spec = manifest.root.member("metadata"), manifest.root.member("spec")
    created = _moment(metadata.member("creationTimestamp"))
    name, uid = manifest.name.text() or "", manifest.uid.text() or ""
    pod = spec.member("template")
    kept, pod_spec = pod.member("metadata").mapping(), dict(pod.member("spec").mapping())
    if not pod_spec:
        pod.member("spec").refuse("is missing")
    kept = {key: kept[key] for key in ("namespace", "labels", "annotations") if kept.get(key) is not None}
    labels, order = metadata.member("labels").members(), manifest.label(keys.RESERVATION_ORDER)
    owners = read_owners(spec.member("owners"))
    allocate_once = spec.member("allocateOnce").flag(default=True) is not False
    policy, policies = spec.member("allocatePolicy").text() or "", set(AllocatePolicy)
    if policy and policy != _DEFAULT_POLICY and policy not in policies:
        given = f"{policy!r} is none of {_DEFAULT_POLICY}, Aligned, Restricted"
        spec.member("allocatePolicy").refuse(given)
    expires_at, number = _end(spec, created or now), order.text() or ""
    if number and not _ORDER.fullmatch(number):
        order.warn(f"{number!r} is no number; ignored")
        number = ""
    terms = ReservationTerms(
        owners=owners,
        since=created or now,
        allocate_once=allocate_once,
        policy=AllocatePolicy(policy) if policy in policies else AllocatePolicy.DEFAULT,
        expires_at=expires_at,
        order=int(number or 0),
        labels={key: label.text() or "" for key, label in labels.items()},
        unschedulable=spec.member("unschedulable").flag(default=False) is True,
    )
    report.raise_findings()
    for unknown in sorted(spec.mapping().keys() - _UNDERSTOOD):
        spec.member(unknown).warn("has no effect here")
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": pod_spec, "status": {}}
    ends = spec.member("expires").value is not None
    return ReservationImport(name, uid, template, terms, created is not None, ends, report.warnings)


def _end(spec: Field, begin: datetime.datetime) -> datetime.datetime | None:
    """Return when a reservation that begins at `begin` expires; a ttl of 0 is never."""
    ttl, expires = spec.member("ttl"), spec.member("expires")
    if expires.value is not None:
        if ttl.value is not None:
            ttl.refuse("there is expires, too, and only one of them may be given")
        return _moment(expires)
    lasts = DEFAULT_TTL if ttl.value is None else read_duration(ttl)
    try:
        return begin + lasts if lasts else None
    except OverflowError:
        ttl.refuse("is too long")
        return None


def _moment(field: Field) -> datetime.datetime | None:
    text = field.text()
    if text is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
        return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError):
        field.refuse(f"{text[:60]!r} is no time such as 2026-01-31T12:00:00Z")
        return None
