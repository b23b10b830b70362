"""Many items in portions that a statement, a thread or the memory can take at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

ItemT = TypeVar("ItemT")


def portions(items: Iterable[ItemT], size: int) -> Iterator[list[ItemT]]:
    """Yield the items in order, in non-empty lists of at most `size`; read only as many as are yielded."""
    rest = iter(items)
    while portion := list(islice(rest, size)):
        yield portion
