"""`placement plan apply`: move by move, guarded by generations, and again after it was killed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placement.client.client import Client, ServiceError
from placement.client.making_moves import MADE, MADE_BEFORE, make_moves
from placement.engine.domain.errors import PlacementError
from tests.commands import run
from tests.patience import PATIENCE_SECONDS, eventually
from tests.server import RunningServer

GUESTS = 30


@pytest.fixture
def client(served: RunningServer) -> Client:
    return Client(served.url, "admin")


def uuid(kind: int, number: int) -> str:
    return f"{kind:08x}-{number:04x}-0000-0000-000000000000"


@pytest.fixture
def plan(client: Client, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A plan that empties a host of thirty guests, one of which has no type; there are no others."""
    old, new = uuid(1, 1), uuid(1, 2)
    for host in (old, new):
        client.post("/resource_providers", {"uuid": host, "name": f"{request.node.name}-{host[9:13]}"})
        inventories = {"VCPU": {"total": GUESTS}}
        client.put(
            f"/resource_providers/{host}/inventories",
            {"resource_provider_generation": 0, "inventories": inventories},
        )
    owner = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    for number in range(GUESTS):
        body = {"allocations": {old: {"resources": {"VCPU": 1}}}, **owner}
        typed = {"consumer_type": "VM"} if number else {}
        client.put(f"/allocations/{uuid(2, number)}", {**body, **typed}, "1.39" if number else "1.37")
    yield client.post("/ext/v1/plans", {"goal": {"empty": [old]}})
    for number in range(GUESTS):
        if client.get(f"/allocations/{uuid(2, number)}")["allocations"]:
            client.delete(f"/allocations/{uuid(2, number)}")
    for host in (old, new):
        client.delete(f"/resource_providers/{host}")


def made(client: Client, plan: dict[str, Any]) -> list[str]:
    return [state for _, _, state in make_moves(client, plan["moves"])]


def moved(client: Client, plan: dict[str, Any]) -> int:
    """How many consumers hold what the plan says."""
    found = 0
    for move in plan["moves"]:
        held = client.get(f"/allocations/{move['consumer']}")["allocations"]
        found += {provider: entry["resources"] for provider, entry in held.items()} == {
            provider: entry["resources"] for provider, entry in move["to_allocations"].items()
        }
    return found


def test_all_of_it_and_again(client, plan):
    assert len(plan["moves"]) == GUESTS
    assert made(client, plan) == [MADE] * GUESTS
    assert moved(client, plan) == GUESTS
    assert made(client, plan) == [MADE_BEFORE] * GUESTS
    untyped = client.get(f"/allocations/{uuid(2, 0)}")
    assert (untyped["consumer_type"], untyped["consumer_generation"]) == ("unknown", 2)


def test_after_it_was_killed(client, served, plan, tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    command = [sys.executable, "-m", "placement.client", "--url", served.url, "plan", "apply", "--yes"]
    command.append(str(file))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first = {"moves": plan["moves"][:1]}
        eventually(True, lambda: moved(client, first) > 0)
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
    before = moved(client, plan)
    states = made(client, plan)
    # What was sent last may have been written after it was killed.
    known = states.count(MADE_BEFORE)
    assert before <= known <= before + 1
    assert states == [MADE_BEFORE] * known + [MADE] * (GUESTS - known)
    assert moved(client, plan) == GUESTS


def applying(served: RunningServer, file: Path, *options: str, terminal: str | None = None) -> Any:
    """Return the ended command; `terminal`: what is typed at one."""
    command = [sys.executable, "-m", "placement.client", "--url", served.url]
    command += ["plan", "apply", str(file), *options]
    if terminal is None:
        return run(*command[3:], input="y\n")
    master, slave = pty.openpty()
    try:
        os.write(master, terminal.encode())
        done = subprocess.run(
            command, stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True,
            timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        done.stderr = os.read(master, 65536).decode()
        return done
    finally:
        os.close(master)
        os.close(slave)


def test_records_are_moved_with_consent_only(client, served, plan, tmp_path: Path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    warning = "records, not machines"
    unasked = applying(served, file)
    assert (unasked.returncode, moved(client, plan)) == (2, 0)
    assert "--yes" in unasked.stderr
    assert warning in unasked.stderr
    rehearsed = json.loads(applying(served, file, "--dry-run", "-f", "json").stdout)
    assert ([each["state"] for each in rehearsed], moved(client, plan)) == (["possible"] * GUESTS, 0)
    hosts = {host["name"] for host in plan["hosts"]}
    assert all({each["from"], each["to"]} <= hosts for each in rehearsed)
    refused = applying(served, file, terminal="n\n")
    assert (refused.returncode, moved(client, plan)) == (1, 0)
    assert warning in refused.stderr
    assert "nothing was written" in refused.stderr
    agreed = applying(served, file, terminal="y\n")
    assert (agreed.returncode, moved(client, plan)) == (0, GUESTS)
    again = applying(served, file, "--yes")
    assert again.returncode == 0
    assert warning in again.stderr
    assert warning in " ".join(run("plan", "apply", "--help").stdout.split())


def test_no_further_than_a_generation_that_changed(client, plan):
    changed = plan["moves"][2]
    owner = {"project_id": "another", "user_id": "u", "consumer_type": "VM"}
    body = {"allocations": changed["from_allocations"], "consumer_generation": changed["consumer_generation"]}
    client.put(f"/allocations/{changed['consumer']}", {**body, **owner})
    with pytest.raises(PlacementError) as refused:
        made(client, plan)
    assert str(refused.value) == (
        f"move 3 of {GUESTS}, {changed['consumer']}: has generation 2 now, and 1 in the plan. "
        "The moves before it were made, and no others."
    )
    assert moved(client, plan) == 2


def test_no_further_than_what_does_not_fit_any_more(client, plan):
    taken = {"allocations": {plan["moves"][0]["to_host"]: {"resources": {"VCPU": GUESTS - 1}}}}
    owner = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "VM"}
    client.put(f"/allocations/{uuid(3, 1)}", {**taken, **owner})
    with pytest.raises(PlacementError, match=f"move 2 of {GUESTS}.* exceed"):
        made(client, plan)
    assert moved(client, plan) == 1
    client.delete(f"/allocations/{uuid(3, 1)}")


class Unanswered(Client):
    """Its writes are not done, and an error without answer is what is heard of them."""

    def put(self, *_: Any, **__: Any) -> Any:
        raise ServiceError("the service is not available", 503)


def test_what_is_not_known_to_be_made_is_told(served, plan):
    with pytest.raises(PlacementError) as refused:
        made(Unanswered(served.url, "admin"), plan)
    assert str(refused.value) == (
        f"move 1 of {GUESTS}, {plan['moves'][0]['consumer']}: the service is not available. "
        "Move 1 may have been made; apply the plan again."
    )


def test_what_was_asked_for_is_kept_through_a_move(client, plan):
    consumer, old, new = uuid(4, 1), uuid(1, 1), uuid(1, 2)
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "VM"}
    client.post("/ext/v1/claims", {"consumer_uuid": consumer, **owner, "query": "resources=VCPU:1"})
    client.delete(f"/allocations/{uuid(2, 0)}")
    try:
        assert made(client, client.post("/ext/v1/plans", {"goal": {"empty": [new]}})) == [MADE]
        moves = client.post("/ext/v1/plans", {"goal": {"empty": [old]}})["moves"]
        assert {move["consumer"]: move["kind"] for move in moves}[consumer] == "query"
    finally:
        client.delete(f"/allocations/{consumer}")


def test_a_plan_without_members_is_told_which(served, tmp_path: Path):
    file = tmp_path / "plan.json"
    for does, plan, missing in (
        ("apply", {"moves": [{}]}, "moves[0].consumer"),
        ("apply", {"moves": [3]}, "moves[0].consumer"),
        ("show", {"moves": []}, "goal"),
    ):
        file.write_text(json.dumps(plan))
        ended = run("--url", served.url, "plan", does, str(file))
        assert ended.returncode != 0
        assert f"{missing} is missing" in ended.stderr


def test_a_plan_that_is_shown_says_what_stays_on_its_host(plan, tmp_path: Path):
    file, (move, *_), pod = tmp_path / "plan.json", plan["moves"], {"namespace": "default", "name": "web"}
    here = {**move, "kind": "pod", "by": "eviction", "to_host": move["from_host"], "pod": pod}
    left = {"consumer": move["consumer"], "host": move["from_host"], "why": "is a static pod", "pod": pod}
    file.write_text(json.dumps({**plan, "moves": [here], "left": [left]}))
    shown = [line.strip() for line in run("plan", "show", str(file)).stdout.splitlines()]
    assert shown[1].endswith(", other CPUs of the same host  (pod, by eviction)")
    assert "stays default/web: is a static pod" in shown


def test_no_pod_is_moved_by_rewriting(client, plan):
    pod = {"from_node": "node-1", "to_node": "node-2", "namespace": "default", "name": "web"}
    moves = [{**plan["moves"][0], "by": "eviction", "pod": pod}]
    with pytest.raises(PlacementError, match="is a pod on node node-1, which Kubernetes has to evict"):
        made(client, {"moves": moves})
    assert moved(client, plan) == 0
