"""A report about a pod that is gone, however late it comes, leaves alone the newer pod of its name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client, detail
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

POD = f"{CLUSTER}/pods/default/web-0"
FORMER = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"
NEWER = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d22"
EARLY, LATE = "2026-03-01T10:00:00Z", "2026-03-01T10:00:01Z"


@pytest.fixture
def cluster(api: Client) -> Client:
    cluster_of(api, "n1", "n2")
    return api


def pod(uid: str | None, created: Any = None, version: Any = None, **given: Any) -> dict[str, Any]:
    manifest = pod_manifest(uid=uid, **given)
    stamps = {"creationTimestamp": created, "resourceVersion": version}
    manifest["metadata"].update({key: value for key, value in stamps.items() if value is not None})
    return manifest


def used(cluster: Client, node: str) -> int:
    found: int = cluster.get(f"{CLUSTER}/nodes/{node}").json["resources"]["PCPU"]["used"]
    return found


def is_refused(cluster: Client, late: dict[str, Any]) -> bool:
    """Whether the late report changed nothing and said so."""
    before, uses = cluster.get(POD).json, [used(cluster, "n1"), used(cluster, "n2")]
    answer = cluster.put(POD, late)
    if answer.status_code == 200:
        return False
    assert answer.status_code == 409, answer.text
    assert f"a newer one by now, with uid {NEWER}, not {FORMER}" in detail(answer)
    assert cluster.get(POD).json == before
    assert [used(cluster, "n1"), used(cluster, "n2")] == uses
    return True


@pytest.mark.parametrize(
    ("late", "newer"),
    [
        ((EARLY, "12"), (LATE, "20")),
        # StatefulSets are quick: both were created in one second.
        ((EARLY, "9"), (EARLY, "10")),
        ((EARLY, None), (LATE, None)),
    ],
)
@pytest.mark.parametrize("node", [None, "n2"])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_late_report_replaces_neither_claims_nor_reports(cluster, late, newer, node, phase):
    """Whether the newer pod was placed here or reported on its node; whether the former ran or ended."""
    assert cluster.put(POD, pod(FORMER, *late, node="n1", phase="Running")).status_code == 201
    assert cluster.put(POD, pod(NEWER, *newer, node=node)).status_code == 200
    assert is_refused(cluster, pod(FORMER, *late, node="n1", phase=phase))
    assert cluster.get(POD).json["uid"] == NEWER


def test_a_former_pod_is_not_placed_either(cluster):
    """An attempt to bind it, say, that began before it was deleted."""
    assert cluster.put(POD, pod(NEWER, EARLY, "10")).status_code == 201
    assert is_refused(cluster, pod(FORMER, EARLY, "9"))


@pytest.mark.both_databases
def test_a_report_of_the_newer_pod_goes_on_to_be_taken(cluster):
    assert cluster.put(POD, pod(NEWER, EARLY, "10")).status_code == 201
    assert is_refused(cluster, pod(FORMER, EARLY, "9", node="n1"))
    shown = cluster.put(POD, pod(NEWER, EARLY, "12", node="n2", status={"cpuset": "8-11"}))
    assert (shown.status_code, shown.json["node"], shown.json["cpuset"]) == (200, "n2", "8-11")
    # When it is gone, nothing stands in the way of anybody.
    assert cluster.delete(f"{POD}?uid={NEWER}").status_code == 204
    assert cluster.put(POD, pod(FORMER, EARLY, "9", node="n1")).status_code == 201


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((EARLY, "9"), (LATE, "20")),
        ((EARLY, "9"), (EARLY, "10")),
        # The clocks of the API servers differ, or Kubernetes counts anew.
        ((LATE, "9"), (EARLY, "10")),
        ((EARLY, "900"), (LATE, "10")),
        # Rows of earlier releases, and callers who send less, prove nothing; nor does what cannot be read.
        ((None, None), (EARLY, "10")),
        ((EARLY, "9"), (None, None)),
        ((LATE, "9"), ("yesterday", "ten")),
        ((LATE, "9"), ("2026-03-01T10:00:00", "1" * 5000)),
        ((LATE, "9"), (7, ["8"])),
    ],
)
@pytest.mark.parametrize("node", [None, "n1"])
def test_a_pod_that_is_not_proved_to_be_a_former_one_takes_the_name(cluster, first, second, node):
    """As the next pod of a StatefulSet does."""
    assert cluster.put(POD, pod(FORMER, *first)).status_code == 201
    status = {"cpuset": "0-3"} if node else None
    answer = cluster.put(POD, pod(NEWER, *second, node=node, status=status))
    assert (answer.status_code, answer.json["uid"]) == (200, NEWER)
    assert used(cluster, "n1") + used(cluster, "n2") == 4


@pytest.mark.both_databases
def test_a_claim_without_uid_gives_way_to_the_pod_itself(cluster):
    claimed = cluster.put(POD, pod(None)).json
    manifest = pod(NEWER, EARLY, "10", node=claimed["node"], status={"cpuset": claimed["cpuset"]})
    reported = cluster.put(POD, manifest).json
    assert (reported["uid"], reported["node"]) == (NEWER, claimed["node"])
    assert used(cluster, "n1") + used(cluster, "n2") == 4
