"""The user of the service needs rights on data only: another user owns the tables and upgrades them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError

from placement.storage import schema
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_at
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest
from tests.server import database_url

RIGHTS = Path(__file__).resolve().parents[1] / "etc" / "database-rights.sql"


@pytest.fixture
def urls() -> Iterator[tuple[str, str]]:
    """An upgraded database, as its owner and as the user with the rights of the sample."""
    owner, user = (f"{kind}_{uuid.uuid4().hex}" for kind in ("owner", "user"))
    with database_url("postgresql", migrated=False) as url:
        parsed = sa.make_url(url)
        engine = sa.create_engine(parsed, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for name in (owner, user):
                connection.execute(sa.text(f"CREATE ROLE {name} LOGIN"))
            connection.execute(sa.text(f"ALTER DATABASE {parsed.database} OWNER TO {owner}"))
            connection.execute(sa.text(f"SET ROLE {owner}"))
            connection.execute(sa.text(RIGHTS.read_text().replace("TO placement;", f"TO {user};")))
        both = [parsed.set(username=name).render_as_string(hide_password=False) for name in (owner, user)]
        database = Database(both[0])
        schema.upgrade(database)
        database.dispose()
        yield both[0], both[1]


def test_the_service_works_with_rights_on_data(urls: tuple[str, str]):
    with application_at(urls[1]) as application:
        api = Client(application.test_client())
        root = api.provider("root", VCPU=8)
        api.claim({root: {"VCPU": 1}})
        cluster_of(api, "n1")
        assert api.put(f"{CLUSTER}/pods/default/web", pod_manifest()).status_code == 201
        assert api.delete(f"{CLUSTER}/pods/default/web").status_code == 204
        assert api.get("/ext/v1/audit").json["events"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (id integer)",
        "DROP TABLE allocations",
        "ALTER TABLE allocations ADD COLUMN mine integer",
        "TRUNCATE audit_records",
    ],
)
def test_it_changes_no_table(urls: tuple[str, str], statement: str):
    engine = sa.create_engine(urls[1], poolclass=sa.NullPool)
    with engine.connect() as connection, pytest.raises(ProgrammingError):
        connection.execute(sa.text(statement))
