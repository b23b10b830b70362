"""Requests on their way through the house, such as a candidate query, a claim and a pod, and what they pass.

Each is made a few times before it is traced, as in a process that has been running for a while. The
application is called without a server: the server's own modules do not depend on the request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import placement
from tests.conftest import application_on
from tests.kubernetes import node_manifests, pod_manifest

_ROOT = Path(placement.__file__).parent
_WARM = 5
_HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
_HOST = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
_CLUSTER = "/ext/v1/clusters/traced"
# Pods with rules meet only each other, and a deletion meets the same number of pods each time.
_RULED_CLUSTER = "/ext/v1/clusters/traced-rules"
_FILLED_CLUSTER = "/ext/v1/clusters/traced-filled"
_FILLING_PODS = 18


@contextmanager
def world(database_kind: str) -> Iterator[dict[str, Callable[[], None]]]:
    """Yield the request of each journey, in a world that has what they need."""
    with application_on(database_kind) as application:
        yield _journeys(application.test_client())


def _journeys(client: Any) -> dict[str, Callable[[], None]]:
    """Make what the journeys need, and return the request of each."""

    def call(method: str, path: str, body: Any = None) -> None:
        answer = client.open(path, method=method, headers=_HEADERS, json=body)
        if answer.status_code >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.text}")

    call("POST", "/resource_providers", {"name": "host", "uuid": _HOST})
    amounts = {"VCPU": {"total": 1000}, "MEMORY_MB": {"total": 1_000_000}}
    call(
        "PUT",
        f"/resource_providers/{_HOST}/inventories",
        {"resource_provider_generation": 0, "inventories": amounts},
    )
    for cluster in (_CLUSTER, _RULED_CLUSTER, _FILLED_CLUSTER):
        call("PUT", cluster, {})
        for number in range(3):
            rows = tuple((cpu, cpu // 2, cpu // 64, cpu // 64) for cpu in range(128))
            call("PUT", f"{cluster}/nodes/node-{number}", node_manifests(f"node-{number}", rows=rows))
    for number in range(_FILLING_PODS):
        call("PUT", f"{_FILLED_CLUSTER}/pods/default/stays-{number}", _pod_apart_and_spread())
    numbers = count()

    def claim() -> None:
        body = {
            "allocations": {_HOST: {"resources": {"VCPU": 1, "MEMORY_MB": 512}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        call("PUT", f"/allocations/00000000-0000-4000-8000-{next(numbers):012}", body)

    def put_and_delete() -> None:
        path = f"{_FILLED_CLUSTER}/pods/default/deleted-{next(numbers)}"
        call("PUT", path, pod_manifest("1", "128Mi"))
        call("DELETE", path)

    return {
        "query": lambda: call("GET", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512&limit=10"),
        "query with an explanation": lambda: call(
            "GET", "/ext/v1/allocation_candidates?resources=VCPU:1&limit=5&explain=1"
        ),
        "claim": claim,
        "pod": lambda: call("PUT", f"{_CLUSTER}/pods/default/pod-{next(numbers)}", pod_manifest("4", "1Gi")),
        "pod and its deletion": put_and_delete,
        "pod with rules": lambda: call(
            "PUT", f"{_RULED_CLUSTER}/pods/default/spread-{next(numbers)}", _pod_apart_and_spread()
        ),
    }


def _pod_apart_and_spread() -> dict[str, Any]:
    """Return a pod that prefers hosts without pods of its app, and is spread over hosts."""
    manifest = pod_manifest("1", "128Mi", labels={"app": "spread"})
    alike = {"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": alike}]}
    manifest["spec"]["affinity"] = {"podAntiAffinity": apart}
    spread = {**alike, "maxSkew": 9, "whenUnsatisfiable": "DoNotSchedule"}
    manifest["spec"]["topologySpreadConstraints"] = [spread]
    return manifest


@dataclass
class Journey:
    """Which functions of the product were called, in the order of their first calls, and how often.

    `way` has the module of each call.
    """

    calls: dict[CodeType, int] = field(default_factory=dict)
    way: list[str] = field(default_factory=list)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by the interpreter for every call."""
        if event == "call" and frame.f_code.co_filename.startswith(str(_ROOT)):
            self.calls[frame.f_code] = self.calls.get(frame.f_code, 0) + 1
            self.way.append(frame.f_code.co_filename)


def traced(make: Callable[[], None]) -> Journey:
    for _ in range(_WARM):
        make()
    journey = Journey()
    sys.setprofile(journey.note)
    try:
        make()
    finally:
        sys.setprofile(None)
    return journey


def stops_of(journey: Journey) -> dict[str, list[CodeType]]:
    """The functions by module, in the order of first calls."""
    found: dict[str, list[CodeType]] = {}
    for code in journey.calls:
        found.setdefault(_module(code), []).append(code)
    return found


def _module(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(_ROOT).with_suffix("")).replace("/", ".")
