"""The input of a translation, how its texts are read, and the reasons why it is refused.

All reasons are given at once, in the order in which the rules check them; the first one is the outcome.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, cast

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import meant, near
from placement.engine.domain.inventories import MAX_INT

Code = str
"""The stable code of a problem (nova-flavors.md, "Order of checks and error codes")."""

REFUSED: Final = "refused"
"""Stands for a value that was given but refused; checks that would need the real value are left out."""

MAX_MESSAGE = 300
"""Characters of one message; names and lists in it come from the input and may be of any length."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80
_SHORT.maxother = 80


class FlavorProblem(NamedTuple):
    """One reason: a stable code, and a sentence that starts with the extra spec or property at fault."""

    code: Code
    message: str


class FlavorRefused(BadRequest):
    """The flavor, image or options cannot be translated; `problems` holds every reason, first one first."""

    def __init__(self, problems: tuple[FlavorProblem, ...]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


class Problems:
    """A list that gathers reasons in the order they are found; a reason found twice is kept once."""

    def __init__(self) -> None:
        self._found: dict[FlavorProblem, None] = {}

    def add(self, code: Code, message: str) -> None:
        """Keep one more reason; a message too long to be read is cut."""
        if len(message) > MAX_MESSAGE:
            message = f"{message[: MAX_MESSAGE - 3]}..."
        self._found[FlavorProblem(code, message)] = None

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[FlavorProblem]:
        return iter(self._found)

    def raise_if_any(self) -> None:
        """Raise FlavorRefused with everything found, or return when nothing was."""
        if self._found:
            raise FlavorRefused(tuple(self._found))


def shown(value: object) -> str:
    """Return the value quoted for a message, cut short so that a huge input does not become a huge answer."""
    return _SHORT.repr(value)


# A flavor, image properties, options.


# More digits than any amount has; keeps hostile texts away from the arithmetic.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
_FALSE = frozenset(("0", "f", "false", "off", "n", "no"))
FLAT = "flat"
GRANULAR = "granular"
ImageProperties = Mapping[str, str]
"""Image property name (`hw_cpu_policy`, `trait:NAME`) to its text."""
FIRMWARE_KEY = "hw_firmware_type"
STATELESS_FIRMWARE_KEY = "hw_firmware_stateless"


def integer(text: str) -> int | None:
    """Return the decimal integer the text spells, blanks around it allowed, else None."""
    trimmed = text.strip()
    return int(trimmed) if _INTEGER.fullmatch(trimmed) else None


def is_true(text: str) -> bool:
    """Return whether the text is a word for true in any letter case; everything else is false.

    Source: nova-flavors.md, "Input".
    """
    return text.strip().lower() in _TRUE


def is_boolean(text: str) -> bool:
    """Return whether the text is a word for true or for false in any letter case."""
    return text.strip().lower() in _TRUE | _FALSE


@dataclass(frozen=True, slots=True)
class Flavor:
    """A nova flavor: guest CPUs 0 .. vcpus-1, memory and swap in MiB, disks in GiB, extra specs as texts."""

    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a translation.

    `boot_from_volume` leaves the root disk out; `limit` caps the candidates asked for; `strict` refuses what
    nova's extra spec validation refuses; `pcpu_fallback` adds the second query for hosts without PCPU; `numa`
    is `flat` (totals) or `granular` (one group per guest NUMA cell); `device_cells` ties a suffixed group to
    a guest cell (suffix -> cell id, granular only).
    """

    boot_from_volume: bool = False
    limit: int | None = None
    strict: bool = False
    pcpu_fallback: bool = False
    numa: str = FLAT
    device_cells: Mapping[str, int] = field(default_factory=dict)


def given(texts: Mapping[str, str], key: str) -> str | None:
    """Return the text under this key; an empty text counts as missing (nova-flavors.md, "Input")."""
    return texts.get(key) or None


def is_uefi(image: ImageProperties) -> bool:
    return image.get(FIRMWARE_KEY) == "uefi"


def is_stateless(image: ImageProperties) -> bool:
    """Return whether the image boots with stateless UEFI (nova-flavors.md, "Optional additions")."""
    return is_uefi(image) and is_true(image.get(STATELESS_FIRMWARE_KEY, ""))


# Type and range checks of a flavor, an image and the options, before any rule reads them.


MAX_VCPUS = 65536
"""A bound far above any hypervisor, as the translation lists guest CPUs one by one."""


def check_input(flavor: Flavor, image: Mapping[str, str], options: Options, problems: Problems) -> None:
    """Refuse whatever the rules could not even read: wrong types, negative amounts, unknown option values.

    Source: nova-flavors.md, "Input".
    """
    _check_amount(flavor.vcpus, "flavor.vcpus", 1, MAX_VCPUS, "flavor_invalid", problems)
    for name in ("memory_mb", "root_gb", "ephemeral_gb", "swap_mb"):
        _check_amount(getattr(flavor, name), f"flavor.{name}", 0, MAX_INT, "flavor_invalid", problems)
    _check_texts(flavor.extra_specs, "flavor.extra_specs", "flavor_invalid", problems)
    _check_texts(image, "image", "image_invalid", problems)
    for name in ("boot_from_volume", "strict", "pcpu_fallback"):
        if not isinstance(getattr(options, name), bool):
            problems.add("options_invalid", f"options.{name}: must be true or false")
    if options.limit is not None:
        _check_amount(options.limit, "options.limit", 1, MAX_INT, "options_invalid", problems)
    if options.numa not in (FLAT, GRANULAR):
        problems.add("options_invalid", f"options.numa: must be {FLAT} or {GRANULAR}")
    if not isinstance(options.device_cells, Mapping):
        problems.add("options_invalid", "options.device_cells: must map group suffixes to cell ids")
        return
    for suffix, cell in options.device_cells.items():
        if not _is_text(suffix):
            problems.add("options_invalid", "options.device_cells: every group suffix must be text")
        _check_amount(cell, "options.device_cells", 0, MAX_VCPUS, "options_invalid", problems)


def _check_amount(value: object, name: str, least: int, most: int, code: Code, problems: Problems) -> None:
    # bool is a kind of int in Python, but `true` vcpus is a slip of the caller.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        problems.add(code, f"{name}: must be a whole number from {least} to {most}")


def _check_texts(texts: object, name: str, code: Code, problems: Problems) -> None:
    if not isinstance(texts, Mapping):
        problems.add(code, f"{name}: must map names to texts")
        return
    for key, text in texts.items():
        if not _is_text(key):
            problems.add(code, f"{name}: every name must be text")
        elif not _is_text(text):
            problems.add(code, f"{key}: must be text")


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair: JSON can carry it, a query string cannot.
        return False
    return True


# Translation requests as JSON values.


_REQUIRED_FLAVOR_FIELDS = ("vcpus", "memory_mb")
_CODE_BY_PART: Mapping[str, Code] = {
    "flavor": "flavor_invalid",
    "image": "image_invalid",
    "options": "options_invalid",
}


def read_document(document: object) -> tuple[Flavor, ImageProperties, Options]:
    """Return the parts of a translation request; raises FlavorRefused for a missing or unknown field.

    Types and ranges of the values are checked by the translation.
    """
    problems = Problems()
    parts = _object(document, "request", "flavor_invalid", problems)
    for name in parts:
        if name not in _CODE_BY_PART:
            like = meant(near(str(name), _CODE_BY_PART.keys() - parts.keys(), 1)) if len(parts) < 10 else ""
            problems.add("flavor_invalid", f"{_bare(name)}: is no part of a translation request{like}")
    flavor, image, options = (
        _object({} if parts.get(name) is None else parts[name], name, code, problems)
        for name, code in _CODE_BY_PART.items()
    )
    for part, name, shape in ((flavor, "flavor", Flavor), (options, "options", Options)):
        known = sorted(field.name for field in fields(shape))
        for field_name in part:
            if field_name not in known:
                message = f"{name}.{_bare(field_name)}: is none of its fields {', '.join(known)}"
                problems.add(_CODE_BY_PART[name], message)
    for name in _REQUIRED_FLAVOR_FIELDS:
        if name not in flavor:
            problems.add("flavor_invalid", f"flavor.{name}: is missing")
    problems.raise_if_any()
    return Flavor(**flavor), image, Options(**options)


def _bare(name: object) -> str:
    """Return the name without quotes, escaped and cut as `shown` does."""
    return shown(name).strip("'")


def _object(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value)
    problems.add(code, f"{name}: must be an object")
    return {}


# Flavors and images as the `openstack` client prints them with `-f json`.


_FLAVOR_FIELDS = {
    "vcpus": "vcpus",
    "memory_mb": "ram",
    "root_gb": "disk",
    "ephemeral_gb": "OS-FLV-EXT-DATA:ephemeral",
    "swap_mb": "swap",
}
_ALWAYS_SHOWN = ("vcpus", "memory_mb")
# Older clients print properties as one text: key='value', key2='value2'
_PROPERTY = re.compile(r"\s*(?P<key>[^=,]+)='(?P<text>[^']*)'\s*(?:,|$)")


def flavor_from_openstack_json(document: object) -> Flavor:
    """Return the flavor that `openstack flavor show -f json` printed; raises FlavorRefused (flavor_invalid).

    ram is MiB, disk and ephemeral are GiB, swap is MiB and an empty text when there is none. The extra specs
    are under `properties`, or under `extra_specs` in what the compute API itself answers.
    """
    problems = Problems()
    shown_flavor = _mapping(document, "flavor", "flavor_invalid", problems)
    amounts: dict[str, int] = {}
    for name, key in _FLAVOR_FIELDS.items():
        value = shown_flavor.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            amounts[name] = value
        elif value not in (None, "") or name in _ALWAYS_SHOWN:
            problems.add("flavor_invalid", f"{key}: {shown(value)} is no whole number")
    printed = shown_flavor.get("properties", shown_flavor.get("extra_specs"))
    extra_specs = _extra_specs(printed, problems)
    problems.raise_if_any()
    return Flavor(**amounts, extra_specs=extra_specs)


def image_from_openstack_json(document: object) -> ImageProperties:
    """Return the image properties that `openstack image show -f json` printed; raises FlavorRefused.

    Only texts are kept: what the client prints as anything else are its own fields, which no flavor rule
    reads.
    """
    problems = Problems()
    properties = _mapping(document, "image", "image_invalid", problems).get("properties")
    texts = _mapping({} if properties is None else properties, "properties", "image_invalid", problems)
    problems.raise_if_any()
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _mapping(value: object, name: str, code: Code, problems: Problems) -> Mapping[str, object]:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    problems.add(code, f"{name}: must be an object, not {shown(value)}")
    return {}


def _extra_specs(printed: object, problems: Problems) -> dict[str, str]:
    specs: dict[str, str] = {}
    if isinstance(printed, str):
        position = 0
        while position < len(printed.rstrip()):
            match = _PROPERTY.match(printed, position)
            if match is None:
                problems.add("flavor_invalid", f"properties: {shown(printed[position:])} is no key='value'")
                break
            specs[match["key"]] = match["text"]
            position = match.end()
        return specs
    given_specs = {} if printed is None else printed
    for key, text in _mapping(given_specs, "properties", "flavor_invalid", problems).items():
        if isinstance(text, str):
            specs[key] = text
        else:
            problems.add("flavor_invalid", f"{key}: {shown(text)} is no text")
    return specs


# Values that flavor and image may both set: equal ones, or for a policy what a table of the two allows.


def agreed_value(
    extra_specs: Mapping[str, str],
    image: ImageProperties,
    keys: tuple[str, str],
    values: Sequence[str],
    problems: Problems,
) -> str | None:
    """Return the value of a (flavor key, image key) pair, None if neither is set, REFUSED after a problem.

    Adds `flavor_image_conflict` if the two differ and `value_invalid` for a value that is not in the list.
    Source: nova-flavors.md, "Optional additions".
    """
    found_before = len(problems)
    ours, theirs = given(extra_specs, keys[0]), given(image, keys[1])
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{keys[0]}: {shown(ours)} differs from {keys[1]} {shown(theirs)} of the image"
        problems.add("flavor_image_conflict", message)
    for key, text in zip(keys, (ours, theirs), strict=True):
        if text is not None and text not in values:
            problems.add("value_invalid", f"{key}: {shown(text)} is none of {', '.join(values)}")
    return REFUSED if len(problems) > found_before else ours or theirs


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """The keys and legal values of one policy, the flavor value that rules, and the codes of its problems."""

    flavor_key: str
    image_key: str
    values: tuple[str, ...]
    ruling_value: str
    invalid: Code
    conflict: Code

    def settle(self, flavor_policy: str | None, image_policy: str | None, problems: Problems) -> str | None:
        """Return the policy of both sides, None if neither sets one, or REFUSED after a problem.

        An image may only repeat what the flavor says, or speak where the flavor is silent; under the ruling
        value it is ignored.
        """
        found_before = len(problems)
        for key, policy in ((self.flavor_key, flavor_policy), (self.image_key, image_policy)):
            if policy is not None and policy not in self.values:
                problems.add(self.invalid, f"{key}: {shown(policy)} is none of {', '.join(self.values)}")
        if len(problems) > found_before:
            return REFUSED
        if flavor_policy is None:
            return image_policy
        if flavor_policy == self.ruling_value or image_policy in (None, flavor_policy):
            return flavor_policy
        message = f"{flavor_policy} does not go with {self.image_key} {image_policy} of the image"
        problems.add(self.conflict, f"{self.flavor_key}: {message}")
        return REFUSED
