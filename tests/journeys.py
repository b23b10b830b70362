"""Three requests on their way through the house: a candidate query, a claim and a pod, and what they pass.

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


@contextmanager
def world(database_kind: str) -> Iterator[dict[str, Callable[[], None]]]:
    """What to call for each journey, in a world that has what they need."""
    with application_on(database_kind) as application:
        yield _journeys(application.test_client())


def _journeys(client: Any) -> dict[str, Callable[[], None]]:
    """Make what the journeys need; what to call for each."""

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
    call("PUT", _CLUSTER, {})
    for number in range(3):
        rows = tuple((cpu, cpu // 2, cpu // 64, cpu // 64) for cpu in range(128))
        call("PUT", f"{_CLUSTER}/nodes/node-{number}", node_manifests(f"node-{number}", rows=rows))
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

    return {
        "query": lambda: call("GET", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512&limit=10"),
        "claim": claim,
        "pod": lambda: call("PUT", f"{_CLUSTER}/pods/default/pod-{next(numbers)}", pod_manifest("4", "1Gi")),
    }


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
