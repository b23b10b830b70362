"""An explanation asks first where a host is and what it is, then what it has free, as a naive one does."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

import pytest

from placement.engine.domain.explanation import (
    CountedUnit,
    Explanation,
    Reason,
    hints,
    sentences,
)
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery, RequestGroup
from placement.engine.domain.inventories import Inventory
from placement.engine.search.explanation import FoundCount, explain
from placement.engine.search.search import search
from placement.engine.search.vocabulary import Vocabulary
from tests.forests import World
from tests.naive import NaiveProvider
from tests.naive_explanations import (
    GPU,
    Host,
    Request,
    funnel,
    missing,
    offering,
    parts_served,
    place,
    rules,
)

ZONES, CLASSES = ("az1", "az2", "az3", "gpu"), ("VCPU", "MEMORY_MB", "DISK_GB")
CLOSED, FAST = "COMPUTE_STATUS_DISABLED", "CUSTOM_FAST"
UUIDS = {zone: str(uuid.UUID(int=0xA << 120 | number)) for number, zone in enumerate(ZONES)}
TOTAL = 16


def uuid_of(host: Host, gpu: int | None = None) -> str:
    """The uuid of a host, or of one of its GPUs."""
    return str(uuid.UUID(int=int(host.name.removeprefix("h")) * 100 + (0 if gpu is None else gpu + 1)))


def providers_of(hosts: Sequence[Host]) -> list[NaiveProvider]:
    """The hosts as providers, parents first."""
    found = []
    for host in hosts:
        inventories = {name: Inventory(TOTAL) for name in host.free}
        used = {name: TOTAL - free for name, free in host.free.items()}
        members = frozenset(UUIDS[zone] for zone in host.zones)
        found.append(NaiveProvider(uuid_of(host), None, inventories, used, host.traits, members))
        for at, free in enumerate(host.gpus):
            below = {GPU: Inventory(TOTAL)}, {GPU: TOTAL - free}
            found.append(NaiveProvider(uuid_of(host, at), uuid_of(host), *below))
    return found


def query_of(request: Request, hosts: Sequence[Host], limit: int | None = None) -> CandidateQuery:
    """The request as a query; the cluster is an aggregate of the root."""
    groups = []
    in_tree = next((uuid_of(host) for host in hosts if host.name == request.host), None)
    if request.amounts:
        groups.append(
            RequestGroup(
                UNSUFFIXED,
                dict(request.amounts),
                required=tuple(frozenset((trait,)) for trait in sorted(request.required)),
                forbidden=request.forbidden,
                member_of=tuple(frozenset(UUIDS[zone] for zone in any_of) for any_of in request.zones),
                forbidden_aggregates=frozenset(UUIDS[zone] for zone in request.not_in),
                in_tree=in_tree,
            )
        )
    if request.gpu:
        groups.append(RequestGroup("_gpu", {GPU: request.gpu}))
    cluster = () if request.cluster is None else (frozenset((UUIDS[request.cluster],)),)
    return CandidateQuery(
        tuple(groups),
        root_required=request.root_required,
        root_forbidden=request.root_forbidden,
        root_member_of=cluster,
        limit=limit,
    )


def explained(hosts: Sequence[Host], request: Request, limit: int | None = None) -> Explanation:
    """The real explanation, with zones by name."""
    world = World(providers_of(hosts))
    # Ids for all names in their order, also for the ones that occur nowhere.
    world.classes = {name: number for number, name in enumerate((*CLASSES, GPU), 1)}
    world.traits |= {CLOSED: 2, FAST: 3}
    world.aggregates = {UUIDS[zone]: number for number, zone in enumerate(ZONES, 1)}
    world.load()
    wanted = world.query(query_of(request, hosts), limit or 10**9)
    found = search(world.forest, world.sharing, wanted)
    called = {number: name for name, number in world.classes.items()}
    traits = {number: name for name, number in world.traits.items()}
    zones = {UUIDS[zone]: zone for zone in ZONES}
    aggregates = {number: zones[name] for name, number in world.aggregates.items()}
    words = Vocabulary(called, traits, aggregates)
    sharing = world.sharing.of(world.forest, wanted.sharing_trait)
    number = len(found.candidates)
    return explain(world.forest, sharing, wanted, FoundCount(number, number < wanted.maximum), words)


def random_hosts(chance: random.Random) -> list[Host]:
    """A small cloud: zones overlap, some hosts are closed, some have GPUs, some lack a class."""
    hosts = []
    for number in range(chance.randint(1, 9)):
        zones = {chance.choice(ZONES[:3])} | ({"gpu"} if chance.random() < 0.3 else set())
        traits = {CLOSED} if chance.random() < 0.2 else set()
        traits |= {FAST} if chance.random() < 0.5 else set()
        offered = [name for name in CLASSES if chance.random() < 0.85]
        gpus = [chance.choice((0, 4, 16)) for _ in range(chance.choice((0, 0, 1, 2)))]
        free = {name: chance.randint(0, TOTAL) for name in offered}
        hosts.append(Host(f"h{number + 1}", frozenset(zones), frozenset(traits), free, tuple(gpus)))
    return hosts


def random_request(chance: random.Random, hosts: Sequence[Host]) -> Request:
    """A request that states some of all that can be stated, with amounts that few hosts have."""

    def some(names: Sequence[str], share: float) -> frozenset[str]:
        return frozenset(name for name in names if chance.random() < share)

    asked = chance.sample(CLASSES, chance.randint(1, 3))
    zones = [
        frozenset(chance.sample(ZONES, chance.choice((1, 1, 2)))) for _ in range(chance.choice((0, 1, 1, 2)))
    ]
    return Request(
        {name: chance.randint(1, TOTAL) for name in asked},
        chance.choice((0, 0, 4, 16)),
        chance.choice(ZONES) if chance.random() < 0.2 else None,
        tuple(zones),
        some(ZONES, 0.15),
        chance.choice(hosts).name if chance.random() < 0.1 else None,
        some((FAST,), 0.2),
        some((CLOSED,), 0.4),
        some((FAST,), 0.2),
        some((CLOSED, FAST), 0.15),
    )


def check(hosts: Sequence[Host], request: Request, limit: int | None) -> None:
    """Compare the stages, the first empty one and the near misses with the naive ones."""
    steps, found = funnel(hosts, request), explained(hosts, request, limit)
    *stages, last = found.stages
    told = [(stage.condition.kind, stage.trees_came, stage.trees) for stage in stages]
    assert told == [(step.rule.kind, len(step.came), len(step.left)) for step in steps]
    assert last.trees == len(steps[-1].left)
    empty = next((at for at, step in enumerate(steps) if not step.left), None)
    assert found.first_empty == empty
    for stage, step in zip(stages, steps, strict=True):
        on_providers = stage.counted is CountedUnit.PROVIDERS
        assert on_providers == step.rule.is_amount
    if empty is not None:
        check_misses(hosts, request, found)
        assert len(sentences(found)) > len(found.stages)


def check_misses(hosts: Sequence[Host], request: Request, found: Explanation) -> None:
    """Compare the near misses: all lie in the place, and no other host is nearer."""
    by_uuid = {uuid_of(host, at): host for host in hosts for at in (None, *range(len(host.gpus)))}
    step = next(each for each in funnel(hosts, request) if not each.left)
    missed = [by_uuid[miss.provider] for miss in found.misses]
    if not step.rule.is_amount:
        # A host elsewhere is no near miss; one that lacks a trait is.
        asks_where = step.rule.kind in ("aggregates", "root_aggregates", "in_tree")
        assert missed == ([] if asks_where else list(step.came[:5]))
        for miss in found.misses:
            assert (*miss.lacking, *miss.unwanted) == (step.rule.about,)
        return
    here, name = place(hosts, request), step.rule.about
    assert all(host in here for host in missed)
    if any(step.rule.is_met(host) for host in here):
        # The parts are served, by different hosts: the ones that serve most.
        served = sorted((parts_served(host, request) for host in here), reverse=True)
        near = [number for number in served if number][:5]
        assert [parts_served(host, request) for host in missed] == near
        check_amounts(request, found, by_uuid)
        return
    lacks = sorted(lack for host in step.came for lack in missing(host, name, request))
    assert [miss.shortages[0].missing for miss in found.misses] == lacks[:5]
    if not offering(step.came, name):
        assert found.offered is not None
        assert found.offered.missing == name
        offered = {each for host in step.came for each in (*host.free, *([GPU] if host.gpus else []))}
        assert set(found.offered.names) == offered


def check_amounts(request: Request, found: Explanation, by_uuid: dict[str, Host]) -> None:
    """Compare what each host lacks of what it offers."""
    for miss in found.misses:
        host = by_uuid[miss.provider]
        for shortage in miss.shortages:
            assert shortage.reason in (Reason.AMOUNT, Reason.NO_PROVIDER)
            name = shortage.resource_class or ""
            lacks = missing(host, name, request) or [dict(request.amounts, **{GPU: request.gpu})[name]]
            assert shortage.missing == min(lacks)
        lacking = [rule for rule in rules(request) if rule.is_amount and not rule.is_met(host)]
        assert sorted(each.resource_class or "" for each in miss.shortages) == sorted(
            rule.about for rule in lacking
        )


def check_many(seed: int, count: int) -> None:
    """Check some random requests of random clouds; a limit changes no number."""
    chance = random.Random(seed)
    for _ in range(count):
        hosts = random_hosts(chance)
        check(hosts, random_request(chance, hosts), chance.choice((None, 1)))


@pytest.mark.parametrize("seed", range(40))
def test_stages_and_misses_are_those_of_the_naive_explainer(seed: int) -> None:
    check_many(seed, 25)


@pytest.mark.thorough
def test_stages_and_misses_are_right_in_very_many_cases() -> None:
    check_many(-1, 3_000)


def test_elsewhere_are_the_hosts_that_fit_without_the_place() -> None:
    chance = random.Random(7)
    for _ in range(300):
        hosts = random_hosts(chance)
        request = random_request(chance, hosts)
        found = explained(hosts, request)
        asks = request.cluster is not None or request.zones or request.host is not None
        if found.first_empty is None or not asks:
            assert found.elsewhere is None
            continue
        wide = Request(
            request.amounts,
            request.gpu,
            not_in=request.not_in,
            root_required=request.root_required,
            root_forbidden=request.root_forbidden,
            required=request.required,
            forbidden=request.forbidden,
        )
        fitting = funnel(hosts, wide)[-1].left
        assert found.elsewhere is not None
        assert found.elsewhere.hosts == len(fitting)
        counts = sorted(sum(zone in host.zones for host in fitting) for zone in ZONES)
        assert sorted(each.hosts for each in found.elsewhere.places) == [each for each in counts if each]


def test_the_margin_is_that_of_the_class_with_least_room() -> None:
    chance = random.Random(9)
    for _ in range(300):
        hosts = random_hosts(chance)
        request = random_request(chance, hosts)
        found = explained(hosts, request)
        left = funnel(hosts, request)[-1].left
        if not left:
            assert found.margin is None
            continue
        room = {
            name: sum(host.free[name] // amount for host in left) for name, amount in request.amounts.items()
        }
        if request.gpu:
            room[GPU] = sum(free // request.gpu for host in left for free in host.gpus)
        assert found.margin is not None
        assert found.margin.room == min(room.values()) == room[found.margin.resource_class]
        assert found.margin.hosts == len(left)


SMALL = [
    Host("h1", frozenset({"az1"}), frozenset(), {"VCPU": 16, "MEMORY_MB": 16}),
    Host("h2", frozenset({"az2"}), frozenset(), {"VCPU": 16, "MEMORY_MB": 3}),
    Host("h3", frozenset({"az2"}), frozenset({CLOSED}), {"VCPU": 16, "MEMORY_MB": 16}),
]


def test_a_full_zone_is_not_blamed_for_the_zone() -> None:
    """Its hosts have CPUs and too little memory; hosts of other zones are no near misses."""
    amounts = {"VCPU": 8, "MEMORY_MB": 8}
    request = Request(amounts, zones=(frozenset({"az2"}),), root_forbidden=frozenset({CLOSED}))
    found = explained(SMALL, request)
    assert sentences(found)[:4] == [
        "hosts in aggregate az2: 2 of 3 hosts",
        f"hosts with no trait {CLOSED}: 1 of 2 hosts",
        "8 VCPU free: 1 of 1 hosts",
        "8 MEMORY_MB free: 0 of 1 hosts",
    ]
    assert [miss.provider for miss in found.misses] == [uuid_of(SMALL[1])]
    assert hints(found) == ["it fits on 1 host elsewhere"]


def test_an_empty_place_is_named() -> None:
    found = explained(SMALL, Request({"VCPU": 1}, zones=(frozenset({"az3"}),)))
    assert found.first_empty == 0
    assert hints(found)[0] == "no host is in aggregate az3"
    both = (frozenset({"az1"}), frozenset({"az2"}))
    found = explained(SMALL, Request({"VCPU": 1}, cluster="az1", zones=both[1:]))
    assert (found.first_empty, found.misses) == (1, ())
    assert hints(found)[0] == "none of the 1 host that met the conditions before is in aggregate az2"


def test_a_class_that_the_place_lacks_is_answered_by_what_it_has() -> None:
    found = explained(SMALL, Request({"DISK_GB": 1}, zones=(frozenset({"az2"}),)))
    assert hints(found) == [
        "no host in aggregate az2 offers DISK_GB; they offer MEMORY_MB and VCPU",
        "it fits in no other place either",
    ]
