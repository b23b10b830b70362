"""A token that is bound to clusters is of no use elsewhere, and rules may look at the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of, configured, with_options

pytestmark = pytest.mark.one_database

EDGE, BOTH, NONE, EVERYWHERE, SCHEDULER, LOOSE = (
    f"{name}-{'t' * 32}" for name in ("edge", "both", "none", "everywhere", "scheduler", "loose")
)
TOKENS = f"""
{EDGE}: {{user: edge, roles: [admin, service], clusters: [edge]}}
{BOTH}: {{user: both, roles: [admin], clusters: [edge, batch]}}
{NONE}: {{user: none, roles: [admin], clusters: []}}
{EVERYWHERE}: {{user: everywhere, roles: [admin]}}
{SCHEDULER}: {{user: scheduler, roles: [scheduler], clusters: [edge]}}
{LOOSE}: {{user: loose, roles: [scheduler]}}
"""
UUID = "00000000-0000-0000-0000-000000000001"
OTHER_UUID = "0d000000-0000-4000-8000-000000000002"
FLAVOR = {"flavor": {"name": "f", "vcpus": 1, "ram": 64, "disk": 1}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"containers": []},
}


@contextmanager
def service(database: Database, directory: Path, rules: str = "") -> Iterator[Client]:
    """The service with these tokens and an operator's rules."""
    (directory / "placement.conf").touch()
    (directory / "policy.yaml").write_text(rules)
    tokens = directory / "tokens.yaml"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    configuration = configured(directory / "placement.conf")
    settings = with_options(configuration, auth_strategy="token", tokens_file=str(tokens))
    with application_of(database, settings) as application:
        client = Client(application.test_client())
        for cluster in ("edge", "batch"):
            assert client.as_(EVERYWHERE).put(f"/ext/v1/clusters/{cluster}", {}).status_code in (200, 201)
        yield client


@pytest.fixture(scope="module")
def api(embedded_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(embedded_database, tmp_path_factory.mktemp("bound")) as client:
        yield client


def in_cluster(cluster: str) -> list[tuple[str, str, object]]:
    """A request of every route that concerns a cluster."""
    base = f"/ext/v1/clusters/{cluster}"
    query = f"cluster={cluster}&resources=VCPU:1"
    claim = {"consumer_uuid": UUID, "project_id": "p", "user_id": "u", "consumer_type": "POD", "query": query}
    return [
        ("GET", base, None),
        ("PUT", base, {}),
        ("GET", f"{base}/nodes", None),
        ("GET", f"{base}/nodes/n", None),
        ("PUT", f"{base}/nodes/n", {}),
        ("DELETE", f"{base}/nodes/n", None),
        ("GET", f"{base}/pods", None),
        ("GET", f"{base}/pods/n/p", None),
        ("PUT", f"{base}/pods/n/p", {}),
        ("DELETE", f"{base}/pods/n/p", None),
        ("GET", f"{base}/reservations", None),
        ("GET", f"{base}/reservations/r", None),
        ("PUT", f"{base}/reservations/r", {}),
        ("DELETE", f"{base}/reservations/r", None),
        ("POST", f"{base}/pods/preview", POD),
        ("POST", f"{base}/pods/translation", POD),
        ("POST", f"{base}/pods/bound", {}),
        ("POST", f"{base}/pods/preemption", {"pod": POD}),
        ("POST", f"{base}/extender/filter", {}),
        ("POST", f"{base}/extender/prioritize", {}),
        ("POST", f"{base}/extender/bind", {}),
        ("POST", f"{base}/extender/preempt", {}),
        ("GET", f"/ext/v1/allocation_candidates?{query}", None),
        ("GET", f"/ext/v1/allocations?cluster={cluster}", None),
        ("GET", f"/ext/v1/resource_providers?cluster={cluster}", None),
        ("GET", f"/ext/v1/aggregates?cluster={cluster}", None),
        ("GET", f"/ext/v1/capacity?{query}", None),
        ("POST", "/ext/v1/capacity", {"kinds": {"it": {"pod": POD}}, "cluster": cluster}),
        ("POST", "/ext/v1/claims", claim),
        ("POST", "/ext/v1/claims", {"members": [claim, {**claim, "consumer_uuid": OTHER_UUID}]}),
        ("POST", "/ext/v1/claims", {**claim, "members": [{"consumer_uuid": OTHER_UUID}]}),
        ("POST", f"{base}/nodes", {}),
        ("POST", f"{base}/pods", {}),
        ("POST", "/ext/v1/flavors/candidates", {**FLAVOR, "cluster": cluster}),
    ]


ELSEWHERE = [
    ("GET", "/resource_providers", None),
    ("POST", "/resource_providers", {"name": "x"}),
    ("GET", f"/resource_providers/{UUID}", None),
    ("GET", f"/allocations/{UUID}", None),
    ("PUT", f"/allocations/{UUID}", {}),
    ("POST", "/allocations", {}),
    ("POST", "/reshaper", {}),
    ("GET", "/traits", None),
    ("GET", "/usages?project_id=edge", None),
    ("GET", "/allocation_candidates?resources=VCPU:1", None),
    ("GET", "/allocation_candidates?resources=VCPU:1&cluster=edge", None),
    ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1", None),
    ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1&cluster=edge&cluster=batch", None),
    ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1&cluster=batch&cluster=edge", None),
    ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1&cluster=", None),
    ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1&Cluster=edge", None),
    ("GET", "/ext/v1/allocation_candidates?cluster=%FF&cluster=edge", None),
    ("GET", "/ext/v1/allocations", None),
    ("GET", "/ext/v1/resource_providers", None),
    ("GET", "/ext/v1/aggregates", None),
    ("PUT", f"/ext/v1/aggregates/{UUID}", {"name": "x"}),
    ("GET", "/ext/v1/capacity?resources=VCPU:1", None),
    ("POST", "/ext/v1/capacity", {"kinds": {"it": {"querystring": "resources=VCPU:1&cluster=edge"}}}),
    ("POST", "/ext/v1/claims", {"query": "resources=VCPU:1"}),
    ("POST", "/ext/v1/claims", {"query": "resources=VCPU:1", "cluster": "edge"}),
    ("POST", "/ext/v1/claims", {"query": ["cluster=edge"]}),
    ("POST", "/ext/v1/claims", {"members": []}),
    ("POST", "/ext/v1/claims", {"members": [{}], "cluster": "edge"}),
    ("POST", "/ext/v1/claims", {"members": [5], "query": "cluster=edge&resources=VCPU:1"}),
    ("POST", "/ext/v1/claims", {"members": [{"query": q} for q in ("cluster=edge", "cluster=batch")]}),
    ("POST", "/ext/v1/claims", {"members": [{"query": "resources=VCPU:1"}], "query": "cluster=edge"}),
    ("POST", "/ext/v1/claims", {"members": [{}, {"query": "a=b"}], "query": "cluster=edge"}),
    ("POST", "/ext/v1/claims", {"members": [{"query": {"cluster": "batch"}}, {}], "query": "cluster=edge"}),
    ("POST", "/ext/v1/claims", ["cluster=edge"]),
    ("POST", "/ext/v1/flavors/candidates", FLAVOR),
    ("POST", "/ext/v1/flavors/candidates", {**FLAVOR, "cluster": ["edge"]}),
    ("POST", "/ext/v1/flavors/candidates", {**FLAVOR, "cluster": None}),
    ("POST", "/ext/v1/flavors/translation", {**FLAVOR, "cluster": "edge"}),
]


def test_every_route_of_a_cluster_is_tried(api: Client):
    rules = {rule.rule.replace("<cluster>", "edge") for rule in api.http.application.url_map.iter_rules()}
    tried = {path.partition("?")[0] for _, path, _ in in_cluster("edge")}
    named = {path.replace("<node>", "n").replace("<namespace>/<name>", "n/p") for path in rules}
    named = {path.replace("<name>", "r") for path in named}
    assert {path for path in named if path.startswith("/ext/v1/clusters/")} <= tried


def test_it_may_do_in_its_cluster_what_its_roles_allow(api: Client):
    for method, path, body in in_cluster("edge"):
        assert api.as_(EDGE).call(method, path, body).status_code not in (401, 403, 500), path


def test_names_that_were_made_since_are_known_to_it(api: Client):
    query = "/ext/v1/allocation_candidates?cluster=edge&resources="
    assert api.as_(EDGE).get(f"{query}VCPU:1").status_code == 200
    for kind in ("traits", "resource_classes"):
        assert api.as_(EVERYWHERE).put(f"/{kind}/CUSTOM_MADE_LATER").status_code == 201
    for asked in ("VCPU:1&required=!CUSTOM_MADE_LATER", "CUSTOM_MADE_LATER:1"):
        assert api.as_(EDGE).get(f"{query}{asked}").status_code == 200, asked


@pytest.mark.parametrize("token", [EDGE, NONE])
def test_other_clusters_are_refused(api: Client, token: str):
    for method, path, body in in_cluster("batch"):
        answer = api.as_(token).call(method, path, body)
        if "/extender/" in path:
            # It is refused in the form of its verb.
            assert answer.status_code == 200
            assert "bound" in str(answer.json) or answer.json in ([], {"NodeNameToMetaVictims": {}})
            continue
        assert (answer.status_code, "bound" in detail(answer)) == (403, True), path
        assert api.as_(EVERYWHERE).call(method, path, body).status_code != 403, path


def test_what_concerns_no_cluster_or_one_with_a_name_like_its_own_is_refused(api: Client):
    for method, path, body in ELSEWHERE:
        answer = api.as_(EDGE).call(method, path, body)
        assert (answer.status_code, "bound" in detail(answer)) == (403, True), (path, body)
    such = detail(api.as_(EDGE).get("/resource_providers"))
    assert such.endswith("bound to clusters, and the request names none, such as cluster=edge.")
    for cluster in ("Edge", "edge ", "edge/../batch", "EDGE", "batch", "missing"):
        answer = api.as_(EDGE).get(f"/ext/v1/clusters/{quote(cluster, safe='')}")
        assert answer.status_code in (403, 404), cluster
        assert api.as_(EDGE).get(f"/ext/v1/allocations?cluster={quote(cluster)}").status_code == 403


def test_lists_of_clusters_show_its_own(api: Client):
    for token, names in (
        (EDGE, ["edge"]),
        (BOTH, ["batch", "edge"]),
        (NONE, []),
        (EVERYWHERE, ["batch", "edge"]),
    ):
        clusters = api.as_(token).get("/ext/v1/clusters").json["clusters"]
        assert sorted(cluster["name"] for cluster in clusters) == names
    assert api.as_(SCHEDULER).get("/ext/v1/clusters").status_code == 403
    # The version document is for all.
    assert api.as_(EDGE).get("/").status_code == 200


def test_the_status_names_the_clusters_of_the_token(api: Client):
    for token, names in ((EDGE, ["edge"]), (BOTH, ["batch", "edge"]), (NONE, []), (EVERYWHERE, None)):
        assert api.as_(token).get("/ext/v1/status").json["clusters"] == names


def test_a_host_of_two_clusters_is_shown_in_the_one_that_is_asked_for(api: Client):
    everywhere = api.as_(EVERYWHERE)
    aggregates = [everywhere.get(f"/ext/v1/clusters/{name}").json["aggregate"] for name in ("batch", "edge")]
    host = everywhere.provider("host-of-two", VCPU=4)
    everywhere.join(host, *aggregates)
    for name in ("batch", "edge"):
        (shown,) = api.as_(BOTH).get(f"/ext/v1/hosts?cluster={name}").json["hosts"]
        assert (shown["uuid"], shown["cluster"]) == (host, name)
    answer = api.as_(EDGE).get("/ext/v1/clusters?include=use")
    assert [(each["name"], each["hosts"]) for each in answer.json["clusters"]] == [("edge", 1)]
    assert "batch" not in answer.text
    assert everywhere.delete(f"/resource_providers/{host}").status_code == 204


def test_a_claim_does_not_tell_what_its_consumer_holds_elsewhere(api: Client):
    everywhere = api.as_(EVERYWHERE)
    host = everywhere.provider("host-of-no-cluster", VCPU=4)
    assert everywhere.claim({host: {"VCPU": 1}}, consumer=UUID).status_code == 204
    claim = {"consumer_uuid": UUID, "project_id": "p", "user_id": "u", "consumer_type": "POD"}
    answer = api.as_(EDGE).post("/ext/v1/claims", {**claim, "query": "resources=VCPU:1&cluster=edge"})
    assert answer.status_code == 409
    assert host not in answer.get_data(as_text=True)
    assert "already holds something else" in detail(answer)


@pytest.mark.parametrize("rule", ["role:admin", "@"])
def test_rules_can_let_it_out_and_suspend_no_rules_of_routes(
    embedded_database: Database, tmp_path: Path, rule: str
):
    with service(embedded_database, tmp_path, f'"elsewhere_api": "{rule}"\n') as api:
        assert api.as_(EDGE).get("/traits").status_code == 200
        assert api.as_(SCHEDULER).get("/traits").status_code == 403
        assert api.as_(EDGE).get("/ext/v1/clusters/batch").status_code == 403


RULES = """
"placement:clusters:pods:list": "role:scheduler and cluster:%(cluster)s"
"placement:clusters:nodes:list": "role:scheduler and cluster:edge"
"placement:clusters:show": "role:scheduler and 'edge':%(cluster)s"
"placement:allocation_candidates:list": "role:scheduler and cluster:%(cluster)s"
"placement:flavors:candidates": "role:scheduler and cluster:%(cluster)s"
"placement:claims:create": "role:scheduler and cluster:%(cluster)s"
"""


def test_rules_may_look_at_the_cluster(embedded_database: Database, tmp_path: Path):
    with service(embedded_database, tmp_path, RULES) as api:
        scheduler, loose = api.as_(SCHEDULER), api.as_(LOOSE)
        claim = {"consumer_uuid": UUID, "project_id": "p", "user_id": "u", "consumer_type": "POD"}
        for method, path, body in (
            ("GET", "/ext/v1/clusters/edge/pods", None),
            ("GET", "/ext/v1/clusters/edge/nodes", None),
            ("GET", "/ext/v1/allocation_candidates?resources=VCPU:1&cluster=edge", None),
            ("POST", "/ext/v1/flavors/candidates", {**FLAVOR, "cluster": "edge"}),
            ("POST", "/ext/v1/claims", {**claim, "query": "resources=VCPU:1&cluster=edge"}),
        ):
            assert scheduler.call(method, path, body).status_code in (200, 400, 409), path
            # Who is bound to no cluster does not pass, nor does an administrator without the role.
            assert loose.call(method, path, body).status_code == 403, path
            assert api.as_(EDGE).call(method, path, body).status_code == 403, path
        assert scheduler.get("/ext/v1/clusters/batch/pods").status_code == 403
        assert loose.get("/ext/v1/clusters/edge").status_code == 200
        assert loose.get("/ext/v1/clusters/batch").status_code == 403


def test_bodies_reach_the_handler_after_the_rule_has_looked(api: Client):
    path, media_type = "/ext/v1/flavors/candidates", {"Content_Type": "application/json"}
    answer = api.as_(EVERYWHERE).post(path, b"{nonsense", **media_type)
    assert (answer.status_code, "Malformed JSON" in detail(answer)) == (400, True)
