"""The forest of a process is never half of something, and never older than the database, whatever happens."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask

from placement.engine.domain.errors import Unavailable
from placement.http.registry import Registry, registry_of
from placement.providers import view
from placement.providers.view import ForestKeeper
from placement.storage.database import Database
from placement.storage.history import Horizon
from tests.client import Client
from tests.conftest import application_of
from tests.server import database_url

VCPU = "/allocation_candidates?resources=VCPU:1"


@pytest.fixture
def registry(application: Flask) -> Registry:
    # What goes wrong is answered as it would be in production.
    application.config["PROPAGATE_EXCEPTIONS"] = False
    found: Registry = registry_of(application)
    return found


def body(api: Client, query: str = VCPU) -> dict[str, Any]:
    answer = api.get(query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json)


def count(api: Client, query: str = VCPU) -> int:
    return len(body(api, query)["allocation_requests"])


@contextmanager
def another_process(database: Database) -> Iterator[Client]:
    """A second application on the same database, with a forest of its own."""
    with application_of(database) as application:
        yield Client(application.test_client())


def test_a_tree_whose_member_left_a_deleted_one_has_all_its_providers(api):
    old = api.provider("old")
    member = api.provider("member", parent=old, VCPU=8)
    assert set(body(api)["provider_summaries"]) == {old, member}
    new = api.provider("new")
    moved = {"name": "member", "parent_provider_uuid": new}
    assert api.at("1.39").put(f"/resource_providers/{member}", moved).status_code == 200
    assert api.delete(f"/resource_providers/{old}").status_code == 204
    assert set(body(api)["provider_summaries"]) == {new, member}


def test_a_reload_that_breaks_off_is_begun_again(api, registry, monkeypatch):
    api.provider("first", VCPU=10)
    assert count(api) == 1
    feed = registry[ForestKeeper].feed
    whole = feed.snapshot

    @contextmanager
    def broken() -> Iterator[Any]:
        def lost() -> Iterator[Any]:
            raise Unavailable("connection lost")
            yield

        with whole() as (horizon, snapshot):
            yield horizon, snapshot._replace(inventories=lost())

    monkeypatch.setattr(view, "_RELOAD_ABOVE", 0)
    monkeypatch.setattr(feed, "snapshot", broken)
    api.provider("second", VCPU=10)
    assert api.get(VCPU).status_code == 503
    monkeypatch.undo()
    assert count(api) == 2


def test_changes_that_could_not_be_read_are_read_again(api, registry, monkeypatch):
    api.provider("first", VCPU=10)
    assert count(api) == 1
    assert api.at("1.39").put("/traits/CUSTOM_X").status_code == 201
    api.provider("second", VCPU=10)

    def busy(connection: object) -> None:
        raise Unavailable("no database connection became free in time")

    monkeypatch.setattr(view.names, "load", busy)
    assert api.get(VCPU).status_code == 503
    monkeypatch.undo()
    assert count(api) == 2
    assert count(api, f"{VCPU}&required=CUSTOM_X") == 0


def test_names_that_are_newer_than_the_look_are_known(api, database, registry, monkeypatch):
    """Between looking and reading another process offers a class of its own making."""
    host = api.provider("host", VCPU=10)
    assert count(api) == 1
    api.offer(host, VCPU=11)
    feed = registry[ForestKeeper].feed
    look: Callable[[int, Sequence[int], int], object] = feed.look
    with another_process(database) as other:

        def look_and_be_slow(horizon: int, clusters: Sequence[int], _most_documents: int) -> object:
            # As if very many had changed: what they are is read after the look.
            found = look(horizon, clusters, 0)
            monkeypatch.undo()
            assert other.put("/resource_classes/CUSTOM_NEW").status_code == 201
            assert other.at("1.39").put("/traits/CUSTOM_NEW").status_code == 201
            other.offer(host, VCPU=11, CUSTOM_NEW=3)
            other.carry(host, "CUSTOM_NEW")
            return found

        monkeypatch.setattr(feed, "look", look_and_be_slow)
        (summary,) = body(api)["provider_summaries"].values()
        assert summary["resources"]["CUSTOM_NEW"] == {"capacity": 3, "used": 0}


def test_a_database_that_was_restored_is_believed(tmp_path):
    """Under a running service the file becomes what it was before: an online restore."""
    with database_url("sqlite") as url:
        database = Database(url)
        with another_process(database) as api:
            api.provider("kept", VCPU=10)
            assert count(api) == 1
            live, backup = sqlite3.connect(str(database.url.database)), sqlite3.connect(tmp_path / "backup")
            live.backup(backup)
            for number in range(5):
                api.provider(f"lost{number}", VCPU=10)
            assert count(api) == 6
            backup.backup(live)
            live.close()
            backup.close()
            assert count(api) == 1
            api.provider("new", VCPU=10)
            assert count(api) == 2
        database.dispose()


def test_many_changes_are_taken_over_at_once_with_who_is_new_or_moved(api, database, registry, monkeypatch):
    """Whether many or few, what the next search sees is what was committed; classes and traits are named."""
    hosts = [api.provider(f"host{number}", VCPU=10) for number in range(6)]
    moving = api.provider("moving", parent=hosts[0], VCPU=3)
    assert count(api) == 7
    monkeypatch.setattr(view, "_MANY", 2)
    with another_process(database) as other:
        assert other.put("/resource_classes/CUSTOM_NEW").status_code == 201
        assert other.at("1.39").put("/traits/CUSTOM_NEW").status_code == 201
        for host in hosts[:4]:
            other.offer(host, VCPU=20, CUSTOM_NEW=3)
            other.carry(host, "CUSTOM_NEW")
        other.offer(hosts[4])
        other.claim({hosts[1]: {"VCPU": 9}})
        place = {"name": "moving", "parent_provider_uuid": hosts[5]}
        assert other.at("1.39").put(f"/resource_providers/{moving}", place).status_code == 200
        added = other.provider("added", VCPU=10)
        assert body(api) == body(other)
        assert body(api, f"{VCPU}5") == body(other, f"{VCPU}5")
        carriers = body(api, f"{VCPU}&required=CUSTOM_NEW")
        assert carriers == body(other, f"{VCPU}&required=CUSTOM_NEW")
        assert set(carriers["provider_summaries"]) == set(hosts[:4])
    assert {*hosts[:4], hosts[5], moving, added} == set(body(api)["provider_summaries"])


def test_many_changes_that_are_read_from_another_server_are_not_believed(api, registry, monkeypatch):
    hosts = [api.provider(f"host{number}", VCPU=10) for number in range(3)]
    assert count(api) == 3
    monkeypatch.setattr(view, "_MANY", 2)
    for host in hosts:
        api.offer(host, VCPU=1)

    states = registry[ForestKeeper].feed.states

    def of_another(ids: Sequence[int], horizon: int, *rest: Any) -> Any:
        return states(ids, Horizon(horizon, "another 1/1"), *rest)

    monkeypatch.setattr(registry[ForestKeeper].feed, "states", of_another)
    assert api.get(f"{VCPU}5").status_code == 503
    monkeypatch.undo()
    assert count(api, f"{VCPU}5") == 0


def test_a_forest_of_nobody_takes_over_many_at_once(api, registry, monkeypatch):
    assert count(api) == 0
    monkeypatch.setattr(view, "_MANY", 2)
    for number in range(3):
        api.provider(f"host{number}", VCPU=1)
    assert count(api) == 3
