"""What a process remembers of a database that was replaced counts no more, whoever remembers it."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from placement.http.registry import registry_of
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_on
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest

SEARCH = "/allocation_candidates?resources=VCPU:1"


@pytest.fixture
def application() -> Iterator[Flask]:
    """The service on a SQLite file of its own."""
    with application_on("sqlite") as application:
        yield application


def path_of(application: Flask) -> Path:
    """The file of the database."""
    return Path(registry_of(application)[Database].url.database)


def copied(application: Flask) -> Path:
    """A copy of the database as it is now."""
    path = path_of(application).with_suffix(".copy")
    live, copy = sqlite3.connect(path_of(application)), sqlite3.connect(path)
    live.backup(copy)
    live.close()
    copy.close()
    return path


def put_in_place(application: Flask, copy: Path) -> None:
    """Another file takes the place of the database."""
    path = path_of(application)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    copy.rename(path)


def held_of(api: Client, provider: str) -> Any:
    (summary,) = (
        found for id_, found in api.get(SEARCH).json["provider_summaries"].items() if id_ == provider
    )
    return summary["resources"]["VCPU"]["used"]


def test_searches_show_what_is_there_now(application: Flask, api: Client):
    host = api.provider("host", VCPU=10)
    copy = copied(application)
    assert api.claim({host: {"VCPU": 3}}).status_code == 204
    assert held_of(api, host) == 3
    put_in_place(application, copy)
    assert held_of(api, host) == 0


def test_pods_of_the_old_database_are_no_more(application: Flask, api: Client):
    cluster_of(api, "n1")
    copy = copied(application)
    alone = api.post(f"{CLUSTER}/pods/preview", pod_manifest()).json
    for number in range(3):
        assert api.put(f"{CLUSTER}/pods/default/p{number}", pod_manifest()).status_code == 201
    put_in_place(application, copy)
    assert api.post(f"{CLUSTER}/pods/preview", pod_manifest()).json == alone
    assert api.get(f"{CLUSTER}/pods/default/p0").status_code == 404


def test_use_is_booked_to_the_project_that_was_named(application: Flask, api: Client):
    """Projects that were registered after the copy was made have other ids in it, or none."""
    host = api.provider("host", VCPU=100)
    copy = copied(application)
    mine, yours = str(uuid.uuid4()), str(uuid.uuid4())
    for project in (mine, yours):
        assert claimed(api, host, project) == 204
    put_in_place(application, copy)
    for project in (yours, mine, mine):
        assert claimed(api, host, project) == 204
    used = {project: api.get(f"/usages?project_id={project}").json["usages"] for project in (mine, yours)}
    totals = {project: sum(group["VCPU"] for group in groups.values()) for project, groups in used.items()}
    assert totals == {mine: 2, yours: 1}


def claimed(api: Client, host: str, project: str) -> int:
    body = Client.allocations({host: {"VCPU": 1}})
    return api.put(f"/allocations/{uuid.uuid4()}", {**body, "project_id": project}).status_code


def test_a_database_that_is_gone_is_503_and_not_made_anew(application: Flask, api: Client):
    host = api.provider("host", VCPU=10)
    api.get(SEARCH)
    path = path_of(application)
    kept = path.rename(path.with_suffix(".kept"))
    answers = [api.claim({host: {"VCPU": 1}}), api.get(SEARCH), api.get("/resource_providers")]
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert all("Retry-After" in answer.headers for answer in answers)
    assert not path.exists()
    kept.rename(path)
    assert api.claim({host: {"VCPU": 1}}).status_code == 204
    assert held_of(api, host) == 1
