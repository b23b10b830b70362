"""SQL for what may have changed of a provider, for the fit of a claim, and for many rows at once.

Every write stamps `revision`. A claim changes use only, and marks this: it stamps `usage_revision`, too, and
keeps in `content_revision` the stamp of the last write without this mark. So a writer that knows nothing of
this, like the previous release, needs to do nothing but stamp. Only where one transaction does both, claims
first, the other write has to clear `usage_revision`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from placement.storage.backends.backend import Backend
    from placement.storage.database import Transaction


CONTENT = (
    "CASE WHEN resource_providers.usage_revision = resource_providers.revision"
    " THEN resource_providers.content_revision ELSE resource_providers.revision END"
)
"""The stamp of the last write that may have changed more than use and generation of a provider.

Two states of a provider with equal stamps, within one history of writes, differ in nothing else. Only
equality means something: writers may commit in another order than they are stamped in.
"""


# The conditions that a claim fits an inventory: the one place where a claim is decided.
#
# The statements that claim join a table `wanted` to `inventories`. A row of it says how the use of one
# inventory changes: `delta` is the net change. `least`, `most` and `divisor` are the smallest and the largest
# new amount and the greatest common divisor, all 0 if there is no new amount. Each amount must respect the
# units.


_UNITS = "wanted.least >= min_unit AND wanted.most <= max_unit AND wanted.divisor % step_size = 0"
_ROOM = "used + wanted.delta <= (total - reserved) * allocation_ratio"
# For a rise by new amounts; conditions that always hold are left out, as they would change the plan.
RISE_FITS = f"{_UNITS} AND {_ROOM}"
# For any change. One that does not raise the use is never refused for capacity (Placement API, when an
# allocation fits).
CHANGE_FITS = f"(wanted.most = 0 OR ({_UNITS})) AND (wanted.delta <= 0 OR {_ROOM})"


# Statements on many rows at once, which come as parameters.


class RowStatement:
    """A statement on given rows. Its text is made once per kind of database, and compiled once."""

    def __init__(
        self, text: str, name: str, columns: Mapping[str, str], *parameters: sa.BindParameter[Any]
    ) -> None:
        """Take a `text` with {rows} for the table `name` of these columns (names and SQL types), and {stamp}
        for the stamp of the transaction.

        The driver has to know the type of the `parameters`.
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
