"""Counts and plans on small clouds with zones, closed hosts and purposes are those of a naive cloud."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests import naive_cloud
from tests.client import Client
from tests.conftest import application_on, compatible, with_options
from tests.naive_cloud import GPU, PURPOSE, Cloud, Host, Request, Server, random_cloud, random_request

ZONES = {"z1": "11111111-0000-4000-8000-000000000000", "z2": "22222222-0000-4000-8000-000000000000"}
WATCHED = {"small": Request({"VCPU": 1, "MEMORY_MB": 1}), "gpu": Request({"VCPU": 1, GPU: 1})}
COUNTS, PLANS = 24, 18
# Clouds where servers have a choice of hosts for several purposes.
FEW = (6, 19, 34, 35, 37, 42)
MANY = sorted(set(range(50)) - set(FEW))
OWNER = {"project_id": "p", "user_id": "u"}


@pytest.fixture(scope="module")
def service() -> Iterator[Client]:
    """A service that knows the purpose, and watches two kinds."""
    watch = [f"{name} {query_of(request)}" for name, request in WATCHED.items()]
    settings = with_options(compatible(), "capacity", watch=watch)
    settings = with_options(settings, "planning", purpose=[PURPOSE])
    with application_on("sqlite", settings=settings) as application:
        client = Client(application.test_client())
        assert client.put(f"/resource_classes/{GPU}").status_code in (201, 204)
        yield client


def query_of(request: Request) -> str:
    resources = ",".join(f"{name}:{amount}" for name, amount in request.amounts.items())
    zone = {} if request.zone is None else {"member_of": ZONES[request.zone]}
    return urlencode({"resources": resources, **zone}, safe=":,")


class Stage:
    """A naive cloud that a service has as well."""

    def __init__(self, service: Client, cloud: Cloud) -> None:
        self.service, self.cloud = service, cloud
        self._gpus: dict[str, str] = {}
        self.uuids = {host.name: self._add(host) for host in cloud.hosts.values()}
        self.names = {uuid: name for name, uuid in self.uuids.items()}
        for server in cloud.servers.values():
            self._claim(server)
        # Servers came before their hosts closed.
        for host in cloud.hosts.values():
            traits = [PURPOSE] * host.kept + ["COMPUTE_STATUS_DISABLED"] * host.closed
            service.carry(self.uuids[host.name], *traits)

    def _add(self, host: Host) -> str:
        flat = {name: amount for name, amount in host.amounts.items() if name != GPU}
        root = self.service.provider(host.name, **flat)
        if GPU in host.amounts:
            self._gpus[host.name] = self.service.provider(
                f"{host.name}-gpu", root, **{GPU: host.amounts[GPU]}
            )
        if host.zone is not None:
            self.service.join(root, ZONES[host.zone])
        return root

    def _held(self, server: Server, host: str) -> dict[str, dict[str, int]]:
        held: dict[str, dict[str, int]] = {}
        for name, amount in server.amounts.items():
            held.setdefault(self._gpus[host] if name == GPU else self.uuids[host], {})[name] = amount
        return held

    def _claim(self, server: Server) -> None:
        is_migration = server.fixed and len(server.hosts) == 1
        owner = {**OWNER, "consumer_type": "MIGRATION" if is_migration else "INSTANCE"}
        resources: dict[str, dict[str, int]] = {}
        for host in server.hosts:
            resources |= self._held(server, host)
        if not server.asked or len(server.hosts) > 1:
            answer = self.service.claim(resources, server.uuid, **owner)
        else:
            # The service chooses a host; a move to the own one keeps the request.
            query = query_of(Request(server.amounts, server.zone))
            body = {**owner, "consumer_uuid": server.uuid, "query": query}
            answer = self.service.post("/ext/v1/claims", body)
            assert answer.status_code == 201, answer.text
            body = self.service.allocations(resources, answer.json["consumer_generation"], **owner)
            path = f"/allocations/{server.uuid}"
            answer = self.service.put(path, body, **{"X-Placement-Move": "true"})
        assert answer.status_code == 204, answer.text

    def clear(self) -> None:
        """Take all of it away again."""
        for server in self.cloud.servers:
            self.service.delete(f"/allocations/{server}")
        for provider in (*self._gpus.values(), *self.uuids.values()):
            assert self.service.delete(f"/resource_providers/{provider}").status_code == 204


@pytest.fixture
def stage(service: Client, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The random cloud of a number."""
    stage = Stage(service, random_cloud(random.Random(request.param)))
    yield stage
    stage.clear()


CLOUDS = [
    *FEW,
    *(pytest.param(number, marks=pytest.mark.thorough) for number in MANY),
]
clouds = pytest.mark.parametrize("stage", CLOUDS, indirect=True, ids=str)


@clouds
def test_as_many_fit_as_the_naive_cloud_counts(stage, request):
    chance = random.Random(request.node.name)
    for _ in range(COUNTS):
        wanted, opened = random_request(chance), chance.random() < 0.3
        cloud = Cloud(stage.cloud.hosts, stage.cloud.servers, opened)
        kind = {"querystring": query_of(wanted)}
        body = {"kinds": {"it": kind}, "by": ["host"], "closed": opened}
        found = stage.service.post("/ext/v1/capacity", body).json["kinds"]["it"]
        offering = cloud.offering(wanted)
        total = {name: found["total"][name] for name in ("lower", "upper", "hosts", "taking")}
        count = cloud.room_for(wanted)
        taking = sum(cloud.room(host, wanted) > 0 for host in offering)
        assert total == {"lower": count, "upper": count, "hosts": len(offering), "taking": taking}, wanted
        by_host = {each["name"]: each["lower"] for each in found["hosts"]}
        assert by_host == {host.name: max(0, cloud.room(host, wanted)) for host in offering}, wanted


Goal = tuple[dict[str, Any], Callable[[Cloud], bool], int]


def random_goal(chance: random.Random, cloud: Cloud) -> Goal:
    """A goal as the service takes it, whether a cloud meets it, and how many moves it takes at least."""
    kind = chance.choice(("empty", "empty", "free", "fit"))
    if kind == "empty":
        hosts = chance.sample(sorted(cloud.hosts), chance.choice((1, 1, 2)))
        leaving = sum(any(host in hosts for host in each.hosts) for each in cloud.servers.values())
        return {"empty": hosts}, lambda state: all(map(state.is_empty, hosts)), leaving
    if kind == "free":
        wanted = len(cloud.empty_hosts()) + 1
        return {"free": 1}, lambda state: len(state.empty_hosts()) >= wanted, 1
    request, count = random_request(chance), chance.randint(1, 2)
    goal = {"fit": {"querystring": query_of(request), "count": count}}
    return goal, lambda state: state.room_for(request) >= count, 0


@clouds
def test_plans_are_possible_and_as_short_and_careful_as_the_naive_cloud_knows(stage, request):
    chance = random.Random(request.node.name)
    for _ in range(PLANS):
        cloud = Cloud(stage.cloud.hosts, stage.cloud.servers, chance.random() < 0.2)
        goal, is_met, least = random_goal(chance, cloud)
        answer = stage.service.post("/ext/v1/plans", {"goal": goal, "closed": cloud.opened})
        assert answer.status_code == 200, answer.text
        _check(stage, cloud, answer.json, is_met, least)


def _check(stage: Stage, cloud: Cloud, plan: Any, is_met: Callable[[Cloud], bool], least: int) -> None:
    moves = [(each["consumer"], stage.names[each["to_host"]]) for each in plan["moves"]]
    assert [stage.names[each["from_host"]] for each in plan["moves"]] == [
        cloud.servers[server].hosts[0] for server, _ in moves
    ]
    after = naive_cloud.last(cloud, moves)
    assert after is not None, "a move is not possible"
    assert plan["complete"] or plan["why"]
    fewest = naive_cloud.fewest_moves(cloud, is_met)
    if plan["reached"]:
        assert is_met(after)
        assert fewest is not None
        assert len(moves) >= fewest
        if fewest == least or (plan["goal"] == "fit" and plan["wanted"] == 1):
            assert len(moves) == fewest
        assert naive_cloud.better_target(cloud, moves, is_met) is None
        if len(moves) == 1 and plan["goal"] == "empty":
            _check_target(cloud, *moves[0], is_met)
    elif plan["complete"]:
        assert fewest is None
    _check_watched(cloud, after, plan, stage)


def _check_target(cloud: Cloud, server: str, to: str, is_met: Callable[[Cloud], bool]) -> None:
    """Check that the only move goes where least is kept for others, and there to the fullest host."""
    mover = cloud.servers[server]

    def rank(host: Host) -> tuple[int, float]:
        return cloud.burden(mover, host), -cloud.share(host, mover.amounts)

    able = []
    for host in cloud.hosts.values():
        after = None if host.name in mover.hosts else cloud.after(server, host.name)
        if after is not None and is_met(after):
            able.append(rank(host))
    assert rank(cloud.hosts[to]) == min(able)


def _check_watched(cloud: Cloud, after: Cloud, plan: Any, stage: Stage) -> None:
    """Check what the plan says of the watched kinds, which never count closed hosts."""
    before = Cloud(cloud.hosts, cloud.servers)
    for placement in plan["placements"]:
        (host,) = {stage.names[uuid] for uuid in placement if uuid in stage.names}
        amounts: dict[str, int] = {}
        for each in placement.values():
            amounts |= each["resources"]
        after = after.with_request(Request(amounts), host)
    assert all(after.free(host, name) >= 0 for host, each in after.hosts.items() for name in each.amounts)
    found = {each["kind"]: (each["before"]["lower"], each["after"]["lower"]) for each in plan["watched"]}
    later = Cloud(after.hosts, after.servers)
    assert found == {
        name: (before.room_for(request), later.room_for(request)) for name, request in WATCHED.items()
    }
