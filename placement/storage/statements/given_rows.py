"""Statements that work on many rows at once, which they get as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from placement.storage.backends.backend import Backend
    from placement.storage.database import Transaction


class RowStatement:
    """A statement on given rows. Its text is made once per kind of database, and compiled once."""

    def __init__(
        self, text: str, name: str, columns: Mapping[str, str], *parameters: sa.BindParameter[Any]
    ) -> None:
        """`text` has {rows} where the table `name` of these columns (names and SQL types) is to stand,
        and {stamp} where that of the transaction is.

        `parameters` are those whose type the driver has to know.
        """
        self._text = text
        self._name = name
        self._columns = columns
        self._parameters = parameters
        self._made: dict[type[Backend], sa.TextClause] = {}

    def run(self, transaction: Transaction, rows: Sequence[Sequence[Any]], **others: Any) -> Any:
        """Run it on rows, of which there must be some, with its other parameters."""
        given = transaction.backend.row_parameters(self._columns, rows)
        return transaction.execute(self._for(transaction.backend), {**given, **others})

    def _for(self, backend: Backend) -> sa.TextClause:
        statement = self._made.get(type(backend))
        if statement is None:
            rows = backend.given_rows(self._name, self._columns)
            text = self._text.format(rows=rows, stamp=backend.stamp_text)
            statement = self._made[type(backend)] = sa.text(text).bindparams(*self._parameters)
        return statement
