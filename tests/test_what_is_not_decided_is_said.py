"""What a pod asks for and is not decided here is named in answers, and refused where the caller is strict."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from placement.pods.manifests.undecided import UNDECIDED
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, add_nodes, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"


def changed(**of_spec: Any) -> dict[str, Any]:
    return pod_manifest(uid=UID, **of_spec)


def labelled(key: str, text: str, kind: str = "labels") -> dict[str, Any]:
    manifest = pod_manifest(uid=UID)
    manifest["metadata"][kind][key] = text
    return manifest


def of_gpus(name: str, amount: str) -> dict[str, Any]:
    return pod_manifest(uid=UID, requests={name: amount})


CASES = {
    "volume claim": (
        changed(volumes=[{"name": "tmp", "emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "data"}}]),
        "/spec/volumes/1/persistentVolumeClaim",
    ),
    "volume claim of the pod's own": (changed(volumes=[{"ephemeral": {}}]), "/spec/volumes/0/ephemeral"),
    "resource claim": (changed(resourceClaims=[{"name": "gpu"}]), "/spec/resourceClaims"),
    "scheduling gate": (
        changed(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        "/spec/schedulingGates",
    ),
    "scheduling group": (changed(schedulingGroup={"podGroupName": "web"}), "/spec/schedulingGroup"),
    "quota": (
        labelled("quota.scheduling.koordinator.sh/name", "team-a"),
        "/metadata/labels/quota.scheduling.koordinator.sh~1name",
    ),
    "pod group": (
        labelled("scheduling.x-k8s.io/pod-group", "web"),
        "/metadata/labels/scheduling.x-k8s.io~1pod-group",
    ),
    "pod group of sigs": (
        labelled("pod-group.scheduling.sigs.k8s.io", "web"),
        "/metadata/labels/pod-group.scheduling.sigs.k8s.io",
    ),
    "pod group by its former label": (
        labelled("pod-group.scheduling.sigs.k8s.io/name", "web"),
        "/metadata/labels/pod-group.scheduling.sigs.k8s.io~1name",
    ),
    "pod group of Volcano": (
        labelled("scheduling.k8s.io/group-name", "web", "annotations"),
        "/metadata/annotations/scheduling.k8s.io~1group-name",
    ),
    "network topology": (
        labelled("scheduling.koordinator.sh/network-topology-spec", "{}", "annotations"),
        "/metadata/annotations/scheduling.koordinator.sh~1network-topology-spec",
    ),
    "GPU share": (
        of_gpus("koordinator.sh/gpu-core", "150"),
        "/spec/containers/0/resources/requests/koordinator.sh~1gpu-core",
    ),
    "GPU share of less than one": (
        of_gpus("koordinator.sh/gpu-memory-ratio", "50"),
        "/spec/containers/0/resources/requests/koordinator.sh~1gpu-memory-ratio",
    ),
    "GPU share in pieces": (
        of_gpus("nvidia.com/gpu", "1500m"),
        "/spec/containers/0/resources/requests/nvidia.com~1gpu",
    ),
}
GPUS = {"koordinator.sh__gpu-core": "200", "koordinator.sh__gpu-memory-ratio": "200", "nvidia.com__gpu": "2"}


@pytest.fixture
def cluster(api: Client) -> Client:
    cluster_of(api)
    add_nodes(api, "n1", **GPUS)
    return api


def kind_of(case: str) -> str:
    return next(kind.what for kind in UNDECIDED if case.startswith(kind.what))


def test_each_kind_has_a_case():
    assert {kind.what for kind in UNDECIDED} == {kind_of(case) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_it_is_in_warnings_and_answers_of_previews_and_placements(cluster, case):
    manifest, where = CASES[case]
    expected = [{"what": kind_of(case), "where": where}]
    preview = cluster.post(f"{PODS}/preview", manifest)
    assert preview.status_code == 200, preview.text
    assert (preview.json["fitting"], preview.json["undecided"]) == (1, expected)
    placed = cluster.put(f"{PODS}/default/web", manifest)
    assert placed.status_code == 201, placed.text
    assert placed.json["undecided"] == expected
    assert placed.json["warnings"] == preview.json["warnings"]
    assert cluster.get(f"{PODS}/default/web").json["undecided"] == expected
    # The field is named as in the other warnings, once.
    last = where.rsplit("/", 1)[1].replace("~1", "/")
    about = [each for each in placed.json["warnings"] if last in each.split(": ")[0]]
    assert len(about) == 1
    assert "not decided here" in about[0] or "is not known here; the pod is placed alone" in about[0]


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_where_the_caller_is_strict(cluster, case):
    manifest, where = CASES[case]
    named = copy.deepcopy(manifest)
    named["metadata"] |= {"name": "web", "namespace": "default"}
    plain = pod_manifest("2")
    plain["metadata"] |= {"name": "plain", "namespace": "default"}
    for answer in (
        cluster.put(f"{PODS}/default/web?strict=true", manifest),
        cluster.post(f"{PODS}/preview?strict=true", {"pod": manifest}),
    ):
        assert answer.status_code == 400, answer.text
        assert [each["field"] for each in answer.json["errors"]] == [where]
        assert f"{kind_of(case)}s are not decided here" in detail(answer)
    many = cluster.post(f"{PODS}?strict=true", {"kind": "List", "items": [named, plain]}).json["pods"]
    assert [each["status"] for each in many] == [400, 201]
    assert where.rsplit("/", 1)[1].replace("~1", "/") in many[0]["error"]["detail"]
    assert [each["name"] for each in cluster.get(PODS).json["pods"]] == ["plain"]


@pytest.mark.both_databases
def test_it_is_stored_with_the_pod(cluster):
    manifest, where = CASES["volume claim"]
    placed = cluster.put(f"{PODS}/default/web", manifest)
    assert placed.status_code == 201, placed.text
    expected = [{"what": "volume claim", "where": where}]
    for answer in (placed, cluster.get(f"{PODS}/default/web"), cluster.put(f"{PODS}/default/web", manifest)):
        assert answer.json["undecided"] == expected


def test_pods_that_run_are_recorded_as_before(cluster):
    manifest, _ = CASES["volume claim"]
    running = copy.deepcopy(manifest)
    running["spec"]["nodeName"] = "n1"
    for query in ("", "?strict=true"):
        answer = cluster.put(f"{PODS}/default/web{query}", running)
        assert answer.status_code in (200, 201), answer.text
        assert (answer.json["warnings"], answer.json["undecided"]) == ([], [])


def test_nothing_is_said_of_pods_that_ask_for_what_is_decided(cluster):
    gang = {"pod-group.scheduling.sigs.k8s.io": "web", "pod-group.scheduling.sigs.k8s.io/min-available": "1"}
    manifest = pod_manifest(
        requests={"koordinator.sh/gpu-core": "100", "nvidia.com/gpu": "1"},
        labels=gang,
        volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "web"}}],
        schedulingGates=[],
    )
    answer = cluster.put(f"{PODS}/default/web?strict=true", manifest)
    assert answer.status_code == 201, answer.text
    assert answer.json["undecided"] == []
    assert answer.json["warnings"] == []


def test_pods_with_unlike_claims_are_told_apart_though_they_are_read_once(cluster):
    for volumes in ([], [{"name": "a"}], [{"persistentVolumeClaim": {"claimName": "a"}}], []):
        found = cluster.post(f"{PODS}/preview", changed(volumes=volumes)).json["undecided"]
        assert bool(found) == any("persistentVolumeClaim" in each for each in volumes)


@pytest.mark.parametrize("odd", ["many", 3, [3], [None], {"a": 1}, [[]], [{"persistentVolumeClaim": 3}]])
@pytest.mark.parametrize("member", ["volumes", "resourceClaims", "schedulingGates", "schedulingGroup"])
def test_odd_values_are_answered(cluster, member, odd):
    answer = cluster.post(f"{PODS}/preview", changed(**{member: odd}))
    assert answer.status_code == 200
    strict = cluster.post(f"{PODS}/preview?strict=true", changed(**{member: odd}))
    assert strict.status_code in (200, 400)


def test_strict_takes_no_other_value(cluster):
    for path in (f"{PODS}?strict=yes", f"{PODS}/preview?strict=1"):
        answer = cluster.post(path, pod_manifest())
        assert answer.status_code == 400
        assert answer.json["errors"][0]["field"] == "strict"


def test_the_extender_answers_in_the_form_of_kube_scheduler(cluster):
    manifest, _ = CASES["volume claim"]
    manifest = copy.deepcopy(manifest)
    manifest["metadata"] |= {"name": "web", "namespace": "default"}
    answer = cluster.post(f"{CLUSTER}/extender/filter", {"Pod": manifest, "NodeNames": ["n1"]})
    assert answer.status_code == 200
    assert answer.json["NodeNames"] == ["n1"]
    assert set(map(str.lower, answer.json)) <= {
        "nodes",
        "nodenames",
        "failednodes",
        "failedandunresolvablenodes",
        "error",
    }
