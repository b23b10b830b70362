"""Any tree of providers is drawn: cores with their owners where there are some, boxes and bars else."""

from __future__ import annotations

import json
import re
import uuid

import pytest
from flask.testing import FlaskClient

from tests.client import Client, unique

pytestmark = pytest.mark.one_database


def tree(api: Client) -> tuple[str, list[str]]:
    """A host with two cores of two threads and a card, as its uuid and those of what is below it."""
    root = api.provider(unique(), MEMORY_MB=1024)
    below = [
        api.provider(unique(), parent=root, PCPU=2),
        api.provider(unique(), parent=root, PCPU=2),
        api.provider(unique(), parent=root, VGPU=4, SRIOV_NET_VF=8),
    ]
    return root, below


def claim(api: Client, resources: dict[str, dict[str, int]], project: str) -> str:
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {provider: {"resources": amounts} for provider, amounts in resources.items()},
        "project_id": project,
        "user_id": "somebody",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    assert api.call("PUT", f"/allocations/{consumer}", body).status_code == 204
    return consumer


def test_drawings_of_one_page_share_their_signs_and_each_has_a_legend(shared: Client):
    hosts = [shared.provider(unique(), MEMORY_MB=1024) for _ in range(2)]
    # Consumers on one host only, so that letters by host would differ.
    others = [claim(shared, {hosts[0]: {"MEMORY_MB": 1}}, "other") for _ in range(3)]
    others += [claim(shared, {hosts[1]: {"MEMORY_MB": 1}}, "other")]
    both = claim(shared, {host: {"MEMORY_MB": 256} for host in hosts}, "both")
    page = shared.http.get(f"/ui/consumers/{both}").text
    sign = re.compile(r'<li data-owner="([^"]+)"><i class="cpu owner (c\d+)">([A-Z]+)</i>')
    legends = [sign.findall(text) for text in page.split('class="legend"')[1:]]
    assert len(legends) == 2, "one for each drawing"
    assert all((both, "c0", "A") in legend for legend in legends), "the consumer of the page is the first"
    known = {owner: (colour, letter) for legend in legends for owner, colour, letter in legend}
    assert known.keys() == {both, *others}
    assert len({letter for _, letter in known.values()}) == len(known), "no sign has two meanings"
    for owner, (colour, _) in known.items():
        bars = re.findall(f'<rect class="(c[0-9]+)" data-owner="{owner}"', page)
        assert set(bars) == {colour}


def test_cores_have_owners_and_cards_have_bars(shared: Client):
    root, (core, other, card) = tree(shared)
    first = claim(shared, {core: {"PCPU": 1}, card: {"VGPU": 1}}, "one")
    second = claim(shared, {root: {"MEMORY_MB": 256}}, "two")
    shared.provider(unique(), parent=root, PCPU={"total": 2, "reserved": 2})
    http: FlaskClient = shared.http
    drawn = http.get(f"/ui/hosts/{root}?format=json").json["drawn"]
    counts = ("threads", "free_threads", "cores", "free_cores", "reserved_cores")
    assert [drawn[name] for name in counts] == [6, 3, 2, 1, 1], "a reserved core counts as on the map"
    held = {owner["consumer_uuid"]: (owner["project_id"], owner["amounts"]) for owner in drawn["owners"]}
    assert held == {
        first: ("one", {"PCPU": 1, "VGPU": 1}),
        second: ("two", {"MEMORY_MB": 256}),
    }
    page = http.get(f"/ui/hosts/{root}").text
    assert page.count(f'data-owner="{first}"') == 4, "a thread, a device, the legend and a row"
    assert page.count(f'id="p-{card}"') == 1
    assert "1 of 4 vGPU" in page
    # The page of a provider inside is that of its host, with the provider marked.
    inside = http.get(f"/ui/hosts/{card}").text
    assert f'<div class="box provider marked" id="p-{card}">' in inside
    assert 'class="core marked"' in http.get(f"/ui/hosts/{other}").text


def test_a_host_says_first_what_is_overfull(shared: Client):
    name = unique()
    root = shared.provider(name, DISK_GB=10)
    claim(shared, {root: {"DISK_GB": 8}}, "one")
    said = f'<p class="problem">DISK_GB of {name} is overfull: 8 of 5 GiB in use.</p>'
    assert said not in shared.http.get(f"/ui/hosts/{root}").text
    generation = shared.get(f"/resource_providers/{root}").json["generation"]
    body = {"resource_provider_generation": generation, "inventories": {"DISK_GB": {"total": 5}}}
    assert shared.call("PUT", f"/resource_providers/{root}/inventories", body).status_code == 200
    assert said in shared.http.get(f"/ui/hosts/{root}").text


def test_what_lacks_is_marked_where_it_lacks(shared: Client):
    root, (core, _, card) = tree(shared)
    query = f"lacks={card},VGPU,3+missing&lacks={core},PCPU,1+missing&lacks={root},,no+trait"
    page = shared.http.get(f"/ui/hosts/{root}?{query}").text
    assert page.count("✗ 3 missing") == 1
    assert 'class="core lacking"' in page
    assert "✗ no trait" in page
    # What an address says is text, whoever wrote it.
    odd = shared.http.get(f"/ui/hosts/{root}?lacks={root},,<script>alert(1)</script>").text
    assert "<script>alert" not in odd


def test_a_host_is_drawn_as_it_would_be_after_a_claim(shared: Client):
    root, (core, other, card) = tree(shared)
    claim(shared, {core: {"PCPU": 1}}, "one")
    wanted = {core: {"PCPU": 1}, other: {"PCPU": 2}, card: {"SRIOV_NET_VF": 3}}
    path, query = f"/ui/hosts/{root}/drawing", {"claim": json.dumps(wanted)}
    drawn = shared.http.get(path, query_string=query).text
    assert drawn.count('<i class="cpu held c1" data-owner="this claim"') == 3 + 3, "threads and VFs"
    assert "3 of 8 VF" in drawn
    assert "this claim" not in shared.http.get(path).text
    for odd in ("", "{}", '{"x": {"PCPU": 1}}', f'{{"{core}": {{"PCPU": "1"}}}}'):
        assert shared.http.get(path, query_string={"claim": odd}).status_code == 400, odd


def test_a_host_with_nothing_is_drawn(shared: Client):
    root = shared.provider(unique())
    page = shared.http.get(f"/ui/hosts/{root}")
    assert page.status_code == 200
    assert "Nothing is allocated here." in page.text


def test_a_search_leaves_out_the_parts_of_a_host_that_it_finds(shared: Client):
    name = unique()
    root = shared.provider(name)
    part = shared.provider(f"{name}/part", parent=root)
    for text, found in ((name, root), (f"{name}/part", part)):
        assert shared.http.get(f"/ui/search?q={text}").location.endswith(f"/ui/hosts/{found}")
