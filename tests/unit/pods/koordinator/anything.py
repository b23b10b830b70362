"""Manifests of any kind: what a node, its report and a pod may say, and all that they should not."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from placement.common import gang
from placement.pods.koordinator import annotations as keys

KEYS = [
    value
    for name, value in {**vars(keys), **vars(gang)}.items()
    if name.isupper() and isinstance(value, str) and "/" in value
]
_MEMBERS = """
    name uid labels annotations resources type cpu memory detail id core socket node cpuset managedByKubelet
    policy options reservedCPUs applyPolicy cpusetExclusive numaNodeResources requests limits extensions
    NodeNUMAResource requiredCPUBindPolicy preferredCPUBindPolicy preferredCPUExclusivePolicy
    numaTopologyPolicy singleNUMANodeExclusive entries
"""
_VALUES = "0-3 4- node-0 cpu 1Gi static true Node None LSR FullPCPUs Default Restricted"

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(_VALUES.split())
)
WORDS = st.sampled_from(_MEMBERS.split())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def like(**members):
    """A mapping with these members, each as it should be or anything."""
    return st.fixed_dictionaries(members)


ANNOTATION = ANYTHING.map(json.dumps) | ANYTHING | like(detail=st.lists(ANYTHING, max_size=3)).map(json.dumps)
METADATA = like(
    name=st.just("n") | ANYTHING,
    uid=st.text(max_size=4) | ANYTHING,
    labels=st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=4) | ANYTHING,
    annotations=st.dictionaries(st.sampled_from(KEYS), ANNOTATION, max_size=5) | ANYTHING,
)
_ZONE = like(
    name=st.sampled_from(["node-0", "node-1", "node-00", "zone"]) | ANYTHING,
    type=st.just("Node") | ANYTHING,
    resources=st.lists(like(name=SCALARS, allocatable=SCALARS), max_size=3) | ANYTHING,
)
_AMOUNTS = st.dictionaries(st.text(max_size=4) | WORDS, SCALARS, max_size=4)
NODES = ANYTHING | like(
    apiVersion=st.just("v1"),
    kind=st.just("Node"),
    metadata=METADATA,
    status=like(allocatable=_AMOUNTS | ANYTHING, nodeInfo=ANYTHING) | ANYTHING,
)
REPORTS = ANYTHING | like(
    apiVersion=st.just("topology.node.k8s.io/v1alpha1"),
    kind=st.just("NodeResourceTopology"),
    metadata=METADATA,
    zones=st.lists(_ZONE | ANYTHING, max_size=3) | ANYTHING,
    topologyPolicies=st.lists(SCALARS, max_size=3) | ANYTHING,
)
_RESOURCES = st.dictionaries(WORDS, st.dictionaries(WORDS, SCALARS, max_size=3) | ANYTHING, max_size=3)
_CONTAINERS = st.lists(like(resources=_RESOURCES) | ANYTHING, max_size=3) | ANYTHING
PODS = ANYTHING | like(
    apiVersion=st.just("v1"),
    kind=st.just("Pod"),
    metadata=METADATA,
    spec=like(
        containers=_CONTAINERS,
        initContainers=_CONTAINERS,
        overhead=ANYTHING,
        priority=SCALARS,
        nodeName=st.just("n") | ANYTHING,
        resources=_RESOURCES | ANYTHING,
    )
    | ANYTHING,
    status=like(phase=SCALARS, qosClass=SCALARS) | ANYTHING,
)


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
