"""Many values that go to a database as one arrive as each of them by itself would."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.database import Database, RowStatement
from tests.server import BACKENDS, database_url

COLUMNS = {
    "word": "varchar",
    "long": "text",
    "small": "integer",
    "large": "bigint",
    "share": "double precision",
}
ODD = [
    '"',
    "\\",
    '\\"',
    "",
    " ",
    "NULL",
    "null",
    "{}",
    "a,b",
    "{a}",
    "'",
    "%s",
    ":name",
    "\n\t",
    "ü→𝄞",
    "\\x41",
]
_TEXT = RowStatement(
    "SELECT given.word, given.long, given.small, given.large, given.share FROM {rows}", "given", COLUMNS
)

# Neither takes a NUL character, nor halves of characters.
words = st.sampled_from(ODD) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
rows = st.tuples(
    st.none() | words,
    st.none() | words,
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
)


@pytest.fixture(scope="module", params=BACKENDS)
def kept(request: pytest.FixtureRequest):
    """A database that nothing is written to."""
    with database_url(request.param) as url:
        database = Database(url)
        yield database
        database.dispose()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(given_rows=st.lists(rows, min_size=1, max_size=20))
def test_rows_that_are_given_are_the_rows_of_the_statement(kept, given_rows):
    with kept.write() as transaction:
        assert [tuple(row) for row in _TEXT.run(transaction, given_rows)] == given_rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(wanted=st.lists(words, max_size=8))
def test_a_text_is_among_those_that_are_given_and_among_no_others(kept, wanted):
    asked = sa.union_all(*(sa.select(sa.literal(text, sa.String).label("text")) for text in ODD)).subquery()
    with kept.read() as connection:
        statement = sa.select(asked.c.text).where(kept.backend.among(asked.c.text, wanted))
        assert sorted(connection.execute(statement).scalars()) == sorted({*ODD} & {*wanted})


@pytest.mark.parametrize("numbers", [[], [1], [3, 2**31 - 1]])
def test_a_number_is_among_those_that_are_given_and_among_no_others(kept, numbers):
    asked = sa.union_all(*(sa.select(sa.literal(number).label("number")) for number in (1, 2, 3))).subquery()
    with kept.read() as connection:
        statement = sa.select(asked.c.number).where(kept.backend.among(asked.c.number, numbers))
        assert sorted(connection.execute(statement).scalars()) == sorted({1, 2, 3} & {*numbers})


@pytest.mark.parametrize(
    ("given_value", "written"), [(float("inf"), "{inf}"), (None, "{NULL}"), (3.4e38, "{3.4e+38}")]
)
def test_numbers_without_end_are_written_as_the_server_reads_them(given_value: Any, written: str):
    parameters = PostgreSQL.row_parameters({"share": "double precision"}, [(given_value,)])
    assert parameters == {"share": written}
