"""A Reservation manifest as values: the pod that it keeps a place for, and its terms."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.common.documents import RESERVATION_API_VERSION
from placement.common.manifest import Field, Manifest, ManifestReport, read_duration, read_manifest
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.selection import read_owners
from placement.pods.state.model import AllocatePolicy, ReservationTerms

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
    """Return the reservation in a parsed manifest; its template is not judged, that is for `import_pod`.

    Its time begins at its creationTimestamp, else now. Raises ManifestError with everything that is wrong.
    Source: koordinator.md, "Reservations".
    """
    report = ManifestReport()
    manifest = read_manifest(document, RESERVATION_API_VERSION, KIND, report)
    spec = manifest.root.member("spec")
    created = _moment(manifest.root.member("metadata").member("creationTimestamp"))
    name, uid = manifest.name.text() or "", manifest.uid.text() or ""
    template = _read_template(spec.member("template"))
    terms = _read_terms(manifest, created or now)
    report.raise_findings()
    for unknown in sorted(spec.mapping().keys() - _UNDERSTOOD):
        spec.member(unknown).warn("has no effect here")
    ends = spec.member("expires").value is not None
    return ReservationImport(name, uid, template, terms, created is not None, ends, report.warnings)


def _read_template(pod: Field) -> dict[str, Any]:
    """Return the Pod for which the place is kept, without a name."""
    given, spec = pod.member("metadata").mapping(), dict(pod.member("spec").mapping())
    if not spec:
        pod.member("spec").refuse("is missing")
    kept = {key: given[key] for key in ("namespace", "labels", "annotations") if given.get(key) is not None}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec, "status": {}}


def _read_terms(manifest: Manifest, since: datetime.datetime) -> ReservationTerms:
    spec = manifest.root.member("spec")
    labels = manifest.root.member("metadata").member("labels").members()
    owners = read_owners(spec.member("owners"))
    allocate_once = spec.member("allocateOnce").flag(default=True) is not False
    return ReservationTerms(
        owners=owners,
        since=since,
        allocate_once=allocate_once,
        policy=_read_allocate_policy(spec.member("allocatePolicy")),
        expires_at=_end(spec, since),
        order=_read_order(manifest.label(keys.RESERVATION_ORDER)),
        labels={key: label.text() or "" for key, label in labels.items()},
        unschedulable=spec.member("unschedulable").flag(default=False) is True,
    )


def _read_allocate_policy(field: Field) -> AllocatePolicy:
    text = field.text() or ""
    if text in set(AllocatePolicy):
        return AllocatePolicy(text)
    if text != _DEFAULT_POLICY:
        field.refuse(f"{text!r} is not one of {_DEFAULT_POLICY}, Aligned, Restricted")
    return AllocatePolicy.DEFAULT


def _read_order(label: Field) -> int:
    number = label.text() or "0"
    if not _ORDER.fullmatch(number):
        label.warn(f"{number!r} is not a number; ignored")
        return 0
    return int(number)


def _end(spec: Field, begin: datetime.datetime) -> datetime.datetime | None:
    """Return when a reservation that begins at `begin` expires; a ttl of 0 is never."""
    ttl, expires = spec.member("ttl"), spec.member("expires")
    if expires.value is not None:
        if ttl.value is not None:
            ttl.refuse("expires is also given, and only one of them may be")
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
        field.refuse(f"{text[:60]!r} is not a time such as 2026-01-31T12:00:00Z")
        return None
