"""The demands of requests: the spots that a query or a pod gets in a simulation of moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement.allocations.kubernetes_resources import host_class, numa_class
from placement.engine.domain.explanation import stage_sentence
from placement.engine.domain.groups import SplitRule
from placement.engine.forest.arrays import Amounts
from placement.engine.numa.host import PodRefused, Refusal
from placement.engine.search.query import ForestQuery
from placement.planning.simulation import MoveSimulation, PlacedConsumer, Spot
from placement.planning.sums import sums_of
from placement.pods.decide.adjustments import RulesBetweenPods
from placement.pods.decide.explanation import explain_pod
from placement.pods.decide.ranking import PodRanking, Ranked, ShapeRanking
from placement.pods.decide.reading import PodDocument
from placement.pods.decide.rules.rule import Fit
from placement.pods.services.placing import placed
from placement.pods.state.model import PodSpec
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.cache import ClusterSnapshot

_ANYTHING = 2**62


class QueryPlanDemand:
    """The demand of a query by ids, or of two if another one is for core trees."""

    def __init__(self, queries: Sequence[ForestQuery], key: Hashable, shared_classes: frozenset[int]) -> None:
        self.queries = queries
        self.key = key
        self.classes = frozenset(
            class_id for query in queries for group in query.groups for class_id, _ in group.resources
        )
        asked = [group.required for query in queries for group in query.groups]
        asked += [query.root_required for query in queries]
        self._traits = frozenset(trait for required in asked for any_of in required for trait in any_of)
        least, *others = (
            sum((Counter(dict(group.resources)) for group in query.groups), Counter[int]())
            for query in queries
        )
        for each in others:
            least &= each
        self.wanted: Mapping[Any, int] = {name: least[name] for name in least if name not in shared_classes}
        self._hosts: list[int] | None = None

    def is_searched_in_full(self, simulation: MoveSimulation) -> bool:
        """Return whether amounts can be split in one way only: each provider gives at most one unit."""
        split = {name for query in self.queries for group in query.groups for name in group.split}
        columns = [simulation.forest.column(name) for name in split]
        return all((column.entries.capacity_of[column.held] <= 1).all() for column in columns)

    def spots(self, simulation: MoveSimulation) -> Iterator[Spot]:
        """Yield its spots at present, on hosts that are open, the best targets first. Raises SearchEnded."""
        forest = simulation.forest
        taking: dict[int, list[int]] = {}
        for number, query in enumerate(self.queries):
            for root in forest.taking((self.key, number), query):
                if simulation.closed[root] <= 0:
                    taking.setdefault(root, []).append(number)
        for root in simulation.targets.ordered(taking, self.classes, self._traits):
            for number in taking[root]:
                for draws in forest.candidates((self.key, number), self.queries[number], root):
                    yield Spot(root, draws)

    def burdens(self, simulation: MoveSimulation) -> Amounts:
        """Return by row how many devices and purposes each host has that the request does not ask for."""
        return simulation.targets.burdens(self.classes, self._traits)

    def spots_on(self, simulation: MoveSimulation, root: int) -> list[Spot]:
        """Return its spots on one host."""
        return [
            Spot(root, draws)
            for number, query in enumerate(self.queries)
            for draws in simulation.forest.candidates((self.key, number), query, root)
        ]

    def admits(self, simulation: MoveSimulation, spot: Spot) -> bool:
        """Return whether a spot is a candidate now, however amounts are split. Raises SearchEnded."""
        if not self.is_met_by(sums_of(spot.draws)):
            return False
        places = {(draw.row, draw.class_id) for draw in spot.draws}
        for query in self.queries:
            splits = any(group.split for group in query.groups)
            for draws in simulation.forest.candidates_among(query, spot.draws):
                if draws == spot.draws or (
                    splits and all((draw.row, draw.class_id) in places for draw in draws)
                ):
                    return True
        return False

    def is_met_by(self, held: Mapping[int, int]) -> bool:
        """Return whether it asks for these amounts; under `isolate` more may be held than asked for."""
        for query in self.queries:
            wanted: Counter[int] = Counter()
            isolated: set[int] = set()
            for group in query.groups:
                wanted.update(dict(group.resources))
                if group.split and group.split_rule is SplitRule.ISOLATE:
                    isolated |= group.split
            if held.keys() == wanted.keys() and all(
                amount == wanted[name] or (name in isolated and amount > wanted[name])
                for name, amount in held.items()
            ):
                return True
        return False

    def hosts(self, simulation: MoveSimulation) -> Sequence[int]:
        """Return the hosts that could take it if no consumer held anything."""
        if self._hosts is None:
            self._hosts = simulation.forest.ever_taking(self.queries)
        return self._hosts

    def lacking(self, simulation: MoveSimulation, root: int) -> Mapping[Any, int]:
        """Return how much more of each class the host would need as a whole; others are left out."""
        free = simulation.forest.sums(root, self.wanted)
        return {name: amount - free[name] for name, amount in self.wanted.items() if amount > free[name]}

    def freed(self, simulation: MoveSimulation, consumer: PlacedConsumer) -> Mapping[Any, int]:
        """Return the amounts that a consumer holds, by class."""
        return sums_of(consumer.spot.draws)


class PodPlanDemand:
    """The demand of a pod, or of pods like it, in a cluster as it was at first."""

    def __init__(
        self,
        cluster: ClusterSnapshot,
        roots: Mapping[int, int],
        ranking: ShapeRanking,
        pod_spec: PodSpec,
        document: PodDocument,
        *,
        is_one: bool,
    ) -> None:
        self._is_one = is_one
        self._columns, self._roots = cluster.columns, roots
        self._placed = cluster.placed if cluster.has_affinity or pod_spec.rules.say_anything else None
        self._ranking, self._pod_spec, self._document = ranking, pod_spec, document
        consumer = document.consumer if self._placed else ""
        self.key: Hashable = ("pod", cluster.facts.id, ranking.shape, consumer)
        self._hosts: list[int] | None = None
        amounts = ranking.shape.request.amounts
        self._classes = {kind(name).name for name in amounts for kind in (host_class, numa_class)}
        # The amounts that a pod holds of a provider follow from the node; sums of these show nothing.
        self.wanted: Mapping[Any, int] = {}

    def is_searched_in_full(self, simulation: MoveSimulation) -> bool:
        """Return False: the pod scheduler gives only one of the ways to take CPUs of a node."""
        return False

    def spots(self, simulation: MoveSimulation) -> Iterator[Spot]:
        """Yield its spots in the order of the pod scheduler; nodes with devices not asked for are last."""
        columns = self._present(simulation)
        rules = self._rules(columns)
        ranking = PodRanking(self._ranking, rules) if rules else self._ranking
        burdens, last = self.burdens(simulation), list[tuple[int, Ranked]]()
        for ranked in ranking.best_first(columns):
            root = self._roots[ranked.node.root_id]
            if simulation.closed[root] > 0:
                continue
            if burdens[root]:
                last.append((root, ranked))
            else:
                yield from self._spot(simulation, root, ranked)
        for root, ranked in sorted(last, key=lambda each: int(burdens[each[0]])):
            yield from self._spot(simulation, root, ranked)

    def burdens(self, simulation: MoveSimulation) -> Amounts:
        """Return by row how many devices and purposes each host has that the pod does not ask for."""
        return simulation.targets.burdens(simulation.class_ids(self._classes), ())

    def _present(self, simulation: MoveSimulation) -> NodeColumns:
        """Return the nodes as they are in the simulation."""
        roots = sorted(simulation.changed_nodes & simulation.nodes.keys())
        changed = [simulation.nodes[root] for root in roots]
        return self._columns.updated([node for node in changed if node.root_id in self._roots])

    def _rules(self, columns: NodeColumns) -> tuple[RulesBetweenPods, ...]:
        """Return the rules about pods that are placed on these nodes, if there are any."""
        if self._placed is None:
            return ()
        return (RulesBetweenPods(self._ranking.shape, self._pod_spec.rules, self._placed, columns),)

    def spots_on(self, simulation: MoveSimulation, root: int) -> list[Spot]:
        """Return its spots on one node."""
        node = simulation.nodes.get(root)
        if node is None or node.root_id not in self._roots:
            return []
        result = self._ranking.look(node)
        if not isinstance(result.answer, Fit):
            return []
        rules = self._rules(self._present(simulation)) if self._placed is not None else ()
        if not all(each.allows(node.name) for each in rules):
            return []
        return list(self._spot(simulation, root, Ranked(node, result.missed, result.score, result.answer)))

    def _spot(self, simulation: MoveSimulation, root: int, ranked: Ranked) -> Iterator[Spot]:
        try:
            recorded = placed(ranked, self._pod_spec, self._document).recorded
        except PodRefused:
            return
        if not self._is_one:
            # Each request that is placed is a pod of its own.
            recorded = replace(recorded, consumer=f"{recorded.consumer}-{len(simulation.placed_spots)}")
        node = ranked.node.with_pod(recorded)
        yield Spot(root, simulation.draws_of(root, node, recorded.consumer), node, recorded)

    def hosts(self, simulation: MoveSimulation) -> Sequence[int]:
        """Return the nodes that could take it without any of their pods."""
        if self._hosts is None:
            look = self._ranking.look
            self._hosts = [
                self._roots[node.root_id]
                for node in self._columns.nodes
                if isinstance(look(node.without(frozenset(pod.consumer for pod in node.pods))).answer, Fit)
            ]
        return self._hosts

    def why_nowhere(self, simulation: MoveSimulation) -> str:
        """Return the first condition that no open node meets even without pods, behind a colon."""
        open_ = [each for each in self._columns.nodes if simulation.closed[self._roots[each.root_id]] <= 0]
        empty = [each.without(frozenset(pod.consumer for pod in each.pods)) for each in open_]
        answers = {each.name: self._ranking.look(each).answer for each in empty}
        refusals = {name: answer for name, answer in answers.items() if isinstance(answer, Refusal)}
        columns = self._columns.among(list(answers)).updated(empty)
        explanation = explain_pod(self._ranking.shape, columns, refusals)
        first = explanation.first_empty
        return "" if first is None else f": {stage_sentence(explanation.stages[first], explanation)}"

    def lacking(self, simulation: MoveSimulation, root: int) -> Mapping[Any, int]:
        """Return how much more of each class the node would need as a whole; others are left out."""
        totals = simulation.nodes[root].totals
        return {
            name: lacking
            for name, amount in self._pod_spec.request.amounts.items()
            if (lacking := amount - totals.allocatable.get(name, 0) + totals.requested.get(name, 0)) > 0
        }

    def freed(self, simulation: MoveSimulation, consumer: PlacedConsumer) -> Mapping[Any, int]:
        """Return the requests of a pod; a consumer that is no pod may hold anything."""
        if consumer.pod is None:
            return dict.fromkeys(self._pod_spec.request.amounts, _ANYTHING)
        return dict(consumer.pod.requests)
