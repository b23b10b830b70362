"""Every half hour one process samples how much is in use; pages show the last day as lines."""

from __future__ import annotations

import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from placement.engine.forest import fleet as fleet_module
from placement.health import Health
from placement.http.registry import registry_of
from placement.pods.services.views import HostViews
from placement.providers import use_history
from placement.providers.use_history import SLOT_SECONDS, Point, UseHistory
from placement.storage import tables
from placement.storage.database import Database
from placement.web.day_lines import day_line
from tests.browser import drawn, findings, page_of
from tests.client import Client
from tests.patience import eventually
from tests.server import RunningServer, hosted
from tests.two_fleets import ADMIN, OPERATOR, fleet

NOON = 1_800_014_400
SECRET = "batch"


def history_of(application: Flask) -> UseHistory:
    found: UseHistory = registry_of(application)[UseHistory]
    return found


def rows(database: Database) -> list[Any]:
    with database.read() as connection:
        return connection.execute(sa.select(tables.use_samples).order_by("taken_at", "block")).all()


def words(page: str) -> list[str]:
    """What the lines of a page say."""
    return [html.unescape(text) for text in re.findall(r'<svg class="day".*?<title>(.*?)</title>', page)]


@pytest.fixture(autouse=True)
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are looked at when all samples are taken."""
    monkeypatch.setattr(use_history, "time", SimpleNamespace(time=lambda: NOON + 10 * 86_400))


@pytest.fixture
def hosts(api: Client) -> list[str]:
    """Two hosts in cluster edge, one in no cluster, and a pool of storage; 3 of 16 VCPU of the first."""
    assert api.put("/ext/v1/clusters/edge").status_code == 201
    aggregate = api.get("/ext/v1/clusters/edge").json["aggregate"]
    made = [api.provider(name, VCPU={"total": 8, "allocation_ratio": 2.0}) for name in ("a", "b", "c")]
    for host in made[:2]:
        api.join(host, aggregate)
    api.carry(api.provider("pool", DISK_GB=1000), "MISC_SHARES_VIA_AGGREGATE")
    api.offer(api.provider("core", made[0]), PCPU=2)
    assert api.claim({made[0]: {"VCPU": 3}}).status_code == 204
    return made


def test_a_half_hour_is_sampled_once_by_all_processes(
    application: Flask, other: Client, database: Database, hosts: list[str], monkeypatch: pytest.MonkeyPatch
):
    first, second = history_of(application), history_of(other.http.application)
    first.sample(NOON)
    taken = rows(database)
    assert {row.taken_at for row in taken} == {NOON}
    # Whatever is used by now, and although each believes that it is the first.
    assert other.claim({hosts[1]: {"VCPU": 8}}).status_code == 204
    second.sample(NOON + SLOT_SECONDS - 1)
    second._write(NOON)
    assert rows(database) == taken
    second.sample(NOON + SLOT_SECONDS)
    assert {row.taken_at for row in rows(database)} == {NOON, NOON + SLOT_SECONDS}


def test_workers_sample_by_themselves(two_workers: RunningServer, connection_url: str):
    database = Database(connection_url)
    eventually(True, lambda: bool(rows(database)))
    assert all((row.taken_at % SLOT_SECONDS, row.block) == (0, -1) for row in rows(database))
    database.dispose()


@pytest.mark.one_database
def test_a_process_that_is_not_well_leaves_it_to_others(application: Flask, database: Database):
    health = registry_of(application)[Health]
    health._sample()
    assert rows(database) == []
    health.look()
    health._sample()
    assert [row.block for row in rows(database)] == [-1]


@pytest.mark.parametrize("apart", [-61.0, 61.0])
def test_nothing_is_sampled_or_removed_while_the_database_has_another_clock(
    application: Flask, database: Database, hosts: list[str], monkeypatch: pytest.MonkeyPatch, apart: float
):
    history = history_of(application)
    history.sample(NOON)
    taken = rows(database)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "seconds_apart", lambda _: apart)
        history.sample(NOON + 400 * 86_400)
    assert rows(database) == taken
    history.sample(NOON + SLOT_SECONDS)
    assert {row.taken_at for row in rows(database)} == {NOON, NOON + SLOT_SECONDS}


def test_a_day_is_kept_and_no_more(application: Flask, database: Database, hosts: list[str]):
    for slot in range(60):
        history_of(application).sample(NOON + slot * SLOT_SECONDS + 7)
    times = sorted({row.taken_at for row in rows(database)})
    assert times == [NOON + slot * SLOT_SECONDS for slot in range(11, 60)]
    assert len(history_of(application).of_groups()[None]["VCPU"]) == 49


def times(database: Database) -> list[int]:
    """When the samples were taken, in slots since noon."""
    return sorted({(row.taken_at - NOON) // SLOT_SECONDS for row in rows(database)})


@pytest.mark.parametrize("days", [-400, -2, -1, 1, 2, 400])
@pytest.mark.parametrize("wrong", [1, 6, 47])
def test_a_clock_that_jumps_loses_no_sample(
    application: Flask,
    database: Database,
    hosts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    wrong: int,
):
    """Of the day before the jump, also on SQLite, which has no second clock that tells of it."""
    history, slots = history_of(application), 48 * days

    def sample(slot: int) -> None:
        history.sample(NOON + slot * SLOT_SECONDS)

    for slot in range(50):
        sample(slot)
    for slot in range(50, 50 + wrong):
        sample(slot + slots)
        assert set(range(slot - 48, 50)) <= set(times(database))
    # The clock is right again: the line of the day has a gap.
    back = 50 + wrong
    sample(back)
    monkeypatch.setattr(use_history, "time", SimpleNamespace(time=lambda: NOON + back * SLOT_SECONDS))
    shown = {(point.taken_at - NOON) // SLOT_SECONDS for point in history.of_groups()[None]["VCPU"]}
    assert {slot for slot in shown if slot <= 49} == set(range(back - 48, 50))
    assert max(shown) == back
    # A day later nothing is left of the time when it was wrong.
    for slot in range(back, back + 49):
        sample(slot)
    assert times(database) == list(range(back, back + 49))


@pytest.mark.one_database
def test_samples_are_bounded_where_no_day_is_whole(application: Flask, database: Database, hosts: list[str]):
    for day in range(8):
        for slot in range(47):
            history_of(application).sample(NOON + (48 * day + slot) * SLOT_SECONDS)
    taken = times(database)
    assert len(taken) <= 4 * 49
    assert taken[-47:] == list(range(48 * 7, 48 * 7 + 47))


def test_samples_say_what_the_api_says_however_hosts_are_spread_over_rows(
    application: Flask, api: Client, hosts: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fleet_module, "_TREES_OF_A_BLOCK", 2)
    history = history_of(application)
    history.sample(NOON)
    (edge,) = api.get("/ext/v1/clusters?include=use").json["clusters"]
    used = {name: round(100 * each["used"] / each["capacity"]) for name, each in edge["resources"].items()}
    days = history.of_groups()
    assert {name: [point.percent for point in day] for name, day in days["edge"].items()} == {
        name: [percent] for name, percent in used.items()
    }
    assert days.keys() == {None, "edge", "none"}
    assert days[None]["VCPU"] == [(NOON, 6)]
    listed = api.get("/ext/v1/hosts").json["hosts"]
    assert len(listed) == 3
    registry = registry_of(application)
    for host in listed:
        id_ = registry[HostViews].show(host["uuid"], lambda _: None).root.id
        assert {name: day[0].percent for name, day in history.of_host(id_).items()} == {
            name: round(100 * each["used"] / each["capacity"]) for name, each in host["resources"].items()
        }
    assert history.of_host(10**9) == history.of_host(0) == {}


def test_a_host_that_came_later_has_no_history_of_a_former_one(
    application: Flask, api: Client, hosts: list[str]
):
    history, registry = history_of(application), registry_of(application)
    former = registry[HostViews].show(hosts[2], lambda _: None).root.id
    history.sample(NOON)
    assert api.delete(f"/resource_providers/{hosts[2]}").status_code == 204
    later = registry[HostViews].show(api.provider("c", VCPU=8), lambda _: None).root.id
    history.sample(NOON + SLOT_SECONDS)
    assert (len(history.of_host(former)["VCPU"]), len(history.of_host(later)["VCPU"])) == (1, 1)
    assert [point.percent for point in history.of_groups()["edge"]["VCPU"]] == [9, 9]


@pytest.mark.one_database
def test_pages_show_the_day(application: Flask, api: Client, hosts: list[str]):
    history = history_of(application)
    history.sample(NOON)
    assert words(api.get("/ui/").text) == words(api.get(f"/ui/hosts/{hosts[0]}").text) == []
    assert api.claim({hosts[0]: {"VCPU": 5}}).status_code == 204
    for slot in (1, 2, 5):
        history.sample(NOON + slot * SLOT_SECONDS)
    said = "since 12:00 UTC: 50 % at 14:30 UTC, lowest 19 %, highest 50 %"
    assert f"VCPU of a, {said}" in words(api.get(f"/ui/hosts/{hosts[0]}").text)
    shown = words(api.get("/ui/").text)
    assert "VCPU of edge, since 12:00 UTC: 25 % at 14:30 UTC, lowest 9 %, highest 25 %" in shown
    assert "VCPU of all hosts, since 12:00 UTC: 17 % at 14:30 UTC, lowest 6 %, highest 17 %" in shown


def test_a_line_has_gaps_and_ends_with_the_last_sample():
    points = [Point(NOON + slot * SLOT_SECONDS, 10 * slot) for slot in (0, 1, 3, 14)]
    assert 'd="M34 100h0L35 93M37 79h0M48 0h0"' in day_line(points, "x")
    day = [Point(NOON + slot * SLOT_SECONDS, 40) for slot in range(49)]
    assert "x, last 24 hours: 40 % at 12:00 UTC, lowest 40 %, highest 40 %" in day_line(day, "x")
    assert not day_line(points[:3], "x")
    assert not day_line(None, "x")


def test_a_bound_token_sees_the_history_of_its_clusters(tmp_path: Path):
    with fleet(tmp_path, ["edge", SECRET]) as found:
        history = history_of(found.api.http.application)
        for slot in range(4):
            history.sample(NOON + slot * SLOT_SECONDS)
        everything, own = (words(found.api.as_(token).get("/ui/").text) for token in (OPERATOR, ADMIN))
        assert any(SECRET in text for text in everything)
        assert own
        assert not any(SECRET in text for text in own)
        # The sum of all hosts that it sees is that of its cluster.
        whole = [text.replace("all hosts", "edge") for text in own if "PCPU of all hosts," in text]
        assert whole
        assert set(whole) <= set(own)


@pytest.mark.one_database
def test_lines_can_be_read_in_a_browser(application: Flask, hosts: list[str], browser: Any):
    for slot in range(49):
        history_of(application).sample(NOON + slot * SLOT_SECONDS)
    with hosted(application) as url, page_of(browser, url) as (page, complaints):
        for path in ("/ui/", f"/ui/hosts/{hosts[0]}"):
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                drawn(page, path)
                assert page.locator(".day").first.is_visible()
                assert findings(page) == []
        assert complaints == []
