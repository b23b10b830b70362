"""Seven questions of an operator with 300 hosts: each is answered rightly by commands and by pages.

An answer takes two steps at most. What is right is counted here from what the cloud was made of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from benchmarks.cloud import GPU, Cloud, CloudConsumer, CloudHost
from benchmarks.wire import Wire
from tests.browser import drawn, page_of
from tests.questions import Question, assert_readable
from tests.server import database_url, running_service

pytestmark = pytest.mark.one_database

_LARGE = {"VCPU": 32, "MEMORY_MB": 131072, "DISK_GB": 400}
_SMALL = {"VCPU": 8, "MEMORY_MB": 32768, "DISK_GB": 100}
_NIGHT_SHIFT = "night-shift"


class FilledCloud:
    """A service with the cloud, and what is true of it, counted from what it was made of."""

    def __init__(self, url: str, cloud: Cloud) -> None:
        self.url, self.cloud = url, cloud
        self.consumers = [*cloud.consumers, *cloud.migrations, cloud.on_two_hosts]
        self._held: Counter[tuple[str, str]] = Counter()
        for consumer in self.consumers:
            for provider, amounts in consumer.held.items():
                for name, amount in amounts.items():
                    self._held[provider, name] += amount
        self._smaller = {host.root.uuid for host in cloud.overfull}

    def asked(self) -> Question:
        """Return a new question to the service."""
        return Question(self.url)

    def open_hosts(self, zone: str | None = None, kinds: str = "cmp gpu nfv") -> list[CloudHost]:
        """Return the hosts that take servers, of a zone and of some kinds."""
        return [
            host
            for host in self.cloud.hosts
            if not host.is_disabled and (zone is None or zone in host.aggregates) and host.name[:3] in kinds
        ]

    def free(self, host: CloudHost, name: str) -> int:
        """Return what the root of a host has left of a class."""
        amount = host.root.inventories.get(name)
        if amount is None:
            return 0
        capacity = amount.capacity
        if name == "MEMORY_MB" and host.root.uuid in self._smaller:
            capacity = 384 * 1024 - amount.reserved
        return capacity - self._held[host.root.uuid, name]

    def room(self, host: CloudHost, resources: dict[str, int]) -> int:
        """Return how many such servers the root of a host can take."""
        return max(0, min(self.free(host, name) // amount for name, amount in resources.items()))

    def use_of_memory(self, host: CloudHost) -> float:
        """Return the used share of the memory that the host offers in all its providers."""
        capacity = used = 0
        for provider in (host.root, *host.children):
            if "MEMORY_MB" in provider.inventories:
                smaller = provider.uuid in self._smaller
                amount = provider.inventories["MEMORY_MB"]
                capacity += 384 * 1024 - amount.reserved if smaller else amount.capacity
                used += self._held[provider.uuid, "MEMORY_MB"]
        return used / capacity

    def on(self, host: CloudHost, name: str | None = None) -> list[CloudConsumer]:
        """Return the consumers of a host, or those that hold a class of it."""
        providers = {provider.uuid for provider in (host.root, *host.children)}
        return [
            consumer
            for consumer in self.consumers
            if any(
                each in providers and (name is None or name in held) for each, held in consumer.held.items()
            )
        ]


@pytest.fixture(scope="module")
def filled() -> Iterator[FilledCloud]:
    """The cloud, in a service with one worker."""
    cloud = Cloud()
    with database_url("sqlite") as connection, running_service(connection, workers=1) as server:
        cloud.fill(Wire(server.url).must)
        yield FilledCloud(server.url, cloud)


def _query(resources: dict[str, int]) -> str:
    return "resources=" + ",".join(f"{name}:{amount}" for name, amount in resources.items())


def _in_page(path: str, **parameters: str) -> str:
    return f"{path}?{urlencode(parameters)}"


# Which host is fullest?


def test_the_fullest_host_is_the_first(filled: FilledCloud):
    fullest = max(filled.cloud.hosts, key=filled.use_of_memory).name
    command = ("host", "list", "--sort-column", "memory_use", "--sort-descending", "--limit", "1")
    (row,) = filled.asked().typed_json(*command)
    assert row["name"] == fullest
    page = filled.asked().opened(_in_page("/ui/map", by="use", **{"class": "MEMORY_MB"}))
    assert page.partition("Percent")[2].split()[0] == fullest


# Why does a flavor not fit in a zone?


def test_a_zone_without_memory_is_not_blamed_for_the_zone(filled: FilledCloud):
    in_zone = [host for host in filled.cloud.hosts if "az2" in host.aggregates]
    without_gpus = [host for host in in_zone if "gpu-a100" not in host.aggregates]
    hosts = [host for host in without_gpus if not host.is_disabled]
    with_cpus = [host for host in hosts if filled.free(host, "VCPU") >= _LARGE["VCPU"]]
    assert with_cpus
    assert not any(filled.room(host, _LARGE) for host in hosts)
    counts = [len(left) for left in (in_zone, without_gpus, hosts, with_cpus)]
    places = ("member_of=az2", "member_of=!gpu-a100")
    stages = filled.asked().typed_json("explain", _query(_LARGE), *places, succeeds=False)
    assert [stage["trees"] for stage in stages[: len(counts) + 1]] == [*counts, 0]
    empty = stages[len(counts)]
    assert empty["condition"] == "131072 MEMORY_MB free"
    names = {host.name for host in hosts}
    assert {miss["resource_provider"]["name"] for miss in empty["nearest"]} <= names
    query = "&".join((_query(_LARGE), *places))
    page = filled.asked().opened(_in_page("/ui/why", kind="query", query=query))
    assert "128 GiB free MEMORY_MB, on one provider 0 of" in page
    stated = ("aggregate az2", "no aggregate gpu-a100", "open hosts", "32 vCPU free VCPU, on one provider")
    for words, count in zip(stated, counts, strict=True):
        assert f"{words} {count} of" in page
    nearest = page.partition("Nearest misses")[2]
    assert set(re.findall(r"\b\w{3}-az\d-r\d\d-u\d\d[\w.-]*org\b", nearest)) <= names


# Which servers use the GPUs of a host?


def test_the_servers_with_the_gpus_of_a_host_are_listed(filled: FilledCloud):
    host = max(filled.open_hosts(kinds="gpu"), key=lambda host: len(filled.on(host, GPU)))
    users = {consumer.uuid for consumer in filled.on(host, GPU)}
    assert users
    listed = filled.asked().typed_json("allocation", "list", "--provider", host.name)
    assert {row["consumer"] for row in listed if GPU in str(row)} == users
    page = filled.asked().opened(f"/ui/hosts/{host.root.uuid}")
    for uuid in users:
        assert uuid[:8] in page


# What changed, and by whom?


def test_a_change_is_found_by_the_name_of_the_host(filled: FilledCloud):
    host = filled.open_hosts("az3", "cmp")[3]
    path = f"/resource_providers/{host.root.uuid}/inventories/DISK_GB"
    wire = Wire(filled.url, token=f"{_NIGHT_SHIFT}:operations")
    record = host.root.inventories["DISK_GB"]._asdict() | {"allocation_ratio": 1.5, "max_unit": 3500}
    generation = int(re.findall(rb'generation": ?(\d+)', wire.must("GET", path))[0])
    wire.must("PUT", path, {"resource_provider_generation": generation, **record})
    newest = filled.asked().typed_json("audit", "--target", host.name, "--since", "1h")[0]
    assert newest["user"].startswith(_NIGHT_SHIFT)
    page = filled.asked().opened(_in_page("/ui/changes", target=host.name, since="1h"))
    assert _NIGHT_SHIFT in page


# How many more servers of a size fit?


def test_room_is_counted_on_open_hosts(filled: FilledCloud):
    room = sum(filled.room(host, _SMALL) for host in filled.open_hosts())
    assert room < sum(filled.room(host, _SMALL) for host in filled.cloud.hosts)
    (row, *_) = filled.asked().typed_json("capacity", _query(_SMALL))
    assert row["room"] == room
    page = filled.asked().opened(_in_page("/ui/room", kind="query", query=_query(_SMALL)))
    assert f"Room for {room:,} more".replace(",", " ") in page


# Can a host be emptied?


def test_a_host_is_emptied_onto_open_hosts_of_its_zone_without_gpus(filled: FilledCloud):
    host = max(filled.open_hosts("az1", "cmp"), key=lambda host: len(filled.on(host)))
    servers = {consumer.uuid for consumer in filled.on(host) if consumer.type == "INSTANCE"}
    question = filled.asked()
    moves = question.typed_json("plan", "make", "empty", host.name)
    assert {move["consumer"] for move in moves} == servers
    targets = {move["to"] for move in moves}
    assert targets <= {each.name for each in filled.open_hosts("az1", "cmp")}
    page = filled.asked().opened(_in_page("/ui/moves", goal="empty", hosts=host.name))
    assert f"{len(servers)} moves are enough" in page
    assert "gpu-" not in page


# Is the service well?


def test_the_service_says_that_it_is_well(filled: FilledCloud):
    assert "read" in filled.asked().typed("status")
    assert "Ready" in filled.asked().opened("/ui/")


# Which groups are on the map?

_DRAWN_WORDS = """
window.drawn = new Set();
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  drawn.add(String(text)); write.call(this, text, ...rest);
};
"""


def test_groups_on_the_map_have_names_that_people_know(filled: FilledCloud, browser: Any):
    known = {"az1", "az2", "az3", "nfv", "gpu-a100"}
    with page_of(browser, filled.url, viewport={"width": 1280, "height": 800}) as (page, complaints):
        page.add_init_script(_DRAWN_WORDS)
        drawn(page, "/ui/map?by=use&class=VCPU")
        page.wait_for_function("drawn.size > 3")
        written = set(page.evaluate("[...drawn]"))
        assert {"in neither", " · 2 hosts"} <= written
        names = {text for text in written if re.search("[a-z]", text) and "host" not in text}
        assert names - {"in neither"} <= known
        page.goto("/ui/")
        (card,) = (text for text in page.locator("article.card").all_inner_texts() if "neither" in text)
        assert card.splitlines()[:2] == ["Hosts in neither", "2 hosts"]
        # An aggregate without a name is called by the first digits of its UUID, with the whole as title.
        (link,) = page.locator("h3 a[title]").filter(has_text=re.compile("^[0-9a-f]{8}$")).all()
        assert link.get_attribute("title").startswith(link.inner_text())
        assert complaints == []


# Does an answer fit on a telephone?

_TABLES = """() => [...document.querySelectorAll("main .scroll")].map((around) => ({
  name: around.getAttribute("aria-label"),
  hidden: around.scrollWidth - around.clientWidth,
  heights: [...new Set([...around.querySelectorAll("tbody tr")].map((row) => Math.round(row.offsetHeight)))],
}))"""


def test_tables_of_room_and_moves_fit_a_narrow_page(filled: FilledCloud, browser: Any):
    host = next(host for host in filled.open_hosts("az1", "gpu"))
    paths = [path for path in pages(filled.cloud) if path.startswith(("/ui/room", "/ui/moves"))]
    paths += [_in_page("/ui/moves", goal="empty", hosts=host.name)]
    seen = set()
    with page_of(browser, filled.url, viewport={"width": 390, "height": 800}) as (page, complaints):
        for path in paths:
            drawn(page, path)
            for table in page.evaluate(_TABLES):
                seen.add(table["name"])
                assert table["hidden"] <= 0, (path, table)
                # Names and amounts are alike, and so are rows, up to a line more where an amount is long.
                assert max(table["heights"]) - min(table["heights"]) <= 24, (path, table)
        assert seen == {
            f"Table: {name}" for name in ("Room", "Hosts with the most room", "Moves in their order")
        }
        assert complaints == []


def pages(cloud: Cloud) -> list[str]:
    """Return every kind of page, asked of the cloud as its operator would."""
    gpu = next(host for host in cloud.hosts if host.name.startswith("gpu"))
    closed = next(host for host in cloud.hosts if host.is_disabled)
    zone = next(iter(cloud.aggregates))
    flavor = {"kind": "flavor", "vcpus": "8", "ram": "32768", "disk": "100"}
    return [
        "/ui/",
        *(_in_page("/ui/map", by="use", **{"class": name}) for name in ("VCPU", "MEMORY_MB", GPU)),
        "/ui/figures",
        _in_page("/ui/hosts", by="use", **{"class": "MEMORY_MB"}),
        f"/ui/hosts/{gpu.root.uuid}",
        f"/ui/hosts/{closed.root.uuid}",
        _in_page("/ui/why", kind="query", query=_query(_LARGE)),
        _in_page("/ui/why", kind="query", query=f"{_query(_LARGE)}&member_of={zone}"),
        _in_page("/ui/why", kind="query", query=f"{_query(_SMALL)}&limit=5"),
        _in_page("/ui/why", **flavor),
        _in_page("/ui/room", kind="query", query=_query(_SMALL)),
        _in_page("/ui/room", **flavor),
        _in_page("/ui/moves", goal="empty", hosts=gpu.name),
        _in_page("/ui/moves", goal="fit", kind="query", query=_query(_LARGE)),
        _in_page("/ui/moves", goal="defragment", **flavor),
        "/ui/consumers",
        _in_page("/ui/consumers", host=gpu.name),
        f"/ui/consumers/{cloud.on_two_hosts.uuid}",
        "/ui/orphans",
        "/ui/changes",
        "/ui/refusals",
        _in_page("/ui/search", q=gpu.name),
    ]


def test_every_page_of_the_cloud_can_be_read(filled: FilledCloud, browser: Any):
    assert_readable(browser, filled.url, pages(filled.cloud))
