"""Pods that come at the same time through two workers heed each other, on whichever nodes they come."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Flask

from placement.app import build
from placement.pods.store.writer import PodWriter
from placement.storage.database import Database
from tests.claimants import Caller
from tests.client import Client
from tests.conftest import compatible
from tests.kubernetes import node_manifests
from tests.pod_invariants import check
from tests.pod_rules import ruled_pod
from tests.server import RunningServer

CLIENTS = 12
CLUSTER = "/ext/v1/clusters/edge"
NODES = {f"{zone}{number}": zone for zone in "abc" for number in range(3)}


def prepare(url: str) -> Caller:
    caller = Caller(url)
    assert caller.call("PUT", CLUSTER).ok
    for name, zone in NODES.items():
        assert caller.call("PUT", f"{CLUSTER}/nodes/{name}", node_manifests(name, labels={"zone": zone})).ok
    return caller


def at_once(url: str, pods: Iterable[tuple[str, dict[str, Any]]]) -> Counter[int]:
    """The statuses of placing all pods through many clients."""

    def place(pod: tuple[str, dict[str, Any]]) -> int:
        name, said = pod
        path = f"{CLUSTER}/pods/default/{name}"
        return int(Caller(url).call("PUT", path, ruled_pod(name, said)).status_code)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return Counter(pool.map(place, pods))


def by_zone(caller: Caller) -> dict[str, Counter[str]]:
    """How many pods of which series, by the beginning of their names, are in each zone."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in caller.call("GET", f"{CLUSTER}/pods").json()["pods"]:
        found[NODES[pod["node"]]][pod["name"].split("-")[0]] += 1
    return found


def end_all(caller: Caller) -> None:
    for pod in caller.call("GET", f"{CLUSTER}/pods").json()["pods"]:
        assert caller.call("DELETE", f"{CLUSTER}/pods/default/{pod['name']}").status_code == 204


def test_pods_that_come_at_once_heed_each_other(two_workers: RunningServer, database: Database) -> None:
    caller = prepare(two_workers.url)
    # Of a series that keeps apart there is one in each zone.
    lone = {"labels": {"app": "lone"}, "apart": [["zone", {"app": "lone"}]]}
    statuses = at_once(two_workers.url, [(f"lone-{n}", lone) for n in range(CLIENTS)])
    assert statuses == {201: 3, 409: CLIENTS - 3}
    assert by_zone(caller) == {zone: {"lone": 1} for zone in "abc"}
    check(database, "edge")
    end_all(caller)

    # Those without rules heed those that keep them off.
    hermit = {"labels": {"app": "hermit"}, "apart": [["zone", {"app": "web"}]]}
    pods = [(f"hermit-{n}", hermit) for n in range(4)]
    pods += [(f"web-{n}", {"labels": {"app": "web"}}) for n in range(20)]
    random.Random(4).shuffle(pods)
    statuses = at_once(two_workers.url, pods)
    assert set(statuses) <= {201, 409}, statuses
    zones = by_zone(caller)
    assert all(set(counts) in ({"hermit"}, {"web"}) for counts in zones.values()), zones
    check(database, "edge")
    end_all(caller)

    # Those that are to be spread are.
    even = {"labels": {"app": "even"}, "spread": [["zone", 1, {"app": "even"}]]}
    assert at_once(two_workers.url, [(f"even-{n}", even) for n in range(14)]) == {201: 14}
    counts = sorted(counts["even"] for counts in by_zone(caller).values())
    assert counts == [4, 5, 5]
    check(database, "edge")


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "step-by-step"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves-again"])
def test_a_pod_that_keeps_others_off_comes_between_looking_and_writing(
    api: Client,
    application: Flask,
    connection_url: str,
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,
    leaves: bool,
) -> None:
    assert api.put(CLUSTER).status_code == 201
    for name in ("a0", "a1"):
        node = node_manifests(name, labels={"zone": "a"})
        assert api.put(f"{CLUSTER}/nodes/{name}", node).status_code == 201
    there = Database(connection_url)
    other = Client(build(there, compatible()).test_client())
    place, calls = PodWriter.place_at_once, []

    def with_another_before(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            hermit = ruled_pod("hermit", {"apart": [["zone", {"app": "web"}]]}, node="a1")
            assert other.put(f"{CLUSTER}/pods/default/hermit", hermit).status_code == 201
            if leaves:
                assert other.delete(f"{CLUSTER}/pods/default/hermit").status_code == 204
        return place(*given) if at_once else None

    monkeypatch.setattr(PodWriter, "place_at_once", with_another_before)
    answer = api.put(f"{CLUSTER}/pods/default/web", ruled_pod("web", {"labels": {"app": "web"}}))
    assert answer.status_code == (201 if leaves else 409), answer.text
    if not leaves:
        assert "didn't satisfy existing pods anti-affinity rules" in answer.text
    assert len(calls) == 1 + leaves
    # What is known now is enough for the next.
    cache = ruled_pod("cache", {"labels": {"app": "cache"}})
    assert api.put(f"{CLUSTER}/pods/default/cache", cache).status_code == 201
    assert len(calls) == 2 + leaves
    there.dispose()
