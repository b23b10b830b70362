"""What a real kube-scheduler writes about pods, for tenants to read, has no token in it, whatever fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from placement.storage.database import Database
from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab, lab
from tests.patience import eventually
from tests.real_kubernetes import ControlPlane
from tests.server import database_url

WRONG = "a-token-that-is-of-no-use-to-anybody-any-more"


@pytest.fixture
def connection() -> Iterator[str]:
    with database_url("sqlite") as url:
        yield url


@pytest.fixture
def around(any_kubernetes: ControlPlane, connection: str, tmp_path: Path) -> Iterator[Lab]:
    with lab(any_kubernetes, connection, tmp_path) as found:
        found.add_node("host-0")
        with found.synchronized(1):
            pass
        yield found


def readable(plane: ControlPlane) -> str:
    """All that tenants of the namespace can read of their pods, and of what happened to them."""
    return json.dumps([plane.pods(), plane.call("GET", "/api/v1/namespaces/default/events")])


def reason(plane: ControlPlane, name: str) -> str:
    """Why the pod waits, as its conditions have it."""
    conditions = (plane.pod(name) or {}).get("status", {}).get("conditions", [])
    return "; ".join(str(each.get("message")) for each in conditions)


def asked(around: Lab, token: str = TOKEN, path: str = "", **options: Any) -> dict[str, Any]:
    """The extender with this token in its address, and with a path of its own."""
    extender = around.extender(**options)
    address = extender["urlPrefix"].replace(TOKEN, token)
    return {**extender, "urlPrefix": address.replace(f"/{CLUSTER}/", f"/{path or CLUSTER}/")}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"token": WRONG}, "A known token is required"),
        ({"path": "elsewhere"}, "No cluster elsewhere found"),
        ({"filterVerb": "filters"}, "There is no such path"),
    ],
    ids=["401", "404 cluster", "404 verb"],
)
def test_what_is_refused_is_written_without_the_token(around: Lab, options: dict[str, Any], says: str):
    wait_for(around, asked(around, **options), says)


def test_a_fault_of_the_service_is_written_without_the_token(around: Lab, connection: str):
    database = Database(connection)
    with database.write() as transaction:
        for table in sa.inspect(transaction.connection).get_table_names():
            transaction.execute(sa.text(f"ALTER TABLE {table} RENAME TO {table}_gone"))
    database.dispose()
    wait_for(around, around.extender(), "")
    assert re.search(r'extender/filter" status: 50[03] ', around.server.log.read_text())


def is_explained(found: str, says: str) -> bool:
    """Whether a reason is the expected one, or has an address in it, which it must not have."""
    return bool(found) and (says in found or "://" in found)


def wait_for(around: Lab, extender: dict[str, Any], says: str) -> None:
    """Have a pod wait for that reason, and see what is written about it."""
    plane = around.kubernetes
    with plane.scheduler(extender):
        around.create_pod("web", cpus=4)
        eventually(True, lambda: is_explained(reason(plane, "web"), says))
        eventually(True, lambda: "FailedScheduling" in readable(plane))
    shown = readable(plane)
    assert TOKEN not in shown
    assert WRONG not in shown
    assert says in shown
