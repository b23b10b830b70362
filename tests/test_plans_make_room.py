"""Plans over HTTP: moves that keep to the requests of consumers and to limits, and what became of them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.client import Client, detail
from tests.kubernetes import node_manifests, pod_manifest

pytestmark = pytest.mark.one_database

PLANS = "/ext/v1/plans"
EDGE = "/ext/v1/clusters/edge"
WHOLE = {"querystring": "resources=VCPU:8"}


def planned(api: Client, goal: dict[str, Any], **parts: Any) -> Any:
    answer = api.post(PLANS, {"goal": goal, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json


def claimed(api: Client, query: str, **more: str) -> str:
    """A new consumer that holds what it asks for."""
    consumer = str(uuid.uuid4())
    claimant = {"consumer_uuid": consumer, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    answer = api.post("/ext/v1/claims", {**claimant, "query": query, **more})
    assert answer.status_code == 201, answer.text
    return consumer


def held(api: Client, consumer: str, provider: str, **amounts: int) -> str:
    """A consumer that was not claimed by a query."""
    body = {
        "allocations": {provider: {"resources": amounts}},
        "project_id": "other",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "VM",
    }
    assert api.put(f"/allocations/{consumer}", body).status_code == 204
    return consumer


@pytest.fixture
def hosts(api: Client) -> dict[str, str]:
    """Three hosts of 8 VCPU, each half full: no whole one is left."""
    uuids = {name: api.provider(name, VCPU=8) for name in "abc"}
    for host in uuids.values():
        claimed(api, f"resources=VCPU:4&in_tree={host}")
    return uuids


@pytest.fixture
def free_to_go(api: Client) -> dict[str, str]:
    """The same with consumers that may be anywhere; the consumer on each host by its name."""
    uuids = [api.provider(name, VCPU=8) for name in "abc"]
    placeholders = [held(api, str(uuid.uuid4()), host, VCPU=4) for host in uuids]
    found = {}
    for name in "abc":
        consumer = claimed(api, "resources=VCPU:4")
        found[name] = consumer
    for consumer in placeholders:
        api.delete(f"/allocations/{consumer}")
    return found


def test_consumers_go_where_their_own_request_lets_them(api, hosts):
    assert planned(api, {"fit": WHOLE})["moves"] == []
    assert planned(api, {"fit": WHOLE})["complete"]
    wanderer = claimed(api, "resources=VCPU:4")
    (where,) = api.used_by(wanderer)
    other = next(uuid for uuid in hosts.values() if uuid != where)
    plan = planned(api, {"fit": {"querystring": f"resources=VCPU:4&in_tree={where}"}})
    assert plan["reached"]
    (move,) = plan["moves"]
    assert (move["consumer"], move["kind"], move["by"]) == (wanderer, "query", "rewriting")
    assert move["from_allocations"] == {where: {"resources": {"VCPU": 4}}}
    assert move["to_allocations"] == {other: {"resources": {"VCPU": 4}}}
    assert plan["bound"] == {"moves": 1, "by": "search"}


def test_nothing_is_written(api, free_to_go):
    before = {consumer: api.used_by(consumer) for consumer in free_to_go.values()}
    assert planned(api, {"fit": WHOLE})["reached"]
    assert {consumer: api.used_by(consumer) for consumer in free_to_go.values()} == before


def test_what_the_plan_says_of_hosts_is_so_after_it(api, free_to_go):
    plan = planned(api, {"free": 1})
    (move,) = plan["moves"]
    body = {
        "allocations": move["to_allocations"],
        "consumer_generation": move["consumer_generation"],
        "project_id": move["project_id"],
        "user_id": move["user_id"],
        "consumer_type": move["consumer_type"],
    }
    assert (
        api.put(f"/allocations/{move['consumer']}", body, **{"X-Placement-Move": "true"}).status_code == 204
    )
    for host in plan["hosts"]:
        used = api.get(f"/resource_providers/{host['uuid']}/usages").json["usages"]
        assert {name: use["after"] for name, use in host["classes"].items()} == used
    assert plan["emptied"] == [move["from_host"]]
    # The request was kept through the move.
    assert planned(api, {"empty": [move["to_host"]]})["moves"][0]["kind"] == "query"


def test_a_request_is_made_to_fit_several_times(api, free_to_go):
    # 12 of 24 are free: there is one whole host, and no second one.
    plan = planned(api, {"fit": {**WHOLE, "count": 2}})
    assert (plan["achieved"], plan["reached"]) == (1, False)
    assert len(plan["placements"]) == 1


@pytest.mark.parametrize("by", ["project_id", "consumer_type", "never", "moves"])
def test_limits_hold(api, by, free_to_go):
    limits: dict[str, Any] = {"at_most": [{by: "p", "moves": 0}]}
    if by == "consumer_type":
        limits = {"at_most": [{by: "INSTANCE", "moves": 0}]}
    elif by == "never":
        limits = {"never": list(free_to_go.values())}
    elif by == "moves":
        limits = {"moves": 0}
    plan = planned(api, {"fit": WHOLE}, limits=limits)
    assert (plan["reached"], plan["moves"]) == (False, [])
    assert planned(api, {"fit": WHOLE}, limits={"at_most": [{"project_id": "q", "moves": 0}]})["reached"]


def test_who_stays_is_told_with_the_reason(api, free_to_go):
    a = next(iter(api.used_by(free_to_go["a"])))
    plan = planned(api, {"empty": [a]}, limits={"never": [free_to_go["a"]]})
    assert plan["left"] == [{"consumer": free_to_go["a"], "host": a, "why": "is never moved"}]


def test_what_was_not_claimed_here_keeps_amounts_and_traits(api):
    api.carry(api.provider("plain", VCPU=8))
    first, second = (api.provider(name, VCPU=8) for name in ("red-1", "red-2"))
    for host in (first, second):
        api.carry(host, "CUSTOM_RED")
    consumer = held(api, str(uuid.uuid4()), first, VCPU=3)
    (move,) = planned(api, {"empty": ["red-1"]})["moves"]
    assert (move["consumer"], move["kind"]) == (consumer, "guessed")
    assert move["to_allocations"] == {second: {"resources": {"VCPU": 3}}}


def test_a_request_is_no_guide_for_other_amounts(api):
    for name in ("a", "b"):
        api.provider(name, VCPU=8)
    consumer = claimed(api, "resources=VCPU:4")
    (host,) = api.used_by(consumer)
    body = Client.allocations({host: {"VCPU": 2}}, 1, project_id="p", user_id="u")
    # As if it had been moved, so that the request is kept.
    assert api.put(f"/allocations/{consumer}", body, **{"X-Placement-Move": "true"}).status_code == 204
    (move,) = planned(api, {"empty": [host]})["moves"]
    assert (move["kind"], list(move["to_allocations"].values())) == ("guessed", [{"resources": {"VCPU": 2}}])


def test_a_request_is_forgotten_when_something_else_is_put(api):
    for name in ("a", "b"):
        api.provider(name, VCPU=8)
    consumer = claimed(api, "resources=VCPU:4")
    (host,) = api.used_by(consumer)
    body = Client.allocations({host: {"VCPU": 4}}, 1, project_id="p", user_id="u")
    assert api.put(f"/allocations/{consumer}", body).status_code == 204
    (move,) = planned(api, {"empty": [host]})["moves"]
    assert move["kind"] == "guessed"


def test_less_is_stranded_afterwards(api, free_to_go):
    plan = planned(api, {"defragment": WHOLE})
    assert plan["stranded"] == {"VCPU": {"before": 12, "after": 4}}
    assert (plan["wanted"], plan["achieved"], len(plan["moves"])) == (12, 8, 1)
    assert plan["bound"] == {"moves": 1, "by": "sums"}


def test_moves_are_checked_one_after_the_other(api, free_to_go):
    plan = planned(api, {"free": 1})
    (move,) = plan["moves"]
    check = f"{PLANS}/check"
    assert api.post(check, {"moves": plan["moves"]}).json == {
        "valid": True,
        "moves": [{"consumer": move["consumer"], "state": "possible", "why": ""}],
    }
    claimed(api, f"resources=VCPU:4&in_tree={move['to_host']}")
    (state,) = api.post(check, {"moves": plan["moves"]}).json["moves"]
    assert state["state"] == "impossible"
    assert state["why"] == f"4 VCPU of provider {move['to_host']} are not free"
    stale = [{**move, "consumer_generation": 7}]
    (state,) = api.post(check, {"moves": stale}).json["moves"]
    assert state["why"] == "has generation 1 by now, not 7"
    (state,) = api.post(check, {"moves": [{**move, "to_allocations": move["from_allocations"]}]}).json[
        "moves"
    ]
    assert state["state"] == "done"


def state_of(api: Client, moves: list[dict[str, Any]], **parts: Any) -> list[tuple[str, str]]:
    answer = api.post(f"{PLANS}/check", {"moves": moves, **parts})
    assert answer.status_code == 200, answer.text
    return [(each["state"], each["why"]) for each in answer.json["moves"]]


def test_a_consumer_is_checked_to_move_once(api, free_to_go):
    (move,) = planned(api, {"free": 1})["moves"]
    back = {
        **move,
        "consumer_generation": 2,
        "from_allocations": move["to_allocations"],
        "to_allocations": move["from_allocations"],
    }
    assert state_of(api, [move, move, back]) == [
        ("possible", ""),
        ("done", ""),
        ("impossible", "was moved already"),
    ]


def test_a_place_has_to_be_a_candidate_still(api):
    full, red = (api.provider(name, VCPU=8) for name in "ab")
    for host in (full, red):
        api.carry(host, "CUSTOM_RED")
    claimed(api, f"resources=VCPU:4&required=CUSTOM_RED&in_tree={full}")
    consumer = claimed(api, "resources=VCPU:2&required=CUSTOM_RED")
    (host,) = api.used_by(consumer)
    plan = planned(api, {"empty": [host]})
    moves = [move for move in plan["moves"] if move["consumer"] == consumer]
    assert state_of(api, moves) == [("possible", "")]
    api.carry(moves[0]["to_host"])
    assert state_of(api, moves) == [("impossible", "is no candidate of its request there any more")]


def test_moves_out_of_a_cluster_are_impossible(api):
    assert api.put("/ext/v1/clusters/edge", {}).status_code == 201
    inside = api.provider("inside", MEMORY_MB=8192)
    aggregates = {
        "resource_provider_generation": api.generation(inside),
        "aggregates": [api.get(EDGE).json["aggregate"]],
    }
    assert api.put(f"/resource_providers/{inside}/aggregates", aggregates).status_code == 200
    consumer = held(api, str(uuid.uuid4()), inside, MEMORY_MB=1024)
    outside = api.provider("outside", MEMORY_MB=8192)
    move = {
        "consumer": consumer,
        "consumer_generation": 1,
        "project_id": "other",
        "user_id": "u",
        "consumer_type": "VM",
        "kind": "guessed",
        "by": "rewriting",
        "from_host": inside,
        "to_host": outside,
        "from_allocations": {inside: {"resources": {"MEMORY_MB": 1024}}},
        "to_allocations": {outside: {"resources": {"MEMORY_MB": 1024}}},
    }
    assert state_of(api, [move], cluster="edge") == [("impossible", f"host {outside} does not take part")]


def test_time_that_is_up_is_told(api, free_to_go):
    answer = api.post(PLANS, {"goal": {"free": 1}, "limits": {"seconds": 0}})
    assert (answer.status_code, detail(answer)) == (
        503,
        "The time was up before there was a plan, so planning was ended.",
    )


def test_only_hosts_of_a_cluster_take_part(api):
    for name in ("edge", "core"):
        assert api.put(f"/ext/v1/clusters/{name}", {}).status_code == 201
    for name in ("node-1", "node-2"):
        assert api.put(f"{EDGE}/nodes/{name}", node_manifests(name)).status_code == 201
    outside = api.provider("outside", VCPU=8)
    claimed(api, f"resources=VCPU:4&in_tree={outside}")
    assert planned(api, {"free": 1}, limits={"clusters": ["edge"]})["achieved"] == 0
    answer = api.post(PLANS, {"goal": {"empty": ["outside"]}, "cluster": "edge"})
    assert (answer.status_code, detail(answer)) == (400, "goal.empty[0]: there is no host 'outside' here")
    assert api.post(PLANS, {"goal": {"free": 1}, "cluster": "nowhere"}).status_code == 404


def test_a_host_is_not_empty_while_somebody_holds_some_of_it(api):
    hosts = sorted(api.provider(name, VCPU=8) for name in "abc")
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {host: {"resources": {"VCPU": 2}} for host in hosts[:2]},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "VM",
    }
    assert api.put(f"/allocations/{consumer}", body).status_code == 204
    plan = planned(api, {"empty": hosts[:2]})
    assert plan["emptied"] == []
    assert [(each["host"], each["why"]) for each in plan["left"]] == [
        (host, "holds something of several hosts") for host in hosts[:2]
    ]


def test_what_hosts_share_is_no_host_to_be_emptied(api):
    api.carry(api.provider("pool", DISK_GB=100), "MISC_SHARES_VIA_AGGREGATE")
    answer = api.post(PLANS, {"goal": {"empty": ["pool"]}})
    assert (answer.status_code, detail(answer)) == (
        400,
        "goal.empty[0]: 'pool' shares what it has with hosts; it is none",
    )


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        (
            {"rules": [{"kind": "at_most", "count": 1, "per": "host"}]},
            "was claimed with rules between consumers, which are not kept",
        ),
        ({"group": "web"}, "is in a group, about which others may have rules"),
    ],
)
def test_who_was_claimed_with_others_stays(api, terms, why):
    for name in "abc":
        api.provider(name, VCPU=8)
    consumers = [str(uuid.uuid4()) for _ in range(2)]
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "query": "resources=VCPU:4"}
    group = {"group": terms["group"]} if "group" in terms else {}
    members = [{"consumer_uuid": consumer, **owner, **group} for consumer in consumers]
    rules = {"rules": terms["rules"]} if "rules" in terms else {}
    answer = api.post("/ext/v1/claims", {"members": members, **rules})
    assert answer.status_code < 300, answer.text
    for consumer in consumers:
        (host,) = api.used_by(consumer)
        left = planned(api, {"empty": [host]})["left"]
        assert (consumer, why) in [(each["consumer"], each["why"]) for each in left]


def test_a_disabled_host_is_emptied_and_nobody_goes_to_one(api):
    disabled = "COMPUTE_STATUS_DISABLED"
    full, off, on = (api.provider(name, VCPU=8) for name in "abc")
    consumer = held(api, str(uuid.uuid4()), full, VCPU=3)
    for host in (full, off):
        api.carry(host, disabled)
    plan = planned(api, {"empty": [full]})
    (move,) = plan["moves"]
    assert (move["consumer"], list(move["to_allocations"])) == (consumer, [on])


# -- pods -----------------------------------------------------------------------------------------------


@pytest.fixture
def edge(api: Client) -> Client:
    """A cluster of three nodes with 16 CPUs each, on each of which a pod has 8; two have SSDs."""
    assert api.put("/ext/v1/clusters/edge", {}).status_code == 201
    for at in range(3):
        labels = {"disk": "hdd" if at == 1 else "ssd"}
        assert (
            api.put(f"{EDGE}/nodes/node-{at}", node_manifests(f"node-{at}", labels=labels)).status_code == 201
        )
    for at in range(3):
        pod = pod_manifest(
            "8",
            node=f"node-{at}",
            status={"cpuset": "0-7"},
            labels={"app": f"app-{at}"},
            nodeSelector={"disk": "ssd"} if at == 0 else {},
        )
        assert api.put(f"{EDGE}/pods/default/p{at}", pod).status_code == 201
    return api


def test_pods_are_moved_by_eviction_to_where_the_scheduler_lets_them(edge):
    plan = planned(edge, {"empty": ["edge/node-0"]}, cluster="edge")
    assert plan["reached"]
    (move,) = plan["moves"]
    assert (move["kind"], move["by"]) == ("pod", "eviction")
    pod = move["pod"]
    assert (pod["name"], pod["from_node"], pod["to_node"], pod["cpuset"]) == (
        "p0",
        "node-0",
        "node-2",
        "8-15",
    )
    checked = edge.post(f"{PLANS}/check", {"moves": plan["moves"], "cluster": "edge"}).json
    assert checked["valid"]
    late = pod_manifest("8", node="node-2", status={"cpuset": "8-15"})
    assert edge.put(f"{EDGE}/pods/default/late", late).status_code == 201
    checked = edge.post(f"{PLANS}/check", {"moves": plan["moves"], "cluster": "edge"}).json
    assert not checked["valid"]
    assert [(each["state"], each["why"]) for each in checked["moves"]] == [
        ("impossible", "does not fit there any more")
    ]


def test_room_is_made_for_a_pod(edge):
    plan = planned(edge, {"fit": {"pod": pod_manifest("16")}}, cluster="edge")
    (move,) = plan["moves"]
    assert plan["reached"]
    assert {move["from_host"]} == {
        uuid_ for uuid_ in (host["uuid"] for host in plan["hosts"]) if uuid_ != move["to_host"]
    }
    bounded = {"at_most": [{"label": f"app=app-{at}", "moves": 0} for at in range(3)]}
    assert not planned(edge, {"fit": {"pod": pod_manifest("16")}}, cluster="edge", limits=bounded)["reached"]


def test_pods_of_daemon_sets_stay(edge):
    pod = pod_manifest("1", node="node-1", status={"cpuset": "8"})
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
    ]
    assert edge.put(f"{EDGE}/pods/default/agent", pod).status_code == 201
    (left,) = planned(edge, {"empty": ["edge/node-1"]}, cluster="edge")["left"]
    assert left["why"] == "belongs to its node: it is of a DaemonSet"


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ({}, "goal: must have one of fit, empty, free and defragment"),
        ({"fit": {}}, "goal.fit: must have one of query, querystring, flavor and pod"),
        ({"defragment": {**WHOLE, "resource_class": "PCPU"}}, "goal.defragment.resource_class: PCPU is not"),
    ],
)
def test_goals_that_make_no_sense_are_refused(api, goal, message):
    api.provider("a", VCPU=8)
    answer = api.post(PLANS, {"goal": goal})
    assert answer.status_code == 400
    assert detail(answer).startswith(message)


def test_rules_between_pods_hold_for_those_that_are_moved(edge):
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "app-1"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    pod = pod_manifest("1", node="node-0", status={"cpuset": "8"}, labels={"app": "shy"}, affinity=apart)
    assert edge.put(f"{EDGE}/pods/default/shy", pod).status_code == 201
    moves = planned(edge, {"empty": ["edge/node-0"]}, cluster="edge")["moves"]
    assert {move["pod"]["name"]: move["pod"]["to_node"] for move in moves}["shy"] == "node-2"
    alone = planned(edge, {"empty": ["edge/node-0", "edge/node-2"]}, cluster="edge")
    assert "shy" not in [move["pod"]["name"] for move in alone["moves"]]
