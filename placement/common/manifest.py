"""Kubernetes objects as parsed documents: fields with their paths, and the findings about them."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, NoReturn

import orjson

from placement.engine.domain.errors import BODY, BadRequest, BadValues, Finding, RequestPlace
from placement.engine.domain.units import LARGEST_AMOUNT
from placement.engine.numa.cpus import CpuListError, CpuSet, parse_cpu_list

_LONGEST_VALUE = 60
CLOSED = "placement/closed"
"""The annotation of a node that takes no new pod, whatever the pod tolerates; its text says why."""
CHOOSE_GATE = "placement.cpus/choose"
"""The scheduling gate of a pod whose CPUs and node the loop chooses, and which another scheduler binds."""
PINNED = "placement.cpus/node"
"""The annotation of a pod whose gate was taken away: the node that was chosen."""
LOOP_NODE = "placement.cpus/loop"
"""The label, and the key of the taint, of nodes whose pods the loop schedules."""


class ManifestError(BadValues):
    """The error of manifests that break rules; the place of each finding is a path in a manifest."""


class QuantityError(BadRequest, ValueError):
    """The error of a value that is not a Kubernetes quantity."""


def shown(value: object) -> str:
    """Return a short printable form of a value: scalars as Python writes them, containers by kind."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a very long number"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000}))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,18})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
# Powers of ten beyond these are over the largest or below the smallest quantity, whatever the suffix.
_SURELY_LARGE, _SURELY_SMALL = 40, -40
_NANO = 10**9


def parse_quantity(value: object) -> Fraction:
    """Return the amount of a quantity such as `4`, `500m`, `1.5Gi` or `1e3`, in the base unit.

    It is exact down to nanos, rounded up to these, and at most 2^63-1: so a short text such as `1e999999`
    costs nothing, and every sum fits where Kubernetes' own would. Plain numbers, as YAML parses them, are
    taken as they are. Raises QuantityError for anything else. Source: Kubernetes resource quantities.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(max(-LARGEST_AMOUNT, min(LARGEST_AMOUNT, value)))
    # Floats by the digits as written, not by their nearest binary fraction.
    text = repr(value) if isinstance(value, float) else value
    found = _read_quantity(text) if isinstance(text, str) else None
    if found is None:
        raise QuantityError(f"{shown(value)} is not a Kubernetes quantity")
    return found


# Pods of one workload request the same.
@lru_cache(maxsize=1024)
def _read_quantity(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    exponent, suffix = match["exponent"], match["suffix"] or ""
    power = _DECIMAL.get(suffix, 0) if exponent is None else int(exponent)
    return _bounded(Decimal(match["number"]), power, 2 ** _BINARY.get(suffix, 0))


def _bounded(number: Decimal, power: int, scale: int) -> Fraction:
    """Return number x 10^power x scale, rounded away from 0 to nanos, within 64 bits."""
    if not number:
        return Fraction(0)
    sign, digits = (-1 if number < 0 else 1), number.adjusted() + power
    if digits > _SURELY_LARGE:
        return Fraction(sign * LARGEST_AMOUNT)
    if digits < _SURELY_SMALL:
        return Fraction(sign, _NANO)
    numerator, denominator = number.as_integer_ratio()
    numerator *= scale * 10 ** max(power, 0)
    denominator *= 10 ** max(-power, 0)
    if abs(numerator) >= LARGEST_AMOUNT * denominator:
        return Fraction(sign * LARGEST_AMOUNT)
    exact = Fraction(numerator, denominator)
    if _NANO % exact.denominator:
        exact = sign * Fraction(math.ceil(abs(exact) * _NANO), _NANO)
    return exact


def largest_quantity(resource: str) -> Fraction:
    """Return the largest quantity of a resource: 2^63-1 of what it is counted in; whole CPUs of that for cpu.

    So a request for whole CPUs stays one: pods of class LSR may request nothing else.
    """
    return _MOST_CPUS if resource == "cpu" else _MOST


_MOST, _MOST_CPUS = Fraction(LARGEST_AMOUNT), Fraction(LARGEST_AMOUNT // 1000)


_TEXTS = {str}


class ManifestReport:
    """A collection of findings and warnings in the order of their occurrence, each once.

    `consequence` is what becomes of soft fields that cannot be read, in the words of their warnings.
    `withholds`: these fields say what a node withholds from pods.
    """

    def __init__(self, consequence: str = "ignored", *, withholds: bool = False) -> None:
        self._consequence = consequence
        self._withholds = withholds
        self._findings: dict[Finding, None] = {}
        self._warnings: dict[str, None] = {}
        self._overlooked: dict[str, None] = {}
        self._withholding: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning, one line each."""
        return tuple(self._warnings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every reason to refuse the manifests."""
        return tuple(self._findings)

    @property
    def overlooked(self) -> tuple[str, ...]:
        """Every complaint about a soft field, one line each; it is also a warning."""
        return tuple(self._overlooked)

    @property
    def withholding(self) -> tuple[str, ...]:
        """Every warning that what a node withholds cannot be read, one line each."""
        return tuple(self._withholding)

    def overlook(self, sentence: str) -> None:
        """Record that a soft field cannot be read, as a warning with the consequence."""
        self._overlooked[_one_line(sentence)] = None
        warning = f"{sentence}; {self._consequence}"
        self.warn(warning)
        if self._withholds:
            self._withholding[_one_line(warning)] = None

    def refuse(self, what: str, place: RequestPlace = BODY) -> None:
        """Record a reason to refuse the manifests."""
        text, pointer = _one_line(place.text), _one_line(place.field)
        self._findings[Finding(_one_line(what), RequestPlace(text, pointer))] = None

    def warn(self, sentence: str) -> None:
        """Record something the operator should know."""
        self._warnings[_one_line(sentence)] = None

    def include(self, other_report: ManifestReport) -> bool:
        """Add the findings and warnings of another report, and return whether it has any."""
        self._findings |= other_report._findings
        self._warnings |= other_report._warnings
        self._overlooked |= other_report._overlooked
        self._withholding |= other_report._withholding
        return bool(other_report._findings or other_report._warnings)

    def raise_findings(self) -> None:
        """Raise one ManifestError with every finding, if there is any."""
        if self._findings:
            raise ManifestError(self._findings)


def _one_line(sentence: str) -> str:
    # Keys of a manifest become part of paths and may hold anything, even line ends and lone surrogates.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)


class Field:
    """A value and its path in a manifest; reading it as the wrong type complains and returns nothing.

    A complaint refuses the manifests, or is a warning if the field is `soft`. An absent member has the value
    None, like one that is null (koordinator.md, "Keys and schemas").
    """

    __slots__ = ("_above", "_name", "report", "soft", "value")

    def __init__(
        self,
        name: str | int,
        value: Any,
        report: ManifestReport,
        soft: bool = False,
        above: Field | None = None,
    ) -> None:
        self._name, self.value, self.report, self.soft, self._above = name, value, report, soft, above

    @property
    def path(self) -> str:
        """The path of the field from the root of the manifest."""
        return self.place.text

    @property
    def place(self) -> RequestPlace:
        """The place of the field in the body that is the manifest."""
        # Computed when needed: a pod has a hundred fields, and hardly any ever has an error.
        return RequestPlace(str(self._name)) if self._above is None else self._above.place / self._name

    def softly(self) -> Field:
        """Return this field with complaints that are warnings."""
        return Field(self._name, self.value, self.report, True, self._above)

    def reported_to(self, report: ManifestReport) -> Field:
        """Return this field with complaints that go to another report."""
        return Field(self._name, self.value, report, self.soft, self._above)

    def refuse(self, text: str) -> None:
        """Refuse the manifests because of this field, soft or not."""
        self.report.refuse(text, self.place)

    def warn(self, text: str) -> None:
        """Warn the operator about this field."""
        self.report.warn(f"{self.path}: {text}")

    def complain(self, text: str) -> None:
        """Refuse the manifests, or only warn of a soft field and of what becomes of it."""
        if self.soft:
            self.report.overlook(f"{self.path}: {text}")
        else:
            self.refuse(text)

    def member(self, key: str) -> Field:
        """Return the member of a mapping; absent if there is none."""
        return self._child(key, self.mapping().get(key))

    def members(self) -> dict[str, Field]:
        """Return every member of a mapping by its key."""
        return {key: self._child(key, value) for key, value in self.mapping().items()}

    def _child(self, name: str | int, value: Any) -> Field:
        return Field(name, value, self.report, self.soft, self)

    def mapping(self) -> Mapping[str, Any]:
        """Return the mapping in this field; empty if absent."""
        if self.value is None:
            return {}
        # Most are dictionaries, which are checked several times as fast.
        if not isinstance(self.value, dict) and not isinstance(self.value, Mapping):
            self.complain(f"must be a mapping, not {shown(self.value)}")
            return {}
        if not set(map(type, self.value)) <= _TEXTS:
            self.complain("must have texts as keys")
            return {}
        return self.value

    def texts(self) -> dict[str, str]:
        """Return every text member of a mapping by its key, and complain about the others."""
        members = self.mapping()
        if set(map(type, members.values())) <= _TEXTS:
            return dict(members)
        texts = {key: self._child(key, value).text() for key, value in members.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def elements(self) -> list[Field]:
        """Return the elements of a list; none if absent."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.complain(f"must be a list, not {shown(self.value)}")
            return []
        return [self._child(index, value) for index, value in enumerate(self.value)]

    def text(self) -> str | None:
        """Return the text in this field; None if absent."""
        if self.value is None or isinstance(self.value, str):
            return self.value
        self.complain(f"must be a text, not {shown(self.value)}")
        return None

    def integer(self) -> int | None:
        """Return the integer in this field, which is required."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        self.complain(f"must be an integer, not {shown(self.value)}")
        return None

    def flag(self, default: bool) -> bool | None:
        """Return the boolean in this field, or the default if absent."""
        if self.value is None:
            return default
        if isinstance(self.value, bool):
            return self.value
        self.complain(f"must be true or false, not {shown(self.value)}")
        return None

    def quantity_or_zero(self, resource: str) -> Fraction | None:
        """Return what `quantity` does, and 0 for null, as Kubernetes does in a list of resources."""
        return Fraction(0) if self.value is None else self.quantity(resource)

    def quantity(self, resource: str) -> Fraction | None:
        """Return the non-negative Kubernetes quantity of a resource in this field, which is required.

        Blanks around it do not count, as in Kubernetes.
        Above the largest amount that can be counted, that amount is returned, with a warning.
        """
        try:
            amount = parse_quantity(self.value.strip() if isinstance(self.value, str) else self.value)
        except QuantityError as error:
            self.complain(str(error))
            return None
        if amount < 0:
            self.complain(f"{shown(self.value)} is negative")
            return None
        most = largest_quantity(resource)
        if amount >= most and str(self.value) != str(most):
            self.warn(f"{shown(self.value)} is too large; {float(most):.3g} counts")
        return min(amount, most)

    def cpu_list(self, read: Callable[[str], CpuSet] = parse_cpu_list) -> CpuSet | None:
        """Return the logical CPU ids of the list in this field; none if absent."""
        try:
            return read(self.text() or "")
        except CpuListError as error:
            self.complain(f"not a CPU list: {error}")
            return None

    def json(self) -> Field:
        """Return the value of the JSON text in this field, at its path; absent if it does not parse."""
        text, value = self.text(), None
        if text:
            try:
                # The parser that stored documents are read with: what passes can be stored, and read again.
                value = orjson.loads(text)
            except ValueError as error:
                self.complain(f"not JSON: {_why_not_json(text) or error}")
            else:
                if "\\u0000" in text:
                    value = None
                    self.complain("not JSON that can be stored: it has a NUL character")
        return Field(self._name, value, self.report, self.soft, self._above)


def _why_not_json(text: str) -> str:
    """Return the error of Python's parser for a text; empty if it takes it, as it does half characters."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return str(error)
    return ""


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
        """Return the label of that key."""
        return self.root.member("metadata").member("labels").member(key)

    def annotation(self, key: str) -> Field:
        """Return the annotation of that key, a JSON text still to be parsed."""
        return self.root.member("metadata").member("annotations").member(key)


def read_manifest(
    document: Mapping[str, Any], api_version: str, kind: str, report: ManifestReport
) -> Manifest:
    """Return the object that a parsed document describes.

    Refused are: another kind or apiVersion, no name, labels and annotations that are not texts.
    """
    manifest = Manifest(Field(kind, document, report))
    root = manifest.root
    if not isinstance(document, Mapping):
        root.refuse(f"must be a mapping, not {shown(document)}")
        return Manifest(Field(kind, {}, ManifestReport()))
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


_PART = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_duration(field: Field) -> datetime.timedelta | None:
    """Return the duration in a field; complain and return None if it is not one."""
    text = field.text() or ""
    parts = _PART.findall(text)
    if text == "0" or (parts and "".join(parts) == text):
        try:
            units = [part.lstrip("0123456789.") for part in parts]
            amounts = (
                float(part.removesuffix(unit)) * _SECONDS[unit]
                for part, unit in zip(parts, units, strict=True)
            )
            return datetime.timedelta(seconds=sum(amounts))
        except OverflowError:
            field.complain("is too long")
            return None
    field.complain(f"{text[:60]!r} is not a duration such as 90s or 1h30m")
    return None


class Profile(StrEnum):
    """A reading: what the design promises, or what koord-scheduler does (koordinator.md, "Profiles")."""

    DESIGN = "design"
    KOORD_SCHEDULER = "koord-scheduler"
