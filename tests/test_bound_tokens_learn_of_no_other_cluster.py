"""A token that is bound to a cluster is told nothing of the others over any route, and changes nothing there.

A service that has only that cluster answers what the token is to be told: each answer is compared with its.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import pytest

from placement.allocations.best_fit import BestFit
from placement.allocations.candidates import CandidateSearch
from placement.allocations.claims import Claims
from placement.allocations.holdings import Holdings, Listings
from placement.allocations.reshaper import Reshaper
from placement.audit.service import AuditTrail
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Conflict, Forbidden
from placement.http.context import service
from placement.http.registry import Registry, registry_of
from placement.pods.services.finder import Finder
from placement.providers import view
from placement.providers.fleet import Hosts
from placement.providers.inventories import Inventories
from placement.providers.service import Providers
from placement.providers.view import ForestKeeper
from tests.reservations import reservation
from tests.two_fleets import ADMIN, BATCH, BOUND, OPERATOR, POD, READER, SERVICE, Fleet, fleet, pod

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
        "SELECT a.uuid FROM clusters JOIN placement_aggregates a ON a.id = aggregate_id "
        "WHERE clusters.name = 'batch'"
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


_DATA = json.loads((Path(__file__).parent / "data" / "requests_of_bound_tokens.json").read_text())
_PLACE = re.compile(r"\{(\w+)(:q)?\}")
_PATH = {
    "consumer": "consumer", "resource_class": "VCPU", "namespace": "default", "cluster": "edge",
    "node": "batch-01", "asset": "start.js", "name": "batch-only-pod",
}  # fmt: skip
_TRIED = frozenset(
    f"{method} {path}" for path, methods in _DATA["tried_without_more"].items() for method in methods.split()
)


class Values:
    """The values that places of the requests in the file take: each of those with that name, in turn."""

    def __init__(self, foreign: Foreign) -> None:
        taken = (
            [_reservation("mine", uid) for uid in foreign.consumers],
            [pod("mine", uid=uid) for uid in foreign.consumers],
        )
        self._known: dict[str, list[Any]] = {name: [value] for name, value in asdict(foreign).items()}
        self._known |= {
            "unknown": [UNKNOWN],
            "owner": [OWNER],
            "pod_start": [foreign.pod[:8]],
            "ids": [",".join(map(str, range(1, 200)))],
            "manifest": [POD],
            "pod_of_batch": [{**POD, "spec": {**POD["spec"], "nodeName": "batch-01"}}],
            "unknown_pod": [pod("asked", uid=UNKNOWN)],
            "taken_reservation": taken[0],
            "taken_pod": taken[1],
        }

    def named(self, name: str) -> list[Any]:
        if name not in self._known:
            self._known[name] = [each for value in _DATA["values"][name] for each in self.expanded(value)]
        return self._known[name]

    def expanded(self, template: Any) -> Iterator[Any]:
        """The template with each combination of values; `and` names members of the object around it."""
        text = json.dumps(template)
        place = _PLACE.search(text)
        if place is None:
            yield json.loads(text, object_hook=lambda given: {**given.pop("and", {}), **given})
            return
        for value in self.named(place[1]):
            plain = value if isinstance(value, str) else json.dumps(value)
            filled = text.replace(f'"{{{place[1]}}}"', json.dumps(value))
            filled = filled.replace(f"{{{place[1]}:q}}", quote(plain)).replace(f"{{{place[1]}}}", plain)
            yield from self.expanded(json.loads(filled))


def requests(rule: str, method: str, foreign: Foreign) -> list[Request]:
    """The requests of a route as it is, of objects that are elsewhere."""
    path = rule.replace("<uuid>", foreign.host).replace("<text>", foreign.host)
    for name, value in {**_PATH, "consumer": foreign.consumer}.items():
        path = path.replace(f"<{name}>", value)
    found = [Request(method, path, None if method in ("GET", "DELETE") else {})]
    if rule.startswith("/ext/v1/clusters/<cluster>"):
        elsewhere = rule.replace("<cluster>", "batch").replace("<node>", "batch-01")
        elsewhere = elsewhere.replace("<namespace>/<name>", "default/batch-only-pod")
        elsewhere = elsewhere.replace("<name>", "batch-only-reservation")
        found.append(Request(method, elsewhere, found[0].body))
    return found[1:] if rule == "/ext/v1/clusters/<cluster>" and method in ("DELETE", "PUT") else found


def _reservation(name: str, uid: str) -> dict[str, Any]:
    found = reservation(name, "1")
    return {**found, "metadata": {**found["metadata"], "uid": uid}}


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


def listed(foreign: Foreign) -> list[Request]:
    """The requests of the file."""
    values = Values(foreign)
    return [
        Request(method, asked, body, *more[1:])
        for method, path, *more in _DATA["requests"]
        for asked, body in values.expanded([path, more[0] if more else None])
    ]


def every_request(service: Fleet, foreign: Foreign) -> list[Request]:
    found = [each for rule, method in routes(service) for each in requests(rule, method, foreign)]
    return list({each.sent + each.method: each for each in found + listed(foreign)}.values())


def told(fleet: Fleet, token: str, asked: Request) -> tuple[int, str]:
    """Status and body of an answer, without what differs from call to call."""
    fleet.look()
    answer = fleet.api.as_(token).call(asked.method, asked.path, asked.body)
    where = answer.headers.get("Location", "")
    return answer.status_code, _PASSING.sub(
        "*", f"{answer.get_data().decode(errors='backslashreplace')} {where}"
    )


def test_every_route_is_tried(whole: Fleet, foreign: Foreign):
    routing = whole.api.http.application.url_map.bind("localhost")
    more = {
        f"{each.method} {routing.match(each.path.partition('?')[0], each.method, return_rule=True)[0].rule}"
        for each in listed(foreign)
    }
    missing = {f"{method} {rule}" for rule, method in routes(whole)} - more - _TRIED
    assert not missing, "add requests to tests/data/requests_of_bound_tokens.json"
    document = whole.api.get("/openapi.json").json["paths"]
    named = {
        f"{method.upper()} {re.sub('[{]([a-z_]+)[}]', '<>', path)}"
        for path, operations in document.items()
        for method in operations
        if method in ("get", "put", "post", "delete", "patch")
    }
    tried = {f"{method} {rule}" for rule, method in routes(whole)} | _FOR_ALL
    assert named <= {re.sub("<[a-z_:]+>", "<>", each) for each in tried}


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
        expected = None if request.differs else told(alone, token, request)
        if (status, text) == expected:
            # A service without the other clusters answers this, such as examples of /openapi.json.
            continue
        names = {name for name in anywhere.findall(text) if name not in request.sent}
        if names:
            wrong.append((request, status, "names", sorted(names)[:5]))
        if expected is not None:
            pairs = enumerate(zip(text, expected[1], strict=False))
            at = next((at for at, (mine, other) in pairs if mine != other), 0)
            around = slice(max(0, at - 60), at + 60)
            wrong.append((request, status, expected[0], text[around], expected[1][around]))
    assert not wrong, "\n\n".join(map(str, [len(wrong), *wrong[:12]]))
    assert len(asked) > 400
    assert token == READER or statuses[200] > 100, statuses
    assert whole.others() == before


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


def refused_in_one_text(answers: Iterable[tuple[str, Any]]) -> None:
    texts = set()
    for uuid, answer in answers:
        assert answer.status_code == 409, answer.text
        texts.add(answer.json["errors"][0]["detail"].replace(uuid, "*"))
    assert len(texts) == 1, texts


def test_a_taken_uuid_is_refused_in_one_text_whatever_has_it(whole: Fleet, foreign: Foreign):
    idle, service = "0f000000-0000-4000-8000-00000000abcd", whole.api.as_(SERVICE)
    (host,) = whole.rows("SELECT uuid FROM resource_providers WHERE name = 'cloud/compute-02/numa-0'")
    assert whole.api.claim({host[0]: {"MEMORY_MB": 1}}, consumer=idle).status_code == 204
    own = claimed(whole, SERVICE, "cluster=edge&resources=PCPU:1").json["members"][0]["consumer_uuid"]
    claim = {**OWNER, "query": "cluster=edge&resources=PCPU:3"}
    refused_in_one_text(
        (uuid, service.post("/ext/v1/claims", {**claim, "consumer_uuid": uuid}))
        for uuid in (*foreign.consumers, idle, own)
    )
    for path, manifest in (("pods/default/mine", pod), ("reservations/mine", _reservation)):
        refused_in_one_text(
            (uid, service.put(f"{EDGE}/{path}", manifest("mine", uid=uid))) for uid in foreign.consumers
        )


# -- what has no scope sees nothing ---------------------------------------------------------------------


@pytest.fixture
def unscoped(whole: Fleet) -> Iterator[Registry]:
    """The objects of an application, in a request whose gate has not spoken."""
    request_scope.show_only(request_scope.NOTHING)
    with whole.api.http.application.app_context():
        yield registry_of(whole.api.http.application)
    request_scope.show_only(request_scope.EVERYTHING)


def test_without_a_scope_the_forest_is_empty_and_no_list_is_told(unscoped: Registry):
    assert not service(CandidateSearch).view().forest.alive().any()
    assert len(service(Hosts).look().classes()) == 0
    for kind in (Providers, Holdings, Claims, Inventories, AuditTrail, Reshaper):
        with pytest.raises(Forbidden):
            service(kind)
    with pytest.raises(Forbidden):
        service(Finder).providers("e", None, 5)
    with pytest.raises(Forbidden):
        service(Listings).providers(None, (), 0, 5)


OPEN = {
    *("Aggregates", "BestFit", "BoundPods", "CandidateSearch", "ClosedNodes", "Clusters", "Extender"),
    *("Finder", "Flavors", "FleetCapacity", "Health", "HostViews", "Hosts", "ImaginedSearch", "Listings"),
    *("NodeImports", "Planning", "Plans", "PodTranslation", "Pods", "Preemption", "Reservations"),
    "UseHistory",
}


def test_each_class_says_whether_bound_callers_reach_it(unscoped: Registry):
    assert {kind.__name__ for kind in unscoped.objects if "for_bound_callers" in vars(kind)} == OPEN
    for kind in unscoped.objects:
        # What a class is derived from does not open it.
        if "for_bound_callers" in vars(kind):
            assert service(kind) is unscoped[kind]
        else:
            with pytest.raises(Forbidden):
                service(kind)


def test_outside_of_requests_everything_is_seen(whole: Fleet):
    whole.api.as_(SERVICE).get("/ext/v1/clusters")
    application = whole.api.http.application
    with application.app_context():
        for kind, found in registry_of(application).objects.items():
            assert service(kind) is found
    assert request_scope.visible_clusters() is request_scope.EVERYTHING


# -- pools --------------------------------------------------------------------------------------------


def test_a_pool_that_shares_with_the_cluster_is_seen_and_its_others_are_not(whole: Fleet, foreign: Foreign):
    api, both = whole.api, "0e000000-0000-4000-8000-00000000b07b"
    assert api.put("/resource_classes/CUSTOM_POOL").status_code == 201
    pool = api.provider("pool-of-both", CUSTOM_POOL={"total": 100})
    api.carry(pool, "MISC_SHARES_VIA_AGGREGATE")
    api.join(pool, both)
    for name in ("edge/edge-01", "cloud/compute-01"):
        (uuid,) = whole.rows(f"SELECT uuid FROM resource_providers WHERE name = '{name}'")
        api.join(uuid[0], *api.get(f"/resource_providers/{uuid[0]}/aggregates").json["aggregates"], both)
    path = "/ext/v1/allocation_candidates?cluster=edge&explain=1&resources=CUSTOM_POOL:"
    (found,) = api.as_(SERVICE).get(f"{path}10").json["allocation_requests"]
    assert list(found["allocations"]) == [pool]
    refused = api.as_(SERVICE).get(f"{path}1000")
    stages = refused.json["explanation"]["stages"]
    amount = next(stage for stage in stages if stage["kind"] == "amount")
    assert (amount["came"], amount["providers"]) == (1, 0)
    assert foreign.cloud not in refused.text


def test_callers_who_see_something_else_are_not_served_together(
    whole: Fleet, monkeypatch: pytest.MonkeyPatch
):
    best_fit = registry_of(whole.api.http.application)[BestFit]
    keys = []

    def asked(key: Any, _asked: Any, alone: Any) -> Any:
        keys.append(key)
        return alone()

    monkeypatch.setattr(best_fit._coalescer, "ask", asked)
    claim = {**OWNER, "consumer_uuid": UNKNOWN, "query": "cluster=edge&resources=PCPU:40000"}
    for token in (SERVICE, OPERATOR, SERVICE):
        assert whole.api.as_(token).post("/ext/v1/claims", claim).status_code == 409
    assert keys[0] == keys[2] != keys[1]


def test_every_reason_against_a_uuid_is_told_as_one():
    request_scope.show_only(frozenset(("edge",)))
    try:
        told = {str(view.refusal(UNKNOWN, Conflict(reason))) for reason in ("a pod", "of project p")}
    finally:
        request_scope.show_only(request_scope.EVERYTHING)
    assert told == {str(view.taken(UNKNOWN))}


def test_a_consumer_that_holds_something_elsewhere_is_hidden_whatever_else_it_holds(
    whole: Fleet, foreign: Foreign
):
    keeper = registry_of(whole.api.http.application)[ForestKeeper]
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
    request_scope.show_only(frozenset(("edge",)))
    try:
        assert view.hidden_consumers(held, lambda: keeper.current().forest) == {"elsewhere, too", "nowhere"}
    finally:
        request_scope.show_only(request_scope.EVERYTHING)


def _suggestion(whole: Fleet, token: str, path: str, body: Any = None) -> str | None:
    """What an unknown name was perhaps meant to be."""
    call = whole.api.as_(token)
    answer = call.get(path) if body is None else call.post(path, body)
    assert answer.status_code in (400, 403, 404), answer.text
    found: str | None = answer.json["errors"][0]["suggestion"]
    return found


def test_names_of_other_clusters_are_not_suggested(whole: Fleet, foreign: Foreign):
    ((host,),) = whole.rows(f"SELECT name FROM resource_providers WHERE uuid = '{foreign.host}'")
    imagined = {
        "groups": {"": {"resources": {"PCPU": 1}}},
        "cluster": "edge",
        "world": {"without": [f"{host}x"]},
    }
    asked = [
        ("/ext/v1/clusters/bathc", None, "batch"),
        ("/ext/v1/clusters/batch/pods/ci/relaese-0", None, "ci/release-0"),
        ("/ext/v1/allocation_candidates", imagined, host),
    ]
    for path, body, name in asked:
        assert _suggestion(whole, OPERATOR, path, body) == name
        for token in BOUND:
            assert _suggestion(whole, token, path, body) != name
    for token in (SERVICE, ADMIN):
        assert _suggestion(whole, token, f"{EDGE}/nodes/edge-011") == "edge-01"
