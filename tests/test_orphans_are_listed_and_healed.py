"""What years of use leave behind is listed by API, command and page, and only what is certain is deleted."""

from __future__ import annotations

import datetime
import json
import os
import pty
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from benchmarks.cloud import Cloud
from placement.allocations import orphans
from placement.common.clock import utcnow
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of
from tests.kubernetes import node_manifests, pod_manifest
from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, hosted

HOURS, DAYS = datetime.timedelta(hours=1), datetime.timedelta(days=1)
MIGRATION, SEVERAL, NO_AGGREGATE, NO_INVENTORY, SAME = (
    *("migration", "several_hosts"),
    *("no_aggregate", "no_inventory", "same_name"),
)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    return Cloud(60)


@pytest.fixture(scope="module")
def filled(cloud: Cloud) -> Iterator[tuple[Flask, Database]]:
    """The service with the cloud in it, all of which is a day and more old."""
    with database_url("sqlite") as url:
        database = Database(url)
        with application_of(database) as application:
            cloud.fill(sender(Client(application.test_client())))
            grow_older(database, 2 * DAYS)
            yield application, database
        database.dispose()


def sender(api: Client) -> Any:
    def send(method: str, path: str, body: Any) -> Any:
        answer = api.call(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json if answer.data else None

    return send


def grow_older(database: Database, by: datetime.timedelta, *consumers: str) -> None:
    """Let consumers have been created so long ago, all unless some are named."""
    table = tables.consumers
    changed = sa.update(table).values(created_at=utcnow() - by, updated_at=None)
    with database.write() as transaction:
        transaction.execute(changed.where(table.c.uuid.in_(consumers)) if consumers else changed)


@pytest.fixture
def run(application: Flask) -> Iterator[Run]:
    """`placement orphans` on this service."""
    yield from running(application)


def running(application: Flask) -> Iterator[Run]:
    from tests.commands import run

    with hosted(application) as url:
        yield lambda *arguments, **more: run(
            "--url", url, "--token", "admin", "orphans", *map(str, arguments), **more
        )


def rows(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def by_kind(listed: list[dict[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for each in listed:
        found.setdefault(each["kind"], []).append(each["uuid"])
    return found


def what_is_left(cloud: Cloud) -> dict[str, list[str]]:
    return {
        MIGRATION: sorted(each.uuid for each in cloud.migrations),
        SEVERAL: [cloud.on_two_hosts.uuid],
        NO_AGGREGATE: [host.root.uuid for host in cloud.hosts if not host.aggregates],
        NO_INVENTORY: [cloud.without_inventory.uuid],
    }


# What is listed.


def test_the_api_lists_what_years_of_use_leave_behind(filled, cloud: Cloud):
    api = Client(filled[0].test_client())
    page = api.get("/ext/v1/orphans").json
    assert by_kind(page["orphans"]) == what_is_left(cloud)
    assert page["next"] is None
    first, several = page["orphans"][0], page["orphans"][4]
    assert first["consumer"]["age_seconds"] > DAYS.total_seconds()
    assert first["suspicious"]
    held = next(each for each in cloud.migrations if each.uuid == first["uuid"])
    assert [host["name"] for host in first["hosts"]] == [held.host]
    assert several["host_count"] == len(several["hosts"]) == 2


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_pages_are_together_the_whole(filled, cloud: Cloud, limit: int):
    api = Client(filled[0].test_client())
    listed, after = [], ""
    while after is not None:
        page = api.get(f"/ext/v1/orphans?limit={limit}{f'&after={after}' if after else ''}").json
        assert len(page["orphans"]) <= limit
        listed += page["orphans"]
        after = page["next"]
    assert by_kind(listed) == what_is_left(cloud)


def test_a_page_looks_at_a_bounded_number_of_consumers(filled, cloud: Cloud, monkeypatch):
    monkeypatch.setattr(orphans, "_WINDOW", 50)
    api = Client(filled[0].test_client())
    found, after, pages = [], "", 0
    while after is not None:
        page = api.get(f"/ext/v1/orphans?kind={SEVERAL}{f'&after={after}' if after else ''}").json
        found += page["orphans"]
        after, pages = page["next"], pages + 1
    assert [each["uuid"] for each in found] == [cloud.on_two_hosts.uuid]
    assert pages == -(-(len(cloud.consumers) + len(cloud.migrations) + 1) // 50)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("kind=migratio", "kind"),
        ("after=migration", "after"),
        ("after=migration:1", "after"),
        ("after=no_aggregate:x", "after"),
        ("after=no_aggregate:" + "9" * 40, "after"),
        ("after=none:1", "after"),
        ("kind=migration&after=same_name:A", "after"),
        ("limit=0", "limit"),
        ("kinds=migration", "kinds"),
    ],
)
def test_a_bad_parameter_is_named(filled, query: str, field: str):
    answer = Client(filled[0].test_client()).get(f"/ext/v1/orphans?{query}")
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == field


def test_a_young_migration_is_not_suspicious(api: Client, database: Database):
    host = api.provider("one", VCPU=8)
    young, old, unknown = (str(uuid.uuid4()) for _ in range(3))
    for consumer in (young, old, unknown):
        assert api.claim({host: {"VCPU": 1}}, consumer, consumer_type="MIGRATION").status_code == 204
    grow_older(database, 0.9 * HOURS, young)
    grow_older(database, 1.1 * HOURS, old)
    with database.write() as transaction:
        table = tables.consumers
        transaction.execute(sa.update(table).where(table.c.uuid == unknown).values(created_at=None))
    listed = api.get(f"/ext/v1/orphans?kind={MIGRATION}").json["orphans"]
    assert {each["uuid"]: each["suspicious"] for each in listed} == {young: False, old: True, unknown: True}
    ages = {each["uuid"]: each["consumer"]["age_seconds"] for each in listed}
    assert ages[unknown] is None
    assert ages[old] >= 3960


def test_shared_storage_is_no_host(api: Client):
    rack = str(uuid.uuid4())
    one, two = api.provider("one", VCPU=8), api.provider("two", VCPU=8)
    pool = api.provider("pool", DISK_GB=100)
    below = api.provider("pool-part", pool, CUSTOM_X=5) if api.put("/resource_classes/CUSTOM_X") else ""
    api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
    for provider in (one, two):
        api.join(provider, rack)
    on_one, on_two = str(uuid.uuid4()), str(uuid.uuid4())
    shared = {pool: {"DISK_GB": 1}, below: {"CUSTOM_X": 1}}
    assert api.claim({one: {"VCPU": 1}, **shared}, on_one).status_code == 204
    assert api.claim({one: {"VCPU": 1}, two: {"VCPU": 1}, **shared}, on_two).status_code == 204
    assert by_kind(api.get("/ext/v1/orphans").json["orphans"]) == {SEVERAL: [on_two]}


def test_parts_of_one_host_are_one_host(api: Client):
    root = api.provider("host", DISK_GB=10)
    part, api_rack = api.provider("host-numa0", root, VCPU=8), str(uuid.uuid4())
    api.join(root, api_rack)
    assert api.claim({root: {"DISK_GB": 1}, part: {"VCPU": 1}}).status_code == 204
    assert api.get("/ext/v1/orphans").json == {"orphans": [], "next": None}


def test_a_provider_offers_what_is_below_it(api: Client):
    root = api.provider("agent")
    bridge = api.provider("agent-bridge", root)
    api.provider("agent-bridge-port", bridge, VCPU=1)
    empty = api.provider("agent-empty", root)
    api.join(root, str(uuid.uuid4()))
    assert by_kind(api.get("/ext/v1/orphans").json["orphans"]) == {NO_INVENTORY: [empty]}


def test_names_that_mysql_takes_for_one(api: Client):
    rack = str(uuid.uuid4())
    names = ["Node-1", "node-1", "nodé-1", "node-1 ", "NODE-2", "Straße", "strase", "strasse", "plain"]
    for name in names:
        api.join(api.provider(name, VCPU=1), rack)
    listed = api.get(f"/ext/v1/orphans?kind={SAME}").json["orphans"]
    groups = [[each["name"] for each in orphan["alike"]] for orphan in listed]
    assert groups == [["Node-1", "node-1", "node-1 ", "nodé-1"], ["Straße", "strase"]]
    assert all(orphan["uuid"] is None for orphan in listed)


def test_nodes_and_pods_of_a_cluster_are_none(api: Client):
    cluster = "/ext/v1/clusters/edge"
    assert api.put(cluster, {}).status_code == 201
    assert api.put(f"{cluster}/nodes/n1", node_manifests("n1")).status_code == 201
    assert api.put(f"{cluster}/pods/default/p", pod_manifest(name="p")).status_code == 201
    assert api.get("/ext/v1/orphans").json["orphans"] == []


def test_a_token_of_a_cluster_sees_none(filled):
    answer = Client(filled[0].test_client(), token="someone").get("/ext/v1/orphans")
    assert answer.status_code == 403
    assert "placement:orphans:list" in detail(answer)


# The command.


@pytest.fixture
def listed_file(cloud: Cloud, tmp_path: Path) -> Callable[..., Path]:
    """A file with the servers of the cloud, with some changes, made an hour after them."""

    def write(servers: list[dict[str, Any]] | None = None) -> Path:
        file = tmp_path / "servers.json"
        file.write_text(json.dumps(cloud.instances() if servers is None else servers))
        return file

    return write


@pytest.fixture(scope="module")
def ask(filled) -> Iterator[Run]:
    """`placement orphans` on the cloud, which must not be changed."""
    yield from running(filled[0])


def test_the_command_lists_the_same(ask: Run, cloud: Cloud):
    listed = rows(ask("-f", "json"))
    assert by_kind(listed) == what_is_left(cloud)
    assert {each["heal"] for each in listed if each["kind"] == MIGRATION} == {"yes"}
    table = ask().stdout
    assert cloud.without_inventory.name in table
    assert " 2d " in table
    one = ask("--kind", NO_INVENTORY, "-f", "value", "-c", "what").stdout
    assert one.split() == [cloud.without_inventory.name]


def test_an_empty_service_has_none(run: Run):
    ended = run()
    assert ended.stdout.strip() == ""
    assert ended.stderr.strip() == "No orphans."
    assert ended.returncode == 0


def test_nova_and_the_service_agree(ask: Run, listed_file, cloud: Cloud):
    ended = ask("--instances", listed_file(), "-f", "json")
    assert by_kind(rows(ended)) == what_is_left(cloud)
    assert ended.stderr == ""
    several = next(each for each in rows(ended) if each["kind"] == SEVERAL)
    assert several["name"] == cloud.on_two_hosts.name
    assert cloud.on_two_hosts.host in several["why"]


def server(number: int, status: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    return {"ID": str(uuid.UUID(int=number)), "Name": f"s{number}", "Status": status, **more}


def test_what_only_one_of_them_has(ask: Run, listed_file, cloud: Cloud):
    gone = cloud.instances()[:3]
    held = server(1, Host="cmp-1"), server(2, "ERROR", Host="cmp-2"), server(3, "SHUTOFF")
    rest = (
        server(4, "SHELVED_OFFLOADED", Host=None),
        server(5, "BUILD", Host=None),
        server(6, "ERROR", Host=None),
        server(7, "ERROR"),
    )
    file = listed_file([*cloud.instances()[3:], *held, *rest])
    found = by_kind(rows(ask("--instances", file, "-f", "json")))
    assert found["not_in_nova"] == sorted(each["ID"] for each in gone)
    assert found["not_here"] == [each["ID"] for each in held]
    missing = rows(ask("--instances", file, "--kind", "not_here", "-f", "json"))
    assert missing[0]["name"] == "s1"
    assert missing[0]["hosts"] == ["cmp-1"]
    unknown = rows(ask("--instances", file, "--kind", "not_in_nova", "-f", "json"))
    assert {host for each in unknown for host in each["hosts"]} <= {host.name for host in cloud.hosts}
    assert {each["heal"] for each in unknown} == {"yes"}


def test_a_short_list_will_do(ask: Run, listed_file, cloud: Cloud):
    names = ("ID", "Name", "Status", "Networks", "Flavor")
    short = [{name: each[name] for name in names} for each in cloud.instances()]
    assert by_kind(rows(ask("--instances", listed_file(short), "-f", "json"))) == what_is_left(cloud)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("+----+", "is not JSON"),
        ('{"servers": []}', "is not a list of servers"),
        ("[[]]", "[0]: has no ID"),
        ('[{"Name": "x"}]', "[0]: has no ID"),
        ('[{"ID": 7}]', "[0]: has no ID"),
        ('[{"ID": "web-1"}]', "[0].ID: is not a UUID"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_of_something_else_is_refused(ask: Run, tmp_path: Path, text: str, words: str):
    file = tmp_path / "servers.json"
    file.write_text(text)
    ended = ask("--instances", file, "--heal", "--yes")
    assert ended.returncode == 1
    assert words in ended.stderr
    assert str(file) in ended.stderr
    assert ended.stdout == ""


def test_a_missing_file_and_odd_options_are_refused(ask: Run, tmp_path: Path, listed_file):
    assert "No such file" in ask("--instances", tmp_path / "none").stderr
    assert ask("--made", "someday", "--instances", listed_file()).returncode == 2
    assert ask("--instances", "-", input="[]").returncode == 2
    assert ask("--older-than", "soon").returncode == 2
    assert ask("--kind", "not_here").returncode == 2
    assert ask("--heal", "web-1").returncode == 2
    limited = ask("--heal", "--limit", "1", "--yes")
    assert limited.returncode == 2
    assert "--limit: cannot be given with --heal" in limited.stderr


def a_cut_list(cloud: Cloud) -> list[dict[str, Any]]:
    """All servers and others that make it a thousand, as the end of a page of nova."""
    servers = cloud.instances()
    return [*servers, *(server(number, "BUILD") for number in range(1, 1001 - len(servers)))]


def six_percent_less(cloud: Cloud) -> list[dict[str, Any]]:
    servers = cloud.instances()
    return servers[-(-len(servers) * 6 // 100) :]


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        (a_cut_list, "exactly 1,000 servers"),
        (six_percent_less, "more than 5 %"),
        (lambda _: [], "it has no servers"),
    ],
)
def test_a_list_that_is_not_whole_is_compared_and_heals_nothing(
    ask: Run, filled, cloud: Cloud, listed_file, servers, words: str
):
    file = listed_file(servers(cloud))
    ended = ask("--instances", file, "-f", "json")
    assert words in ended.stderr
    assert ended.returncode == 0
    assert not any(each["heal"] == "yes" for each in rows(ended))
    healing = ask("--instances", file, "--heal", "--yes", "-f", "json")
    assert healing.returncode == 1
    assert words in healing.stderr
    assert "nothing was deleted" in healing.stderr
    assert rows(healing) == rows(ended)
    api = Client(filled[0].test_client())
    assert all(api.used_by(each.uuid) for each in [*cloud.migrations, *cloud.consumers[:100]])


def test_four_percent_less_is_enough(ask: Run, cloud: Cloud, listed_file):
    servers = cloud.instances()
    ended = ask("--instances", listed_file(servers[len(servers) * 4 // 100 :]), "-f", "json")
    assert ended.stderr == ""


def test_a_list_from_the_future_heals_nothing(ask: Run, listed_file):
    ended = ask("--instances", listed_file([]), "--made", "2999-01-01T00:00Z", "--heal", "--yes")
    assert "in the future" in ended.stderr
    assert ended.returncode == 1


# The deletion.


class Records:
    """A small cloud of one host: servers that nova knows, and what may be deleted."""

    def __init__(self, api: Client, database: Database, folder: Path) -> None:
        self.api, self.database = api, database
        self.host = api.provider("host", VCPU=100)
        api.join(self.host, str(uuid.uuid4()))
        self.servers = [self.claimed() for _ in range(30)]
        self.ghost, self.migration = self.claimed(), self.claimed("MIGRATION")
        grow_older(database, 3 * DAYS)
        self.file = folder / "servers.json"
        self.list_servers(*self.servers)

    def claimed(self, kind: str = "INSTANCE", **labels: str) -> str:
        consumer = str(uuid.uuid4())
        answer = self.api.claim({self.host: {"VCPU": 1}}, consumer, consumer_type=kind, **labels)
        assert answer.status_code == 204
        return consumer

    def untyped(self) -> str:
        consumer, body = str(uuid.uuid4()), Client.allocations({self.host: {"VCPU": 1}})
        del body["consumer_type"]
        assert self.api.at("1.37").put(f"/allocations/{consumer}", body).status_code == 204
        return consumer

    def list_servers(self, *uuids: str, **more: Any) -> None:
        servers = [{"ID": each, "Name": each[:8], "Status": "ACTIVE", **more} for each in uuids]
        self.file.write_text(json.dumps(servers))

    def held(self, *consumers: str) -> list[bool]:
        return [bool(self.api.used_by(each)) for each in consumers]


@pytest.fixture
def records(api: Client, database: Database, tmp_path: Path) -> Records:
    return Records(api, database, tmp_path)


def healed(ended: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {each["consumer"]: each["state"] for each in rows(ended)}


def test_what_nothing_needs_is_deleted(run: Run, records: Records):
    ended = run("--instances", records.file, "--heal", "--yes", "-f", "json")
    assert healed(ended) == {records.ghost: "deleted", records.migration: "deleted"}
    assert ended.returncode == 0
    assert records.held(records.ghost, records.migration, *records.servers) == [False, False] + [True] * 30
    assert records.api.used(records.host) == {"VCPU": 30}
    again = run("--instances", records.file, "--heal", "--yes")
    assert again.stderr.strip() == "No orphans that --heal deletes."
    assert again.returncode == 0


def test_only_the_named_ones_are_deleted(run: Run, records: Records):
    ended = run("--instances", records.file, "--heal", records.ghost.upper(), "--yes", "-f", "json")
    assert healed(ended) == {records.ghost: "deleted"}
    assert records.held(records.ghost, records.migration) == [False, True]


def test_a_named_one_that_is_no_orphan_stays_and_the_others_go(run: Run, records: Records):
    absent, some = str(uuid.uuid4()), records.servers[0]
    named = (some, absent, records.ghost)
    ended = run("--instances", records.file, "--heal", *named, "--yes", "-f", "json")
    assert healed(ended) == {some: "kept", absent: "kept", records.ghost: "deleted"}
    assert ended.returncode == 1
    assert records.held(some, records.ghost) == [True, False]


def test_without_a_list_only_old_migrations_are_deleted(run: Run, records: Records):
    ended = run("--heal", "--yes", "-f", "json")
    assert healed(ended) == {records.migration: "deleted"}
    assert records.held(records.ghost) == [True]


@pytest.mark.parametrize(("bound", "state"), [("2d", "deleted"), ("71h", "deleted"), ("73h", "kept")])
def test_the_age_that_is_given_counts(run: Run, records: Records, bound: str, state: str):
    ended = run("--heal", records.migration, "--older-than", bound, "--yes", "-f", "json")
    assert healed(ended) == {records.migration: state}
    assert records.held(records.migration) == [state == "kept"]


def test_a_day_is_the_age_unless_one_is_given(run: Run, records: Records):
    grow_older(records.database, 23 * HOURS, records.migration)
    assert healed(run("--heal", records.migration, "--yes", "-f", "json")) == {records.migration: "kept"}


def test_without_a_terminal_it_needs_yes(run: Run, records: Records):
    ended = run("--instances", records.file, "--heal", input="y\n")
    assert ended.returncode == 2
    assert "--yes: is needed" in ended.stderr
    # What would be deleted was shown.
    assert records.ghost in ended.stdout
    assert records.held(records.ghost, records.migration) == [True, True]


def test_what_changed_after_the_list_was_made_is_listed_and_stays(run: Run, records: Records):
    listing = ("--instances", records.file, "-f", "json")
    made = records.file.stat().st_mtime - 4 * DAYS.total_seconds()
    os.utime(records.file, (made, made))
    found = {each["uuid"]: each for each in rows(run(*listing)) if each["kind"] == "not_in_nova"}
    assert list(found) == [records.ghost]
    assert found[records.ghost]["heal"] == "it changed after the list was made"
    ended = run(*listing, "--heal", records.ghost, "--yes")
    assert healed(ended) == {records.ghost: "kept"}
    assert ended.returncode == 1
    # The time that is given counts, and not that of the file.
    ended = run(*listing, "--made", "2d", "--heal", records.ghost, "--yes")
    assert healed(ended) == {records.ghost: "deleted"}


def test_a_change_counts_and_not_only_the_creation(run: Run, records: Records):
    generation = records.api.consumer_generation(records.ghost)
    assert records.api.claim({records.host: {"VCPU": 2}}, records.ghost, generation).status_code == 204
    ended = run(
        *("--instances", records.file, "--made", "1h"), *("--heal", records.ghost, "--yes", "-f", "json")
    )
    assert healed(ended) == {records.ghost: "kept"}
    assert records.held(records.ghost) == [True]


def test_a_consumer_that_changes_between_list_and_deletion_stays(
    run: Run, records: Records, monkeypatch: pytest.MonkeyPatch
):
    from placement.client.commands import orphans as command

    entries = command.entries_of

    def changed_meanwhile(*given: Any) -> Any:
        yield from entries(*given)
        claimed = {records.host: {"VCPU": 3}}
        assert records.api.claim(claimed, records.ghost, 1).status_code == 204
        assert records.api.delete(f"/allocations/{records.migration}").status_code == 204

    old = records.claimed("MIGRATION")
    grow_older(records.database, 2 * DAYS, old)
    monkeypatch.setattr(command, "entries_of", changed_meanwhile)
    ended = run("--instances", records.file, "--heal", "--yes", "-f", "json")
    assert healed(ended) == {records.ghost: "conflict", records.migration: "conflict", old: "deleted"}
    assert ended.returncode == 1
    assert records.api.used_by(records.ghost) == {records.host: {"VCPU": 3}}
    assert records.held(old) == [False]


def test_a_migration_may_be_of_a_server_that_waits_for_its_confirmation(run: Run, records: Records):
    other = records.claimed("MIGRATION", project_id="another")
    grow_older(records.database, 2 * DAYS, other)
    records.list_servers(*records.servers, records.ghost, Status="VERIFY_RESIZE")
    ended = run(
        *("--instances", records.file, "--heal", records.migration, other, "--yes", "-f", "json"),
    )
    assert healed(ended) == {records.migration: "kept", other: "deleted"}
    assert records.held(records.migration, other) == [True, False]


def test_a_consumer_without_type_may_be_a_migration(run: Run, records: Records):
    others = [records.untyped() for _ in range(30)]
    untyped, young = records.untyped(), records.untyped()
    grow_older(records.database, 2 * DAYS, untyped, *others)
    grow_older(records.database, 2 * HOURS, young)
    records.list_servers(*records.servers, *others)
    naming = ("--heal", untyped, young, "--yes", "-f", "json")
    moving = [{"ID": records.servers[0], "Name": "web-1", "Status": "VERIFY_RESIZE"}]
    listed = json.loads(records.file.read_text())
    records.file.write_text(json.dumps([*listed[1:], *moving]))
    ended = run("--instances", records.file, *naming)
    assert healed(ended) == {untyped: "kept", young: "kept"}
    assert f"it may be of server {records.servers[0]} of its project" in ended.stdout
    # A server is none, whatever moves.
    ended = run("--instances", records.file, "--heal", records.ghost, "--yes", "-f", "json")
    assert healed(ended) == {records.ghost: "deleted"}
    records.list_servers(*records.servers, *others)
    ended = run("--instances", records.file, *naming)
    assert healed(ended) == {untyped: "deleted", young: "kept"}


def test_servers_without_type_count_in_how_much_a_list_lacks(run: Run, records: Records):
    """A service that nova tells no types has none of type INSTANCE, and a list may be of one project."""
    untyped = [records.untyped() for _ in range(30)]
    grow_older(records.database, 2 * DAYS, *untyped)
    records.list_servers(*records.servers, records.ghost)
    ended = run("--instances", records.file, "--heal", "--yes")
    assert "it lacks 30 of 61 consumers of type INSTANCE or without a type, more than 5 %" in ended.stderr
    assert ended.returncode == 1
    assert all(records.held(*untyped))


def test_a_server_that_was_made_during_the_listing_stays(run: Run, records: Records):
    """The time of the file is that of its end, or of a copy."""
    made = records.claimed()
    records.list_servers(*records.servers, records.ghost)
    grow_older(records.database, 2 * HOURS, made)
    naming = ("--instances", records.file, "--heal", made, "--yes", "-f", "json")
    ended = run(*naming)
    assert healed(ended) == {made: "kept"}
    assert "it changed less than --older-than ago" in ended.stdout
    assert records.held(made) == [True]
    assert healed(run(*naming, "--older-than", "1h")) == {made: "deleted"}


def test_a_migration_that_began_after_the_list_was_made_stays(run: Run, records: Records):
    unknown, newer, older = (records.claimed("MIGRATION") for _ in range(3))
    grow_older(records.database, 3 * DAYS, older)
    grow_older(records.database, 2 * HOURS, newer)
    with records.database.write() as transaction:
        table = tables.consumers
        changed = sa.update(table).where(table.c.uuid == unknown)
        transaction.execute(changed.values(created_at=None, updated_at=None))
    naming = ("--older-than", "1h", "--heal", unknown, newer, older, "--yes", "-f", "json")
    ended = run("--instances", records.file, "--made", "3h", *naming)
    assert healed(ended) == {unknown: "kept", newer: "kept", older: "deleted"}
    assert "it changed after the list was made" in ended.stdout
    # Without a list its age alone counts.
    assert healed(run(*naming)) == {unknown: "kept", newer: "deleted", older: "kept"}


def test_consumers_of_other_types_are_not_compared(run: Run, records: Records):
    lease = records.claimed("LEASE")
    grow_older(records.database, 2 * DAYS, lease)
    listed = by_kind(rows(run("--instances", records.file, "-f", "json")))
    assert listed["not_in_nova"] == [records.ghost]
    # It holds something, so nova would not be told that it does not.
    records.list_servers(*records.servers, lease)
    assert "not_here" not in by_kind(rows(run("--instances", records.file, "-f", "json")))


def test_pods_stay(run: Run, records: Records):
    api, cluster = records.api, "/ext/v1/clusters/edge"
    assert api.put(cluster, {}).status_code == 201
    assert api.put(f"{cluster}/nodes/n1", node_manifests("n1")).status_code == 201
    assert api.put(f"{cluster}/pods/default/p", pod_manifest(name="p")).status_code == 201
    (pod,) = (
        each["consumer_uuid"] for each in api.get("/ext/v1/allocations?consumer_type=POD").json["consumers"]
    )
    ended = run("--instances", records.file, "--heal", pod, records.ghost, "--yes", "-f", "json")
    assert healed(ended) == {pod: "kept", records.ghost: "deleted"}
    # Whatever its type, and however old it is.
    with records.database.write() as transaction:
        types = sa.select(tables.consumer_types.c.id).where(tables.consumer_types.c.name == "MIGRATION")
        table = tables.consumers
        changed = sa.update(table).where(table.c.uuid == pod)
        transaction.execute(changed.values(consumer_type_id=types.scalar_subquery()))
    grow_older(records.database, 9 * DAYS, pod)
    ended = run("--heal", pod, "--yes", "-f", "json")
    assert healed(ended) == {pod: "kept"}
    assert records.held(pod) == [True]


@pytest.mark.parametrize(("typed", "stays"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_it_asks_at_a_terminal(application: Flask, records: Records, typed: str, stays: bool):
    master, slave = pty.openpty()
    try:
        os.write(master, typed.encode())
        with hosted(application) as url:
            command = [sys.executable, "-m", "placement.client", "--url", url, "orphans", "--heal"]
            ended = subprocess.run(
                command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True,
                timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
        asked = os.read(master, 65536).decode()
    finally:
        os.close(master)
        os.close(slave)
    assert "Delete what 1 consumer holds? [y/N]" in asked
    # It is shown before.
    assert records.migration in ended.stdout
    assert records.held(records.migration) == [stays]
    assert ended.returncode == int(stays)


# The page.


def test_the_page_shows_what_each_kind_means(filled, cloud: Cloud):
    page = Client(filled[0].test_client()).get("/ui/orphans")
    assert page.status_code == 200
    text = page.text
    for uuid_ in (cloud.migrations[0].uuid, cloud.on_two_hosts.uuid):
        assert f'href="/ui/consumers/{uuid_}"' in text
    assert f'href="/ui/hosts/{cloud.without_inventory.uuid}"' in text
    (alone,) = (host for host in cloud.hosts if not host.aggregates)
    assert f'href="/ui/hosts/{alone.root.uuid}">{alone.name}</a>' in text
    assert "passes them by" in text
    assert ">2d</td>" in text
    assert "takes for one" not in text
    assert "No orphans" not in text


def test_the_page_of_a_kind_has_pages(filled, cloud: Cloud, monkeypatch):
    from placement.web import orphans as pages

    monkeypatch.setattr(pages, "_OF_EACH", 3)
    monkeypatch.setattr(pages, "_PAGE", 3)
    api = Client(filled[0].test_client())
    text = api.get("/ui/orphans").text
    assert "kind=migration&amp;after=" in text
    first = api.get("/ui/orphans?kind=migration&format=json").json
    assert len(first["orphans"]) == 3
    rest = api.get(f"/ui/orphans?kind=migration&after={first['next']['migration']}").text
    assert rest.count("/ui/consumers/") == len(cloud.migrations) - 3 == 1
    assert cloud.migrations[0].uuid in api.get("/ui/orphans?format=csv").text
    for query, field in (
        ("kind=none", "kind"),
        (f"after={first['next']['migration']}", "after"),
        ("kinds=migration", "kinds"),
    ):
        refused = api.get(f"/ui/orphans?{query}&format=json")
        assert refused.status_code == 400
        assert detail(refused).startswith(f"{field}: ")


def test_a_page_without_any_says_so(api: Client):
    text = api.get("/ui/orphans").text
    assert "No orphans." in text
    assert 'aria-current="page"' in text


def test_the_overview_counts_old_migrations(filled, cloud: Cloud, api: Client):
    text = Client(filled[0].test_client()).get("/ui/").text
    assert 'href="/ui/orphans"><span class="name">Orphans</span> <span class="figure">4</span>' in text
    api.provider("one", VCPU=1)
    assert "migration records older" not in api.get("/ui/").text
