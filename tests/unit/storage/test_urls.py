"""Database URLs are taken as people and libpq write them, and shown without passwords."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest
from placement.storage.backends import backend
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.postgresql_driver import Dialect
from placement.storage.history import History


def arguments(url: str) -> dict[str, str]:
    """What the driver is given."""
    found: dict[str, str] = Dialect().create_connect_args(backend.supported(url))[1]
    return found


def test_several_hosts_with_ports():
    found = arguments("postgresql://u:p%40ss@h1:1111,h2:2222/db?target_session_attrs=any")
    assert found == {
        "host": "h1,h2",
        "port": "1111,2222",
        "dbname": "db",
        "user": "u",
        "password": "p@ss",
        "target_session_attrs": "any",
    }


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("h1,h2", ("h1,h2", "5432,5432")),
        ("h1:1,h2", ("h1,h2", "1,5432")),
        ("[::1]:5,h2:6", ("::1,h2", "5,6")),
        ("h1:1,h2:2,h3:3", ("h1,h2,h3", "1,2,3")),
    ],
)
def test_ports_that_are_not_given_are_the_usual_one(hosts: str, expected: tuple[str, str]):
    found = arguments(f"postgresql://u@{hosts}/db")
    assert (found["host"], found["port"]) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h1:1,h2:2/db",
        "postgresql://u@/db?host=h1:1&host=h2:2",
        "postgresql+psycopg2://h1,h2/db",
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_wanted(url: str):
    assert arguments(url)["target_session_attrs"] == "read-write"


def test_one_host_is_taken_whatever_it_takes():
    assert "target_session_attrs" not in arguments("postgresql://u@h1:1/db")


@pytest.mark.parametrize("url", ["postgresql://u:secret@h1:x,h2:1/db", "mysql://u:secret@h/db", "secret"])
def test_what_cannot_be_understood_is_said_without_the_password(url: str):
    with pytest.raises(BadRequest) as refused:
        backend.supported(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h1:1,h2:2/db", "postgresql://u:secret@h1:1/db"])
def test_passwords_are_not_shown(url: str):
    shown = backend.described_server(backend.supported(url))
    assert "secret" not in shown
    assert all(part in shown for part in ("h1", "1", "db", "user u"))


def test_what_the_url_says_about_the_transport_wins():
    url = backend.supported("postgresql://u@h/db?connect_timeout=1&tcp_user_timeout=7")
    options = PostgreSQL(url, History(), 30.0).engine_options()
    engine = sa.create_engine(url, **options)
    given = options["connect_args"]
    assert "connect_timeout" not in given
    assert "tcp_user_timeout" not in given
    assert given["keepalives"] == 1
    assert arguments("postgresql://u@h/db?connect_timeout=1")["connect_timeout"] == "1"
    engine.dispose()
