"""Every error the service raises on purpose.

`code` is the stable machine-readable code of the Placement API ("placement.undefined_code" by default).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple, Self

UNDEFINED_CODE = "placement.undefined_code"
MOST_FINDINGS = 20
"""How many findings about one request an answer has."""


_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class RequestPlace:
    """Where in a request something stands; `place / "name"` and `place / 0` lead to a member and an item.

    A member with an odd name is written in brackets, too. `text` is how sentences begin, such as
    `members[0].query`. `field` is what programs read: the name of a parameter, or a JSON Pointer into the
    body (RFC 6901).
    """

    text: str = ""
    field: str = ""

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, step: str | int) -> RequestPlace:
        plain = isinstance(step, str) and _PLAIN.fullmatch(step)
        return self._below(f".{step}" if plain else f"[{step}]", step)

    def entry(self, key: str | int) -> RequestPlace:
        """Return the place of an entry of a map; its key is written in quotes."""
        return self._below(f"[{key!r}]", key)

    def around(self, inner: RequestPlace) -> RequestPlace:
        """Return a place in a text or document that stands here, such as a parameter of a query string."""
        text = ": ".join(filter(None, (self.text, inner.text)))
        leads_on = self.is_pointer and inner.is_pointer
        return RequestPlace(text, self.field + inner.field if leads_on else self.field or inner.field)

    @property
    def is_pointer(self) -> bool:
        """Whether this is in a body; the whole body is, too."""
        return self.field[:1] in ("", "/")

    def _below(self, shown: str, step: str | int) -> RequestPlace:
        field = self.field + pointer_of((step,)) if self.is_pointer else self.field
        return RequestPlace(f"{self.text}{shown}".removeprefix("."), field)


def pointer_of(steps: Iterable[str | int]) -> str:
    """Return the JSON Pointer of these members and items. Source: RFC 6901."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


BODY = RequestPlace()
"""The whole of a body; also of what is about no part of a request."""


def parameter(name: str) -> RequestPlace:
    """Return the place of a parameter of the query string, or of a field in a form."""
    return RequestPlace(name, name)


def option_place(name: str, *, is_json: bool) -> RequestPlace:
    """Return the place of what is a member of a body in JSON, and else a parameter of the query string."""
    return BODY / name if is_json else parameter(name)


class NameKind(Enum):
    """A kind of things that requests call by name and that the database knows."""

    CLUSTER = auto()
    NODE = auto()
    POD = auto()
    RESERVATION = auto()
    HOST = auto()
    RESOURCE_CLASS = auto()
    TRAIT = auto()
    AGGREGATE = auto()


class NamesOf(NamedTuple):
    """The names of a kind, of a cluster where the kind is of clusters, that the caller may see."""

    kind: NameKind
    cluster: str | None = None


Suggestable = Callable[[], Iterable[str]] | NamesOf
"""What an unknown name may be meant to be: names at hand, or those in the database; read for an answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a request: where, what, and if a name is unknown, which one.

    `known`: the names that would have been understood. `code` is empty where the error's own counts.
    """

    what: str
    place: RequestPlace = BODY
    value: str = ""
    known: Suggestable | None = field(default=None, compare=False)
    code: str = ""

    def __str__(self) -> str:
        """Return the sentence, with its place in front."""
        return f"{self.place}: {self.what}" if self.place.text else self.what

    def within(self, place: RequestPlace) -> Finding:
        """Return the finding about the text or document at a place."""
        return replace(self, place=place.around(self.place))


class PlacementError(Exception):
    """The base of all these errors; `str(error)` is the message for the caller.

    `findings` has what is wrong, in parts: one for most errors.
    """

    code = UNDEFINED_CODE

    def __init__(
        self,
        message: str,
        code: str | None = None,
        *,
        place: RequestPlace = BODY,
        value: str = "",
        known: Suggestable | None = None,
    ) -> None:
        """Make the error of one finding; `value` is not among the `known` ones."""
        self._hold((Finding(message, place, value, known),))
        if code is not None:
            self.code = code

    def _hold(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(map(str, self.shown)))

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The first findings, for an answer."""
        more = len(self.findings) - MOST_FINDINGS
        rest = (Finding(f"and {more} more"),) if more > 0 else ()
        return (*self.findings[:MOST_FINDINGS], *rest)

    def within(self, place: RequestPlace) -> Self:
        """Return the same error about the text or document at a place."""
        return self.with_findings(each.within(place) for each in self.findings)

    def with_findings(self, findings: Iterable[Finding]) -> Self:
        """Return an error of the same kind with these findings."""
        # Not by `copy`, which would call the constructor, and these take different arguments.
        error = type(self).__new__(type(self))
        vars(error).update(vars(self))
        error._hold(findings)
        return error


class BadRequest(PlacementError):
    """The request cannot be understood, or names something that does not exist."""


def no_such(kind: NameKind, names: Iterable[str], place: RequestPlace) -> BadRequest:
    """Return the error, in our words, that nothing of this kind has these names, at least one."""
    what, listed = kind.name.lower().replace("_", " "), sorted(names)
    message = f"No such {what} {', '.join(listed)}."
    return BadRequest(message, place=place, value=listed[0], known=NamesOf(kind))


class BadValues(BadRequest):
    """Values of a request break rules: each is a finding."""

    def __init__(self, findings: Iterable[Finding], code: str | None = None) -> None:
        self._hold(findings)
        if code is not None:
            self.code = code


class SchemaViolation(BadRequest):
    """A value breaks its schema.

    `reason` is a sentence for the caller, `keyword` the broken rule (minimum, pattern, required ...),
    `schema_path` and `instance_path` lead to it. `member` is a member that it lacks, or has and may not have;
    then `known` has the names of members it may have. `others` are violations by further parts of the value.
    """

    def __init__(
        self,
        reason: str,
        keyword: str,
        schema_path: tuple[str | int, ...] = (),
        instance_path: tuple[str | int, ...] = (),
        member: str | None = None,
        known: Suggestable | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keyword = keyword
        self.schema_path = schema_path
        self.instance_path = instance_path
        self.member = member
        self.known = known
        self.others: list[SchemaViolation] = []

    def below(self, step: tuple[str | int, ...], key: str | int) -> None:
        """Note that the value stands under a key of another, and where its schema stands in that one's."""
        for each in (self, *self.others):
            each.schema_path = *step, *each.schema_path
            each.instance_path = key, *each.instance_path

    def join(self, violation: SchemaViolation) -> None:
        """Add a violation by another part, with the violations of its further parts."""
        self.others += [violation, *violation.others]
        violation.others = []

    def all_findings(self, place: RequestPlace = BODY) -> list[Finding]:
        """Return the first violations as findings, with their places below `place`."""
        violations = [self, *self.others]
        found = [
            Finding(each.reason, each._place(place), each.member or "", each.known) for each in violations
        ]
        # Long lists are not checked to their ends, so how many more there are is not known.
        more = [Finding("there may be more")] if len(found) >= MOST_FINDINGS else []
        return [*found[: MOST_FINDINGS - 1], *more]

    def _place(self, place: RequestPlace) -> RequestPlace:
        """Return where the value stands: members by name, items and keys of maps in brackets."""
        steps = iter(self.schema_path)
        for key in self.instance_path:
            step = next(steps, "items")
            if step != "items":
                next(steps)
            place = place / key if step == "properties" else place.entry(key)
        if self.member is None:
            return place
        # Of an odd name the text has a part only, which leads nowhere.
        is_name = self.member.isidentifier()
        return (
            place / self.member
            if is_name
            else RequestPlace(f"{place}.{self.member}".lstrip("."), place.field)
        )


class Forbidden(PlacementError):
    """The caller may not do this."""


class NotFound(PlacementError):
    """The thing named in the path does not exist."""


class Conflict(PlacementError):
    """The request is fine, but the present state refuses it."""


class ConcurrentUpdate(Conflict):
    """Another writer changed the same thing first; read again and retry."""

    code = "placement.concurrent_update"


class Gone(PlacementError):
    """The records that were asked for are no longer kept; the message names an alternative."""


class Unanswered(PlacementError):
    """Another server got a request, and did not say whether it carried it out or will."""


class InventoryInUse(Conflict):
    """An inventory that has allocations would disappear."""

    code = "placement.inventory.inuse"


class CapacityExceeded(Conflict):
    """The amounts do not fit the inventory, or break its min_unit, max_unit or step_size."""


class Unavailable(PlacementError):
    """The database cannot be reached or is overloaded; nothing was changed unless the message says so."""


class RequestTimeout(Unavailable):
    """The time of the request was up before its work was done, perhaps because it waited for others."""

    def __init__(self, work: str) -> None:
        """Make the error; `work` was not done in time, such as "the search"."""
        super().__init__(
            f"The time of the request was up ([api] request_timeout) before {work} was done; "
            "nothing was changed."
        )


class SearchTimeout(Unavailable):
    """A search took longer than searches may; the message names the groups that are hard to place."""

    code = "placement.search_timeout"
