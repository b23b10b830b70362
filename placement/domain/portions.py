"""Many things in portions that a statement, a thread or the memory can take at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in their order, in lists of at most `size`; none is empty. Takes no more than it yields."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion
