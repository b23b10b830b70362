"""What is remembered of a pod is what is read of it anew, and covers all that is read."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.common import gang
from placement.common.manifest import ManifestError, Profile
from placement.pods.decide import reading
from placement.pods.decide.reading import import_pod, reading_of, what_is_read
from placement.pods.koordinator import annotations as keys
from placement.pods.state.model import SchedulerSettings
from tests.unit.pods.koordinator.anything import ANYTHING, PODS

CHOSEN = [SchedulerSettings(profile) for profile in Profile]
TERM = {
    "labelSelector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "a", "operator": "Exists"}],
    },
    "matchLabelKeys": ["app"],
    "topologyKey": "zone",
}
NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
RESOURCES = {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}
PORTS = [{"name": "http", "hostPort": 80, "containerPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}]
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "9f1b1c9e-1f7e-4f39-8a44-0b6f1ad0e0a1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {keys.QOS_CLASS: "LSR", keys.PRIORITY_CLASS: "koord-prod", "app": "web"},
        "annotations": {
            keys.RESOURCE_SPEC: json.dumps({"preferredCPUBindPolicy": "FullPCPUs"}),
            keys.NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "Restricted"}),
            keys.EXCLUSIVITY_GROUP: "quiet",
            gang.GANG_NAME: "crew",
            gang.GANG_MIN_AVAILABLE: "2",
            gang.GANG_TOTAL_NUMBER: "3",
            keys.RESERVATION_AFFINITY: json.dumps({"reservationSelector": {"for": "web"}}),
            keys.SCHEDULING_HINT: json.dumps({"extensions": {"NodeNUMAResource": {}}}),
            keys.RESOURCE_STATUS: json.dumps({"cpuset": "0-3"}),
        },
    },
    "spec": {
        "containers": [{"name": "main", "image": "web:1", "resources": RESOURCES, "ports": PORTS}],
        "initContainers": [{"name": "helper", "restartPolicy": "Always", "resources": RESOURCES}],
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"cpu": "12"}, "limits": {"cpu": "12"}},
        "priority": 9500,
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {REQUIRED: NODES},
            "podAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": TERM}]},
            "podAntiAffinity": {REQUIRED: [TERM]},
        },
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "kube-api-access-x7k2p"}],
    },
    "status": {"phase": "Pending", "qosClass": "Guaranteed"},
}


Path = tuple[str | int, ...]
ABSENT = object()


class Watched(dict[str, Any]):
    """A mapping that notes under which paths somebody looked for its members."""

    def __init__(self, members: dict[str, Any], path: Path, seen: set[Path]):
        super().__init__((key, watched(member, (*path, key), seen)) for key, member in members.items())
        self._path, self._seen = path, seen

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add((*self._path, key))
        return super().get(key, default)

    def items(self) -> Any:
        self._seen.update((*self._path, key) for key in self)
        return super().items()


def watched(value: Any, path: Path, seen: set[Path]) -> Any:
    if isinstance(value, dict):
        return Watched(value, path, seen)
    if isinstance(value, list):
        return [watched(element, (*path, place), seen) for place, element in enumerate(value)]
    return value


def with_member(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The document with another value there, or none."""
    changed = copy.deepcopy(document)
    *above, key = path
    place: Any = changed
    for step in above:
        place = place[step]
    if value is ABSENT:
        del place[key]
    else:
        place[key] = value
    return changed


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a document."""
    if path:
        yield path
    members = enumerate(value) if isinstance(value, list) else ()
    for key, member in value.items() if isinstance(value, dict) else members:
        yield from paths(member, (*path, key))


def said(read: Any, document: dict[str, Any], chosen: SchedulerSettings) -> Any:
    """What a reader says of a pod: all that it is, or all that is wrong with it."""
    try:
        return read(document, chosen)
    except ManifestError as error:
        return str(error)


def agrees(document: dict[str, Any], chosen: SchedulerSettings) -> None:
    assert said(reading_of, document, chosen) == said(import_pod, document, chosen)


@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
def test_all_that_is_looked_at_decides_which_reading_it_is(chosen):
    seen: set[Path] = set()
    import_pod(watched(POD, (), seen), chosen)
    assert len(seen) > 50
    known = what_is_read(POD)
    # Names and uids are looked at as well, but any will do.
    for path in seen - {("metadata", "name"), ("metadata", "uid")}:
        assert what_is_read(with_member(POD, path, "something else")) != known, path


@pytest.mark.parametrize("value", [ABSENT, None, True, 1, 1.0, 0, "1", "", "true", "LSE", [], {}])
def test_pods_that_differ_anywhere_are_read_as_if_none_was_before(value):
    for chosen in CHOSEN:
        reading_of(POD, chosen)
        for path in paths(POD):
            agrees(with_member(POD, path, value), chosen)


@settings(max_examples=100)
@given(PODS.filter(lambda pod: isinstance(pod, dict)), st.sampled_from(CHOSEN))
def test_any_manifest_is_read_as_if_none_was_before(document, chosen):
    agrees(document, chosen)
    agrees(document, chosen)


@settings(max_examples=100)
@given(st.data())
def test_a_pod_that_was_changed_anywhere_is_read_anew(data):
    path = data.draw(st.sampled_from(list(paths(POD))))
    reading_of(POD, CHOSEN[0])
    agrees(with_member(POD, path, data.draw(ANYTHING)), CHOSEN[0])


def test_pods_of_one_controller_are_read_once_and_refused_without_names():
    first = reading_of(POD, CHOSEN[0])
    for path in (("metadata", "name"), ("metadata", "uid"), ("spec", "volumes", 0, "name")):
        assert reading_of(with_member(POD, path, "another"), CHOSEN[0]) is first
    with pytest.raises(ManifestError, match="name: is missing"):
        reading_of(with_member(POD, ("metadata", "name"), ""), CHOSEN[0])


def test_refusals_and_long_manifests_are_read_each_time():
    wrong = with_member(POD, ("spec", "containers", 0, "resources", "requests", "cpu"), "many")
    before = reading._read.cache_info().currsize
    for _ in range(2):
        with pytest.raises(ManifestError, match="'many' is not a Kubernetes quantity"):
            reading_of(wrong, CHOSEN[0])
    agrees(with_member(POD, ("metadata", "annotations", "note"), "x" * 2**15), CHOSEN[0])
    assert reading._read.cache_info().currsize == before
