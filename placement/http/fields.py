"""Field types that report violations in the words of JSON Schema, which clients match.

Source: placement-api.md, "Schema-violation messages".
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingABC
from typing import Any, NamedTuple, NoReturn

from marshmallow import ValidationError, fields

from placement.engine.domain.errors import SchemaViolation
from placement.engine.domain.identifiers import normalize_uuid

MOST_KEYS = 10
_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = 10
_short.maxstring = _short.maxlong = _short.maxother = 300


def shown(value: Any) -> str:
    """Return the value as a Python literal, cut where it is long or deep: messages do not echo bodies."""
    return _short.repr(value)


def refuse(reason: str, keyword: str) -> NoReturn:
    """Report a violation at the place being validated."""
    raise ValidationError([SchemaViolation(reason, keyword)])


def _type_name(value: Any, *names: str) -> NoReturn:
    listed = ", ".join(f"'{name}'" for name in names)
    refuse(f"{shown(value)} is not of type {listed}", "type")


class InContext(NamedTuple):
    """A source that makes JSON values of an object and the context of its answer, such as a cluster."""

    read: Callable[[Any, Any], Any] | None


CONTEXT = InContext(None)
"""The source of a member that is the context itself."""
ELSEWHERE = InContext(None)
"""The source of a member that the schema describes and only other schemas, made from it, send."""


class _Field(fields.Field[Any]):
    """A base of fields that takes null as a value like any other, judged by the field's own type.

    `source`: what an answer has there: a function of the object that is sent, or of it and the context, or
    the name of an attribute, which may be a path with dots. Without it that is the field's own name.
    """

    type_name = "object"

    def __init__(
        self,
        *,
        nullable: bool = False,
        source: Callable[[Any], Any] | InContext | str = "",
        **options: Any,
    ) -> None:
        super().__init__(allow_none=True, **options)
        self.nullable = nullable
        self.source = source

    def deserialize(self, value: Any, attr: Any = None, data: Any = None, **kwargs: Any) -> Any:
        """Return the value; None only where the field is nullable."""
        if value is None:
            if self.nullable:
                return None
            self.wrong_type(value)
        return super().deserialize(value, attr, data, **kwargs)

    def wrong_type(self, value: Any) -> NoReturn:
        """Report that the value is of another type."""
        _type_name(value, *((self.type_name, "null") if self.nullable else (self.type_name,)))


class Integer(_Field):
    """A JSON number without a fraction."""

    type_name = "integer"

    def __init__(self, minimum: int | None = None, maximum: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum = minimum
        self.maximum = maximum

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.wrong_type(value)
        if isinstance(value, float) and not value.is_integer():
            self.wrong_type(value)
        _check_range(value, self.minimum, self.maximum)
        return int(value)


class Number(_Field):
    """A JSON number, with or without a fraction."""

    type_name = "number"

    def __init__(self, minimum: float | None = None, maximum: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum = minimum
        self.maximum = maximum

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.wrong_type(value)
        _check_range(value, self.minimum, self.maximum)
        return value


def _check_range(value: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and value < minimum:
        refuse(f"{shown(value)} is less than the minimum of {minimum}", "minimum")
    if maximum is not None and value > maximum:
        refuse(f"{shown(value)} is greater than the maximum of {maximum}", "maximum")


class String(_Field):
    """A text of bounded length (in characters) that matches a pattern as a whole."""

    type_name = "string"

    def __init__(
        self, least: int = 0, most: int | None = None, pattern: str | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.least = least
        self.most = most
        self.pattern = pattern

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            self.wrong_type(value)
        if self.pattern is not None and not self._matches(value):
            refuse(f"{shown(value)} does not match {self.pattern!r}", "pattern")
        if len(value) < self.least:
            refuse(f"{shown(value)} should be non-empty", "minLength")
        if self.most is not None and len(value) > self.most:
            refuse(f"{shown(value)} is too long", "maxLength")
        if "\0" in value:
            # No database holds such a text.
            refuse(f"{shown(value)} does not match '^[^\\x00]*$'", "pattern")
        return value

    def _matches(self, value: str) -> bool:
        # `$` alone would let a line break at the end pass.
        return not value.endswith("\n") and re.search(self.pattern or "", value) is not None


class Uuid(_Field):
    """A text that can be normalized to a uuid; the value is its lower-case dashed form."""

    type_name = "string"

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            self.wrong_type(value)
        normal = normalize_uuid(value)
        if normal is None:
            refuse(f"{shown(value)} is not a 'uuid'", "format")
        return normal


class NullableUuid(Uuid):
    """A uuid or null, two schemas to choose from as JSON Schema has it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nullable=True, **options)

    def wrong_type(self, value: Any) -> NoReturn:
        """Report that neither schema fits."""
        refuse(f"{shown(value)} is not valid under any of the given schemas", "anyOf")


class Sequence(_Field):
    """A JSON array of one kind of items."""

    type_name = "array"

    def __init__(
        self,
        items: fields.Field[Any],
        *,
        least: int = 0,
        most: int | None = None,
        unique: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.items = items
        self.least = least
        self.most = most
        self.unique = unique

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            self.wrong_type(value)
        if len(value) < self.least:
            refuse("[] should be non-empty", "minItems")
        if self.most is not None and len(value) > self.most:
            refuse(f"{shown(value)} is too long", "maxItems")
        result = [nested(index, self.items, item) for index, item in enumerate(value)]
        if self.unique and len({str(item) for item in result}) < len(result):
            refuse(f"{shown(value)} has non-unique elements", "uniqueItems")
        return result


class AnyOf(Sequence):
    """A field for one item, or a JSON array of some; the value is a list in both cases."""

    def __init__(self, items: fields.Field[Any]) -> None:
        super().__init__(items, least=1)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> list[Any]:
        if isinstance(value, list):
            return super()._deserialize(value, attr, data, **kwargs)
        return [self.items.deserialize(value)]


class Choice(_Field):
    """A field for one of several texts."""

    type_name = "string"

    def __init__(self, choices: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.choices = [str(choice) for choice in choices]

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            self.wrong_type(value)
        if value not in self.choices:
            refuse(f"{shown(value)} is not one of {self.choices}", "enum")
        return value


class Boolean(_Field):
    """A JSON true or false."""

    type_name = "boolean"

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> bool:
        if not isinstance(value, bool):
            self.wrong_type(value)
        return value


class Anything(_Field):
    """A JSON value other than null; the handler checks what it means."""


class Given(_Field):
    """A field with a JSON Schema that is written out, and may name components of OpenAPI documents."""

    def __init__(self, document: MappingABC[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self.document = document


class Mapping(_Field):
    """A JSON object with keys that follow a pattern and values of one kind.

    Messages show another pattern if one is given.
    """

    type_name = "object"

    def __init__(
        self,
        key_pattern: str,
        values: fields.Field[Any],
        *,
        least: int = 0,
        shown_pattern: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.key_pattern = key_pattern
        self.shown_pattern = shown_pattern or key_pattern
        self.values = values
        self.least = least

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, MappingABC):
            self.wrong_type(value)
        if len(value) < self.least:
            refuse("{} should be non-empty", "minProperties")
        pattern = re.compile(self.key_pattern.strip("^$"))
        strange = [key for key in value if not pattern.fullmatch(key)]
        if strange:
            listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
            verb = "does" if len(strange) == 1 else "do"
            refuse(
                f"{listed} {verb} not match any of the regexes: {self.shown_pattern!r}",
                "additionalProperties",
            )
        return {key: nested(key, self.values, item) for key, item in value.items()}


class Object(_Field):
    """A JSON object with a schema of its own.

    `nested` is the schema's class, and its instance once the microversion is known (`schemas.in_version`).
    This is not marshmallow's Nested, which sets up the schema's fields again and so undoes the microversion.
    """

    type_name = "object"

    def __init__(self, nested: Any, **options: Any) -> None:
        super().__init__(**options)
        self.nested = nested

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, MappingABC):
            self.wrong_type(value)
        return self.nested.load(value)


def nested(key: str | int, field: fields.Field[Any], value: Any) -> Any:
    """Return the value under a key, loaded; report what is wrong with it at that key."""
    try:
        return field.deserialize(value)
    except ValidationError as error:
        raise ValidationError({key: error.messages}) from error


# The patterns of names on the wire. Source: placement-api.md, "Identifiers, names, numbers".


NAME = "^[A-Z0-9_]+$"
CUSTOM_NAME = "^CUSTOM_[A-Z0-9_]+$"
UUID = "^[0-9a-fA-F-]{36}$"
# Any text without NUL, which no database holds.
ANYTHING = r"^[^\x00]*$"
LONGEST_NAME = 255
# The suffixes of request groups; empty for the group without one.
SUFFIX = "^[a-zA-Z0-9_-]{0,64}$"
