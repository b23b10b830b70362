"""On a real Kubernetes, each release there is: the loop binds what fits, whatever happens meanwhile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from placement.engine.numa.cpus import parse_cpu_list
from tests.faults.around_kubernetes import Lab, lab
from tests.faults.loops import (
    WITHOUT_TIMER,
    ask,
    bound,
    cpus_of,
    is_scheduled,
    none_twice,
    running_loop,
    runs,
)
from tests.faults.proxy import Lost, Proxy, Request, proxy_to
from tests.patience import eventually
from tests.real_kubernetes import ControlPlane
from tests.server import database_url

MERGE = "application/merge-patch+json"
# Whole CPUs for so many pods of two.
PODS_ON_NODE = 8
_GATED = 27
_RESIZED = 33
_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/placement-schedule"
_BINDING = re.compile(r"/pods/([^/]+)/binding$")


@pytest.fixture
def around(any_kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    # What is tested is in front of the database.
    with database_url("sqlite") as connection, lab(any_kubernetes, connection, tmp_path) as found:
        yield found


@contextmanager
def between(around: Lab) -> Iterator[Proxy]:
    """A proxy between the loop and the API server."""
    with proxy_to(around.kubernetes.url, around.kubernetes.trust) as proxy:
        yield proxy


def agree(around: Lab, names: set[str]) -> None:
    """In the end these pods are bound, and both sides have the same of them."""
    eventually(names, lambda: set(bound(around)))
    eventually(bound(around), around.claims)
    for pod in filter(runs, none_twice(around)):
        assert is_scheduled(pod), pod
    recorded = {
        pod["name"]: set(parse_cpu_list(pod["cpuset"])) for pod in around.service("GET", "/pods")["pods"]
    }
    assert {
        pod["metadata"]["name"]: cpus_of(pod) for pod in filter(runs, around.kubernetes.pods())
    } == recorded


def told(around: Lab, name: str) -> str:
    """Why a pod waits, as it was told."""
    pod = around.kubernetes.pod(name)
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


# -- answers that are lost, and refusals ------------------------------------------------------------------


def test_a_binding_whose_answer_is_lost_is_made_once_and_its_claim_stays(around: Lab) -> None:
    tried: Counter[str] = Counter()
    released: list[str] = []

    def lose(request: Request) -> Lost | None:
        found = _BINDING.search(request.path)
        if found is None:
            return None
        tried[found[1]] += 1
        # Of one pod the answer is lost, of the next one the request, of the third first this and then that.
        lost = {"0": [Lost.ANSWER], "1": [Lost.REQUEST], "2": [Lost.REQUEST, Lost.ANSWER]}[found[1][-1]]
        return lost[tried[found[1]] - 1] if tried[found[1]] <= len(lost) else None

    def note(request: Request) -> None:
        if request.method == "DELETE":
            released.append(request.path)

    around.add_node("host-0")
    names = {f"lost-{group}-{kind}" for group in range(2) for kind in range(3)}
    with between(around) as proxy, proxy_to(around.url) as service:
        proxy.rule, service.rule = lose, note
        with running_loop(around, kubernetes_url=proxy.url, service_url=service.url, said="nodes 1"):
            for name in sorted(names):
                ask(around, name)
            agree(around, names)
            # After each loss it asks once more.
            expected = {name: 3 if name.endswith("2") else 2 for name in names}
            eventually(expected, lambda: dict(tried))
            agree(around, names)
    assert proxy.met == 8
    assert not released


def test_a_pod_on_which_the_service_fails_waits_alone(around: Lab) -> None:
    failed: list[int] = []

    def fail(request: Request) -> int | None:
        if request.method != "POST" or not request.path.endswith("/pods") or b'"odd"' not in request.body:
            return None
        failed.append(request.body.count(b'"containers"'))
        return 500

    for number in range(4):
        around.add_node(f"host-{number}")
    with proxy_to(around.url) as service:
        service.rule = fail
        with running_loop(around, service_url=service.url, said="nodes 4", patch=WITHOUT_TIMER):
            # They wait together, so that they come in one call.
            names = {f"gang-{member}" for member in range(8)} | {f"single-{number}" for number in range(12)}
            with _held_up(service):
                for number in range(6):
                    ask(around, f"single-{number}")
                for member in range(8):
                    ask(around, f"gang-{member}", gang=("gang", 8))
                ask(around, "odd")
                for number in range(6, 12):
                    ask(around, f"single-{number}")
            agree(around, names)
            eventually(True, lambda: "500" in told(around, "odd"))
            assert max(failed) > 1
            service.rule = lambda _: None
            agree(around, names | {"odd"})
    assert len(failed) < 30, failed


@contextmanager
def _held_up(service: Proxy) -> Iterator[None]:
    """No pod is placed during the block."""
    rule = service.rule
    service.rule = lambda request: (
        503 if request.path.endswith("/pods") and request.method == "POST" else rule(request)
    )
    yield
    service.rule = rule


def test_a_service_that_was_away_places_what_came_meanwhile(around: Lab) -> None:
    around.add_node("host-0")
    with (
        proxy_to(around.url) as service,
        running_loop(around, service_url=service.url, said="nodes 1") as loop,
    ):
        ask(around, "before")
        eventually({"before": "host-0"}, lambda: bound(around))
        service.rule = lambda _: Lost.REQUEST
        for number in range(3):
            ask(around, f"meanwhile-{number}")
        around.kubernetes.delete_pod("before")
        eventually(True, lambda: service.met > 3)
        assert not bound(around)
        service.rule = lambda _: None
        agree(around, {f"meanwhile-{number}" for number in range(3)})
        assert "well again" in loop.said


def test_bindings_that_are_forbidden_are_made_when_they_are_allowed(around: Lab) -> None:
    role = around.kubernetes.call("GET", _ROLE)
    without = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
    around.add_node("host-0")
    with running_loop(around, said="nodes 1"):
        try:
            around.kubernetes.call("PATCH", _ROLE, {"rules": without}, MERGE)
            ask(around, "first")
            ask(around, "second")
            eventually(
                [True, True], lambda: ["forbidden" in told(around, name) for name in ("first", "second")]
            )
            # What cannot be bound keeps nothing from others for long.
            eventually({}, around.claims)
            assert not bound(around)
        finally:
            around.kubernetes.call("PATCH", _ROLE, {"rules": role["rules"]}, MERGE)
        agree(around, {"first", "second"})


def test_a_loop_that_is_told_to_end_waits_for_no_api_server(around: Lab) -> None:
    around.add_node("host-0")
    with between(around) as proxy:
        proxy.rule = lambda request: Lost.REQUEST if _BINDING.search(request.path) else None
        patch = "import placement.scheduling.binder as binder; binder._SETTLED_WITHIN_SECONDS = 1e6"
        with running_loop(around, kubernetes_url=proxy.url, said="nodes 1", patch=patch) as loop:
            ask(around, "pod")
            eventually(True, lambda: proxy.met > 1)
            loop.end()
    # The claim is there, and whoever comes next binds the pod with it.
    before = around.claims()
    assert before == {"pod": "host-0"}
    with running_loop(around, said="nodes 1"):
        agree(around, {"pod"})
    assert around.claims() == before


# -- Kubernetes is set back --------------------------------------------------------------------------------


def test_no_cpu_has_two_owners_after_kubernetes_was_set_back(around: Lab) -> None:
    kubernetes = around.kubernetes
    around.add_node("host-0")
    soon = "; ".join(
        f"import placement.{module} as m{number}; m{number}._SHOWN_WITHIN_SECONDS = 2.0"
        for number, module in enumerate(("scheduling.loop", "sync.own_claims"))
    )
    tried: list[bytes] = []

    def note(request: Request) -> None:
        if request.method == "POST" and b'"waits"' in request.body and b'"nodeName"' not in request.body:
            tried.append(request.body)

    with (
        proxy_to(around.url) as service,
        running_loop(around, service_url=service.url, said="nodes 1", patch=soon) as loop,
    ):
        service.rule = note
        _fill(around, PODS_ON_NODE)
        ask(around, "waits")
        eventually(True, lambda: told(around, "waits") != "")
        copy = kubernetes.servers.copy_data()
        kubernetes.await_ready()
        kubernetes.delete_pod("fill-0")
        eventually(True, lambda: "waits" in bound(around))
        kubernetes.delete_pod("fill-1")
        ask(around, "new")
        eventually(True, lambda: "new" in bound(around))
        # Whoever watches can tell that versions went back only where many are lost.
        for number in range(150):
            _change_node(around, "host-0", {"metadata": {"labels": {"number": str(number)}}})
        kubernetes.servers.set_back(copy)
        tried.clear()
        kubernetes.await_ready()
        # Now the CPUs of "waits" have their former owner again, and "new" was never made.
        places = {f"fill-{number}": "host-0" for number in range(PODS_ON_NODE)}
        eventually(True, lambda: places.keys() <= around.claims().keys())
        eventually(True, lambda: bool(tried))
        assert bound(around) == places
        none_twice(around)
        kubernetes.delete_pod("fill-2")
        names = {f"fill-{number}" for number in range(PODS_ON_NODE)} - {"fill-2"} | {"waits"}
        agree(around, names)
        assert "Traceback" not in loop.said


# -- what pods wait for -----------------------------------------------------------------------------------


def test_pods_are_bound_when_what_they_wait_for_happens(around: Lab) -> None:
    kubernetes = around.kubernetes
    around.add_node("host-0")
    with running_loop(around, said="nodes 1", patch=WITHOUT_TIMER):
        _fill(around, PODS_ON_NODE)

        def bound_after(name: str, happens: Callable[[], object], **spec: Any) -> None:
            ask(around, name, **spec)
            eventually(True, lambda: told(around, name) != "")
            assert name not in bound(around)
            happens()
            eventually(True, lambda: name in bound(around))

        bound_after("after-deletion", lambda: kubernetes.delete_pod("fill-0"))
        bound_after("after-failure", lambda: kubernetes.set_phase("fill-1", "Failed"))
        bound_after("after-success", lambda: kubernetes.set_phase("fill-2", "Succeeded"))
        bound_after("after-node", lambda: around.add_node("host-1"))
        bound_after(
            "after-label",
            lambda: _change_node(around, "host-1", {"metadata": {"labels": {"wanted": "yes"}}}),
            nodeSelector={"wanted": "yes"},
        )
        _change_node(around, "host-1", {"spec": {"unschedulable": True}})
        eventually(True, lambda: _is_closed(around, "host-1"))
        bound_after(
            "after-uncordon", lambda: _change_node(around, "host-1", {"spec": {"unschedulable": None}})
        )
        near = {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
        bound_after(
            "after-neighbour", lambda: ask(around, "neighbour", labels={"app": "other"}), affinity=affinity
        )
        ask(around, "gang-0", gang=("gang", 2))
        eventually(True, lambda: told(around, "gang-0") != "")
        ask(around, "gang-1", gang=("gang", 2))
        eventually(True, lambda: {"gang-0", "gang-1"} <= set(bound(around)))
        if kubernetes.minor >= _GATED:
            ask(around, "gated", schedulingGates=[{"name": "example.com/gate"}])
            kubernetes.call(
                "PATCH", "/api/v1/namespaces/default/pods/gated", {"spec": {"schedulingGates": None}}, MERGE
            )
            eventually(True, lambda: "gated" in bound(around))
        agree(around, set(bound(around)))


def _fill(around: Lab, number: int) -> None:
    for each in range(number):
        ask(around, f"fill-{each}")
    eventually(number, lambda: len(bound(around)))


def _change_node(around: Lab, name: str, changes: dict[str, Any]) -> None:
    around.kubernetes.call("PATCH", f"/api/v1/nodes/{name}", changes, MERGE)


def _is_closed(around: Lab, name: str) -> bool:
    nodes = around.service("GET", "/nodes?include=state")["nodes"]
    return any(node["closed"] for node in nodes if node["name"] == name)
