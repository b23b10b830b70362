"""Every error the service raises on purpose.

`code` is the stable machine-readable code of the Placement API ("placement.undefined_code" by default).
"""

from __future__ import annotations

from collections.abc import Sequence

UNDEFINED_CODE = "placement.undefined_code"
MOST_FINDINGS = 20
"""How many findings about one request an answer has."""


class PlacementError(Exception):
    """The base of all these errors; `str(error)` is the message for the caller."""

    code = UNDEFINED_CODE

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class BadRequest(PlacementError):
    """The request cannot be understood, or names something that does not exist."""


class BadValues(BadRequest):
    """Values of a request break rules; each of the `findings` is a sentence that begins with its place.

    `shown` are the first of them, for an answer.
    """

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        more = len(findings) - MOST_FINDINGS
        self.shown = (*self.findings[:MOST_FINDINGS], *([f"and {more} more"] if more > 0 else ()))
        super().__init__("; ".join(self.shown))


class SchemaViolation(BadRequest):
    """A value breaks its schema.

    `reason` is a sentence for the caller, `keyword` the broken rule (minimum, pattern, required ...),
    `schema_path` and `instance_path` lead to it. `member` is a member that it lacks, or has and may not have.
    `others` are violations by further parts of the value.
    """

    def __init__(
        self,
        reason: str,
        keyword: str,
        schema_path: tuple[str | int, ...] = (),
        instance_path: tuple[str | int, ...] = (),
        member: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.keyword = keyword
        self.schema_path = schema_path
        self.instance_path = instance_path
        self.member = member
        self.others: list[SchemaViolation] = []

    def below(self, step: tuple[str | int, ...], key: str | int) -> None:
        """Note that the value stands under a key of another, and where its schema stands in that one's."""
        for each in (self, *self.others):
            each.schema_path = *step, *each.schema_path
            each.instance_path = key, *each.instance_path

    def join(self, other: SchemaViolation) -> None:
        """Add a violation by another part, with its own others."""
        self.others += [other, *other.others]
        other.others = []

    def findings(self, place: str = "") -> list[str]:
        """Return a sentence for each of the first violations, with its place below `place`."""
        violations = [self, *self.others]
        found = [(f"{place}{each._place()}".lstrip("."), each.reason) for each in violations]
        sentences = [f"{where}: {reason}" if where else reason for where, reason in found]
        # Long lists are not checked to their ends, so how many more there are is not known.
        more = ["there may be more"] if len(found) >= MOST_FINDINGS else []
        return [*sentences[: MOST_FINDINGS - 1], *more]

    def _place(self) -> str:
        """Return where the value stands: `.name` for members, `[key]` for items and keys of maps."""
        place, steps = "", iter(self.schema_path)
        for key in self.instance_path:
            step = next(steps, "items")
            if step != "items":
                next(steps)
            place += f".{key}" if step == "properties" else f"[{key!r}]"
        return place if self.member is None else f"{place}.{self.member}"


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
    """The records that were asked for are no longer kept; the message says what to do instead."""


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
        """Make the error; `work` is what was not done in time, as in "the search"."""
        super().__init__(
            f"The time of the request was up ([api] request_timeout) before {work} was done; "
            "nothing was changed."
        )


class SearchTimeout(Unavailable):
    """A search took longer than searches may; the message names the groups that are hard to place."""

    code = "placement.search_timeout"
