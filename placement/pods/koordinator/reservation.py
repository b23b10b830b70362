"""A Reservation manifest as values: the pod that it keeps a place for, and its terms."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from placement.common.manifest import Field, Manifest, ManifestReport, read_duration, read_manifest
from placement.common.manifest_lists import RESERVATION_API_VERSION
from placement.pods.koordinator import policies
from placement.pods.manifests.selection import LabelSelector, read_label_selector

# The owners of a reservation: one pod, the pods of a controller, or pods with certain labels.


_OBJECT = ("uid", "name", "namespace", "apiVersion")
_REFERENCE = ("uid", "name", "kind", "apiVersion")
_CONDITIONS = ("object", "controller", "labelSelector")

Texts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Controller:
    """A reference to the owner of a pod: texts that must be equal, and whether it must be its controller."""

    texts: Texts
    namespace: str = ""
    controller: bool | None = None

    def owns(self, pod: Field, namespace: str) -> bool:
        """Return whether a pod in that namespace names such an owner."""
        if self.namespace not in ("", namespace):
            return False
        return any(self._is(reference) for reference in pod.member("ownerReferences").elements())

    def _is(self, reference: Field) -> bool:
        if self.controller is not None and reference.member("controller").value is not self.controller:
            return False
        return all(reference.member(name).value == text for name, text in self.texts)

    def document(self) -> dict[str, Any]:
        """Return the reference as JSON."""
        found: dict[str, Any] = dict(self.texts)
        if self.namespace:
            found["namespace"] = self.namespace
        return found if self.controller is None else {**found, "controller": self.controller}


@dataclass(frozen=True, slots=True)
class ReservationOwner:
    """One kind of pods that own a reservation; all that is given must hold."""

    pod: Texts | None = None
    controller: Controller | None = None
    selector: LabelSelector | None = None

    def matches(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod with this manifest is an owner. Source: koordinator.md, "Reservations"."""
        metadata = Field("Pod", pod, ManifestReport(), soft=True).member("metadata")
        namespace = metadata.member("namespace").text() or ""
        if self.pod is not None:
            found = {**metadata.mapping(), "apiVersion": pod.get("apiVersion")}
            if any(found.get(name) != text for name, text in self.pod):
                return False
        if self.controller is not None and not self.controller.owns(metadata, namespace):
            return False
        labels = metadata.member("labels").mapping()
        return self.selector is None or self.selector.holds(labels)

    def document(self) -> dict[str, Any]:
        """Return the owner as JSON."""
        members = {
            "object": None if self.pod is None else dict(self.pod),
            "controller": None if self.controller is None else self.controller.document(),
            "labelSelector": None if self.selector is None else self.selector.document(),
        }
        return {key: member for key, member in members.items() if member is not None}


def read_owners(owners: Field) -> tuple[ReservationOwner, ...]:
    """Return the owners in `Reservation.spec.owners`; at least one, and each says something.

    Source: koordinator.md, "Reservations".
    """
    found = tuple(_read_owner(owner) for owner in owners.elements())
    if not found:
        owners.refuse("a reservation needs at least one owner")
    return found


def _read_owner(owner: Field) -> ReservationOwner:
    given = {name: owner.member(name) for name in _CONDITIONS if owner.member(name).value is not None}
    if not given:
        owner.refuse(f"needs one of {', '.join(_CONDITIONS)}")
    return ReservationOwner(
        pod=_texts(given["object"], _OBJECT) if "object" in given else None,
        controller=_read_controller(given["controller"]) if "controller" in given else None,
        selector=read_label_selector(given["labelSelector"]) if "labelSelector" in given else None,
    )


def _read_controller(controller: Field) -> Controller:
    flag = controller.member("controller")
    return Controller(
        _texts(controller, _REFERENCE),
        controller.member("namespace").text() or "",
        None if flag.value is None else flag.flag(default=False),
    )


def _texts(reference: Field, names: tuple[str, ...]) -> Texts:
    texts = ((name, reference.member(name).text()) for name in names)
    return tuple((name, text) for name, text in texts if text)


# The terms of a reservation: its owners, how often and how much of it they may use, and until when.


class AllocatePolicy(StrEnum):
    """A policy on taking beyond what a reservation has left; only Restricted forbids it to owners."""

    DEFAULT = ""
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


@dataclass(frozen=True, slots=True)
class ReservationTerms:
    """The terms of a reservation: its owners, and how they may use it.

    `allocate_once`: the first owner ends it. `order`: of several reservations on a node the lowest is used
    first, 0 is none. `labels` belong to the Reservation: pods choose by them. An `unschedulable` one
    takes no further owners. `since` is when it was made, `expires_at` when it ends, UTC without a zone, None
    if never.
    """

    owners: tuple[ReservationOwner, ...]
    since: datetime.datetime
    allocate_once: bool = True
    policy: AllocatePolicy = AllocatePolicy.DEFAULT
    expires_at: datetime.datetime | None = None
    order: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False

    @property
    def restricted(self) -> bool:
        """Return whether owners get nothing beyond what is left of it."""
        return self.policy is AllocatePolicy.RESTRICTED

    def is_over(self, now: datetime.datetime) -> bool:
        """Return whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def owned_by(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod with this manifest may use it. Source: koordinator.md, "Reservations"."""
        return not self.unschedulable and any(owner.matches(pod) for owner in self.owners)

    def document(self) -> dict[str, Any]:
        """Return the terms as JSON to be stored."""
        return {
            "owners": [owner.document() for owner in self.owners],
            "since": self.since.isoformat(),
            "allocate_once": self.allocate_once,
            "policy": str(self.policy),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "order": self.order,
            "labels": dict(self.labels),
            "unschedulable": self.unschedulable,
        }


def stored_terms(document: Mapping[str, Any]) -> ReservationTerms:
    """Return the terms that a stored document describes."""
    expires_at = document.get("expires_at")
    return ReservationTerms(
        owners=read_owners(Field("owners", document["owners"], ManifestReport())),
        since=datetime.datetime.fromisoformat(document["since"]),
        allocate_once=document.get("allocate_once", True),
        policy=AllocatePolicy(document.get("policy", "")),
        expires_at=None if expires_at is None else datetime.datetime.fromisoformat(expires_at),
        order=document.get("order", 0),
        labels=document.get("labels", {}),
        unschedulable=document.get("unschedulable", False),
    )


KIND = "Reservation"
DEFAULT_TTL = datetime.timedelta(hours=24)
_UNDERSTOOD = (
    "template",
    "owners",
    "allocateOnce",
    "allocatePolicy",
    "ttl",
    "expires",
    "unschedulable",
)
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
    spec = manifest.root.member("spec")
    created = _moment(manifest.root.member("metadata").member("creationTimestamp"))
    name, uid = manifest.name.text() or "", manifest.uid.text() or ""
    template, terms = _template(spec.member("template")), _terms(manifest, spec, created or now)
    report.raise_findings()
    for unknown in sorted(spec.mapping().keys() - set(_UNDERSTOOD)):
        spec.member(unknown).warn("has no effect here")
    ends = spec.member("expires").value is not None
    return ReservationImport(name, uid, template, terms, created is not None, ends, report.warnings)


def _terms(manifest: Manifest, spec: Field, begin: datetime.datetime) -> ReservationTerms:
    labels = manifest.root.member("metadata").member("labels").members()
    return ReservationTerms(
        owners=read_owners(spec.member("owners")),
        since=begin,
        allocate_once=spec.member("allocateOnce").flag(default=True) is not False,
        policy=_policy(spec.member("allocatePolicy")),
        expires_at=_end(spec, begin),
        order=_order(manifest.label(policies.RESERVATION_ORDER)),
        labels={key: label.text() or "" for key, label in labels.items()},
        unschedulable=spec.member("unschedulable").flag(default=False) is True,
    )


def _template(template: Field) -> dict[str, Any]:
    metadata, spec = template.member("metadata").mapping(), template.member("spec").mapping()
    if not spec:
        template.member("spec").refuse("is missing")
    kept = ("namespace", "labels", "annotations")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: metadata[key] for key in kept if metadata.get(key) is not None},
        "spec": dict(spec),
        "status": {},
    }


def _policy(policy: Field) -> AllocatePolicy:
    text = policy.text() or ""
    if text in ("", _DEFAULT_POLICY):
        return AllocatePolicy.DEFAULT
    if text not in set(AllocatePolicy):
        policy.refuse(f"{text!r} is none of {_DEFAULT_POLICY}, Aligned, Restricted")
        return AllocatePolicy.DEFAULT
    return AllocatePolicy(text)


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


def _order(label: Field) -> int:
    text = label.text() or ""
    if text and not _ORDER.fullmatch(text):
        label.warn(f"{text!r} is no number; ignored")
        return 0
    return int(text or 0)
