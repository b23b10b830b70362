"""The envelope of a Kubernetes object: kind, name, labels, annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.kubernetes.field import Field
from placement.kubernetes.report import Report, shown


@dataclass(frozen=True, slots=True)
class Manifest:
    """A Kubernetes object of the expected kind; `root` is the whole of it."""

    root: Field

    @property
    def name(self) -> Field:
        """`metadata.name`."""
        return self.root.member("metadata").member("name")

    @property
    def uid(self) -> Field:
        """`metadata.uid`."""
        return self.root.member("metadata").member("uid")

    def label(self, key: str) -> Field:
        """The label of that key."""
        return self.root.member("metadata").member("labels").member(key)

    def annotation(self, key: str) -> Field:
        """The annotation of that key, a JSON text still to be parsed."""
        return self.root.member("metadata").member("annotations").member(key)


def read_manifest(document: Mapping[str, Any], api_version: str, kind: str, report: Report) -> Manifest:
    """The object a parsed document describes.

    Refused: another kind or apiVersion, no name, labels and annotations that are not texts.
    """
    manifest = Manifest(Field(kind, document, report))
    root = manifest.root
    if not isinstance(document, Mapping):
        root.refuse(f"must be a mapping, not {shown(document)}")
        return Manifest(Field(kind, {}, Report()))
    for key, expected in (("apiVersion", api_version), ("kind", kind)):
        if root.member(key).value != expected:
            root.member(key).refuse(f"must be {expected!r}, not {shown(root.member(key).value)}")
    if manifest.name.value in (None, ""):
        manifest.name.refuse("is missing")
    manifest.name.text()
    manifest.uid.text()
    for texts in ("labels", "annotations"):
        for entry in root.member("metadata").member(texts).members().values():
            entry.text()
    return manifest
