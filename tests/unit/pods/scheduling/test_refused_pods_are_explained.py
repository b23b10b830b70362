"""An explanation of a pod counts each node at the first stage it fails, and tells who came closest."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings

from placement.allocations.kubernetes_resources import host_class
from placement.engine.domain.explanation import ConditionKind, CountedUnit, Obstacle, Reason, sentences
from placement.engine.domain.inventories import MAX_INT
from placement.engine.numa.host import NumaPolicy, Refusal
from placement.pods.decide.explanation import explain_pod
from placement.pods.decide.ranking import ShapeRanking
from placement.pods.decide.rules.amounts import AmplifiedCpu
from placement.pods.manifests.selection import CORDONED
from placement.pods.state.host import PODS_CLASS
from placement.pods.state.snapshot import NodeColumns
from tests.kubernetes import RATIO
from tests.unit.pods.koordinator import pods
from tests.unit.pods.koordinator.conftest import build_zone
from tests.unit.pods.scheduling.clusters import built_node, clusters, recorded_pod, shape_of

MOST_COUNTED = "a node counts at most 2147483647 of a resource"
SINGLE = {"numaTopologyPolicy": "SingleNUMANode"}


def explained(shape, found):
    """The explanation of a pod on nodes, and why it is refused by those that refuse it."""
    columns = NodeColumns().updated(found)
    refusals = ShapeRanking(shape).refusals(columns)
    return explain_pod(shape, columns, refusals), refusals


def first_failed(shape, node):
    """The kind and the subject of the first condition before CPUs and NUMA nodes that a node fails."""
    selection, attributes = shape.selection, node.attributes
    tolerated = [
        any(toleration.covers(taint) for toleration in selection.tolerations)
        for taint in attributes.taints
        if taint.effect != "PreferNoSchedule"
    ]
    if attributes.unschedulable and not any(each.covers(CORDONED) for each in selection.tolerations):
        return ConditionKind.CORDON, ""
    if not all(tolerated):
        return ConditionKind.TAINTS, ""
    for key, value in selection.selector:
        if attributes.labels.get(key) != value:
            return ConditionKind.LABELS, key
    if selection.terms is not None and not any(term.holds(attributes) for term in selection.terms):
        return ConditionKind.AFFINITY, ""
    for name, wanted in wanted_of(shape.request, node).items():
        if _free(node, name) < wanted:
            return ConditionKind.AMOUNT, name
    if len({node.host.numa_policy, shape.request.numa.policy} - {NumaPolicy.NONE}) > 1:
        return ConditionKind.NUMA_POLICY, ""
    return None


def wanted_of(request, node):
    """What a pod takes of each class of a host, a bound CPU at its cost."""
    wanted = {PODS_CLASS: 1}
    for resource, base in request.amounts.items():
        kind = host_class(resource)
        ratio = node.offers.ratio if resource == "cpu" and node.host.binding.binds(request) else 1
        wanted[kind.name] = ceil(base * ratio / kind.unit)
    return wanted


EARLY = {*ConditionKind} & {"cordon", "taints", "labels", "affinity", "amount", "numa_policy"}


@pytest.mark.thorough
@settings(max_examples=300)
@given(clusters())
def test_counts_add_up_and_each_node_is_counted_where_it_fails_first(cluster):
    """The first empty stage exists if nothing fits."""
    _, found, shape = cluster
    explanation, refusals = explained(shape, found)
    stages = explanation.stages
    assert all(stage.counted is CountedUnit.NODES and stage.trees == stage.passed for stage in stages)
    assert stages[0].came == len(found)
    for stage, following in pairwise(stages):
        assert following.came == stage.passed
    assert stages[-1].passed == len(found) - len(refusals)
    assert (explanation.first_empty is not None) == (len(refusals) == len(found))
    assert all(sentences(explanation))
    failed = Counter(first_failed(shape, node) for node in found)
    counted = Counter()
    for stage in stages:
        kind, of = stage.condition.kind, stage.condition.resource_class or ""
        if kind is ConditionKind.LABELS:
            of = stage.condition.required[0][0].split("=")[0]
        if kind in EARLY:
            counted[kind, of] = stage.came - stage.passed
    assert +counted == Counter({key: count for key, count in failed.items() if key})
    for node in found:
        early = first_failed(shape, node)
        if early is not None:
            assert refusals[node.name].obstacle == early


@pytest.mark.thorough
@settings(max_examples=400)
@given(clusters())
def test_near_misses_are_true(cluster):
    _, found, shape = cluster
    explanation, refusals = explained(shape, found)
    if explanation.first_empty is None:
        assert explanation.misses == ()
        return
    stage = explanation.stages[explanation.first_empty]
    by_uuid = {node.root_uuid: node for node in found}
    assert len(explanation.misses) == min(5, stage.came)
    for miss in explanation.misses:
        node = by_uuid[miss.provider]
        assert explanation.names[miss.provider] == f"c1/{node.name}"
        assert refusals[node.name].obstacle.kind is stage.condition.kind
        assert miss.words
        for shortage in miss.shortages:
            assert shortage.reason is Reason.AMOUNT
            assert shortage.missing == shortage.wanted - shortage.free > 0
        if stage.condition.kind is ConditionKind.AMOUNT:
            told = {shortage.resource_class: shortage for shortage in miss.shortages}
            assert set(told) == set(_classes(refusals[node.name].reasons))
            for name, shortage in told.items():
                assert shortage.free == _free(node, name)


def _classes(reasons):
    """The classes that words of kube-scheduler are about."""
    for words in reasons:
        resource = words.removeprefix("Insufficient ").removeprefix("amplified ")
        yield PODS_CLASS if words == "Too many pods" else host_class(resource).name


def _free(node, name):
    if name in node.free:
        return max(0, node.free[name])
    return sum(node.left(place) for place in node.offers.inventories if place.resource_class == name)


def of(stage):
    return stage.condition.kind, stage.condition.resource_class, stage.condition.wanted


def test_all_that_nodes_lack_is_told_of_the_nearest_first():
    used = {"n1": 0, "n2": 4000, "n3": 10000}
    found = [
        built_node(name, recorded=(recorded_pod(0, pods.held(), milli),) if milli else ())
        for name, milli in used.items()
    ]
    document = pods.build_pod(pods.container(cpu="20", memory="33Gi"))
    explanation, _ = explained(shape_of(document), found)
    stage = explanation.stages[explanation.first_empty]
    assert of(stage) == (ConditionKind.AMOUNT, "CUSTOM_NODE_CPU_MILLI", 20000)
    shortages = [miss.shortages[0] for miss in explanation.misses]
    assert [(each.free, each.missing) for each in shortages] == [(16000, 4000), (12000, 8000), (6000, 14000)]
    told = sentences(explanation)
    assert told[3] == "20 CPUs free: 0 of 3 nodes"
    assert told[4].startswith("c1/n1 lacks 4 CPUs: it has 16 free")
    assert any("c1/n1 lacks 1 GiB of memory: it has 32 GiB free" in each for each in told)


def test_nodes_that_have_a_resource_are_nearer_than_nodes_without_it():
    found = [
        built_node("n1"),
        built_node("n2", allocatable={"cpu": "16", "pods": "9", "example.com/gpu": "4"}),
    ]
    document = pods.build_pod(pods.container(**{"example.com/gpu": "9"}))
    found.append(built_node("n3", spec={"unschedulable": True}))
    told = sentences(explained(shape_of(document), found)[0])
    assert told[3:] == [
        "9 example.com/gpu free: 0 of 2 nodes",
        "c1/n2 lacks 5 example.com/gpu: it has 4 free",
        "c1/n1 lacks 9 example.com/gpu: it has 0 free",
    ]


@pytest.mark.parametrize(("wanted", "limit"), [(MAX_INT, ""), (MAX_INT + 1, f": {MOST_COUNTED}")])
def test_more_than_a_node_counts_of_an_extended_resource_is_told(wanted, limit):
    document = pods.build_pod(pods.container(**{"example.com/gpu": str(wanted)}))
    _, refusals = explained(shape_of(document), [built_node("n1")])
    assert refusals["n1"].reasons == (f"Insufficient example.com/gpu{limit}",)


def test_what_an_amplified_node_has_free_is_told_of_all_that_is_bound_there():
    """Of 32 CPUs, 8 bound ones cost 16, so 16 are left."""
    node = built_node(
        "n1",
        annotations={RATIO: {"cpu": 2}},
        allocatable={"cpu": "32", "memory": "32Gi", "pods": "110"},
        recorded=(recorded_pod(0, pods.held("0-7"), 8000),),
    )
    shape = shape_of(pods.lsr(pods.container(cpu="4", memory="1Gi")))
    (asked,) = AmplifiedCpu().asked(
        ConditionKind.AMPLIFIED_CPU, NodeColumns().updated([node]).table, shape.incoming()
    )
    assert (asked.wanted_units(0), asked.free_units(0)) == (8000, 16000)


def test_where_one_numa_node_has_to_do_the_nearest_one_is_told():
    zones = [build_zone(0, cpu="8", memory="16Gi"), build_zone(1, cpu="6", memory="16Gi")]
    document = pods.build_pod(pods.container(cpu="10", memory="1Gi"), numa=SINGLE)
    explanation, refusals = explained(shape_of(document), [built_node("n1", zones=zones)])
    assert explanation.stages[explanation.first_empty].condition.kind is ConditionKind.NUMA
    (miss,) = explanation.misses
    (shortage,) = miss.shortages
    assert (shortage.resource_class, shortage.free, shortage.missing) == ("CUSTOM_CPU_MILLI", 8000, 2000)
    assert sentences(explanation)[-1] == "c1/n1 lacks 2 CPUs: it has 8 free on one NUMA node"
    assert miss.words[0].startswith(refusals["n1"].reasons[0])


def test_free_cpus_are_counted_under_the_bind_policy():
    """Of every core but one a CPU is taken."""
    busy = built_node("n1", recorded=(recorded_pod(0, pods.held("0,2,4,6,8,10,12"), 100),))
    whole_cores = {"requiredCPUBindPolicy": "FullPCPUs"}
    document = pods.lsr(pods.container(cpu="4", memory="1Gi"), spec=whole_cores)
    explanation, refusals = explained(shape_of(document), [busy])
    assert explanation.stages[explanation.first_empty].condition.kind is ConditionKind.CPUS
    (miss,) = explanation.misses
    (shortage,) = miss.shortages
    assert (shortage.resource_class, shortage.wanted, shortage.free, shortage.missing) == ("PCPU", 4, 2, 2)
    assert sentences(explanation)[-1].endswith(
        "lacks 2 CPUs: it has 2 free in whole cores, and FullPCPUs takes no others"
    )
    assert miss.words == refusals["n1"].reasons


def test_cordons_are_named_and_a_cluster_without_nodes_is_empty_from_the_first_stage():
    explanation, _ = explained(shape_of(pods.build_pod()), [])
    assert (explanation.first_empty, explanation.misses) == (0, ())
    explanation, _ = explained(shape_of(pods.build_pod()), [built_node("n1", spec={"unschedulable": True})])
    assert explanation.stages[explanation.first_empty].condition.kind is ConditionKind.CORDON
    (miss,) = explanation.misses
    assert miss.unwanted == ("node.kubernetes.io/unschedulable:NoSchedule",)
    assert (miss.lacking, miss.shortages) == ((), ())


@pytest.mark.parametrize("kind", ConditionKind)
@pytest.mark.parametrize("document", [pods.build_pod(pods.container()), pods.lsr()])
def test_a_refusal_is_counted_whatever_kind_of_condition_the_node_failed(kind, document):
    columns = NodeColumns().updated([built_node("n1"), built_node("n2")])
    refusal = Refusal(("why",), obstacle=Obstacle(kind, "that"))
    shape = shape_of(document)
    explanation = explain_pod(shape, columns, dict.fromkeys(columns.names, refusal))
    stage = explanation.stages[explanation.first_empty]
    assert (stage.condition.kind, stage.came, stage.passed) == (kind, 2, 0)
    assert [explanation.names[miss.provider] for miss in explanation.misses] == ["c1/n1", "c1/n2"]
    assert all(miss.words == ("why",) for miss in explanation.misses)
    explanation = explain_pod(shape, columns, {"n2": refusal})
    assert explanation.first_empty is None
    assert explanation.stages[-1].passed == 1
