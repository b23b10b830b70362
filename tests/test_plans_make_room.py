"""Plans over HTTP: moves that keep to the requests of consumers and to limits, and what became of them."""

from __future__ import annotations

import csv
import io
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest

from placement.client.plan_drawing import draw_plan
from tests.client import Client, detail
from tests.kubernetes import CLUSTER as EDGE
from tests.kubernetes import add_nodes, cluster_of, pod_manifest
from tests.questions import words

pytestmark = pytest.mark.one_database

PLANS = "/ext/v1/plans"
WHOLE = {"querystring": "resources=VCPU:8"}


def planned(api: Client, goal: dict[str, Any], **parts: Any) -> Any:
    answer = api.post(PLANS, {"goal": goal, **parts})
    assert answer.status_code == 200, answer.text
    return answer.json


OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


def claimed(api: Client, query: str, **more: str) -> str:
    """A new consumer that holds what it asks for."""
    consumer = str(uuid.uuid4())
    answer = api.post("/ext/v1/claims", {**OWNER, "consumer_uuid": consumer, "query": query, **more})
    assert answer.status_code == 201, answer.text
    return consumer


def held(api: Client, *providers: str, **amounts: int) -> str:
    """A consumer that was not claimed by a query."""
    consumer, labels = str(uuid.uuid4()), {"project_id": "other", "user_id": "u", "consumer_type": "VM"}
    assert api.claim(dict.fromkeys(providers, amounts), consumer, **labels).status_code == 204
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
    placeholders = [held(api, api.provider(name, VCPU=8), VCPU=4) for name in "abc"]
    found = {name: claimed(api, "resources=VCPU:4") for name in "abc"}
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


def test_what_the_plan_says_of_hosts_is_so_after_it_and_nothing_is_written(api, free_to_go):
    before = {consumer: api.used_by(consumer) for consumer in free_to_go.values()}
    assert planned(api, {"fit": WHOLE})["reached"]
    plan = planned(api, {"free": 1})
    assert {consumer: api.used_by(consumer) for consumer in free_to_go.values()} == before
    (move,) = plan["moves"]
    body = {name: move[name] for name in ("consumer_generation", "project_id", "user_id", "consumer_type")}
    body["allocations"] = move["to_allocations"]
    made = api.put(f"/allocations/{move['consumer']}", body, **{"X-Placement-Move": "true"})
    assert made.status_code == 204
    for host in plan["hosts"]:
        assert {name: use["after"] for name, use in host["classes"].items()} == api.used(host["uuid"])
    assert plan["emptied"] == [move["from_host"]]
    # The request was kept through the move.
    assert planned(api, {"empty": [move["to_host"]]})["moves"][0]["kind"] == "query"


def test_a_request_is_made_to_fit_several_times(api, free_to_go):
    # 12 of 24 are free: there is one whole host, and no second one.
    plan = planned(api, {"fit": {**WHOLE, "count": 2}})
    assert (plan["achieved"], plan["reached"]) == (1, False)
    assert len(plan["placements"]) == 1


def test_limits_hold(api, free_to_go):
    for limits in (
        *(
            {"at_most": [{by: name, "moves": 0}]}
            for by, name in (("project_id", "p"), ("consumer_type", "INSTANCE"))
        ),
        *({"never": list(free_to_go.values())}, {"moves": 0}),
    ):
        plan = planned(api, {"fit": WHOLE}, limits=limits)
        assert (plan["reached"], plan["moves"]) == (False, []), limits
    assert planned(api, {"fit": WHOLE}, limits={"at_most": [{"project_id": "q", "moves": 0}]})["reached"]


def test_who_stays_is_told_with_the_reason(api, free_to_go):
    a = next(iter(api.used_by(free_to_go["a"])))
    plan = planned(api, {"empty": [a]}, limits={"never": [free_to_go["a"]]})
    assert plan["left"] == [{"consumer": free_to_go["a"], "host": a, "why": "is never moved"}]


def test_what_was_not_claimed_here_keeps_amounts_traits_and_aggregates(api):
    plain, first, elsewhere, second = (api.provider(name, VCPU=8) for name in ("a", "red-1", "b", "red-2"))
    for host in (first, second, elsewhere):
        api.carry(host, "CUSTOM_RED")
    for host in (plain, first, second):
        api.join(host, "5b6c7d8e-0000-4000-8000-000000000001")
    consumer = held(api, first, VCPU=3)
    (move,) = planned(api, {"empty": ["red-1"]})["moves"]
    assert (move["consumer"], move["kind"]) == (consumer, "guessed")
    assert move["to_allocations"] == {second: {"resources": {"VCPU": 3}}}


def test_pages_and_commands_say_alike_which_moves_are_guessed(api, free_to_go):
    page = api.get("/ui/moves?goal=free&free=1").text
    assert "guessed" not in page, "the consumer was claimed by a query, which is kept"
    known = api.provider("d", VCPU=8)
    consumer = held(api, known, VCPU=3)
    question = {"goal": "empty", "hosts": "d"}
    page = words(api.get(f"/ui/moves?{urlencode(question)}").text)
    printed = list(draw_plan(planned(api, {"empty": ["d"]}), io.StringIO()))
    assert printed[1].endswith("(guessed)")
    assert "rewrite (guessed)" in page
    assert printed[2] == "guessed: its request is not known, so amounts, traits and aggregates are kept"
    assert printed[2].partition(": ")[2] in page
    table = api.get(f"/ui/moves?{urlencode({**question, 'format': 'csv'})}").text
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["consumer"], row["kind"]) == (consumer, "guessed")


@pytest.mark.parametrize(("amount", "headers"), [(2, {"X-Placement-Move": "true"}), (4, {})])
def test_a_request_is_no_guide_for_other_amounts_and_forgotten_when_something_else_is_put(
    api, amount, headers
):
    for name in ("a", "b"):
        api.provider(name, VCPU=8)
    consumer = claimed(api, "resources=VCPU:4")
    (host,) = api.used_by(consumer)
    body = Client.allocations({host: {"VCPU": amount}}, 1, project_id="p", user_id="u")
    # With the header it is as if it had been moved, so that the request is kept.
    assert api.put(f"/allocations/{consumer}", body, **headers).status_code == 204
    (move,) = planned(api, {"empty": [host]})["moves"]
    assert (move["kind"], *move["to_allocations"].values()) == ("guessed", {"resources": {"VCPU": amount}})


def test_less_is_stranded_afterwards(api, free_to_go):
    plan = planned(api, {"defragment": WHOLE})
    assert plan["stranded"] == {"VCPU": {"before": 12, "after": 4}}
    assert (plan["wanted"], plan["achieved"], len(plan["moves"])) == (12, 8, 1)
    assert plan["bound"] == {"moves": 1, "by": "sums"}


def state_of(api: Client, moves: list[dict[str, Any]], **parts: Any) -> list[tuple[str, str]]:
    answer = api.post(f"{PLANS}/check", {"moves": moves, **parts})
    assert answer.status_code == 200, answer.text
    states = [(each["state"], each["why"]) for each in answer.json["moves"]]
    assert [each["consumer"] for each in answer.json["moves"]] == [move["consumer"] for move in moves]
    assert answer.json["valid"] is all(state != "impossible" for state, _ in states)
    return states


def test_moves_are_checked_one_after_the_other(api, free_to_go):
    (move,) = planned(api, {"free": 1})["moves"]
    there, here = move["to_allocations"], move["from_allocations"]
    back = {**move, "consumer_generation": 2, "from_allocations": there, "to_allocations": here}
    moved = ("impossible", "was moved already")
    assert state_of(api, [move, move, back]) == [("possible", ""), ("done", ""), moved]
    claimed(api, f"resources=VCPU:4&in_tree={move['to_host']}")
    full = f"4 VCPU of provider {move['to_host']} are not free"
    assert state_of(api, [move]) == [("impossible", full)]
    stale = {**move, "consumer_generation": 7}
    assert state_of(api, [stale]) == [("impossible", "has generation 1 by now, not 7")]
    assert state_of(api, [{**move, "to_allocations": here}])[0][0] == "done"


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
    assert state_of(api, moves) == [("impossible", "is no longer a candidate of its request there")]


def test_moves_out_of_a_cluster_are_impossible(api):
    assert api.put(EDGE, {}).status_code == 201
    inside, outside = (api.provider(name, MEMORY_MB=8192) for name in ("inside", "outside"))
    api.join(inside, api.get(EDGE).json["aggregate"])
    owner = {"project_id": "other", "user_id": "u", "consumer_type": "VM", "consumer_generation": 1}
    move = {
        **{"consumer": held(api, inside, MEMORY_MB=1024), **owner, "kind": "guessed", "by": "rewriting"},
        **{"from_host": inside, "to_host": outside},
        "from_allocations": {inside: {"resources": {"MEMORY_MB": 1024}}},
        "to_allocations": {outside: {"resources": {"MEMORY_MB": 1024}}},
    }
    assert state_of(api, [move], cluster="edge") == [("impossible", f"host {outside} does not take part")]


@pytest.mark.parametrize("goal", [{"free": 1}, {"empty": ["a"]}, {"fit": WHOLE}])
def test_time_that_is_up_is_told_by_the_plan(api, free_to_go, goal):
    plan = planned(api, goal, limits={"seconds": 0})
    assert (plan["reached"], plan["complete"], plan["moves"]) == (False, False, [])
    assert plan["why"] == "time ran out before all plans were tried"


def test_stranded_amounts_are_counted_whatever_time_the_search_has(api, free_to_go):
    plan = planned(api, {"defragment": WHOLE}, limits={"seconds": 0})
    assert (plan["complete"], plan["stranded"]) == (False, {"VCPU": {"before": 12, "after": 12}})


def test_only_hosts_of_a_cluster_take_part(api):
    for name in ("edge", "core"):
        assert api.put(f"/ext/v1/clusters/{name}", {}).status_code == 201
    add_nodes(api, "node-1", "node-2")
    outside = api.provider("outside", VCPU=8)
    claimed(api, f"resources=VCPU:4&in_tree={outside}")
    assert planned(api, {"free": 1}, limits={"clusters": ["edge"]})["achieved"] == 0
    answer = api.post(PLANS, {"goal": {"empty": ["outside"]}, "cluster": "edge"})
    assert (answer.status_code, detail(answer)) == (400, "goal.empty[0]: there is no host 'outside' here")
    assert api.post(PLANS, {"goal": {"free": 1}, "cluster": "nowhere"}).status_code == 404


def test_a_host_is_not_empty_while_somebody_holds_some_of_it(api):
    hosts = sorted(api.provider(name, VCPU=8) for name in "abc")
    held(api, *hosts[:2], VCPU=2)
    plan = planned(api, {"empty": hosts[:2]})
    assert plan["emptied"] == []
    why = "holds something of several hosts"
    assert [(each["host"], each["why"]) for each in plan["left"]] == [(host, why) for host in hosts[:2]]
    api.carry(api.provider("pool", DISK_GB=100), "MISC_SHARES_VIA_AGGREGATE")
    answer = api.post(PLANS, {"goal": {"empty": ["pool"]}})
    assert answer.status_code == 400
    assert detail(answer) == "goal.empty[0]: 'pool' is a shared pool, not a host"


@pytest.mark.parametrize(
    ("of_claim", "of_member", "why"),
    [
        (
            {"rules": [{"kind": "at_most", "count": 1, "per": "host"}]},
            {},
            "was claimed with rules between consumers, which are not stored",
        ),
        ({}, {"group": "web"}, "is in a group that other consumers may have rules about"),
    ],
)
def test_who_was_claimed_with_others_stays(api, of_claim, of_member, why):
    for name in "abc":
        api.provider(name, VCPU=8)
    consumers = [str(uuid.uuid4()) for _ in range(2)]
    member = {**OWNER, "query": "resources=VCPU:4", **of_member}
    members = [{**member, "consumer_uuid": consumer} for consumer in consumers]
    answer = api.post("/ext/v1/claims", {"members": members, **of_claim})
    assert answer.status_code < 300, answer.text
    for consumer in consumers:
        (host,) = api.used_by(consumer)
        left = planned(api, {"empty": [host]})["left"]
        assert (consumer, why) in [(each["consumer"], each["why"]) for each in left]


def test_a_disabled_host_is_emptied_and_nobody_goes_to_one(api):
    disabled = "COMPUTE_STATUS_DISABLED"
    full, off, on = (api.provider(name, VCPU=8) for name in "abc")
    consumer = held(api, full, VCPU=3)
    for host in (full, off):
        api.carry(host, disabled)
    plan = planned(api, {"empty": [full]})
    (move,) = plan["moves"]
    assert (move["consumer"], list(move["to_allocations"])) == (consumer, [on])


# -- pods -----------------------------------------------------------------------------------------------


@pytest.fixture
def edge(api: Client) -> Client:
    """A cluster of three nodes with 16 CPUs each, on each of which a pod has 8; two have SSDs."""
    cluster_of(api, "node-0", "node-2", labels={"disk": "ssd"})
    add_nodes(api, "node-1", labels={"disk": "hdd"})
    for at in range(3):
        selector, labels = {"disk": "ssd"} if at == 0 else {}, {"app": f"app-{at}"}
        placed = {"node": f"node-{at}", "status": {"cpuset": "0-7"}}
        pod = pod_manifest("8", **placed, labels=labels, nodeSelector=selector)
        assert api.put(f"{EDGE}/pods/default/p{at}", pod).status_code == 201
    return api


def test_pods_are_moved_by_eviction_to_where_the_scheduler_lets_them(edge):
    plan = planned(edge, {"empty": ["edge/node-0"]}, cluster="edge")
    assert plan["reached"]
    (move,) = plan["moves"]
    assert (move["kind"], move["by"]) == ("pod", "eviction")
    pod = {name: move["pod"][name] for name in ("name", "from_node", "to_node", "cpuset")}
    assert pod == {"name": "p0", "from_node": "node-0", "to_node": "node-2", "cpuset": "8-15"}
    assert state_of(edge, [move], cluster="edge")[0][0] == "possible"
    late = pod_manifest("8", node="node-2", status={"cpuset": "8-15"})
    assert edge.put(f"{EDGE}/pods/default/late", late).status_code == 201
    assert state_of(edge, [move], cluster="edge") == [("impossible", "does not fit there any more")]


def test_room_is_made_for_a_pod(edge):
    plan = planned(edge, {"fit": {"pod": pod_manifest("16")}}, cluster="edge")
    (move,) = plan["moves"]
    assert plan["reached"]
    assert {move["from_host"]} == {host["uuid"] for host in plan["hosts"]} - {move["to_host"]}
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
    whys = {left["pod"]["name"]: left["why"] for left in alone["left"]}
    assert whys["p0"] == "no other host could ever take it: label disk=ssd: 0 of 1 nodes"
