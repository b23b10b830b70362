"""No pod makes the dialect fail other than by being refused."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.common import gang
from placement.common.manifest import ManifestError, Profile
from placement.pods.koordinator import policies
from placement.pods.koordinator.pod import import_pod
from placement.pods.koordinator.policies import KubeletPolicy
from placement.pods.koordinator.records import import_running_pod
from placement.pods.koordinator.settings import SchedulerSettings

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["0-3", "4-", "cpu", "1Gi", "LSR", "FullPCPUs", "Default", "Restricted", "true"])
)
WORDS = st.sampled_from(
    [
        "cpu",
        "cpuset",
        "numaNodeResources",
        "node",
        "resources",
        "requests",
        "limits",
        "extensions",
        "NodeNUMAResource",
        "requiredCPUBindPolicy",
        "preferredCPUBindPolicy",
        "preferredCPUExclusivePolicy",
        "numaTopologyPolicy",
        "singleNUMANodeExclusive",
        "entries",
    ]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = [
    value
    for name, value in {**vars(policies), **vars(gang)}.items()
    if name.isupper() and isinstance(value, str) and "/" in value
]
ANNOTATIONS = st.dictionaries(st.sampled_from(KEYS), ANYTHING.map(json.dumps) | ANYTHING, max_size=4)
RESOURCES = st.dictionaries(WORDS, st.dictionaries(WORDS, SCALARS, max_size=3) | ANYTHING, max_size=3)
CONTAINERS = st.lists(st.fixed_dictionaries({"resources": RESOURCES}) | ANYTHING, max_size=3) | ANYTHING
PODS = ANYTHING | st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries(
            {
                "name": st.just("p") | ANYTHING,
                "labels": st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=3) | ANYTHING,
                "annotations": ANNOTATIONS | ANYTHING,
            }
        ),
        "spec": st.fixed_dictionaries(
            {
                "containers": CONTAINERS,
                "initContainers": CONTAINERS,
                "overhead": ANYTHING,
                "priority": SCALARS,
                "nodeName": st.just("n") | ANYTHING,
                "resources": RESOURCES | ANYTHING,
            }
        )
        | ANYTHING,
        "status": st.fixed_dictionaries({"phase": SCALARS, "qosClass": SCALARS}) | ANYTHING,
    }
)


@settings(max_examples=300)
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
