"""Policies, strategies and the take-over state of a host."""

import pytest

from placement.common.manifest import Profile
from placement.pods.koordinator.policies import translate_topology_policy

BIND = "node.koordinator.sh/cpu-bind-policy"
STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NUMA = "node.koordinator.sh/numa-topology-policy"
ALIAS = "node.koordinator.sh/numa-topology-alignment-policy"
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
ALLOCS = "node.koordinator.sh/pod-cpu-allocs"


def koord_traits(result):
    return {trait for trait in result.tree.root.traits if trait.startswith("CUSTOM_KOORD_")}


@pytest.mark.parametrize(
    ("label", "options", "policy", "traits"),
    [
        ("", {}, "None", set()),
        ("None", {}, "None", set()),
        ("FullPCPUsOnly", {}, "FullPCPUsOnly", {"CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY"}),
        ("SpreadByPCPUs", {}, "SpreadByPCPUs", {"CUSTOM_KOORD_BIND_SPREAD_BY_PCPUS"}),
        ("PCPUOnly", {}, "FullPCPUsOnly", {"CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY"}),
        (None, {"full-pcpus-only": "true"}, "FullPCPUsOnly", {"CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY"}),
        ("", {"full-pcpus-only": "true"}, "None", set()),
        ("", {"full-pcpus-only": "false"}, "None", set()),
        (
            "SpreadByPCPUs",
            {"full-pcpus-only": "true"},
            "SpreadByPCPUs",
            {"CUSTOM_KOORD_BIND_SPREAD_BY_PCPUS"},
        ),
        ("None", {"full-pcpus-only": "true"}, "None", set()),
        ("x", {"full-pcpus-only": "true"}, "FullPCPUsOnly", {"CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY"}),
    ],
)
def test_the_bind_policy_comes_from_the_label_or_from_kubelet(
    label, options, policy, traits, a_node, an_nrt, imported
):
    nrt = an_nrt(annotations={KUBELET: {"policy": "static", "options": options}})
    result = imported(a_node(labels={} if label is None else {BIND: label}), nrt)
    assert result.policies.bind == policy
    assert koord_traits(result) == traits | {"CUSTOM_KOORD_KUBELET_STATIC"}


def test_options_of_a_policy_that_is_not_static_have_no_effect(an_nrt, imported):
    options = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    result = imported(nrt=an_nrt(annotations={KUBELET: {"policy": "none", "options": options}}))
    assert result.policies.bind == "None"
    assert not result.policies.distributes_over_numa


@pytest.mark.parametrize(
    ("key", "value", "warning"),
    [
        (BIND, "PCPUOnly", "'PCPUOnly' is read as FullPCPUsOnly"),
        (BIND, "Strict", "unknown bind policy 'Strict' counts as None"),
        (NUMA, "Strict", "unknown NUMA policy 'Strict' counts as None"),
        (STRATEGY, "Random", "'Random' counts as LeastAllocated"),
    ],
)
def test_unknown_label_values_are_warnings(key, value, warning, a_node, imported):
    assert f"Node.metadata.labels[{key}]: {warning}" in imported(a_node(labels={key: value})).warnings


def test_an_overruled_spread_label_is_a_warning(a_node, an_nrt, imported):
    nrt = an_nrt(annotations={KUBELET: {"policy": "static", "options": {"full-pcpus-only": "true"}}})
    result = imported(a_node(labels={BIND: "SpreadByPCPUs"}), nrt, "koord-scheduler")
    assert result.policies.bind == "FullPCPUsOnly"
    assert f"Node.metadata.labels[{BIND}]: overruled by kubelet's option full-pcpus-only" in result.warnings


@pytest.mark.parametrize(
    ("labels", "policies", "policy"),
    [
        ({}, ["None"], None),
        ({}, ["Restricted"], "Restricted"),
        ({}, ["Nonsense", "BestEffortPodLevel", "Restricted"], "BestEffort"),
        ({NUMA: "SingleNUMANode"}, ["Restricted"], "SingleNUMANode"),
        ({NUMA: ""}, ["Restricted"], "Restricted"),
        ({NUMA: "None"}, ["Restricted"], "None"),
        ({NUMA: "Strict"}, ["Restricted"], "None"),
    ],
)
def test_the_numa_label_beats_what_kubelet_reports(labels, policies, policy, a_node, an_nrt, imported):
    assert imported(a_node(labels=labels), an_nrt(policies=policies)).policies.numa == policy


@pytest.mark.parametrize("plain", ["BestEffort", "Restricted", "SingleNUMANode"])
@pytest.mark.parametrize("suffix", ["", "PodLevel", "ContainerLevel"])
@pytest.mark.parametrize("profile", Profile)
def test_all_spellings_of_kubelets_policies_are_understood_but_one(plain, suffix, profile):
    spelling = plain + suffix
    ignored = spelling == "SingleNUMANodeContainerLevel" and profile == "koord-scheduler"
    assert translate_topology_policy(spelling, profile) == (None if ignored else plain)


def test_container_level_alignment_is_a_warning(an_nrt, imported):
    nrt = an_nrt(policies=["SingleNUMANodeContainerLevel"])
    assert imported(nrt=nrt).policies.numa == "SingleNUMANode"
    assert any("there is no alignment per container" in warning for warning in imported(nrt=nrt).warnings)
    scheduler = imported(nrt=nrt, profile="koord-scheduler")
    assert scheduler.policies.numa is None
    assert any("is not understood" in warning for warning in scheduler.warnings)


@pytest.mark.parametrize(
    ("labels", "profile", "policy"),
    [
        ({ALIAS: "Restricted"}, "design", "Restricted"),
        ({ALIAS: "Restricted"}, "koord-scheduler", None),
        ({ALIAS: "Restricted", NUMA: "BestEffort"}, "design", "BestEffort"),
    ],
)
def test_the_label_of_the_design_documents_is_an_alias_under_design(
    labels, profile, policy, a_node, imported
):
    result = imported(a_node(labels=labels), profile=profile)
    assert result.policies.numa == policy
    assert any(warning.startswith(f"Node.metadata.labels[{ALIAS}]: ") for warning in result.warnings)


@pytest.mark.parametrize(
    ("policy", "trait"),
    [("BestEffort", "BEST_EFFORT"), ("Restricted", "RESTRICTED"), ("SingleNUMANode", "SINGLE_NUMA_NODE")],
)
def test_a_numa_policy_is_a_trait(policy, trait, a_node, imported):
    result = imported(a_node(labels={NUMA: policy}))
    assert koord_traits(result) == {f"CUSTOM_KOORD_NUMA_POLICY_{trait}"}


@pytest.mark.parametrize(
    ("value", "profile", "strategy", "trait"),
    [
        ("MostAllocated", "design", "MostAllocated", "MOST"),
        ("LeastAllocated", "koord-scheduler", "LeastAllocated", "LEAST"),
        ("DistributeEvenly", "design", "DistributeEvenly", "EVEN"),
        ("DistributeEvenly", "koord-scheduler", "LeastAllocated", "LEAST"),
    ],
)
def test_a_numa_strategy_is_a_trait(value, profile, strategy, trait, a_node, imported):
    result = imported(a_node(labels={STRATEGY: value}), profile=profile)
    assert result.policies.strategy == strategy
    assert koord_traits(result) == {f"CUSTOM_KOORD_NUMA_STRATEGY_{trait}"}


@pytest.mark.parametrize(("profile", "distributes"), [("design", True), ("koord-scheduler", False)])
def test_kubelets_even_distribution_counts_under_design(profile, distributes, an_nrt, imported):
    kubelet = {"policy": "static", "options": {"distribute-cpus-across-numa": "true"}}
    result = imported(nrt=an_nrt(annotations={KUBELET: kubelet}), profile=profile)
    assert result.policies.distributes_over_numa is distributes
    assert result.policies.strategy is None


def entry(**changes):
    return {
        "namespace": "kube-system",
        "name": "agent",
        "uid": "u1",
        "cpuset": "0-1",
        "managedByKubelet": True,
        **changes,
    }


@pytest.mark.parametrize(
    ("kubelet", "allocs", "state"),
    [
        ({"policy": "none"}, [], "taken over"),
        ({"policy": "none"}, [entry()], "mixed"),
        ({"policy": "static"}, [entry()], "mixed"),
        ({"policy": "static"}, "null", "mixed"),
        ({}, [], "blind"),
        ({"policy": "dynamic"}, [], "blind"),
    ],
)
def test_the_takeover_state_follows_kubelets_policy_and_pods(kubelet, allocs, state, an_nrt, imported):
    result = imported(nrt=an_nrt(annotations={KUBELET: kubelet, ALLOCS: allocs}))
    assert result.takeover == state
    assert any("handed out a second time" in warning for warning in result.warnings) is (state == "blind")


def test_a_static_host_that_does_not_report_its_pods_is_a_warning(an_nrt, imported):
    result = imported(nrt=an_nrt(annotations={KUBELET: {"policy": "static"}}))
    assert any(f"[{ALLOCS}]: is missing though kubelet is static" in warning for warning in result.warnings)


def test_kubelet_managed_pods_are_known_by_their_uid(an_nrt, imported):
    allocs = [
        entry(cpuset="0-1"),
        entry(uid="u2", cpuset="4"),
        entry(cpuset="2"),
        entry(uid="u3", managedByKubelet=False),
        entry(uid=""),
        entry(uid="u4", cpuset=""),
        entry(uid="u5", cpuset="4-"),
        entry(uid="u6", cpuset="64"),
    ]
    result = imported(nrt=an_nrt(annotations={ALLOCS: allocs}))
    assert {pod.uid: pod.cpus for pod in result.kubelet_pods} == {"u1": {0, 1, 2}, "u2": {4}}
    assert result.unallocatable == {0, 1, 2, 4}
    assert {(pod.namespace, pod.name) for pod in result.kubelet_pods} == {("kube-system", "agent")}


def test_reported_pools_are_shown_as_they_are(an_nrt, imported):
    pools = [{"socket": 1, "node": 1, "cpuset": "4-9"}, {"socket": 0, "node": 0, "cpuset": "0-3"}]
    nrt = an_nrt(
        annotations={
            "node.koordinator.sh/cpu-shared-pools": pools,
            "node.koordinator.sh/be-cpu-shared-pools": [{"socket": 0, "cpuset": "0"}],
        }
    )
    result = imported(nrt=nrt)
    assert [(pool.numa, sorted(pool.cpus)) for pool in result.ls_pools] == [
        (0, [0, 1, 2, 3]),
        (1, [4, 5, 6, 7, 8, 9]),
    ]
    assert result.be_pools == ()


def test_cores_that_differ_in_threads_are_a_warning(an_nrt, imported):
    rows = [(0, 0, 0, 0), (1, 0, 0, 0), (2, 1, 0, 0)]
    warnings = imported(nrt=an_nrt(rows=rows)).warnings
    assert any("cores differ in their threads; a whole core counts 1" in warning for warning in warnings)
