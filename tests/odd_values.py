"""Values at the limits of what JSON, Kubernetes and databases hold, put in every place of every body.

Whatever is sent is taken or refused, never answered with an error of the service; and after it all that is
asked of the cluster is answered.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.client import Client
from tests.kubernetes import CLUSTER, MIXED, QOS, RATIO, node_manifests, pod_manifest
from tests.reservations import reservation

QUANTITIES = (
    *("0", "-1", "1n", "1E", "8Ei", "9E", "1e3", "1e-400", "0.0000001Ki", "1e19", "1e300", "1e320", "1e400"),
    *("2147483647", "2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808"),
    *("2147483649", "9007199254740991", "9223372036854775806", "9" * 1000),
    *("18446744073709551616", "50E", "9" * 100, "0." + "0" * 60 + "1", "-1e400", "1e999999", "1e-999999"),
)
NUMBERS = (
    *(
        0,
        -1,
        2**31 - 1,
        2**31,
        2**31 + 1,
        2**53 - 1,
        2**53 + 1,
        10**999,
        2**63 - 1,
        -(2**63),
        2**63,
        2**64 - 1,
        2**64,
    ),
    *(10**19, 1e300, -1e300, 1e-300, 10**320, 1.5),
)
TEXTS = (
    "",
    " ",
    "x",
    "a\0b",
    "\ud800",
    "\U0001f600",
    "0, 8",
    "0-",
    "1e400",
    "null",
    "NaN",
    "[" * 200,
    "9" * 400,
)
ANNOTATIONS = (
    *("NaN", "Infinity", '{"a":NaN}', '{"cpu":1e400}', '{"cpu":' + "9" * 400 + "}", "[" * 5000, "{", "null"),
    *(
        '"\\ud800"',
        '{"cpuset":"\\u0000"}',
        '["\\ud800"]',
        '{"name":"\\ud800","uid":"\\u0000"}',
        "[1e400]",
        "5",
    ),
)
_DEEP: list[Any] = []
for _ in range(200):
    _DEEP = [_DEEP]
OTHERS = (None, True, [], {}, [None], {"": ""}, {"a\0b": 1}, float("nan"), _DEEP)
EVERYTHING = (*QUANTITIES, *NUMBERS, *TEXTS, *ANNOTATIONS, *OTHERS)

_GANG = "gang.scheduling.koordinator.sh"
Place = tuple[str | int, ...]
"""The keys that lead to a value; `JSON` leads into the document of a JSON text."""
JSON = "(json)"


class Request(NamedTuple):
    """A request with a body in which any value may be replaced."""

    method: str
    path: str
    body: Any


def requests() -> list[Request]:
    """Return a request of each kind with a body that has all that is read of it."""
    pods, nodes = f"{CLUSTER}/pods/default", f"{CLUSTER}/nodes"
    given = {"cpuset": "2-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "2", "memory": "1Gi"}}]}
    pod = pod_manifest("2", uid="odd", spec={"preferredCPUBindPolicy": "FullPCPUs"}, status=given)
    pod["metadata"] |= {"resourceVersion": "7", "creationTimestamp": "2026-01-31T12:00:00Z", "generation": 3}
    pod["metadata"]["annotations"] |= {
        f"{_GANG}/name": "g",
        f"{_GANG}/min-available": "1",
        f"{_GANG}/total-number": "2",
        f"{_GANG}/waiting-time": "30s",
        f"{_GANG}/groups": '["default/g"]',
        "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"BestEffort"}',
        "scheduling.koordinator.sh/scheduling-hint": '{"extensions":{}}',
    }
    asked = {"cpu": "1", "memory": "1Gi"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    expression = {"key": "rack", "operator": "Gt", "values": ["3"]}
    pod["spec"] |= {
        "overhead": {"cpu": "0"},
        "initContainers": [{"name": "i", "resources": {"requests": asked, "limits": asked}}],
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [expression]}}
                ]
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]
            },
        },
    }
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1", "protocol": "UDP"}
    ]
    pod["spec"]["hostNetwork"] = False
    running = copy.deepcopy(pod)
    running["metadata"]["uid"] = "odd-running"
    affinity = {"reservationSelector": {"app": "db"}}
    running["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-affinity"] = json.dumps(
        affinity
    )
    running["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    running["spec"]["nodeName"] = "n1"
    running["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
    }
    node = node_manifests(
        "n2",
        nrt={**MIXED, RATIO: {"cpu": 1.5}, "node.koordinator.sh/cpu-shared-pools": [{"cpuset": "1"}]},
        annotations={RATIO: {"cpu": 1.5}, "node.koordinator.sh/reservation": {"resources": {"cpu": "1"}}},
        spec={"taints": [{"key": "a", "effect": "PreferNoSchedule"}], "unschedulable": False},
        example_com__gpu="4",
    )
    kept = reservation("odd", ttl="1h", allocateOnce=True)
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
    group["spec"] = {"minMember": 1}
    group["spec"]["scheduleTimeoutSeconds"] = 5
    member = pod_manifest("1", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
    member["metadata"]["name"] = "member"
    named = copy.deepcopy(pod)
    named["metadata"] |= {"name": "asked", "uid": "asked"}
    batch = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi", "example.com/gpu": "1"}
    shared = pod_manifest(None, None, qos="BE", priority=5500, requests=batch)
    victims = {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    return [
        Request("PUT", f"{pods}/odd", pod),
        Request("PUT", f"{pods}/odd-running", running),
        Request("PUT", f"{nodes}/n2", node),
        Request("PUT", f"{CLUSTER}/reservations/odd", kept),
        Request("POST", f"{CLUSTER}/pods", {"kind": "List", "items": [group, member]}),
        Request("POST", f"{CLUSTER}/pods/preview", named),
        Request("POST", f"{CLUSTER}/pods/preview", shared),
        Request("POST", f"{CLUSTER}/pods/translation", named),
        Request("POST", f"{CLUSTER}/extender/filter", {"Pod": named, "NodeNames": ["n1", "n2"]}),
        Request("POST", f"{CLUSTER}/extender/prioritize", {"Pod": named, "NodeNames": ["n1"]}),
        Request("POST", f"{CLUSTER}/extender/preempt", {"Pod": named, "NodeNameToMetaVictims": victims}),
        Request("POST", "/ext/v1/capacity", {"kinds": {"pods": {"pod": named}}, "cluster": "edge"}),
        *_others(),
    ]


def _others() -> Iterator[Request]:
    """Yield requests with numbers outside of pods and nodes."""
    units = {"min_unit": 1, "max_unit": 8, "step_size": 1}
    inventory = {"total": 8, "reserved": 0, "allocation_ratio": 1.5, **units}
    provider = f"/resource_providers/{PROVIDER}"
    inventories = {"resource_provider_generation": _GENERATION, "inventories": {"VCPU": inventory}}
    yield Request("PUT", f"{provider}/inventories", inventories)
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    allocations = {
        "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
        "consumer_generation": _OWN_GENERATION,
        **owner,
    }
    yield Request("PUT", f"/allocations/{CONSUMER}", allocations)
    yield Request("POST", "/allocations", {CONSUMER: allocations})
    yield Request("POST", "/reshaper", {"inventories": {PROVIDER: inventories}, "allocations": {}})
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1", "quota:vif": "1"}
    sizes = {"vcpus": 2, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0, "swap_mb": 0}
    flavor = {"flavor": {**sizes, "extra_specs": specs}}
    yield Request("POST", "/ext/v1/flavors/translation", flavor)
    yield Request("POST", "/ext/v1/flavors/candidates", {**flavor, "limit": 3})
    claim = {"consumer_uuid": CONSUMER, "query": "resources=VCPU:1", **owner}
    yield Request("POST", "/ext/v1/claims", claim)
    kinds = {"query": {"querystring": "resources=VCPU:1"}, "flavor": flavor}
    yield Request("POST", "/ext/v1/capacity", {"kinds": kinds, "by": ["cluster"]})
    yield Request("POST", "/ext/v1/plans", {"goal": {"empty": ["beside"]}, "limits": {"moves": 3}})
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    weights = [{"name": "example.com/gpu", "weight": 5}, {"name": "cpu"}]
    pods = {"type": "RequestedToCapacityRatio", "shape": shape, "resources": weights}
    scoring = {"scoring": {"candidates": "spread", "pods": pods, "numa": "MostAllocated"}}
    yield Request("PUT", f"{CLUSTER}-2", {"description": "x", **scoring})


# These stand for the generations of the provider and of the consumer when the body is sent.
_GENERATION, _OWN_GENERATION = "<generation>", "<generation of the consumer>"
FIRST = "0f000000-0000-4000-8000-0000000000ff"
PROVIDER, CONSUMER = "0a000000-0000-4000-8000-0000000000ff", "0c000000-0000-4000-8000-0000000000ff"


def scene(api: Client) -> None:
    """Set up a cluster with two nodes and a pod, and a provider beside it."""
    assert api.put(CLUSTER).status_code == 201
    for name in ("n1", "n2"):
        assert api.put(f"{CLUSTER}/nodes/{name}", node_manifests(name)).status_code == 201
    assert api.put(f"{CLUSTER}/pods/default/first", pod_manifest("2", uid=FIRST)).status_code == 201
    body = {"name": "beside", "uuid": PROVIDER}
    assert api.post("/resource_providers", body).status_code == 200
    api.offer(PROVIDER, VCPU=8)


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Yield the place of every value in a body, containers and JSON in texts included."""
    yield above
    if isinstance(value, str) and value[:1] in ("{", "["):
        for place in places(json.loads(value)):
            yield (*above, JSON, *place)
    members: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield from places(member, (*above, key))


def replaced(value: Any, place: Place, new: Any) -> Any:
    """Return a body with another value at a place."""
    if not place:
        return new
    key, *rest = place
    if key == JSON:
        return _text(replaced(json.loads(value), tuple(rest), new))
    changed = copy.copy(value)
    changed[key] = replaced(value[key], tuple(rest), new)
    return changed


def _text(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:
        return "9" * 4000


def send(api: Client, request: Request, body: Any) -> int:
    """Send a body, also what Python's JSON writes and no parser should take; return the status."""
    text = json.dumps(body)
    if f'"{_GENERATION}"' in text:
        text = text.replace(f'"{_GENERATION}"', json.dumps(api.generation(PROVIDER)))
    if _OWN_GENERATION in text:
        text = text.replace(f'"{_OWN_GENERATION}"', json.dumps(api.consumer_generation(CONSUMER)))
    if "/pods/default/" in request.path:
        # A pod that comes again must not change its class.
        api.delete(request.path)
    return api.call(request.method, request.path, text.encode(), Content_Type="application/json").status_code


def health(api: Client, *, briefly: bool = False) -> dict[str, int]:
    """Return the requests about the cluster that the service fails to answer, with the status.

    `briefly`: only those that read all of the cluster.
    """
    pod = pod_manifest("2")
    bound = {**pod, "metadata": {**pod["metadata"], "name": "asked"}}
    small = pod_manifest("1", qos=None, priority=None)
    small["metadata"]["name"] = "small"
    asked = [
        *(("GET", path, None) for path in (_BRIEF if briefly else _pages())),
        *(("POST", f"{CLUSTER}/pods/preview", each) for each in ((small,) if briefly else (bound, small))),
        *(("POST", f"{CLUSTER}/extender/{verb}", _about(bound)) for verb in ("filter", "prioritize")),
    ]
    asked += (
        ()
        if briefly
        else (
            (
                "POST",
                f"{CLUSTER}/extender/preempt",
                {"Pod": bound, "NodeNameToMetaVictims": {"n1": {}, "n2": {}}},
            ),
            ("POST", "/ext/v1/capacity", {"pod": small, "cluster": "edge"}),
            ("POST", f"{CLUSTER}/pods/translation", bound),
        )
    )
    found = {}
    for method, path, body in asked:
        status = api.call(method, path, body).status_code
        if status >= 500 or (status >= 400 and body is None):
            found[f"{method} {path}"] = status
    return found


def _about(pod: dict[str, Any]) -> dict[str, Any]:
    return {"Pod": pod, "NodeNames": ["n1", "n2"]}


_BRIEF = (f"{CLUSTER}/nodes", f"{CLUSTER}/nodes/n1", f"{CLUSTER}/pods", "/ui/map?cluster=edge")


def _pages() -> Iterator[str]:
    lists = ("", "/pods", "/pods?qos=LSR", "/pods?node=n1", "/pods?scheduled=true", "/reservations")
    for path in (*lists, "/nodes", "/nodes/n1", "/nodes/n2", "/pods/default/first"):
        yield f"{CLUSTER}{path}"
    yield from (
        "/ext/v1/hosts",
        f"/resource_providers/{PROVIDER}/inventories",
        "/ui/",
        "/ui/pods?cluster=edge",
        "/ui/map?cluster=edge",
    )


_QUANTITY_LIKE = re.compile(r"[0-9.]+([KMGTP]i|[munkMGTPE])?")


def alike(value: Any) -> Sequence[Any]:
    """Return the odd values of the kind of a value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return NUMBERS
    if isinstance(value, str) and value[:1] in ("{", "["):
        return ANNOTATIONS
    if isinstance(value, str):
        return QUANTITIES if _QUANTITY_LIKE.fullmatch(value) else TEXTS
    return OTHERS


def at(value: Any, place: Place) -> Any:
    """Return what is at a place of a body."""
    for key in place:
        value = json.loads(value) if key == JSON else value[key]
    return value


def variations(request: Request) -> Iterator[tuple[Place, Any, Any]]:
    """Yield each place of a body with each odd value of its kind, and the body that has it there."""
    for place in places(request.body):
        for value in alike(at(request.body, place)) if place else ():
            yield place, value, replaced(request.body, place, value)


def anything(request: Request, rng: random.Random) -> tuple[Place, Any, Any]:
    """Return some place of a body with any odd value, and the body that has it there."""
    place = rng.choice(list(places(request.body))[1:])
    value = rng.choice(EVERYTHING)
    return place, value, replaced(request.body, place, value)


def chosen(request: Request, count: int, rng: random.Random) -> Iterator[tuple[Place, Any, Any]]:
    """Yield so many places of a body, each with one odd value of its kind, and the body that has it there.

    Of the elements of a list only the first is tried. Limits are left out: requests alone may be anything.
    """
    body = _without_limits(request.body)
    found = [
        place for place in places(body) if place and not any(isinstance(key, int) and key for key in place)
    ]
    for place in rng.sample(found, min(count, len(found))):
        value = rng.choice(alike(at(body, place)))
        yield place, value, replaced(body, place, value)


def _without_limits(value: Any) -> Any:
    if isinstance(value, dict):
        rest = {key: _without_limits(member) for key, member in value.items() if key != "limits"}
        # Of this class amounts need no limits to match.
        return {key: "LS" if key == QOS else member for key, member in rest.items()}
    return list(map(_without_limits, value)) if isinstance(value, list) else value
