"""No manifest makes an import fail other than by refusing it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.common import gang
from placement.common.manifest import ManifestError, Profile
from placement.pods.koordinator import policies
from placement.pods.koordinator.node import import_node

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["0-3", "4-", "node-0", "cpu", "1Gi", "static", "true", "Node", "None"])
)
WORDS = st.sampled_from(
    [
        "name",
        "uid",
        "labels",
        "annotations",
        "resources",
        "type",
        "cpu",
        "memory",
        "detail",
        "id",
        "core",
        "socket",
        "node",
        "cpuset",
        "managedByKubelet",
        "policy",
        "options",
        "reservedCPUs",
        "applyPolicy",
        "cpusetExclusive",
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
ANNOTATION = st.one_of(
    ANYTHING.map(json.dumps),
    st.fixed_dictionaries({"detail": st.lists(ANYTHING, max_size=3)}).map(json.dumps),
    ANYTHING,
)
METADATA = st.fixed_dictionaries(
    {
        "name": st.just("n") | ANYTHING,
        "uid": st.text(max_size=4) | ANYTHING,
        "labels": st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=4) | ANYTHING,
        "annotations": st.dictionaries(st.sampled_from(KEYS), ANNOTATION, max_size=5) | ANYTHING,
    }
)
ZONE = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["node-0", "node-1", "node-00", "zone"]) | ANYTHING,
        "type": st.just("Node") | ANYTHING,
        "resources": st.lists(st.fixed_dictionaries({"name": SCALARS, "allocatable": SCALARS}), max_size=3)
        | ANYTHING,
    }
)
AMOUNTS = st.dictionaries(st.text(max_size=4) | WORDS, SCALARS, max_size=4)
NODES = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Node"),
        "metadata": METADATA,
        "status": st.fixed_dictionaries({"allocatable": AMOUNTS | ANYTHING, "nodeInfo": ANYTHING}) | ANYTHING,
    }
)
REPORTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("topology.node.k8s.io/v1alpha1"),
        "kind": st.just("NodeResourceTopology"),
        "metadata": METADATA,
        "zones": st.lists(ZONE | ANYTHING, max_size=3) | ANYTHING,
        "topologyPolicies": st.lists(SCALARS, max_size=3) | ANYTHING,
    }
)


def outcome(node, nrt, profile):
    """What an import gives and what it tells: the value and its warnings, or nothing and the findings."""
    try:
        result = import_node("c1", node, nrt, profile)
    except ManifestError as refusal:
        return None, (str(refusal), *refusal.findings)
    return result, result.warnings


@settings(max_examples=150)
@given(NODES | ANYTHING, REPORTS | ANYTHING, st.sampled_from(Profile))
def test_an_import_returns_or_names_findings(node, nrt, profile):
    result, sentences = outcome(node, nrt, profile)
    assert all(sentence.isprintable() for sentence in sentences)
    for provider in result.tree.providers if result else ():
        for inventory in provider.inventories.values():
            assert inventory.total >= 1
            assert 0 <= inventory.reserved <= inventory.total


def mutations(value):
    """One place of a manifest replaced by anything."""
    if isinstance(value, dict) and value:
        return st.sampled_from(sorted(value)).flatmap(
            lambda key: mutations(value[key]).map(lambda new: {**value, key: new})
        )
    if isinstance(value, list) and value:
        return st.integers(0, len(value) - 1).flatmap(
            lambda at: mutations(value[at]).map(lambda new: [*value[:at], new, *value[at + 1 :]])
        )
    if isinstance(value, str) and value[:1] in ("{", "["):
        return mutations(json.loads(value)).map(json.dumps)
    return ANYTHING


@settings(max_examples=150)
@given(data=st.data())
def test_a_good_manifest_with_one_bad_place_is_read_or_refused(data, a_node, an_nrt):
    annotations = {
        policies.POD_CPU_ALLOCS: [
            {"namespace": "n", "name": "p", "uid": "u", "cpuset": "0", "managedByKubelet": True}
        ],
        policies.CPU_MANAGER_POLICY: {
            "policy": "static",
            "options": {"full-pcpus-only": "true"},
            "reservedCPUs": "1",
        },
        policies.SYSTEM_QOS_RESOURCE: {"cpuset": "2", "cpusetExclusive": True},
        policies.RESERVATION: {"reservedCPUs": "3", "resources": {"cpu": "1"}, "applyPolicy": "Default"},
        policies.AMPLIFICATION_RATIO: {"cpu": 1.5},
        policies.LS_SHARED_POOLS: [{"socket": 0, "node": 0, "cpuset": "0-3"}],
    }
    node, nrt = a_node(annotations=annotations), an_nrt(annotations=annotations)
    if data.draw(st.booleans()):
        node = data.draw(mutations(node))
    else:
        nrt = data.draw(mutations(nrt))
    profile = data.draw(st.sampled_from(Profile))
    first = outcome(node, nrt, profile)
    assert first == outcome(node, nrt, profile)
    assert all(sentence.isprintable() for sentence in first[1])
