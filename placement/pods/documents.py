"""Pods as callers send them: their identity, and how much of their manifests is worth keeping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.common.pod_identity import (
    ENDED_PHASES,
    SUCCESSION,
    canonical_uid,
    consumer_of,
    derived_uid,
    resize_status,
)
from placement.engine.domain.errors import BadRequest
from placement.pods.model import ReservationTerms

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[!-~]{1,36}")
_METADATA = (
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
    *SUCCESSION,
)
_STATUS = ("phase", "qosClass")
_UNNAMED = "unnamed"
_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class PodDocument:
    """A Pod manifest with its namespace, name and uid filled in, reduced to what decides about the pod.

    With `keeps` it is the template of a reservation on these terms, which has no namespace.
    """

    manifest: Mapping[str, Any]
    namespace: str
    name: str
    uid: str
    consumer: str
    keeps: ReservationTerms | None = None

    @classmethod
    def named(cls, cluster: str, namespace: str, name: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of the pod of this name; without a uid it gets one.

        Raises BadRequest naming the field for a name that is invalid or is not the one in the manifest.
        """
        check_name("namespace", namespace)
        check_name("name", name)
        metadata = _mapping(pod, "metadata")
        for where, text in (("namespace", namespace), ("name", name)):
            if metadata.get(where) not in (None, "", text):
                raise BadRequest(
                    f"Pod.metadata.{where}: {_short(metadata[where])} is not that of the path, {text!r}"
                )
        given = metadata.get("uid")
        uid = checked_uid("Pod", given) if given else derived_uid(cluster, namespace, name)
        filled = {**metadata, "namespace": namespace, "name": name, "uid": uid}
        status = _mapping(pod, "status")
        if status:
            status = {key: text for key, text in status.items() if key in _STATUS} | resize_status(pod)
        reduced = {
            "apiVersion": pod.get("apiVersion"),
            "kind": pod.get("kind"),
            "metadata": {key: filled[key] for key in _METADATA if key in filled},
            "spec": pod.get("spec"),
            "status": status,
        }
        return cls(reduced, namespace, name, uid, consumer_of(cluster, uid))

    @classmethod
    def whole(cls, cluster: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of a pod; it must have a name. Raises BadRequest naming the field."""
        metadata = _mapping(pod, "metadata")
        if not metadata.get("name"):
            raise BadRequest("Pod.metadata.name: is missing")
        return cls.unnamed(cluster, pod)

    @classmethod
    def unnamed(cls, cluster: str, pod: Mapping[str, Any]) -> PodDocument:
        """Return the manifest of a pod that may have no name yet. Raises BadRequest naming the field."""
        return cls.named(cluster, namespace_of(pod), _text(pod, "name", _UNNAMED), pod)

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def host(self) -> str:
        """Return the node on which the pod runs; empty before it has one."""
        spec = self.manifest.get("spec")
        host = spec.get("nodeName") if isinstance(spec, Mapping) else None
        return host if isinstance(host, str) else ""

    @property
    def has_ended(self) -> bool:
        """Return whether the pod is over."""
        status = self.manifest.get("status")
        return isinstance(status, Mapping) and status.get("phase") in ENDED_PHASES


def namespace_of(pod: Mapping[str, Any]) -> str:
    """Return the namespace that the manifest of a pod names, or the default one. Raises BadRequest."""
    return _text(pod, "namespace", _DEFAULT_NAMESPACE)


def _text(pod: Mapping[str, Any], key: str, default: str) -> str:
    text = _mapping(pod, "metadata").get(key) or default
    if not isinstance(text, str):
        raise BadRequest(f"Pod.metadata.{key}: {_short(text)} must be a text")
    return text


def check_name(where: str, text: str) -> None:
    """Raise BadRequest naming the place unless the text is a DNS name."""
    if not _NAME.fullmatch(text):
        raise BadRequest(f"{where}: {_short(text)} is not a DNS name")


def checked_uid(kind: str, uid: object) -> str:
    """Return the canonical spelling of the uid of an object. Raises BadRequest naming the field."""
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise BadRequest(f"{kind}.metadata.uid: {_short(uid)} must be at most 36 printable characters")
    return canonical_uid(uid)


def _mapping(pod: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if not isinstance(pod, Mapping):
        raise BadRequest("expected the manifest of a Pod")
    member = pod.get(key)
    if member is not None and not isinstance(member, Mapping):
        raise BadRequest(f"Pod.{key}: must be a mapping")
    return member or {}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
