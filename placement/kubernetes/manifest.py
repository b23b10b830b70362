"""Kubernetes objects as parsed documents: fields with their paths, and what is found wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from placement.kubernetes.errors import ManifestError, QuantityError, shown
from placement.kubernetes.quantity import parse_quantity
from placement.numa.cpuset import CpuListError, CpuSet, parse_cpu_list

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS = {str}


class Report:
    """Findings and warnings in the order they were met, each once."""

    def __init__(self) -> None:
        self._findings: dict[str, None] = {}
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning, one line each."""
        return tuple(self._warnings)

    @property
    def findings(self) -> tuple[str, ...]:
        """Every reason to refuse the manifests, one line each."""
        return tuple(self._findings)

    def refuse(self, sentence: str) -> None:
        """Record a reason to refuse the manifests."""
        self._findings[_one_line(sentence)] = None

    def warn(self, sentence: str) -> None:
        """Record something the operator should know."""
        self._warnings[_one_line(sentence)] = None

    def include(self, other: Report) -> bool:
        """Add what another one has; whether it has anything."""
        self._findings |= other._findings
        self._warnings |= other._warnings
        return bool(other._findings or other._warnings)

    def raise_findings(self) -> None:
        """Raise one ManifestError with every finding, if there is any."""
        if self._findings:
            raise ManifestError(tuple(self._findings))


def _one_line(sentence: str) -> str:
    # Keys of a manifest become part of paths and may hold anything, line ends and lone surrogates included.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)


class Field:
    """A value and its path in a manifest; reading it as the wrong type complains and gives nothing.

    A complaint refuses the manifests, or is a warning where the field is `soft`. An absent member has the
    value None, like one that is null (koordinator.md, "Keys and schemas").
    """

    __slots__ = ("_above", "_name", "report", "soft", "value")

    def __init__(
        self, name: str | int, value: Any, report: Report, soft: bool = False, above: Field | None = None
    ) -> None:
        self._name, self.value, self.report, self.soft, self._above = name, value, report, soft, above

    @property
    def path(self) -> str:
        """Where it stands, from the root of the manifest on."""
        # A pod has a hundred fields, and hardly ever is anything wrong with one of them.
        name = self._name
        if self._above is None:
            return str(name)
        plain = isinstance(name, str) and _PLAIN_KEY.fullmatch(name)
        return f"{self._above.path}.{name}" if plain else f"{self._above.path}[{name}]"

    def softly(self) -> Field:
        """The same field with complaints that are warnings."""
        return Field(self._name, self.value, self.report, True, self._above)

    def reported_to(self, report: Report) -> Field:
        """The same field, whose complaints go there."""
        return Field(self._name, self.value, report, self.soft, self._above)

    def refuse(self, text: str) -> None:
        """Refuse the manifests because of this field, soft or not."""
        self.report.refuse(f"{self.path}: {text}")

    def warn(self, text: str) -> None:
        """Tell the operator about this field."""
        self.report.warn(f"{self.path}: {text}")

    def complain(self, text: str) -> None:
        """Refuse the manifests, or only warn that a soft field was ignored."""
        if self.soft:
            self.warn(f"{text}; ignored")
        else:
            self.refuse(text)

    def member(self, key: str) -> Field:
        """The member of a mapping; absent if there is none."""
        return self._child(key, self.mapping().get(key))

    def members(self) -> dict[str, Field]:
        """Every member of a mapping by its key."""
        return {key: self._child(key, value) for key, value in self.mapping().items()}

    def _child(self, name: str | int, value: Any) -> Field:
        return Field(name, value, self.report, self.soft, self)

    def _saying(self, value: Any) -> Field:
        return Field(self._name, value, self.report, self.soft, self._above)

    def mapping(self) -> Mapping[str, Any]:
        """The mapping that stands here; empty if absent."""
        if self.value is None:
            return {}
        # Most are dictionaries, which is found out several times as fast.
        if not isinstance(self.value, dict) and not isinstance(self.value, Mapping):
            self.complain(f"must be a mapping, not {shown(self.value)}")
            return {}
        if not set(map(type, self.value)) <= _TEXTS:
            self.complain("must have texts as keys")
            return {}
        return self.value

    def texts(self) -> dict[str, str]:
        """Every member of a mapping that is a text by its key; it complains about the others."""
        members = self.mapping()
        if set(map(type, members.values())) <= _TEXTS:
            return dict(members)
        texts = {key: self._child(key, value).text() for key, value in members.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def elements(self) -> list[Field]:
        """The elements of a list; none if absent."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.complain(f"must be a list, not {shown(self.value)}")
            return []
        return [self._child(index, value) for index, value in enumerate(self.value)]

    def text(self) -> str | None:
        """The text that stands here."""
        if self.value is None or isinstance(self.value, str):
            return self.value
        self.complain(f"must be a text, not {shown(self.value)}")
        return None

    def integer(self) -> int | None:
        """The integer that stands here, which is required."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        self.complain(f"must be an integer, not {shown(self.value)}")
        return None

    def flag(self, default: bool) -> bool | None:
        """The boolean that stands here, or the default if absent."""
        if self.value is None:
            return default
        if isinstance(self.value, bool):
            return self.value
        self.complain(f"must be true or false, not {shown(self.value)}")
        return None

    def quantity(self) -> Fraction | None:
        """The non-negative Kubernetes quantity that stands here, which is required."""
        try:
            amount = parse_quantity(self.value)
        except QuantityError as error:
            self.complain(str(error))
            return None
        if amount < 0:
            self.complain(f"{shown(self.value)} is negative")
            return None
        return amount

    def cpu_list(self) -> CpuSet | None:
        """The logical CPU ids of the list that stands here; none if absent."""
        try:
            return parse_cpu_list(self.text() or "")
        except CpuListError as error:
            self.complain(f"not a CPU list: {error}")
            return None

    def json(self) -> Field:
        """What the JSON text that stands here says, at the same path; absent if it does not parse."""
        text = self.text()
        if not text:
            return self._saying(None)
        try:
            return self._saying(json.loads(text, parse_constant=_refuse_constant))
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            self.complain(f"not JSON: {reason}")
            return self._saying(None)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


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
