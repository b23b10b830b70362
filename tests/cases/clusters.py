"""Cluster cases: settings, nodes, and calls with what they must answer, over HTTP.

Every case has a cluster of its own, which is taken out again. Manifests are written as the arguments of
`tests.kubernetes`. A call expects a status (below 300 if it names none) and a part of the answer: a mapping
expects its members, a list its elements in order, `{"has": x}` an element, `{"lacks": x}` none such, and a
text that begins with `~` is contained in the one that is found. `{cluster}` in a path stands for the path of
the cluster, and `{name}` in paths and bodies for its name. `held` asks for what a consumer holds, by the
names of the providers in the cluster; null stands for nothing at all.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from tests.cases import Outcome
from tests.kubernetes import ROWS, node_manifests, pod_manifest
from tests.reservations import reservation
from tests.service import Service, ServiceError

FORMAT = "cluster-cases/1"

Call = Callable[[str, str, Any], tuple[int, Any]]
"""Method, path and body of a request to the status and the body of its answer."""


def run(document: dict[str, Any], url: str | None) -> Iterator[Outcome]:
    """Run all cases; without a URL against a service of their own."""
    with ExitStack() as stack:
        if url is None:
            from tests.server import running_server

            url = stack.enter_context(running_server())
        service = Service(url)

        def call(method: str, path: str, body: Any) -> tuple[int, Any]:
            answer = service.call(method, path, body)
            return answer.status, answer.body

        for case in document["cases"]:
            try:
                yield case["id"], difference(call, case)
            except ServiceError as error:
                yield case["id"], " ".join(str(error).split())


def difference(call: Call, case: dict[str, Any]) -> str | None:
    """The first thing that a case expects and does not find, None if there is none."""
    cluster = f"case-{uuid.uuid4().hex[:12]}"
    base = f"/ext/v1/clusters/{cluster}"
    steps = [{"call": "PUT", "settings": case.get("settings", {})}]
    steps += [{"call": "PUT", "node": name, **node} for name, node in case["nodes"].items()]
    try:
        for number, step in enumerate([*steps, *case["steps"]]):
            path, body = _request(base, step)
            status, found = call(step["call"], path, body)
            if "held" in step:
                found = _by_name(call, found["allocations"], cluster)
            wrong = _status_differs(step, status, found) or _differs(step.get("expect", {}), found, "")
            if wrong:
                return f"call {number - len(steps)}, {step['call']} {path.removeprefix(base)}: {wrong}"
        return None
    finally:
        _remove(call, base)


def _request(base: str, step: dict[str, Any]) -> tuple[str, Any]:
    """The path of a call and its body."""
    if "settings" in step:
        return base, step["settings"]
    if "node" in step:
        manifest = node_manifests(step["node"], **_arguments(step.get("manifest"), rows=_rows))
        return f"{base}/nodes/{step['node']}", manifest if step["call"] == "PUT" else None
    if "held" in step:
        return f"/allocations/{step['held']}", None
    if "preview" in step:
        return f"{base}/pods/preview", {**pod_manifest(**step["preview"]), **step.get("with", {})}
    if "pod" in step:
        manifest = pod_manifest(**step.get("manifest", {}))
        manifest["metadata"].setdefault("annotations", {}).update(step.get("annotations", {}))
        return f"{base}/pods/default/{step['pod']}", manifest if step["call"] == "PUT" else None
    name = base.rpartition("/")[-1]
    if "reservation" in step:
        template = pod_manifest(**step.get("manifest", {}))
        reserved, labels = step["reservation"], step.get("labels")
        body = reservation(reserved, template=template, labels=labels, **step.get("spec", {}))
        return f"{base}/reservations/{reserved}", body if step["call"] == "PUT" else None
    body = json.loads(json.dumps(step.get("body")).replace("{name}", name))
    return step["path"].replace("{cluster}", base).replace("{name}", name), body


def _by_name(call: Call, allocations: dict[str, Any], cluster: str) -> dict[str, Any] | None:
    """What is held, by the names of providers; None if nothing is."""
    found = {}
    for uuid_, entry in allocations.items():
        name = call("GET", f"/resource_providers/{uuid_}", None)[1]["name"]
        found[name.removeprefix(f"{cluster}/")] = entry["resources"]
    return found or None


def _arguments(given: dict[str, Any] | None, **read: Callable[[Any], Any]) -> dict[str, Any]:
    arguments = copy.deepcopy(given or {})
    return {name: read[name](value) if name in read else value for name, value in arguments.items()}


def _rows(shape: list[int] | int) -> tuple[tuple[int, int, int, int], ...]:
    """The CPUs of sockets × NUMA nodes × cores × threads, siblings adjacent; or so many of the usual ones."""
    if isinstance(shape, int):
        return ROWS[:shape]
    sockets, numa_per_socket, cores, threads = shape
    return tuple(
        (cpu, cpu // threads, cpu // threads // cores, cpu // threads // cores // numa_per_socket)
        for cpu in range(sockets * numa_per_socket * cores * threads)
    )


def _status_differs(step: dict[str, Any], status: int, found: Any) -> str | None:
    fits = status == step["status"] if "status" in step else status < 300
    return None if fits else f"status {status}: {found}"


def _differs(expected: Any, found: Any, where: str) -> str | None:
    """Where something that is found is not what is expected."""
    if isinstance(expected, dict) and expected.keys() in ({"has"}, {"lacks"}):
        (how, element), listed = next(iter(expected.items())), found if isinstance(found, list) else []
        is_there = any(_differs(element, each, "") is None for each in listed)
        return None if is_there is (how == "has") else f"{where} {how} no {element!r}: {found!r}"
    if expected == {}:
        return None
    if isinstance(expected, dict) and isinstance(found, dict):
        parts = (_differs(part, found.get(key), f"{where}.{key}") for key, part in expected.items())
        return next(filter(None, parts), None)
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        parts = (_differs(one, other, f"{where}[{at}]") for at, (one, other) in pairs)
        return next(filter(None, parts), None)
    if isinstance(expected, str) and expected[:1] == "~":
        return None if expected[1:] in str(found) else f"{where}: {expected[1:]!r} is not in {found!r}"
    return None if expected == found else f"{where}: {found!r} instead of {expected!r}"


def _remove(call: Call, base: str) -> None:
    """Take the cluster out with all that is in it."""
    pods = call("GET", f"{base}/pods", None)[1]
    for pod in pods.get("pods", ()):
        call("DELETE", f"{base}/pods/{pod['namespace']}/{pod['name']}", None)
    for kept in call("GET", f"{base}/reservations", None)[1].get("reservations", ()):
        call("DELETE", f"{base}/reservations/{kept['name']}", None)
    for node in call("GET", f"{base}/nodes", None)[1].get("nodes", ()):
        call("DELETE", f"{base}/nodes/{node['name']}", None)
    call("DELETE", base, None)
