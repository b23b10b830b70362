"""Who may use a reservation: one pod, the pods of a controller, or those with certain labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.kubernetes.label_selector import LabelSelector, read_label_selector
from placement.kubernetes.manifest import Field, Report

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
        """Whether a pod in that namespace names such an owner."""
        if self.namespace not in ("", namespace):
            return False
        return any(self._is(reference) for reference in pod.member("ownerReferences").elements())

    def _is(self, reference: Field) -> bool:
        if self.controller is not None and reference.member("controller").value is not self.controller:
            return False
        return all(reference.member(name).value == text for name, text in self.texts)

    def document(self) -> dict[str, Any]:
        """The reference as JSON."""
        found: dict[str, Any] = dict(self.texts)
        if self.namespace:
            found["namespace"] = self.namespace
        return found if self.controller is None else {**found, "controller": self.controller}


@dataclass(frozen=True, slots=True)
class Owner:
    """One kind of pods that own a reservation; all that is given must hold."""

    pod: Texts | None = None
    controller: Controller | None = None
    selector: LabelSelector | None = None

    def matches(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod with this manifest is an owner. Source: koordinator.md, "Reservations"."""
        metadata = Field("Pod", pod, Report(), soft=True).member("metadata")
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
        """The owner as JSON."""
        members = {
            "object": None if self.pod is None else dict(self.pod),
            "controller": None if self.controller is None else self.controller.document(),
            "labelSelector": None if self.selector is None else self.selector.document(),
        }
        return {key: member for key, member in members.items() if member is not None}


def read_owners(owners: Field) -> tuple[Owner, ...]:
    """The owners in `Reservation.spec.owners`; at least one, and each says something.

    Source: koordinator.md, "Reservations".
    """
    found = tuple(_read_owner(owner) for owner in owners.elements())
    if not found:
        owners.refuse("a reservation needs at least one owner")
    return found


def _read_owner(owner: Field) -> Owner:
    given = {name: owner.member(name) for name in _CONDITIONS if owner.member(name).value is not None}
    if not given:
        owner.refuse(f"needs one of {', '.join(_CONDITIONS)}")
    return Owner(
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
