"""No manifest makes the dialect fail other than by refusing it."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.common.manifest import ManifestError, Profile
from placement.pods.decide.reading import import_pod, import_running_pod
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.node import import_node
from placement.pods.state.model import KubeletPolicy, SchedulerSettings
from tests.unit.pods.koordinator.anything import NODES, PODS, REPORTS, mutations
from tests.unit.pods.koordinator.conftest import build_node, build_nrt

ANNOTATIONS = {
    keys.POD_CPU_ALLOCS: [
        {"namespace": "n", "name": "p", "uid": "u", "cpuset": "0", "managedByKubelet": True}
    ],
    keys.CPU_MANAGER_POLICY: {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "1",
    },
    keys.SYSTEM_QOS_RESOURCE: {"cpuset": "2", "cpusetExclusive": True},
    keys.RESERVATION: {"reservedCPUs": "3", "resources": {"cpu": "1"}, "applyPolicy": "Default"},
    keys.AMPLIFICATION_RATIO: {"cpu": 1.5},
    keys.LS_SHARED_POOLS: [{"socket": 0, "node": 0, "cpuset": "0-3"}],
}
GOOD_NODE, GOOD_REPORT = build_node(annotations=ANNOTATIONS), build_nrt(annotations=ANNOTATIONS)
HOSTS = (
    st.tuples(NODES, REPORTS)
    | st.tuples(mutations(GOOD_NODE), st.just(GOOD_REPORT))
    | st.tuples(st.just(GOOD_NODE), mutations(GOOD_REPORT))
)


def outcome(node, nrt, profile):
    """What an import gives and what it tells: the value and its warnings, or nothing and the findings."""
    try:
        result = import_node("c1", node, nrt, profile)
    except ManifestError as refusal:
        return None, (str(refusal), *map(str, refusal.findings))
    return result, result.warnings


@settings(max_examples=200)
@given(HOSTS, st.sampled_from(Profile))
def test_a_node_is_imported_or_refused_with_findings(manifests, profile):
    result, sentences = outcome(*manifests, profile)
    assert (result, sentences) == outcome(*manifests, profile)
    assert all(sentence.isprintable() for sentence in sentences)
    for provider in result.tree.providers if result else ():
        for inventory in provider.inventories.values():
            assert inventory.total >= 1
            assert 0 <= inventory.reserved <= inventory.total


@settings(max_examples=150)
@given(PODS, PODS, st.sampled_from(Profile))
def test_a_pod_is_imported_or_refused(document, old, profile):
    chosen = SchedulerSettings(profile)
    for run in (
        lambda: import_pod(document, chosen),
        lambda: import_pod(document, chosen, old),
        lambda: import_running_pod(document, chosen, KubeletPolicy("static")),
    ):
        with suppress(ManifestError):
            run()
