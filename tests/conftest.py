"""Fixtures: a test that needs a database runs on SQLite and on PostgreSQL, unless marked `one_database`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, settings
from oslo_config import cfg
from oslo_policy import opts as oslo_policy_opts
from werkzeug.routing import Rule

from placement.allocations import candidates
from placement.allocations.candidates import SearchSettings
from placement.app import build
from placement.http.registry import registry_of
from placement.planning import service as planning_service
from placement.server.options import GROUPS
from placement.storage.database import Database
from tests.api_server import ApiServer, running_api_server
from tests.browser import MISSING, chromium, running_browser
from tests.client import Client, unique
from tests.real_kubernetes import PROGRAMS, VARIABLE, ControlPlane, programs, releases, running_control_plane
from tests.server import BACKENDS, RunningServer, database_url, hosted, running_service
from tests.synchronizing import Surroundings

# Nothing is judged by its speed: the machine may be doing something else.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change lands or not by what it is, not by the examples of its day; `make random` looks for new ones.
settings.register_profile("same", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("same")

# Refusals and plans are compared to the letter, also where the machine takes long to find what else there is.
candidates._SECONDS_FOR_THE_LOG = planning_service._WATCHED_SECONDS = 60.0

_compiled = Rule._compile_builder


def _compiled_when_asked(rule: Rule, append_unknown: bool = True) -> Any:
    """Nobody here builds URLs by name, and compiling how that is done is most of making an application."""
    return lambda *given: _compiled(rule, append_unknown)(*given)


Rule._compile_builder = _compiled_when_asked


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take SQLite alone for what is marked `one_database`: other tests run its SQL on both.

    `both_databases` marks a test whose SQL no other runs, in a module that is marked so.
    """
    marked = metafunc.definition.get_closest_marker
    if marked("one_database") and not marked("both_databases"):
        for fixture in {"connection_url", "shared_application"} & set(metafunc.fixturenames):
            metafunc.definition.add_marker(pytest.mark.parametrize(fixture, ["sqlite"], indirect=True))


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
    with application_of(database) as application:
        yield application


@pytest.fixture
def http(application: Flask) -> FlaskClient:
    """Raw requests to the service."""
    return application.test_client()


@pytest.fixture
def api(application: Flask) -> Client:
    """Requests of an administrator at the newest microversion."""
    return Client(application.test_client())


def compatible(**options: Any) -> cfg.ConfigOpts:
    """The settings that compatibility is promised for: the administrator passes the older defaults, too.

    Callers are believed unless the test chooses another strategy.
    """
    return with_options(configured(enforce_new_defaults=False), **{"auth_strategy": "noauth2", **options})


def with_options(configuration: cfg.ConfigOpts, group: str = "api", **options: Any) -> cfg.ConfigOpts:
    """The configuration, with these options of the group."""
    for name, value in options.items():
        configuration.set_override(name, value, group=group)
    return configuration


def configured(*files: Path, **policy: Any) -> cfg.ConfigOpts:
    """The configuration in these files, with these options of oslo.policy."""
    configuration = cfg.ConfigOpts()
    for group, options in GROUPS.items():
        configuration.register_opts(options, group=None if group == "DEFAULT" else group)
    names = [str(file) for file in files]
    configuration([], project="placement", default_config_files=names, default_config_dirs=[])
    oslo_policy_opts.set_defaults(configuration)
    # Clients of tests do not close answers.
    configuration.set_override("max_requests_per_caller", 0, group="api")
    return with_options(configuration, "oslo_policy", **policy)


@contextmanager
def application_on(
    backend: str, search: SearchSettings | None = None, settings: cfg.ConfigOpts | None = None
) -> Iterator[Flask]:
    """The service in this process, on a database of its own."""
    with database_url(backend) as url, application_at(url, search, settings) as application:
        yield application


@contextmanager
def application_at(
    url: str, search: SearchSettings | None = None, settings: cfg.ConfigOpts | None = None
) -> Iterator[Flask]:
    """The service in this process, on the database at this URL."""
    database = Database(url)
    with application_of(database, settings, search) as application:
        yield application
    database.dispose()


@contextmanager
def application_of(
    database: Database,
    settings: cfg.ConfigOpts | None = None,
    search: SearchSettings | None = None,
    **more: Any,
) -> Iterator[Flask]:
    """The service in this process, on this database; `more` as `build` takes it."""
    application = build(database, settings or compatible(), search, **more)
    yield application
    registry_of(application).close()


@pytest.fixture
def other(application: Flask, connection_url: str) -> Iterator[Client]:
    """Requests to another process on the same database."""
    with application_at(connection_url) as another:
        yield Client(another.test_client())


@pytest.fixture(scope="module", params=BACKENDS)
def shared_application(request: pytest.FixtureRequest) -> Iterator[Flask]:
    """The service on a database that the tests of one module share."""
    with application_on(request.param) as application:
        yield application


@pytest.fixture(scope="module")
def embedded_database() -> Iterator[Database]:
    """A migrated SQLite database that the tests of one module share."""
    with database_url("sqlite") as url:
        database = Database(url)
        yield database
        database.dispose()


@pytest.fixture(scope="module")
def embedded_application() -> Iterator[Flask]:
    """The same, for what has nothing to do with databases."""
    with application_on("sqlite") as application:
        yield application


@pytest.fixture
def embedded(embedded_application: Flask) -> Client:
    """Requests of an administrator about HTTP itself."""
    return Client(embedded_application.test_client())


@pytest.fixture
def shared(shared_application: Flask) -> Client:
    """Requests of an administrator, among the leftovers of other tests: use names of your own."""
    return Client(shared_application.test_client())


@pytest.fixture
def two_workers(connection_url: str) -> Iterator[RunningServer]:
    """The real service with two worker processes."""
    with running_service(connection_url, workers=2) as server:
        yield server


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    """A stand-in of the API server of an empty Kubernetes cluster."""
    with running_api_server() as running:
        yield running


@pytest.fixture(scope="module")
def served() -> Iterator[RunningServer]:
    """The real service, which the tests of one module share."""
    with database_url("sqlite") as connection, running_service(connection, workers=1) as running:
        yield running


@pytest.fixture
def around(served: RunningServer, api_server: ApiServer, tmp_path: Path) -> Surroundings:
    """What the synchronisation stands between: that API server, and a cluster of its own in the service."""
    return Surroundings(api_server, served.url, unique("cluster"), tmp_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, which the tests of one module share: take pages of your own."""
    path = chromium()
    if path is None:
        pytest.skip(MISSING)
    with running_browser(path) as running:
        yield running


@pytest.fixture(scope="module")
def demonstration() -> Iterator[RunningServer]:
    """The demonstration, which the tests of one module share."""
    with (
        database_url("sqlite", has_examples=True) as connection,
        running_service(connection, workers=1, arguments=["--demo"]) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def hosted_url(embedded_application: Flask) -> Iterator[str]:
    """Where a thread of this process serves a database that the tests of one module share."""
    with hosted(embedded_application) as url:
        yield url


@pytest.fixture(scope="module")
def examples_url() -> Iterator[str]:
    """Where a thread of this process serves the example clusters, which the tests of one module share."""
    with (
        database_url("sqlite", has_examples=True) as connection,
        application_at(connection) as application,
        hosted(application) as url,
    ):
        yield url


@pytest.fixture(scope="session")
def control_planes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Path | None], ControlPlane]]:
    """A real Kubernetes by the folder of its release, each started once: the tests of a session share it."""
    with ExitStack() as stack:

        @cache
        def running(release: Path | None) -> ControlPlane:
            if release is None:
                pytest.skip(f"NOT RUN: {VARIABLE} names no folder with {', '.join(PROGRAMS)}")
            return stack.enter_context(running_control_plane(release, tmp_path_factory.mktemp("kubernetes")))

        yield running


@pytest.fixture(scope="session")
def control_plane(control_planes: Callable[[Path | None], ControlPlane]) -> ControlPlane:
    """A real Kubernetes: `clear` it before use."""
    return control_planes(programs())


@pytest.fixture
def kubernetes(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A real Kubernetes without nodes and pods."""
    control_plane.clear()
    yield control_plane
    control_plane.clear()


@pytest.fixture(params=releases() or [None], ids=lambda folder: folder and folder.name)
def any_kubernetes(
    request: pytest.FixtureRequest, control_planes: Callable[[Path | None], ControlPlane]
) -> Iterator[ControlPlane]:
    """A real Kubernetes of each release there is, without nodes and pods."""
    running = control_planes(request.param)
    running.clear()
    yield running
    running.clear()
