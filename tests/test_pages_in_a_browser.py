"""In a real browser each page works, complains of nothing, and can be read without seeing and pointing."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa

from placement.storage import tables
from placement.storage.database import Database
from placement.web.units import number
from tests.browser import drawn, findings, page_of
from tests.client import Client
from tests.commands import run
from tests.server import RunningServer, database_url, running_service
from tests.service import Service

CLAIMED = "text=Claimed."
CLAIMS = "td.act button"
NO_HOSTS = "There are no hosts."
PAGES = {
    "/ui/": "Overview",
    "/ui/map?by=use&class=VCPU&cluster=cloud": "4 hosts, use of VCPU",
    "/ui/map?by=stranded": "22 hosts (1 closed), stranded cores",
    "/ui/figures": "Room and states of nodes",
    "/ui/hosts?by=cores": "22 hosts, free whole cores",
    "/ui/nodes/edge/edge-01": "edge/edge-01",
    "/ui/why": "Where does it fit",
    "/ui/why?kind=query&query=resouces%3DPCPU:4": "Where does it fit",
    "/ui/why?kind=query&query=resources%3DPCPU:400&cluster=edge": "Where does it fit",
    "/ui/why?kind=query&query=resources%3DPCPU:2&order_by=MostAllocated&limit=5": "Where does it fit",
    "/ui/why?kind=flavor&vcpus=4&ram=4096&specs=hw:cpu_policy%3Ddedicated&cluster=cloud": "Where does it fit",
    "/ui/why?kind=pod&cluster=edge": "Where does it fit",
    "/ui/room?kind=query&query=resources%3DPCPU:4": "How much fits",
    "/ui/room?kind=pod&cluster=edge": "How much fits",
    "/ui/moves": "Which moves would help?",
    "/ui/moves?goal=fit&kind=query&query=resources%3DPCPU:1&count=500": "Which moves would help?",
    "/ui/moves?goal=empty&hosts=cloud/compute-01": "Which moves would help?",
    "/ui/moves?goal=free&free=2&cluster=edge": "Which moves would help?",
    "/ui/moves?goal=defragment&kind=flavor&vcpus=4&ram=16384": "Which moves would help?",
    "/ui/consumers": "Consumers",
    "/ui/consumers/08ca8feb-1496-4ab3-9cc5-9c9c113f4fcf": "lsr 08ca8feb",
    "/ui/pods?cluster=edge": "Pods of cluster edge",
    "/ui/orphans": "Orphans",
    "/ui/changes": "Changes",
    "/ui/changes/1": "Change 1",
    "/ui/refusals": "What is refused at present",
    "/ui/search?q=edge-0": "“edge-0”",
}


# As a page does that is looked at again; done once the page is renewed.
RENEW = """() => new Promise((done) => {
  addEventListener("refreshed", () => done(), { once: true });
  document.dispatchEvent(new Event("visibilitychange"));
})"""
TOKEN = "token-of-the-administrator-" + "a" * 20
LEAST_CELL = 8
MAPS = ("/ui/", "/ui/map?by=use&class=VCPU")
OF_HOSTS = (
    *MAPS,
    "/ui/hosts",
    "/ui/why?kind=query&query=resources%3DVCPU:400",
    "/ui/room?kind=query&query=resources%3DVCPU:4",
    "/ui/moves?goal=free&free=2",
    "/ui/search?q=compute-00",
)
OF_OTHERS = ("/ui/why?kind=pod", "/ui/consumers", "/ui/pods", "/ui/changes", "/ui/refusals")
# Hosts and aggregates of clouds as operators have them; 14 of 512 hosts were seen as hairlines.
CLOUDS = {(0, 0): OF_HOSTS + OF_OTHERS, (512, 14): MAPS, (5000, 20): OF_HOSTS}


@contextmanager
def cloud(browser: Any, directory: Path, hosts: int, aggregates: int) -> Iterator[tuple[str, Any]]:
    """The URL of a service that demands tokens, with such hosts, and a session of the administrator."""
    tokens = directory / "tokens.yaml"
    tokens.write_text(f"{TOKEN}: {{user: administrator, project: ops, roles: [admin]}}\n")
    tokens.chmod(0o600)
    with database_url("sqlite") as url:
        fill(url, hosts, aggregates)
        settings = tokens.with_name("placement.conf")
        settings.write_text(f"[api]\nauth_strategy = token\ntokens_file = {tokens}\n")
        arguments = ["--auth", "token", "--config-file", str(settings)]
        with running_service(url, workers=1, arguments=arguments) as running:
            with page_of(browser, running.url) as (page, _):
                page.goto("/ui/sign-in")
                page.fill("[name=token]", TOKEN)
                page.click("main button")
                page.wait_for_selector("text=Sign out")
                session = page.context.storage_state()
            yield running.url, session


def fill(url: str, hosts: int, aggregates: int) -> None:
    """Write hosts in turn into aggregates, each with 64 VCPU and 256 GiB of which a part is used."""
    if not hosts:
        return
    database = Database(url)
    numbers = range(1, hosts + 1)
    stamped = {"generation": 1, "revision": 1}
    roots = [
        {"id": n, "uuid": str(uuid.UUID(int=n)), "name": f"compute-{n:04}", "root_provider_id": n, **stamped}
        for n in numbers
    ]
    offered = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
    with database.write() as transaction:
        classes = sa.select(tables.resource_classes.c.name, tables.resource_classes.c.id)
        ids = dict(tuple(row) for row in transaction.execute(classes))
        groups = [{"id": n, "uuid": str(uuid.UUID(int=10**6 + n))} for n in range(1, aggregates + 1)]
        inventories = [
            {
                "resource_provider_id": n,
                "resource_class_id": ids[name],
                "total": 64 * size,
                "max_unit": 64 * size,
                "used": 7 * n % 65 * size,
                **offered,
            }
            for n in numbers
            for name, size in (("VCPU", 1), ("MEMORY_MB", 4096))
        ]
        inside = [{"resource_provider_id": n, "aggregate_id": n % aggregates + 1} for n in numbers]
        for table, rows in (
            (tables.providers, roots),
            (tables.aggregates, groups),
            (tables.inventories, inventories),
            (tables.provider_aggregates, inside),
        ):
            transaction.execute(sa.insert(table), rows)
    database.dispose()


@pytest.mark.parametrize(("hosts", "aggregates"), CLOUDS)
def test_pages_of_clouds_as_operators_have_them(browser: Any, tmp_path: Path, hosts: int, aggregates: int):
    with cloud(browser, tmp_path, hosts, aggregates) as (url, session):
        for path in CLOUDS[hosts, aggregates]:
            with page_of(browser, url, storage_state=session) as (page, complaints):
                for theme, width in (("light", 1280), ("dark", 360)):
                    page.emulate_media(color_scheme=theme)
                    page.set_viewport_size({"width": width, "height": 800})
                    drawn(page, path)
                    assert_readable(page, width, path)
                    if path in MAPS and (hosts or path != "/ui/"):
                        assert_drawn(page, hosts)
                    elif path == "/ui/":
                        assert page.locator("main .card").count() == 3, "there are three ways to start"
                assert complaints == [], path


def assert_readable(page: Any, width: int, path: str) -> None:
    """All of it can be read, and the header has one line."""
    brand, out = (page.locator(f".top {part}").bounding_box() for part in (".brand", ".tools form button"))
    middle = out["y"] + out["height"] / 2
    assert brand["y"] <= middle <= brand["y"] + brand["height"], f"{path}: the header has two lines"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert findings(page) == [], path
    assert "`" not in page.inner_text("main"), path


def assert_drawn(page: Any, hosts: int) -> None:
    """Each host is a cell that can be seen."""
    assert int(page.get_attribute("[data-map]", "data-drawn")) == hosts
    assert int(page.get_attribute("[data-map]", "data-cell")) >= LEAST_CELL
    assert page.inner_text(".map-state") == (f"{number(hosts)} hosts." if hosts else NO_HOSTS)
    # A map of nothing has no legend, nothing to zoom, and no class to choose.
    assert page.is_visible(".map-foot") is page.is_visible("main [name=class]") is bool(hosts)


@pytest.mark.parametrize(("path", "title"), PAGES.items())
def test_each_page_of_the_demonstration(browser: Any, demonstration: RunningServer, path: str, title: str):
    with page_of(browser, demonstration.url, viewport={"width": 1280, "height": 800}) as (page, complaints):
        drawn(page, path)
        assert page.inner_text("h1").startswith(title)
        assert findings(page) == []
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 360, "height": 740})
        assert findings(page) == []
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, "the page is wider than a telephone"
        assert complaints == []


FILLED = """() => {
  const map = document.querySelector("[data-map]").fleetMap, last = map.groups.at(-1);
  return (map.left(last) + last.takes * map.view.scale) / map.canvas.clientWidth;
}"""


@pytest.mark.parametrize("width", [1280, 1600])
def test_blocks_of_a_few_hosts_fill_the_width(browser: Any, demonstration: RunningServer, width: int):
    with page_of(browser, demonstration.url, viewport={"width": width, "height": 900}) as (page, complaints):
        drawn(page, "/ui/")
        assert 0.8 < page.evaluate(FILLED) <= 1
        assert complaints == []


def test_a_flavor_shows_its_translation_and_candidates(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why?kind=flavor&cluster=cloud")
        page.fill("[name=specs]", "hw:cpu_policy=dedicated\nhw:numa_nodes=2\nhw:numa_node=1")
        page.fill("[name=image]", "hw_cpu_thread_policy=require")
        page.fill("[name=limit]", "2")
        page.click("text=Find")
        page.wait_for_selector("#found")
        assert page.inner_text("#found") == "The first 2 candidates on 2 of 4 hosts"
        assert page.inner_text(".warning").endswith("did you mean hw:numa_nodes?")
        page.click("summary:has-text('Asked with')")
        assert "dedicated_cpus" in page.inner_text("#translation pre")
        assert complaints == []


NUMA = (
    "resources_1=PCPU:4&split_1=PCPU&resources_2=MEMORY_MB:16384&group_policy=none"
    "&required_numa=HW_NUMA_ROOT&same_subtree=_numa,_1,_2"
)


def test_a_query_and_its_rows_are_kept_in_step(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why?cluster=edge")
        row, text = page.locator(".builder-row"), page.locator("[name=query]")
        row.wait_for()
        assert text.input_value() == "resources=PCPU:1", "the form can be sent as it is"
        row.locator("select").select_option("PCPU")
        row.locator("[data-field=amount]").fill("4")
        assert text.input_value() == "resources=PCPU:4"
        row.locator("[data-field=several]").check()
        page.click("text=Add a resource")
        assert row.nth(1).locator("select").input_value() == "MEMORY_MB", "no class twice"
        row.nth(1).locator("[data-field=amount]").fill("16384")
        assert row.nth(1).locator("output").inner_text() == "16 GiB"
        assert text.input_value() == "resources=MEMORY_MB:16384&resources_1=PCPU:4&split_1=PCPU"
        page.check("[data-field=numa]")
        assert text.input_value() == NUMA
        text.fill("resources=VCPU:2&prefer=CUSTOM_FAST&resources_a=DISK_GB:9&required_a=CUSTOM_SSD")
        shown = row.evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('select, input')].map(each => each.value))"
        )
        assert [each[:3] for each in shown] == [["VCPU", "2", ""], ["DISK_GB", "9", "CUSTOM_SSD"]]
        row.nth(1).locator("[data-field=remove]").click()
        assert text.input_value() == "resources=VCPU:2&prefer=CUSTOM_FAST"
        text.fill(NUMA)
        page.click("text=Find")
        page.wait_for_selector("#found")
        # The rows come with the names, which are fetched.
        row.nth(1).wait_for()
        assert page.is_checked("[data-field=numa]")
        assert row.count() == 2
        assert complaints == []


def test_rows_of_one_class_stay_two_amounts(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why?resources=PCPU:-3")
        page.wait_for_selector(".builder-row")
        assert page.input_value("[name=query]") == "resources=PCPU:-3"
        assert page.locator("[data-field=amount]:invalid").input_value() == "-3"
        page.fill(
            "[name=query]", "resources_a=PCPU:2&resources_b=PCPU:4&resources=MEMORY_MB:1024&group_policy=none"
        )
        page.locator(".builder-row [data-field=amount]").nth(1).fill("3")
        rows = "resources=MEMORY_MB:1024&resources_1=PCPU:2&resources_2=PCPU:3&group_policy=none"
        assert page.input_value("[name=query]") == rows
        page.fill("[name=query]", "resources=PCPU:2")
        page.check("[data-field=numa]")
        page.click("text=Find")
        page.wait_for_selector("#found:has-text('candidates')")
        assert complaints == []


@pytest.mark.parametrize(
    "query",
    [
        *("resources=VCPU:1&required=in:A,B", "resources_1=VCPU:1,PCPU:1", "resources=%zz", "resources=VCPU"),
        f"resources_a=VCPU:1&in_tree_a={uuid.UUID(int=1)}",
    ],
)
def test_a_query_that_rows_cannot_say_stays_as_typed(browser: Any, demonstration: RunningServer, query: str):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why")
        page.wait_for_selector(".builder-row")
        page.fill("[name=query]", query)
        assert page.locator(".builder-row").count() == 0
        assert page.is_disabled("[data-field=add]")
        assert "edit the text" in page.inner_text("[data-field=state]")
        assert page.input_value("[name=query]") == query
        assert complaints == []


def test_each_example_finds_candidates(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why")
        addresses = page.eval_on_selector_all(".examples a", "links => links.map(each => each.href)")
        assert len(addresses) >= 4
        for address in addresses:
            page.goto(address)
            assert re.match(r"(The first )?\d+ candidates? on", page.inner_text("#found")), address
        assert complaints == []


def test_a_suggestion_corrects_the_query(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, _):
        page.goto("/ui/why?kind=query&query=resources%3DPCP:2&limit=3")
        assert page.inner_text(".problem mark") == "PCP"
        page.click(".problem a")
        assert page.inner_text("#found").startswith("The first 3 candidates")
        assert page.input_value("[name=query]") == "resources=PCPU:2"
        page.goto("/ui/moves?goal=empty&hosts=compute-01")
        assert page.inner_text(".problem").startswith("Hosts to empty: there is no host")
        page.click(".problem a:has-text('cloud/compute-01')")
        assert page.input_value("[name=hosts]") == "cloud/compute-01"
        assert "would" in page.inner_text("#plan") or "enough" in page.inner_text("#plan")


def test_a_mend_leads_to_candidates(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, _):
        page.goto("/ui/why?kind=query&query=resources%3DPCPU:8&cluster=edge")
        assert page.inner_text("#found") == "Nothing fits"
        assert page.locator(".steps li").count() == 2
        # What no host has in sum is offered from several providers no more.
        page.goto("/ui/why?kind=query&query=resources%3DPCPU:61&cluster=edge")
        assert (page.inner_text("#found"), page.locator(".mend a").count()) == ("Nothing fits", 0)
        assert re.fullmatch(
            r"No host has 61 CPU of PCPU free. edge/edge-\d+ has most, 60 CPU.", page.inner_text(".mend")
        )
        page.goto("/ui/why?kind=query&query=resources%3DPCPU:8&cluster=edge")
        assert re.search(
            r"\d+ providers in edge/edge-\d+/numa-\d together have 30 CPU\.", page.inner_text(".mend")
        )
        page.click(".mend a")
        assert page.inner_text("#found") == "8 candidates on 8 hosts"


def test_a_node_that_its_pods_fill_is_not_claimed(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto(f"/ui/why?{urlencode({'query': NUMA, 'cluster': 'batch'})}")
        rows = {name: page.locator(f"tr:has(th:has-text('{name}'))") for name in ("batch-02", "batch-04")}
        full, tainted = (rows[name].inner_text() for name in rows)
        assert "19 of 16 CPU" in full
        assert "has 1 of 16 CPU and 14.9 of 62.9 GiB left beside its pods" in full
        assert "tainted" in tainted
        assert [row.locator("button").count() for row in rows.values()] == [0, 1]
        # A cordoned node takes nothing new.
        assert not page.locator("tr:has(th:has-text('batch-03'))").count()
        assert complaints == []


def test_room_says_what_is_closed_and_what_is_lost_without_some_hosts(
    browser: Any, demonstration: RunningServer
):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto(f"/ui/room?{urlencode({'query': NUMA, 'without': 'edge/edge-01'})}")
        heading, rest = page.inner_text("section[aria-labelledby=counted]").split("\n", 1)
        assert re.fullmatch(r"Room for \d+ to \d+ more, with these hosts for \d+ to \d+", heading)
        assert re.match(r"\d+ of it on tainted nodes\.", rest.strip())
        page.goto("/ui/figures")
        assert re.search(r"\d+ on tainted nodes", page.inner_text("main"))
        page.goto("/ui/room?query=resources%3DPCPU:4")
        page.click(".mend a")
        assert re.fullmatch(r"Room for \d+ more", page.inner_text("#counted"))
        assert complaints == []


def test_what_stays_is_called_by_its_name(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/moves?goal=empty&hosts=edge/edge-02,batch/batch-09")
        assert re.fullmatch(r"\d moves would empty 1 of 2 hosts", page.inner_text("#plan"))
        assert "ml/trainer-1 on batch/batch-09: no other host" in page.inner_text(
            "section[aria-labelledby=left]"
        )
        page.goto("/ui/moves?goal=fit&query=resources%3DPCPU:1")
        assert "and 1 request" in page.inner_text("section[aria-labelledby=hosts]")
        page.goto("/ui/moves?goal=free&free=1")
        assert re.search(r"\d hosts are empty already", page.inner_text("section[aria-labelledby=plan]"))
        assert complaints == []


def test_a_candidate_is_drawn_on_its_host(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why?kind=query&query=resources_1%3DPCPU:8%26split_1%3DPCPU&cluster=edge&limit=1")
        page.click("text=Draw it after the claim")
        page.wait_for_selector(".drawn .drawing")
        assert page.locator(".drawn .cpu[data-owner='this claim']").count() == 8
        assert findings(page) == []
        assert complaints == []


def test_the_command_of_a_plan_makes_the_plan_that_is_downloaded(
    browser: Any, demonstration: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    compared = 0
    with page_of(browser, demonstration.url) as (page, complaints):
        for asked in (
            "goal=empty&hosts=cloud/compute-01",
            "goal=fit&kind=query&query=resources_1%3DPCPU:4%26split_1%3DPCPU&count=8&cluster=cloud",
            "goal=fit&kind=flavor&vcpus=8&ram=16384&disk=20&specs=hw:cpu_policy%3Ddedicated&count=14&cluster=cloud",
        ):
            page.goto(f"/ui/moves?{asked}")
            if not page.locator(".take-away").count():
                assert page.inner_text("#plan") == "No move is needed"
                continue
            with page.expect_download() as download:
                page.click("text=Download the plan")
            command = shlex.split(page.input_value(".take-away input"))
            made = run(*command[1:], PLACEMENT_URL=demonstration.url)
            assert made.returncode == 0, made.stderr
            saved = json.loads((tmp_path / "plan.json").read_text())
            assert json.loads(Path(download.value.path()).read_text()) == saved
            compared += 1
        assert compared >= 2
        assert complaints == []


# The first background that is seen behind an element, and the colour of its text.
COLOURS = """(element) => {
  let behind = element;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  return [getComputedStyle(behind).backgroundColor, getComputedStyle(element).color];
}"""


def test_the_versions_of_the_api_can_be_read(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, _):
        page.goto("/docs")
        page.wait_for_selector(".swagger-ui .version")
        for version in page.query_selector_all(".swagger-ui .version"):
            assert version.evaluate(COLOURS) == ["rgb(69, 80, 95)", "rgb(255, 255, 255)"]


def test_keys_lead_everywhere(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        drawn(page, "/ui/")
        page.keyboard.press("?")
        assert page.is_visible("#help")
        page.keyboard.press("Escape")
        assert not page.is_visible("#help")
        page.keyboard.press("/")
        page.keyboard.type("edge-0")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/search**")
        page.click("text=edge/edge-05 >> nth=0")
        page.wait_for_url("**/ui/hosts/**")
        assert page.inner_text("h1") == "edge/edge-05"
        page.keyboard.press("g")
        page.keyboard.press("m")
        page.wait_for_url("**/ui/map**")
        assert complaints == []


def test_the_map_is_walked_by_arrows_and_says_who_is_there(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        drawn(page, "/ui/map?by=use&class=PCPU")
        page.focus("[data-map] canvas")
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowRight"):
            page.keyboard.press(key)
        page.wait_for_selector(".map-state:has-text('batch/batch-0')")
        said = page.inner_text(".map-state")
        assert re.fullmatch(r"batch/batch-\d\d, batch: \d+ percent, .+ of .+ CPU", said), said
        assert page.inner_text(".map-tip strong") in said
        page.keyboard.press("+")
        assert page.evaluate("""() => {
          const map = document.querySelector("[data-map]").fleetMap, { x, y } = map.place(map.cursor);
          return x >= 0 && y >= 0 && Math.abs(x + map.view.scale + 8 - map.tip.offsetLeft) < 2;
        }"""), "the chosen host is seen, with its words beside it"
        page.keyboard.press("0")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/hosts/**")
        assert page.inner_text("h1") == said.partition(",")[0]
        assert complaints == []


def test_a_map_says_that_the_session_ended(browser: Any, tmp_path: Path):
    with (
        cloud(browser, tmp_path, 0, 0) as (url, session),
        page_of(browser, url, storage_state=session) as (page, _),
    ):
        page.clock.install()
        drawn(page, "/ui/map")
        page.context.clear_cookies()
        page.clock.fast_forward("01:00")
        page.wait_for_selector(".map-state:has-text('The session has ended')")


def test_pointing_at_a_cpu_marks_all_that_its_owner_holds(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/nodes/edge/edge-01")
        owner = page.get_attribute(".cpu[data-owner]", "data-owner")
        page.hover(f".cpu[data-owner='{owner}']")
        marked = page.eval_on_selector_all(".drawing .on", "parts => parts.map(each => each.dataset.owner)")
        assert set(marked) == {owner}
        assert len(marked) == page.locator(f".drawing [data-owner='{owner}']").count() > 2
        page.hover("h1")
        assert page.locator(".drawing .on").count() == 0
        assert complaints == []


def test_a_candidate_is_claimed_by_clicking(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why")
        page.fill("[name=query]", "resources=PCPU:2")
        page.select_option("[name=cluster]", "edge")
        page.fill("[name=limit]", "3")
        page.click("text=Find")
        page.wait_for_selector("#claim")
        consumer = page.input_value("[name=consumer_uuid]")
        page.fill("[name=project_id]", "pages")
        page.locator(CLAIMS).nth(1).click()
        page.wait_for_selector(CLAIMED)
        held = Service(demonstration.url).must("GET", f"/allocations/{consumer}")
        assert [each["resources"] for each in held["allocations"].values()] == [{"PCPU": 2}]
        assert held["project_id"] == "pages"
        assert page.locator(f".drawing .on[data-owner='{consumer}']").count() >= 2
        assert findings(page) == []
        page.click("summary:has-text('Release')")
        page.click("button.danger")
        page.wait_for_selector("text=It holds nothing any more.")
        assert Service(demonstration.url).must("GET", f"/allocations/{consumer}") == {"allocations": {}}
        assert complaints == []


def test_a_pod_is_claimed_by_clicking(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/why?kind=pod&cluster=edge")
        page.click("text=Find")
        page.wait_for_selector("#found")
        node = page.locator("table tbody tr").nth(1).locator("th").inner_text()
        page.locator(CLAIMS).nth(1).click()
        page.wait_for_selector(CLAIMED)
        pod = Service(demonstration.url).must("GET", "/ext/v1/clusters/edge/pods/default/example")
        assert pod["node"] == node
        assert findings(page) == []
        page.goto("/ui/why?kind=pod&cluster=edge")
        page.click("text=Find")
        page.wait_for_selector("#found")
        page.locator(f"tbody tr:not(:has-text('{node}')) button").first.click()
        page.wait_for_selector(f".problem:has-text('{node}')")
        assert "example.org/main" in page.input_value("[name=pod]"), "the form is as it was"
        assert findings(page) == []
        page.click("text=The pod of this name as it is")
        page.wait_for_selector("h1:has-text('Pod default/example')")
        page.goto("/ui/search?q=default/exam")
        assert page.inner_text("h1") == "Pod default/example"
        page.click("summary:has-text('Release')")
        page.click("button.danger")
        page.wait_for_url("**/ui/pods?cluster=edge")
        assert complaints == []


def test_names_with_html_in_them_stay_text(browser: Any, demonstration: RunningServer):
    name = "<img src=x onerror=alert(1)>&amp;<script>alert(2)</script>"
    provider, consumer = str(uuid.uuid4()), str(uuid.uuid4())
    Service(demonstration.url).must("POST", "/resource_providers", {"name": name, "uuid": provider})
    inventories = {"VCPU": {"total": 8}}
    body = {"resource_provider_generation": 0, "inventories": inventories}
    Service(demonstration.url).must("PUT", f"/resource_providers/{provider}/inventories", body)
    claim = Client.allocations(
        {provider: {"VCPU": 2}}, None, project_id="<b>project</b>", user_id="<i>user</i>"
    )
    Service(demonstration.url).must("PUT", f"/allocations/{consumer}", claim)
    with page_of(browser, demonstration.url) as (page, complaints):
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(f"/ui/hosts/{provider}")
        assert page.inner_text("h1") == name
        for path in (
            f"/ui/consumers/{consumer}",
            "/ui/changes",
            "/ui/consumers?project_id=<b>project</b>",
            "/ui/search?q=<img",
            "/ui/map?by=use&class=VCPU",
        ):
            drawn(page, path)
            assert page.locator("main img, main script, main b, main i:not(.cpu):not(.swatch)").count() == 0
        page.focus("[data-map] canvas")
        # Hosts in no cluster come first.
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".map-tip:has-text('<img')")
        assert page.locator(".map-tip img").count() == 0
        assert complaints == []


def test_a_page_is_renewed_without_losing_what_was_opened(browser: Any, demonstration: RunningServer):
    host = Service(demonstration.url).must("GET", "/ext/v1/clusters/edge/nodes/edge-05")["tree"]["uuid"]
    consumer = str(uuid.uuid4())
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto(f"/ui/hosts/{host}")
        page.click("#providers summary")
        page.evaluate("document.activeElement.blur()")
        claim = Client.allocations({host: {"DISK_GB": 3}}, None, project_id="renewed", user_id="renewed")
        Service(demonstration.url).must("PUT", f"/allocations/{consumer}", claim)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector(f".owners tr[data-owner='{consumer}']")
        assert page.locator("#providers").get_attribute("open") is not None
        Service(demonstration.url).must("DELETE", f"/allocations/{consumer}")
        assert complaints == []


def test_parts_come_when_somebody_looks_at_them(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/nodes/edge/edge-06")
        page.locator("#history").scroll_into_view_if_needed()
        page.wait_for_selector("section[aria-labelledby=history] td:has-text('edge/edge-06')")
        assert page.locator("#providers table").count() == 0
        page.click("#providers summary")
        page.wait_for_selector("#providers td:has-text('edge/edge-06/numa-0')")
        page.locator("a[data-more]").first.click()
        page.wait_for_selector("tr[data-link] > [colspan='6'] table")
        page.evaluate("document.activeElement.blur()")
        page.evaluate(RENEW)
        assert page.locator("tr[data-link] table").count() == 1, "what was unfolded stays so"
        page.locator("a[data-more]").first.click()
        page.locator("tr[data-link]").wait_for(state="detached")
        page.goto("/ui/")
        page.locator("#fragmented").scroll_into_view_if_needed()
        page.wait_for_selector("section[aria-labelledby=fragmented] th:has-text('edge')")
        assert findings(page) == []
        assert complaints == []


def test_a_page_says_how_old_it_is(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, _):
        page.clock.install()
        for path, is_renewed in (("/ui/changes/1", False), ("/ui/changes", True)):
            page.goto(path)
            page.clock.fast_forward("05:00")
            age = "s ago" if is_renewed else "5 min ago"
            page.wait_for_selector(f"#fresh:has-text('{age}')")


def test_a_page_says_that_the_service_does_not_answer(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, _):
        page.clock.install()
        drawn(page, "/ui/")
        page.context.set_offline(True)
        page.clock.fast_forward("01:00")
        page.wait_for_selector("#old:has-text('No answer since')")
        page.wait_for_selector(".map-state:has-text('These hosts are as they were')")
        assert "line-through" in page.locator(".tile.good .figure").evaluate(
            "each => getComputedStyle(each).textDecoration"
        )
        assert findings(page) == []
        page.context.set_offline(False)
        page.clock.fast_forward("01:00")
        page.locator("#old").wait_for(state="hidden")


def test_choices_are_complete_once_somebody_comes_near(browser: Any, demonstration: RunningServer):
    with page_of(browser, demonstration.url) as (page, complaints):
        page.goto("/ui/consumers?cluster=edge")
        page.hover("form.choices button")
        page.locator("form.choices option").nth(2).wait_for(state="attached")
        page.select_option("[name=cluster]", "cloud")
        page.click("form.choices button")
        page.wait_for_url("**cluster=cloud")
        assert complaints == []
