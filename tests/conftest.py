"""Fixtures: every test that needs a database runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient

from placement.app import build
from placement.storage.database import Database
from tests.client import Client
from tests.server import BACKENDS, RunningServer, database_url, running_service


@pytest.fixture(params=BACKENDS)
def connection_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated database of this test's own."""
    with database_url(request.param) as url:
        yield url


@pytest.fixture
def database(connection_url: str) -> Iterator[Database]:
    """A migrated database of this test's own."""
    database = Database(connection_url)
    yield database
    database.dispose()


@pytest.fixture
def application(database: Database) -> Iterator[Flask]:
    """The service in this process, on a database of this test's own."""
    application = build(database)
    yield application
    application.extensions["placement_use_cases"].forest.close()


@pytest.fixture
def http(application: Flask) -> FlaskClient:
    """Raw requests to the service."""
    return application.test_client()


@pytest.fixture
def api(application: Flask) -> Client:
    """Requests of an administrator at the newest microversion."""
    return Client(application.test_client())


@pytest.fixture
def two_workers(connection_url: str) -> Iterator[RunningServer]:
    """The real service with two worker processes."""
    with running_service(connection_url, workers=2) as server:
        yield server
