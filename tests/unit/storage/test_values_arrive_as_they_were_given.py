"""Many values that go to a database as one arrive as each of them by itself would, however many."""

import sqlite3
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement.engine.domain.inventories import Inventory
from placement.providers.statements import contents, names
from placement.providers.statements import providers as statements
from placement.providers.statements.providers import NewProvider
from placement.storage import tables
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.database import Database, RowStatement
from tests.server import BACKENDS, database_url

COLUMNS = {
    **{"word": "varchar", "long": "text", "small": "integer", "large": "bigint"},
    "share": "double precision",
}
ODD = [*"\"\\' ", '\\"', "", "NULL", "null", "{}", "a,b", "{a}", "%s", ":name", "\n\t", "ü→𝄞", "\\x41"]
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


def test_a_number_is_among_those_that_are_given_and_among_no_others(kept):
    asked = sa.union_all(*(sa.select(sa.literal(number).label("number")) for number in (1, 2, 3))).subquery()
    for numbers in [], [1], [3, 2**31 - 1]:
        with kept.read() as connection:
            statement = sa.select(asked.c.number).where(kept.backend.among(asked.c.number, numbers))
            assert sorted(connection.execute(statement).scalars()) == sorted({1, 2, 3} & {*numbers})


def test_numbers_without_end_are_written_as_the_server_reads_them():
    for value, written in (float("inf"), "{inf}"), (None, "{NULL}"), (3.4e38, "{3.4e+38}"):
        assert PostgreSQL.row_parameters({"share": "double precision"}, [(value,)]) == {"share": written}


# What SQLite is built with unless somebody raises it.
_LIMIT = 32_766
_PROVIDERS, _CLASSES = 60, 80


@pytest.fixture
def narrow(database: Database) -> Database:
    """The database, whose statements may have as many values as SQLite allows by default."""

    def lower(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, _LIMIT)

    database.engine.dispose()
    sa.event.listen(database.engine, "connect", lower)
    return database


def new_providers(count: int) -> list[NewProvider]:
    return [NewProvider(str(uuid.uuid4()), f"p{number}", None, None) for number in range(count)]


def test_records_of_many_providers(narrow):
    with narrow.write() as transaction:
        providers = sorted(statements.insert_providers(transaction, new_providers(_PROVIDERS), None).values())
        wanted_names = [f"CUSTOM_{number}" for number in range(_CLASSES)]
        names.insert_ignoring_known(transaction, tables.resource_classes, "name", wanted_names)
        classes = sorted(names.class_ids(transaction, wanted_names).values())
        places = [(provider, class_id) for provider in providers for class_id in classes]
        contents.insert(transaction, [(*place, Inventory(1, 0)) for place in places])
        changed = [(*place, Inventory(number + 2, 1)) for number, place in enumerate(places)]
        contents.update(transaction, changed)
        found = contents.stored(transaction, providers)
        totals = [found[provider][class_id].inventory.total for provider, class_id in places]
        assert totals == list(range(2, len(places) + 2))
        contents.delete(transaction, places[:-1])
        (left,) = contents.stored(transaction, providers).values()
        assert list(left) == [classes[-1]]


def test_many_names_and_memberships(narrow):
    wanted = [f"CUSTOM_{number}" for number in range(20_000)]
    with narrow.write() as transaction:
        inserted = names.insert_ignoring_known(transaction, tables.traits, "name", wanted)
        assert sorted(inserted) == sorted(wanted)
        again = names.insert_ignoring_known(transaction, tables.traits, "name", [*wanted[:3], "CUSTOM_X"])
        assert again == ["CUSTOM_X"]
        (id_,) = statements.insert_providers(transaction, new_providers(1), None).values()
        ids = set(names.trait_ids(transaction, wanted).values())
        assert contents.replace_members(transaction, contents.TRAITS, id_, ids)
        assert statements.traits_of(transaction, [id_]) == {id_: ids}


def test_a_tree_of_many_providers(narrow):
    rows = new_providers(6000)
    with narrow.write() as transaction:
        ids = statements.insert_providers(transaction, rows, None)
        assert ids.keys() == {row.uuid for row in rows}
        assert statements.insert_providers(transaction, rows[:3], None) == {}
        names.insert_ignoring_known(transaction, tables.traits, "name", ["CUSTOM_A", "CUSTOM_B"])
        traits = sorted(names.trait_ids(transaction, ["CUSTOM_A", "CUSTOM_B"]).values())
        statements.change_traits(transaction, [(id_, trait) for id_ in ids.values() for trait in traits], ())
        held = statements.traits_of(transaction, list(ids.values()))
        assert held == {id_: set(traits) for id_ in ids.values()}
