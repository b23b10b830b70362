"""The reasons why a translation is refused.

All reasons are given at once, in the order in which the rules check them; the first one is the outcome.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from typing import Final

from placement.engine.domain.errors import BadValues, Finding, RequestPlace, pointer_of

Code = str
"""The stable code of a problem (nova-flavors.md, "Order of checks and error codes")."""
REFUSED: Final = "refused"
"""Stands for a value that was given but refused; checks that would need the real value are left out."""
MAX_MESSAGE = 300
"""Characters of one message; names and lists in it come from the input and may be of any length."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = 80
_SHORT.maxother = 80


class FlavorRefused(BadValues):
    """The flavor, image or options cannot be translated; each finding has a `code`, and first ones first."""

    @property
    def shown(self) -> tuple[Finding, ...]:
        """All findings; a flavor has few parts."""
        return self.findings


class Problems:
    """A list that gathers reasons in the order they are found; a reason found twice is kept once."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(self, code: Code, name: str, what: str) -> None:
        """Keep one more reason, about what has this name; a message too long to be read is cut."""
        name = name if len(name) <= MAX_MESSAGE // 2 else f"{name[: MAX_MESSAGE // 2]}..."
        most = MAX_MESSAGE - len(f"{name}: ")
        if len(what) > most:
            what = f"{what[: most - 3]}..."
        self._found[Finding(what, _place(name), code=code)] = None

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def raise_if_any(self) -> None:
        """Raise FlavorRefused with everything found, or return when nothing was."""
        if self._found:
            raise FlavorRefused(self._found)


_PARTS = ("flavor", "image", "options")
# Those of several NUMA nodes at once are in no single place.
_EXTRA_SPEC = re.compile(r"(?:[^,: ]+:[^, ]+(?<!\.N))|group_policy")


def _place(name: str) -> RequestPlace:
    """Return where in the body a part, an extra spec or an image property of this name is."""
    part, _, member = name.partition(".")
    if part in _PARTS:
        return RequestPlace(name, pointer_of((part, *([member] if member else ()))))
    if _EXTRA_SPEC.fullmatch(name):
        return RequestPlace(name, pointer_of(("flavor", "extra_specs", name)))
    return RequestPlace(name, pointer_of(("image", name)) if name.startswith("hw_") else "")


def shown(value: object) -> str:
    """Return the value quoted for a message, cut short so that a huge input does not become a huge answer."""
    return _SHORT.repr(value)
