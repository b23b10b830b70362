"""A connection that is lost before anything was stored is replaced, and the claim is done all the same."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from placement.storage.database import Database
from tests.client import Client


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_lost_while_the_labels_are_registered(database: Database, api: Client):
    host = api.provider("host", VCPU=1)
    ended = []

    def end(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if "INSERT INTO projects" in statement and not ended:
            driver: Any = connection.connection.dbapi_connection
            ended.append(driver.get_backend_pid())
            with database.read() as other:
                other.execute(sa.select(sa.func.pg_terminate_backend(ended[0])))

    sa.event.listen(database.engine, "before_cursor_execute", end)
    assert api.claim({host: {"VCPU": 1}}).status_code == 204
    assert ended
