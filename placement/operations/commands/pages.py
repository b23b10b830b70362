"""Long lists of the service, read a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.operations.client import Client

_PAGE = 1000


class PagedList:
    """A list at a path; `member` holds the entries of a page, `cursor` asks for the page after `next`."""

    def __init__(self, client: Client, path: str, member: str, cursor: str) -> None:
        self._client = client
        self._path = path
        self._member = member
        self._cursor = cursor

    def entries(self, given: Mapping[str, str | None], limit: int | None) -> Iterator[dict[str, Any]]:
        """The entries to which all that is given applies, at most `limit`.

        The first page is read at once: what is refused shall be so before anything is written.
        """
        query = [(key, value) for key, value in given.items() if value is not None]
        query.append(("limit", str(min(limit or _PAGE, _PAGE))))
        return islice(self._from(query, self._client.get(self._path, query)), limit)

    def _from(self, query: Sequence[tuple[str, str]], page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from page[self._member]
        while page["next"] is not None:
            page = self._client.get(self._path, [*query, (self._cursor, str(page["next"]))])
            yield from page[self._member]
