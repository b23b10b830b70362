"""What columns say of all nodes at once is what looking at each node says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.host import NumaPolicy
from placement.pods.decide.column_score import highest_scores, least_missed
from placement.pods.decide.ranking import ShapeRanking, priorities
from placement.pods.decide.rules import RULES, SELECTION
from placement.pods.decide.rules.rule import Fit, concerned, may_pass
from placement.pods.manifests.selection import NodeAttributes
from placement.pods.state.columns import GUARD, KIND, NodeNumbers
from placement.pods.state.snapshot import LabelColumn, LabelKey, NodeColumns, NodeIndex
from tests.kubernetes import NUMA_POLICY
from tests.unit.pods.koordinator import pods
from tests.unit.pods.scheduling.clusters import built_node, clusters, nodes, settings_of_clusters, shape_of

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True, scope="module", params=[0, 4])
def few(request):
    """Whether columns are asked about nodes, or each of a few is looked at, the answer is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("placement.pods.decide.ranking._FEW", request.param)
        yield


def looked_at(shape, found):
    """The verdict about each node, by itself."""
    ranking = ShapeRanking(shape)
    return {node.name: ranking.look(node) for node in found}


def columns_of(found):
    return NodeColumns().updated(found)


def one_by_one(best_first, best):
    """Return the score of each node, 0 to 100, relative to where a pod gets most of what it prefers."""
    ranked = list(best_first)
    worst = max((each.missed for each in ranked), default=0)
    return {
        each.node.name: (each.score * 100 // best + 100 * (worst - each.missed)) // (worst + 1)
        for each in ranked
    }


@settings(max_examples=150)
@given(clusters())
def test_the_order_of_nodes_is_that_of_their_exact_scores(cluster):
    _, found, shape = cluster
    fitting = [
        (verdict.missed, -verdict.score, name)
        for name, verdict in looked_at(shape, found).items()
        if isinstance(verdict.answer, Fit)
    ]
    ranked = list(ShapeRanking(shape).best_first(columns_of(found)))
    assert [(each.missed, -each.score, each.node.name) for each in ranked] == sorted(fitting)


@settings(max_examples=150)
@given(clusters())
def test_nodes_are_filtered_and_scored_as_looking_at_them_does(cluster):
    _, found, shape = cluster
    columns = columns_of(found)
    pod = shape.incoming()
    admitted = may_pass(SELECTION, columns, pod)
    possible = may_pass(RULES, columns, pod)
    highest = highest_scores(columns.table, shape.request, shape.settings.host_scoring)
    least = least_missed(columns.table, shape.request, shape.settings)
    verdicts = looked_at(shape, found)
    for row, node in enumerate(columns.nodes):
        assert admitted[row] == all(rule.refuse(node, pod) is None for rule in SELECTION)
        for rule in concerned(RULES, pod):
            assert rule.mask(columns, pod)[row] or rule.refuse(node, pod) is not None, rule
        verdict = verdicts[node.name]
        if not isinstance(verdict.answer, Fit):
            continue
        assert possible[row]
        assert verdict.score <= highest[row]
        assert verdict.missed >= least[row]
        is_vast = node.totals.allocatable.get("ephemeral-storage", 0) > 2**55
        if {node.host.numa_policy, shape.request.numa.policy} == {NumaPolicy.NONE} and not is_vast:
            assert verdict.score == highest[row]


@settings(max_examples=150)
@given(st.data())
def test_columns_that_were_kept_in_step_are_those_that_are_made_afresh(data):
    cluster = data.draw(settings_of_clusters())
    columns, present = NodeColumns(), {}
    names = [f"node-{number}" for number in range(5)]
    for _ in range(data.draw(st.integers(1, 5))):
        gone = data.draw(st.sets(st.sampled_from(names), max_size=2))
        fresh = [
            replace(data.draw(nodes(name, cluster)), times_made=data.draw(st.integers(1, 2)))
            for name in data.draw(st.sets(st.sampled_from(names), max_size=3))
            if name not in gone
        ]
        before, shown = columns, shown_of(columns)
        columns = columns.updated(fresh, gone)
        present = {name: node for name, node in present.items() if name not in gone}
        present |= {node.name: node for node in fresh}
        assert shown_of(columns) == shown_of(columns_of(present.values()))
        assert dict(columns.by_name) == present
        assert dict(NodeIndex(columns.order.by_root, columns.nodes)) == {
            node.root_id: node for node in present.values()
        }
        assert shown_of(before) == shown


@settings(max_examples=100)
@given(st.data())
def test_what_columns_say_depends_neither_on_who_asked_before_nor_on_the_order(data):
    cluster = data.draw(settings_of_clusters())
    names = [f"node-{number}" for number in range(4)]
    present = {name: data.draw(nodes(name, cluster)) for name in names}
    snapshots = [(columns_of(present.values()), present)]
    for _ in range(data.draw(st.integers(1, 6))):
        columns, present = data.draw(st.sampled_from(snapshots))
        fresh = [data.draw(nodes(name, cluster)) for name in data.draw(st.sets(st.sampled_from(names)))]
        snapshots.append((columns.updated(fresh), present | {node.name: node for node in fresh}))
    for columns, present in data.draw(st.permutations(snapshots)):
        some = data.draw(st.sets(st.sampled_from(names)))
        assert shown_of(columns) == shown_of(columns_of(present.values()))
        among = [node for name, node in present.items() if name in some]
        assert shown_of(columns.among(some)) == shown_of(columns_of(among))


def test_nodes_that_change_are_counted_together_when_somebody_asks_or_when_they_are_many(monkeypatch):
    counted = []
    count = NodeNumbers.of
    monkeypatch.setattr(NodeNumbers, "of", lambda self, node: counted.append(node.name) or count(self, node))
    columns = columns_of([built_node(f"node-{number:03}") for number in range(200)])
    assert len(counted) == 200
    del counted[:]
    for number in range(60):
        columns = columns.updated([built_node(f"node-{number:03}")])
    columns.among(["node-007", "node-008"])
    assert not counted
    assert len(columns.table) == 200
    assert len(counted) == 60
    del counted[:]
    for number in range(66):
        columns = columns.updated([built_node(f"node-{number % 50:03}")])
    assert sorted(counted) == [f"node-{number:03}" for number in range(50)]


def shown_of(columns):
    """Every node with all that its columns say of it."""
    table = columns.table
    guards, kinds = list(table.guards), list(table.kinds)
    numbers = [column for column in table.columns if column not in (GUARD, KIND)]

    def said(row):
        return {column: int(table[column][row]) for column in numbers if table[column][row]}

    return [
        (node, guards[table[GUARD][row]], kinds[table[KIND][row]], said(row))
        for row, node in enumerate(columns.nodes)
    ]


@settings(max_examples=100)
@given(clusters(), st.sets(st.integers(0, 5)))
def test_asking_some_nodes_says_the_same_of_them(cluster, numbers):
    _, found, shape = cluster
    names = {f"node-{number}" for number in numbers}
    ranking, columns = ShapeRanking(shape), columns_of(found)
    everywhere = [(each.node, each.score) for each in ranking.best_first(columns)]
    some = ShapeRanking(shape).best_first(columns.among(names))
    assert [(each.node, each.score) for each in some] == [
        (node, score) for node, score in everywhere if node.name in names
    ]
    rest = ShapeRanking(shape).best_first(columns.without(names))
    assert [each.node for each in rest] == [node for node, _ in everywhere if node.name not in names]


@settings(max_examples=100)
@given(st.data())
def test_a_ranking_that_follows_a_cluster_ranks_as_a_new_one(data):
    cluster, found, shape = data.draw(clusters())
    ranking, columns = ShapeRanking(shape), columns_of(found)
    for _ in range(data.draw(st.integers(1, 4))):
        some = data.draw(st.sets(st.sampled_from([node.name for node in columns.nodes]), max_size=2))
        for asked in (columns, columns.among(some)):
            kept = [(each.node, each.score) for each in ranking.best_first(asked)]
            assert kept == [(each.node, each.score) for each in ShapeRanking(shape).best_first(asked)]
            assert ranking.refusals(asked) == ShapeRanking(shape).refusals(asked)
            best = shape.settings.host_scoring.max_score
            assert priorities(ranking, asked, best) == one_by_one(ShapeRanking(shape).best_first(asked), best)
        columns = columns.updated([data.draw(nodes(name, cluster)) for name in sorted(some)])


@pytest.mark.parametrize("count", [1, 200])
def test_labels_are_followed(count):
    """A label that was asked about is known of nodes that changed since."""
    nodes = [NodeAttributes(f"n{number}", {"zone": "a"}) for number in range(count)]
    column = LabelColumn.of(LabelKey("zone"), nodes)
    assert column.equals("a").all()
    changed = column.with_attributes([(0, NodeAttributes("n0", {"zone": "b"}))])
    assert changed.equals("b").tolist() == [True] + [False] * (count - 1)
    assert column.equals("a").all()
    assert not changed.equals("c").any()


@pytest.mark.parametrize(("labels", "cpus"), [({NUMA_POLICY: "SingleNUMANode"}, 8), ({}, 16)])
@pytest.mark.parametrize("build", [pods.lsr, pods.build_pod])
def test_a_numa_node_or_host_is_filled_to_the_last_cpu_and_not_beyond(labels, cpus, build):
    alone = built_node("node-0", labels=labels)
    for cpu, fits in ((cpus, True), (cpus + 1, False)):
        shape = shape_of(build(pods.container(cpu=str(cpu), memory=f"{2 * cpus}Gi")))
        columns = columns_of([alone])
        assert may_pass(RULES, columns, shape.incoming()).tolist() == [fits]
        assert isinstance(looked_at(shape, [alone])["node-0"].answer, Fit) is fits
        assert len(list(ShapeRanking(shape).best_first(columns))) == fits
