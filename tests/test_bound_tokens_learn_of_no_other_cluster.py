"""A token that is bound to a cluster is told nothing of the others over any route, and changes nothing there.

A service that has only that cluster answers what the token is to be told: each answer is compared with its.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_plus, urlencode

import pytest

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Conflict, Forbidden
from placement.http import context
from placement.providers import view
from tests.client import Client
from tests.reservations import reservation
from tests.two_fleets import BATCH, BOUND, OPERATOR, POD, READER, SERVICE, Fleet, fleet, pod

EDGE = "/ext/v1/clusters/edge"
UNKNOWN = "0f000000-0000-4000-8000-00000000ffff"
GROUP = "tenant-a"
OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
# What differs from answer to answer, whatever the service knows.
_PASSING = re.compile(
    r"req-[0-9a-f-]{36}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:Z|\+00:00)?|[0-9a-f]{64}"
    # Hosts that are imagined have no name, and a random uuid.
    r'|(?<="uuid":")[0-9a-f-]{36}(?=","name":null)'
)


@dataclass(frozen=True)
class Foreign:
    """Objects of other clusters that a caller asks about."""

    host: str
    cloud: str
    core: str
    shared: str
    consumer: str
    other_consumer: str
    pod: str
    reservation: str
    aggregate: str

    @property
    def consumers(self) -> list[str]:
        """All that may be named as consumers."""
        return [self.consumer, self.other_consumer, self.pod, self.reservation]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("whole"), ["edge", "batch", "cloud"]) as found:
        members = [{"count": 3, "group": GROUP, "query": "cluster=batch&resources=PCPU:1"}]
        assert found.api.as_(BATCH).post("/ext/v1/claims", {**OWNER, "members": members}).status_code == 200
        yield found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("alone"), ["edge"]) as found:
        yield found


@pytest.fixture(scope="module")
def foreign(whole: Fleet) -> Foreign:
    def uuid(name: str) -> str:
        (row,) = whole.rows(f"SELECT uuid FROM resource_providers WHERE name = '{name}'")
        return str(row[0])

    consumers = whole.rows(
        "SELECT DISTINCT consumer_id FROM allocations JOIN resource_providers p ON p.id = "
        "resource_provider_id WHERE p.name LIKE 'batch/batch-0%' "
        "AND consumer_id NOT IN (SELECT uid FROM pods) ORDER BY 1"
    )
    held = [str(row[0]) for row in consumers]
    pods = dict(
        whole.rows(
            "SELECT pods.name, pods.uid FROM pods JOIN clusters ON clusters.id = cluster_id "
            "WHERE clusters.name = 'batch'"
        )
    )
    (aggregate,) = whole.rows(
        "SELECT a.uuid FROM clusters JOIN placement_aggregates a ON a.id = aggregate_id WHERE name = 'batch'"
    )
    return Foreign(
        host=uuid("batch/batch-01"),
        cloud=uuid("cloud/compute-01"),
        core=uuid("cloud/compute-01/core-0-4"),
        shared=uuid("batch/lustre-scratch"),
        consumer=held[0],
        other_consumer=held[1],
        pod=str(pods["batch-only-pod"]),
        reservation=str(pods["batch-only-reservation"]),
        aggregate=str(aggregate[0]),
    )


@dataclass(frozen=True)
class Request:
    """A request. `differs`: why a service that has only the cluster edge answers otherwise, if so."""

    method: str
    path: str
    body: Any = None
    differs: str = ""

    @property
    def sent(self) -> str:
        """All that the caller sends."""
        return f"{self.path} {unquote_plus(self.path)} {json.dumps(self.body)}"


def queries(foreign: Foreign) -> list[str]:
    """Query strings of candidates of edge, that find something and that do not."""
    plain = [
        "resources=PCPU:1&limit=3",
        "resources=VCPU:20",
        "resources=PCPU:4000",
        "resources=PCPU:4,MEMORY_MB:9999999",
        "resources=DISK_GB:50",
        "resources=DISK_GB:999999999",
        "resources=DISK_GB:600000&resources1=PCPU:2&group_policy=none",
        "resources1=PCPU:2&resources2=SRIOV_NET_VF:1&group_policy=isolate",
        "resources1=PCPU:20&resources2=PCPU:20&group_policy=isolate&same_subtree=1,2",
        "resources=PCPU:30&split=PCPU&limit=3",
        "resources=PCPU:3000&split=PCPU",
        "resources=PCPU:1&root_required=HW_NUMA_ROOT",
        "resources=PCPU:1&required=HW_CPU_HYPERTHREADING&limit=2",
    ]
    asked = [
        f"resources=PCPU:1&member_of={foreign.aggregate}",
        f"resources=PCPU:1&member_of=!{foreign.aggregate}&limit=2",
    ]
    asked += [
        f"resources=PCPU:1&member_of=in:{foreign.aggregate},{UNKNOWN}",
        f"resources1=PCPU:1&member_of1={foreign.aggregate}&group_policy=none",
    ]
    asked += [
        f"resources=PCPU:1&in_tree={uuid}"
        for uuid in (foreign.host, foreign.cloud, foreign.core, foreign.shared)
    ]
    asked += [f"resources1=PCPU:1&in_tree1={foreign.cloud}&group_policy=none"]
    asked += [f"resources=PCPU:1&limit=2&prefer={foreign.aggregate}:5"]
    return plain + asked


def worlds(foreign: Foreign) -> list[dict[str, Any]]:
    """What a caller may wish different, of hosts that are there and that are not."""
    hosts = ["batch/batch-01", foreign.host, "cloud/compute-01", "batch/nosuch", UNKNOWN, "edge/edge-01"]
    found: list[dict[str, Any]] = [{"without": [name]} for name in hosts]
    found += [{"more": [{"like": name, "count": 1}]} for name in hosts]
    found += [
        {"inventories": [{"resource_class": "PCPU", "allocation_ratio": 2.0, "hosts": [name]}]}
        for name in hosts
    ]
    return [*found, {"inventories": [{"resource_class": "PCPU", "allocation_ratio": 2.0}]}]


def rules(foreign: Foreign) -> list[dict[str, Any]]:
    """Rules about consumers, groups and aggregates that are elsewhere, or nowhere."""
    pairs = [
        foreign.consumers[:1],
        foreign.consumers[:2],
        [foreign.consumer, UNKNOWN],
        [UNKNOWN],
        foreign.consumers,
    ]
    found: list[dict[str, Any]] = []
    for weight in ({}, {"weight": 1}):
        for consumers in pairs:
            found += [{"kind": kind, "consumers": consumers, **weight} for kind in ("together", "at_most")]
        for group in (GROUP, "no-such-group"):
            found += [{"kind": kind, "groups": [group], **weight} for kind in ("together", "at_most")]
        found += [
            {
                "kind": "at_most",
                "per": "aggregate",
                "aggregates": [foreign.aggregate],
                "consumers": foreign.consumers[:1],
                **weight,
            },
            {"kind": "spread", "per": "aggregate", "aggregates": [foreign.aggregate], **weight},
        ]
    return found


def claims(foreign: Foreign) -> Iterator[dict[str, Any]]:
    """Bodies of claims that write nothing: dry runs, and those that are refused."""
    query = "cluster=edge&resources=PCPU:1"
    member = {"consumer_uuid": UNKNOWN, "name": "m", "query": query}
    for rule in rules(foreign):
        yield {**OWNER, "dry_run": True, "members": [member], "rules": [rule]}
    for world in worlds(foreign):
        yield {**OWNER, "dry_run": True, "members": [member], "world": world}
    for text in queries(foreign):
        if "PCPU:1" not in text or foreign.aggregate in text or "in_tree" in text:
            given = f"cluster=edge&{text}".replace("&limit=2", "").replace("&limit=3", "")
            yield {**OWNER, "dry_run": True, "members": [{**member, "query": given}]}
    for resources in ("VCPU:20", "PCPU:40000", "DISK_GB:99999999"):
        yield {**OWNER, "consumer_uuid": UNKNOWN, "query": f"cluster=edge&resources={resources}"}
    yield {**OWNER, "dry_run": True, "members": [member], "server_group": {
        "id": GROUP, "name": "g", "policy": "affinity", "members": foreign.consumers}}  # fmt: skip


def plans(foreign: Foreign) -> Iterator[dict[str, Any]]:
    """Bodies of plans."""
    for name in ("batch/batch-01", foreign.host, "batch/nosuch", UNKNOWN, "edge/edge-02"):
        yield {"cluster": "edge", "goal": {"empty": [name]}, "limits": {"moves": 3}}
    yield {"cluster": "edge", "goal": {"free": 1}, "limits": {"moves": 3, "never": [foreign.consumer]}}
    yield {"cluster": "edge", "goal": {"free": 1}, "limits": {"moves": 3, "clusters": ["batch"]}}
    yield {"cluster": "edge", "goal": {"fit": {"querystring": "resources=PCPU:12", "count": 1}}}
    yield {
        "cluster": "edge",
        "goal": {"fit": {"querystring": f"resources=PCPU:1&in_tree={foreign.cloud}", "count": 1}},
    }


def moves(foreign: Foreign) -> Iterator[dict[str, Any]]:
    """Bodies that ask whether moves are still possible."""
    for consumer in (foreign.consumer, UNKNOWN):
        for host in (foreign.host, UNKNOWN):
            held = {host: {"resources": {"PCPU": 1}}}
            move = {
                "consumer": consumer, "consumer_generation": 1, "project_id": "p", "user_id": "u",
                "consumer_type": "INSTANCE", "kind": "query", "by": "rewriting", "from_host": host,
                "to_host": foreign.cloud, "from_allocations": held, "to_allocations": held,
            }  # fmt: skip
            yield {"cluster": "edge", "moves": [move]}


FLAVORS: list[dict[str, Any]] = [
    {
        "flavor": {"vcpus": vcpus, "memory_mb": ram, "root_gb": 1, "extra_specs": specs},
        "explain": True,
        "limit": 3,
    }
    for vcpus, ram in ((1, 64), (400, 64), (2, 99999999))
    for specs in ({}, {"hw:cpu_policy": "dedicated"})
]
_PAGES = ("", "&format=json", "&format=csv")


def requests(rule: str, method: str, foreign: Foreign) -> list[Request]:
    """The requests of a route; a route that is not known here raises LookupError."""
    key, path = f"{method} {rule}", rule
    for name, value in {
        "uuid": foreign.host, "consumer": foreign.consumer, "resource_class": "VCPU", "namespace": "default",
        "cluster": "edge", "node": "batch-01", "asset": "start.js", "text": foreign.host,
    }.items():  # fmt: skip
        path = path.replace(f"<{name}>", value)
    path = path.replace("<name>", "batch-only-pod")
    found = [Request(method, path, None if method in ("GET", "DELETE") else {})]
    if rule.startswith("/ext/v1/clusters/<cluster>"):
        elsewhere = rule.replace("<cluster>", "batch").replace("<node>", "batch-01")
        elsewhere = elsewhere.replace("<namespace>/<name>", "default/batch-only-pod")
        elsewhere = elsewhere.replace("<name>", "batch-only-reservation")
        found.append(Request(method, elsewhere, found[0].body))
    if key in ("DELETE /ext/v1/clusters/<cluster>", "PUT /ext/v1/clusters/<cluster>"):
        return found[1:]
    special = _SPECIAL.get(key)
    if special is not None:
        found += special(foreign)
    elif key not in _PLAIN:
        raise LookupError(f"{key} is not tried with tokens that are bound to a cluster: add it to this file")
    return found


def _each(method: str, path: str, bodies: Any) -> list[Request]:
    return [Request(method, path, body) for body in bodies]


def _pages(path: str, *given: dict[str, str]) -> list[Request]:
    return [Request("GET", f"{path}?{urlencode(each)}{form}") for each in given for form in _PAGES]


def _candidates(foreign: Foreign) -> list[Request]:
    path = "/ext/v1/allocation_candidates?cluster=edge"
    found = [Request("GET", f"{path}&{query}&explain=1") for query in queries(foreign)]
    found += [
        Request("GET", f"{path}&resources=PCPU:1&limit=2&world={quote(json.dumps(each))}")
        for each in worlds(foreign)
    ]
    found += [
        Request("GET", f"{path}&cluster=batch&resources=PCPU:1"),
        Request("GET", "/ext/v1/allocation_candidates?resources=PCPU:1&explain=1"),
    ]
    return found


def _json_candidates(foreign: Foreign) -> list[Request]:
    groups = (
        {"resources": {"VCPU": 20}},
        {"resources": {"PCPU": 1}, "member_of": [[foreign.aggregate]]},
        {"resources": {"PCPU": 1}, "in_tree": foreign.cloud},
    )
    bodies: list[dict[str, Any]] = [
        {"cluster": "edge", "groups": {"": group}, "explain": True} for group in groups
    ]
    bodies += [{**bodies[0], "world": world} for world in worlds(foreign)]
    return _each("POST", "/ext/v1/allocation_candidates", [*bodies, {**bodies[0], "cluster": "batch"}])


def _capacity(foreign: Foreign) -> list[Request]:
    path = "/ext/v1/capacity?cluster=edge"
    return [
        Request("GET", f"{path}&{query}&by=cluster,aggregate,host")
        for query in queries(foreign)
        if "limit" not in query
    ]


def _capacity_of_kinds(foreign: Foreign) -> list[Request]:
    kinds = {"a": {"querystring": "resources=PCPU:1"}}, {"b": {"pod": POD}}
    bodies = [
        {"cluster": "edge", "kinds": each, "by": ["cluster", "aggregate", "host"], "world": world}
        for world in worlds(foreign)
        for each in kinds
        if "a" in each or "inventories" not in world
    ]
    return _each("POST", "/ext/v1/capacity", [*bodies, {"cluster": "batch", "kinds": kinds[0]}])


def _listed(path: str) -> Any:
    def found(foreign: Foreign) -> list[Request]:
        given = ["", "cluster=edge", "cluster=batch", "cluster=edge&cluster=batch", "cluster=edge&limit=3"]
        given += [f"cluster=edge&consumer_uuid={uuid}" for uuid in foreign.consumers]
        given += [
            "cluster=edge&project_id=nightly",
            "cluster=edge&include=inventories,usages,traits,aggregates",
        ]
        return [Request("GET", f"{path}?{each}") for each in given]

    return found


def _pod_pages(foreign: Foreign) -> list[Request]:
    return _pages(
        "/ui/pods", {}, {"cluster": "edge"}, {"cluster": "batch"}, {"cluster": "edge", "node": "batch-01"}
    )


def _why(foreign: Foreign) -> list[Request]:
    given = [{"kind": "query", "cluster": "edge", "query": query} for query in queries(foreign)]
    given += [
        {"kind": "query", "cluster": "batch", "query": "resources=VCPU:20"},
        {"kind": "query", "query": "resources=VCPU:20"},
    ]
    given += [{"kind": "flavor", "cluster": "edge", "vcpus": "400", "ram": "64"}]
    given += [
        {
            "kind": "pod",
            "cluster": "edge",
            "pod": json.dumps({**POD, "spec": {**POD["spec"], "nodeName": "batch-01"}}),
        }
    ]
    return _pages("/ui/why", *given)


def _room(foreign: Foreign) -> list[Request]:
    names = ("", "batch/batch-01", "batch/nosuch", foreign.host)
    return _pages(
        "/ui/room",
        *(
            {"kind": "query", "cluster": "edge", "query": "resources=PCPU:1", "without": name}
            for name in names
        ),
    )


def _map(path: str) -> Any:
    def found(foreign: Foreign) -> list[Request]:
        ids = {"ids": ",".join(map(str, range(1, 200)))}
        return _pages(
            path,
            {},
            {"cluster": "edge"},
            {"cluster": "batch"},
            {"cluster": "edge", "by": "use", "class": "PCPU"},
            {"cluster": "edge", **ids},
        )

    return found


def _search(foreign: Foreign) -> list[Request]:
    texts = (
        "batch",
        "cloud",
        "compute-01",
        "nightly",
        "spark",
        foreign.host,
        foreign.consumer,
        foreign.pod[:8],
        "only",
        "0",
        "e",
    )
    return _pages("/ui/search", *({"q": text} for text in texts))


def _uids(path: str, body: Any) -> Any:
    def found(foreign: Foreign) -> list[Request]:
        why = "a consumer elsewhere has the uid"
        return [Request("PUT", f"{EDGE}/{path}", body(uuid), differs=why) for uuid in foreign.consumers]

    return found


def _reservation(uid: str) -> dict[str, Any]:
    found = reservation("mine", "1")
    return {**found, "metadata": {**found["metadata"], "uid": uid}}


def _extended(verb: str) -> Any:
    def found(foreign: Foreign) -> list[Request]:
        asked = {"Pod": pod("asked", uid=UNKNOWN), "NodeNames": ["edge-01", "batch-01", "cloud/compute-01"]}
        victims = {"batch-01": {"Pods": [{"UID": foreign.pod}]}, "edge-01": {"Pods": [{"UID": foreign.pod}]}}
        bound = {"PodName": "batch-only-pod", "PodNamespace": "default", "PodUID": foreign.pod}
        bodies = {
            "filter": [asked],
            "prioritize": [asked],
            "preempt": [{"Pod": asked["Pod"], "NodeNameToMetaVictims": victims}],
            "bind": [{**bound, "Node": node} for node in ("edge-01", "batch-01")],
        }
        return _each("POST", f"{EDGE}/extender/{verb}", bodies[verb])

    return found


_SPECIAL: dict[str, Any] = {
    "GET /ext/v1/allocation_candidates": _candidates,
    "POST /ext/v1/allocation_candidates": _json_candidates,
    "GET /ext/v1/capacity": _capacity,
    "POST /ext/v1/capacity": _capacity_of_kinds,
    "POST /ext/v1/claims": lambda foreign: [
        *_each("POST", "/ext/v1/claims", claims(foreign)),
        *(
            Request(
                "POST",
                "/ext/v1/claims",
                {**OWNER, "consumer_uuid": uuid, "query": f"cluster=edge&resources={asked}"},
                "there is such a consumer",
            )
            for uuid in foreign.consumers
            for asked in ("PCPU:1", "PCPU:40000")
        ),
    ],
    "POST /ext/v1/plans": lambda foreign: _each("POST", "/ext/v1/plans", plans(foreign)),
    "POST /ext/v1/plans/check": lambda foreign: _each("POST", "/ext/v1/plans/check", moves(foreign)),
    "POST /ext/v1/flavors/candidates": lambda foreign: _each(
        "POST",
        "/ext/v1/flavors/candidates",
        [{**each, "cluster": name} for each in FLAVORS for name in ("edge", "batch")],
    ),
    "POST /ext/v1/flavors/translation": lambda foreign: _each(
        "POST", "/ext/v1/flavors/translation", [FLAVORS[0]]
    ),
    "GET /ext/v1/allocations": _listed("/ext/v1/allocations"),
    "GET /ext/v1/resource_providers": _listed("/ext/v1/resource_providers"),
    "GET /ext/v1/audit": lambda foreign: [
        Request("GET", f"/ext/v1/audit?{name}={value}")
        for name, value in (
            ("cluster", "edge"),
            ("consumer_uuid", foreign.consumer),
            ("target", foreign.host),
        )
    ],
    "PUT /ext/v1/clusters/<cluster>/pods/<namespace>/<name>": _uids(
        "pods/default/mine", lambda uid: pod("mine", uid=uid)
    ),
    "PUT /ext/v1/clusters/<cluster>/reservations/<name>": _uids("reservations/mine", _reservation),
    "POST /ext/v1/clusters/<cluster>/pods": lambda foreign: [
        Request(
            "POST",
            f"{EDGE}/pods",
            {"kind": "List", "items": [pod("mine", uid=foreign.pod)]},
            "a pod elsewhere has the uid",
        )
    ],
    "POST /ext/v1/clusters/<cluster>/pods/preview": lambda foreign: _each(
        "POST", f"{EDGE}/pods/preview", [POD, pod("x", uid=foreign.pod)]
    ),
    "POST /ext/v1/clusters/<cluster>/pods/translation": lambda foreign: _each(
        "POST", f"{EDGE}/pods/translation", [POD]
    ),
    "GET /ext/v1/clusters/<cluster>/nodes/<node>": lambda foreign: [Request("GET", f"{EDGE}/nodes/edge-01")],
    "GET /ext/v1/clusters/<cluster>/pods": lambda foreign: [
        Request("GET", f"{EDGE}/pods?node=batch-01"),
        Request("GET", f"{EDGE}/pods?namespace=default"),
    ],
    "POST /ext/v1/clusters/<cluster>/extender/filter": _extended("filter"),
    "POST /ext/v1/clusters/<cluster>/extender/prioritize": _extended("prioritize"),
    "POST /ext/v1/clusters/<cluster>/extender/bind": _extended("bind"),
    "POST /ext/v1/clusters/<cluster>/extender/preempt": _extended("preempt"),
    "GET /usages": lambda foreign: [Request("GET", "/usages?project_id=nightly")],
    "GET /ui/why": _why,
    "GET /ui/room": _room,
    "GET /ui/moves": lambda foreign: _pages(
        "/ui/moves", {}, {"cluster": "edge", "goal": "empty", "hosts": "batch/batch-01"}, {"cluster": "batch"}
    ),
    "GET /ui/search": _search,
    "GET /ui/pods": _pod_pages,
    "GET /ui/": lambda foreign: _pages("/ui/", {}),
    "GET /ui/map": _map("/ui/map"),
    "GET /ui/map/data": _map("/ui/map/data"),
    "GET /ui/map/hosts": _map("/ui/map/hosts"),
    "GET /ui/map/host/<text>": _map("/ui/map/host/batch-01"),
    "GET /ui/hosts": _map("/ui/hosts"),
    "GET /ui/consumers": _map("/ui/consumers"),
    "GET /ui/refusals": lambda foreign: _pages("/ui/refusals", {}, {"cluster": "edge"}, {"cluster": "batch"}),
    "GET /ui/nodes/<cluster>/<node>": lambda foreign: _pages("/ui/nodes/batch/batch-01", {}),
    "GET /ui/hosts/<uuid>": lambda foreign: [
        each
        for uuid in (foreign.host, foreign.cloud, foreign.core, foreign.shared)
        for each in _pages(f"/ui/hosts/{uuid}", {})
    ],
    "GET /ui/pods/<cluster>/<namespace>/<name>": lambda foreign: (
        _pages("/ui/pods/batch/default/batch-only-pod", {})
        + _pages("/ui/pods/edge/default/edge-only-pod", {})
    ),
}
_PLAIN = frozenset(
    f"{method} {path}"
    for path, methods in {
        "/": "GET", "/allocation_candidates": "GET", "/allocations": "POST",
        "/allocations/<consumer>": "GET PUT DELETE", "/docs": "GET", "/docs/<asset>": "GET",
        "/ext/v1/clusters": "GET", "/ext/v1/clusters/<cluster>": "GET",
        "/ext/v1/clusters/<cluster>/nodes": "GET POST",
        "/ext/v1/clusters/<cluster>/nodes/<node>": "PUT DELETE", "/ext/v1/events": "GET",
        "/ext/v1/clusters/<cluster>/pods/<namespace>/<name>": "GET DELETE",
        "/ext/v1/clusters/<cluster>/reservations": "GET",
        "/ext/v1/clusters/<cluster>/reservations/<name>": "GET DELETE",
        "/healthcheck": "GET", "/livez": "GET", "/readyz": "GET", "/openapi.json": "GET", "/reshaper": "POST",
        "/resource_classes": "GET POST", "/resource_classes/<name>": "GET PUT DELETE",
        "/resource_providers": "GET POST", "/resource_providers/<uuid>": "GET PUT DELETE",
        "/resource_providers/<uuid>/aggregates": "GET PUT", "/resource_providers/<uuid>/allocations": "GET",
        "/resource_providers/<uuid>/inventories": "GET POST PUT DELETE",
        "/resource_providers/<uuid>/inventories/<resource_class>": "GET PUT DELETE",
        "/resource_providers/<uuid>/traits": "GET PUT DELETE", "/resource_providers/<uuid>/usages": "GET",
        "/traits": "GET", "/traits/<name>": "GET PUT DELETE",
        "/ui": "GET", "/ui/<path:rest>": "GET POST", "/ui/changes": "GET", "/ui/changes/<text>": "GET",
        "/ui/why": "POST", "/ui/room": "POST", "/ui/moves": "POST",
        "/ui/claims": "POST", "/ui/consumers/<uuid>": "GET", "/ui/consumers/<uuid>/release": "POST",
        "/ui/hosts/<uuid>/drawing": "GET", "/ui/hosts/<uuid>/providers": "GET", "/ui/names/clusters": "GET",
        "/ui/pod-claims": "POST", "/ui/pods/<cluster>/<namespace>/<name>/release": "POST",
        "/ui/sign-in": "GET POST", "/ui/sign-out": "POST", "/ui/static/<name>": "GET",
    }.items()
    for method in methods.split()
)  # fmt: skip
# Figures of the whole service are for all who reach the port (SECURITY.md).
_FOR_ALL = frozenset({"GET /metrics", "GET /readyz", "GET /healthcheck"})


def routes(service: Fleet) -> list[tuple[str, str]]:
    """The routes there are: those of the document, and the pages."""
    rules = service.api.http.application.url_map.iter_rules()
    return sorted(
        (rule.rule, method)
        for rule in rules
        for method in rule.methods or ()
        if method != "HEAD" and f"{method} {rule.rule}" not in _FOR_ALL
    )


def every_request(service: Fleet, foreign: Foreign) -> list[Request]:
    found = [each for rule, method in routes(service) for each in requests(rule, method, foreign)]
    return list({each.sent + each.method: each for each in found}.values())


def told(fleet: Fleet, token: str, asked: Request) -> tuple[int, str]:
    """Status and body of an answer, without what differs from call to call."""
    answer = fleet.api.as_(token).call(asked.method, asked.path, asked.body)
    where = answer.headers.get("Location", "")
    return answer.status_code, _PASSING.sub(
        "*", f"{answer.get_data().decode(errors='backslashreplace')} {where}"
    )


def test_every_route_of_the_document_is_tried(whole: Fleet, foreign: Foreign):
    tried = {f"{method} {rule}" for rule, method in routes(whole)} | _FOR_ALL
    document = whole.api.get("/openapi.json").json["paths"]
    named = {
        f"{method.upper()} {re.sub('[{]([a-z_]+)[}]', '<>', path)}"
        for path, operations in document.items()
        for method in operations
        if method in ("get", "put", "post", "delete", "patch")
    }
    assert named <= {re.sub("<[a-z_:]+>", "<>", each) for each in tried}
    for rule, method in routes(whole):
        assert requests(rule, method, foreign) or method in ("PUT", "DELETE"), (rule, method)


@pytest.mark.parametrize("token", BOUND, ids=["service", "admin", "reader"])
def test_no_answer_tells_of_other_clusters_and_nothing_changes_there(
    whole: Fleet, alone: Fleet, foreign: Foreign, token: str
):
    secrets, before = whole.secrets(), whole.others()
    anywhere = re.compile("|".join(sorted(map(re.escape, secrets), key=len, reverse=True)))
    wrong = []
    statuses: dict[int, int] = {}
    asked = every_request(whole, foreign)
    for request in asked:
        status, text = told(whole, token, request)
        statuses[status] = statuses.get(status, 0) + 1
        names = {name for name in anywhere.findall(text) if name not in request.sent}
        if names:
            wrong.append((request, status, "names", sorted(names)[:5]))
        if request.differs:
            continue
        expected = told(alone, token, request)
        if (status, text) != expected:
            at = next(at for at in range(len(text) + 1) if text[:at] != expected[1][:at] or at == len(text))
            around = slice(max(0, at - 60), at + 60)
            wrong.append((request, status, expected[0], text[around], expected[1][around]))
    assert not wrong, "\n\n".join(map(str, [len(wrong), *wrong[:12]]))
    assert len(asked) > 400
    assert token == READER or statuses[200] > 100, statuses
    assert whole.others() == before


def test_a_route_that_is_not_tried_here_is_found(foreign: Foreign):
    with pytest.raises(LookupError, match="GET /ext/v1/new is not tried"):
        requests("/ext/v1/new", "GET", foreign)


# -- groups ---------------------------------------------------------------------------------------------


def claimed(fleet: Fleet, token: str, query: str, **more: Any) -> Any:
    member = {"name": "m", "count": 1, "query": query, **more.pop("member", {})}
    return fleet.api.as_(token).post("/ext/v1/claims", {**OWNER, "members": [member], **more})


def test_groups_of_one_cluster_stop_nobody_in_another(whole: Fleet):
    together = [{"kind": "together", "groups": ["server-group"]}]
    joining = {"group": "server-group"}
    assert claimed(whole, SERVICE, "cluster=edge&resources=PCPU:1", member=joining).status_code == 200
    for token, query in ((BATCH, "cluster=batch&resources=PCPU:1"), (OPERATOR, "resources=VCPU:1")):
        (member,) = claimed(whole, token, query, member=joining, rules=together, dry_run=True).json["members"]
        assert member["status"] == 200, member


def test_a_group_of_a_cluster_counts_in_its_own_rules(whole: Fleet):
    query = "cluster=edge&resources=PCPU:1"
    first = claimed(whole, SERVICE, query, member={"group": "own-group"}).json["members"][0]
    rules = [{"kind": "together", "groups": ["own-group"]}]
    second = claimed(whole, SERVICE, query, member={"group": "own-group"}, rules=rules).json["members"][0]
    roots = {
        whole.rows(
            "SELECT root_provider_id FROM resource_providers "
            f"WHERE uuid = '{next(iter(each['allocations']))}'"
        )[0]
        for each in (first, second)
    }
    assert len(roots) == 1
    alone = claimed(whole, SERVICE, query, rules=[{**rules[0], "consumers": [first["consumer_uuid"]]}])
    assert alone.json["members"][0]["status"] == 201


def test_names_of_groups_are_as_long_as_ever(whole: Fleet):
    for name in ("g" * 255, "ü" * 255):
        answer = claimed(whole, SERVICE, "cluster=edge&resources=PCPU:1", member={"group": name})
        assert answer.json["members"][0]["status"] == 201
    stored = [row[0] for row in whole.rows("SELECT name FROM consumer_groups")]
    assert max(map(len, stored)) <= 255


# -- uuids that are taken -------------------------------------------------------------------------------


def test_a_taken_uuid_is_refused_in_one_text_whatever_has_it(whole: Fleet, foreign: Foreign):
    idle = "0f000000-0000-4000-8000-00000000abcd"
    (host,) = whole.rows("SELECT uuid FROM resource_providers WHERE name = 'cloud/compute-02/numa-0'")
    assert whole.api.claim({host[0]: {"MEMORY_MB": 1}}, consumer=idle).status_code == 204
    texts = set()
    own = claimed(whole, SERVICE, "cluster=edge&resources=PCPU:1").json["members"][0]["consumer_uuid"]
    for uuid in (*foreign.consumers, idle, own):
        claim = {**OWNER, "consumer_uuid": uuid, "query": "cluster=edge&resources=PCPU:3"}
        answer = whole.api.as_(SERVICE).post("/ext/v1/claims", claim)
        assert answer.status_code == 409, answer.text
        texts.add(answer.json["errors"][0]["detail"].replace(uuid, "*"))
    assert len(texts) == 1, texts


@pytest.mark.parametrize("path", ["pods/default/mine", "reservations/mine"])
def test_a_taken_uid_is_refused_in_one_text_whatever_has_it(whole: Fleet, foreign: Foreign, path: str):
    texts = set()
    for uuid in foreign.consumers:
        body = pod("mine", uid=uuid) if path.startswith("pods") else _reservation(uuid)
        answer = whole.api.as_(SERVICE).put(f"{EDGE}/{path}", body)
        assert answer.status_code == 409, answer.text
        texts.add(answer.json["errors"][0]["detail"].replace(uuid, "*"))
    assert len(texts) == 1, texts


# -- what has no scope sees nothing ---------------------------------------------------------------------


@pytest.fixture
def unscoped(whole: Fleet) -> Iterator[Any]:
    """The use cases of a request whose gate has not spoken."""
    request_scope.see(request_scope.NOTHING)
    with whole.api.http.application.app_context():
        yield context.use_cases()
    request_scope.see(request_scope.EVERYTHING)


def test_without_a_scope_the_forest_is_empty(unscoped: Any):
    assert not unscoped.candidates.view().forest.alive().any()
    assert len(unscoped.hosts.look().classes()) == 0


@pytest.mark.parametrize("name", ["providers", "holdings", "claims", "inventories", "audit", "reshaper"])
def test_without_a_scope_use_cases_that_know_no_clusters_are_refused(unscoped: Any, name: str):
    with pytest.raises(Forbidden):
        getattr(unscoped, name)


def test_without_a_scope_no_list_is_told(unscoped: Any):
    with pytest.raises(Forbidden):
        unscoped.finder.providers("e", None, 5)
    with pytest.raises(Forbidden):
        unscoped.listings.providers(None, (), 0, 5)


def test_outside_of_requests_everything_is_seen(whole: Fleet):
    whole.api.as_(SERVICE).get("/ext/v1/clusters")
    application = whole.api.http.application
    with application.app_context():
        assert context.use_cases() is application.extensions["placement_use_cases"]
    assert request_scope.seen() is request_scope.EVERYTHING


# -- pools --------------------------------------------------------------------------------------------


def test_a_pool_that_shares_with_the_cluster_is_seen_and_its_others_are_not(whole: Fleet, foreign: Foreign):
    api, both = whole.api, "0e000000-0000-4000-8000-00000000b07b"
    pool = api.provider("pool-of-both", CUSTOM_POOL={"total": 100}) if _has_class(api) else ""
    api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
    api.join(pool, both)
    for name in ("edge/edge-01", "cloud/compute-01"):
        (uuid,) = whole.rows(f"SELECT uuid FROM resource_providers WHERE name = '{name}'")
        api.join(uuid[0], *api.get(f"/resource_providers/{uuid[0]}/aggregates").json["aggregates"], both)
    path = "/ext/v1/allocation_candidates?cluster=edge&explain=1&resources=CUSTOM_POOL:"
    (found,) = api.as_(SERVICE).get(f"{path}10").json["allocation_requests"]
    assert list(found["allocations"]) == [pool]
    stages = api.as_(SERVICE).get(f"{path}1000").json["explanation"]["stages"]
    assert (stages[0]["came"], stages[0]["providers"]) == (1, 0)
    assert foreign.cloud not in api.as_(SERVICE).get(f"{path}1000").text


def _has_class(api: Client) -> bool:
    return api.put("/resource_classes/CUSTOM_POOL").status_code in (201, 204)


def test_callers_who_see_something_else_are_not_served_together(
    whole: Fleet, monkeypatch: pytest.MonkeyPatch
):
    best_fit = whole.api.http.application.extensions["placement_use_cases"].best_fit
    keys = []

    def asked(key: Any, _asked: Any, alone: Any) -> Any:
        keys.append(key)
        return alone()

    monkeypatch.setattr(best_fit._like_claims._gathering, "ask", asked)
    monkeypatch.setattr(type(best_fit._claims), "may_be_gathered", True)
    claim = {**OWNER, "consumer_uuid": UNKNOWN, "query": "cluster=edge&resources=PCPU:40000"}
    for token in (SERVICE, OPERATOR, SERVICE):
        assert whole.api.as_(token).post("/ext/v1/claims", claim).status_code == 409
    assert keys[0] == keys[2] != keys[1]


def test_every_reason_against_a_uuid_is_told_as_one():
    request_scope.see(frozenset(("edge",)))
    try:
        told = {str(view.refusal(UNKNOWN, Conflict(reason))) for reason in ("a pod", "of project p")}
    finally:
        request_scope.see(request_scope.EVERYTHING)
    assert told == {str(view.taken(UNKNOWN))}


def test_a_consumer_that_holds_something_elsewhere_is_hidden_whatever_else_it_holds(
    whole: Fleet, foreign: Foreign
):
    keeper = whole.api.http.application.extensions["placement_use_cases"].forest
    pool, host = (
        whole.rows(f"SELECT uuid FROM resource_providers WHERE name = 'edge/{name}'")[0][0]
        for name in ("ceph-rbd", "edge-01")
    )
    held: dict[str, dict[str, object]] = {
        "here": {pool: 1, host: 1},
        "on the pool": {pool: 1},
        "elsewhere, too": {pool: 1, foreign.core: 1},
        "nowhere": {},
    }
    request_scope.see(frozenset(("edge",)))
    try:
        assert view.hidden(held, lambda: keeper.current().forest) == {"elsewhere, too", "nowhere"}
    finally:
        request_scope.see(request_scope.EVERYTHING)
