"""Runs tables of scoring cases (`scoring-cases/1`).

No endpoint asks about single rules, so the cases run in this process with or without a url. Cases of hosts
and curves go through the parameters as callers write them; cases of trees go through a real forest.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from placement.allocations.rendering import score_members
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.texts import lines
from placement.engine.scoring.host_scores import score_with_parts
from placement.engine.scoring.order import Order, parse_order, parse_strategy
from placement.engine.scoring.parameters import ScoringRefused, parse_resources, parse_shape
from placement.engine.scoring.rule import RULES
from placement.engine.search.host_sums import HostSums
from placement.engine.search.query import ForestOrder, GroupQuery, Slot
from placement.engine.search.ranking import CandidateScores, ScoreTable, StrategyScores
from tests.cases import Outcome
from tests.forests import World
from tests.naive import NaiveProvider

FORMAT = "scoring-cases/1"

Case = Mapping[str, Any]
Answer = Mapping[str, Any]


def run(document: dict[str, Any], url: str | None) -> Iterator[Outcome]:
    """Each case's id with None if it passed, else with one line that says what differs."""
    for case in document["cases"]:
        yield case["id"], _difference(case["expect"], _answer(case))


def _answer(case: Case) -> Answer:
    ask = _KINDS.get(case["kind"])
    if ask is None:
        return {"error": f"unknown kind {case['kind']}"}
    try:
        return ask(case)
    except ScoringRefused as refused:
        return {"error": refused.code, "reasons": refused.reasons}


def _difference(expected: Answer, answer: Answer) -> str | None:
    for key, value in {"error": None, **expected}.items():
        if answer.get(key) != value:
            return f"{key}: expected {json.dumps(value)}, got {json.dumps(answer.get(key))}"
    return None


def _shape(case: Case) -> Answer:
    return {"max_score": parse_shape(case["shape"], case.get("max_score")).max_score}


def _curve(case: Case) -> Answer:
    shape = parse_shape(case["shape"], case.get("max_score"))
    return {"points": [[at, shape.score(at)] for at, _ in case["expect"]["points"]]}


def _weights(case: Case) -> Answer:
    rule = RULES.get(case.get("strategy_type", ""))
    equal = rule is not None and not rule.has_weights
    found = parse_resources(case.get("resources"), equal=equal)
    return {"resources": [resource._asdict() for resource in found]}


def _host(case: Case) -> Answer:
    strategy = parse_strategy(case["strategy"])
    columns = {
        name: (np.array([case["used"].get(name, 0)]), np.array([case["capacity"].get(name, 0)]))
        for name, _ in strategy.resources
    }
    scored = StrategyScores(strategy, *score_with_parts(strategy, columns, case["request"]))
    table = ScoreTable(scored.scores, strategy.max_score, [scored], [])
    (members,) = lines(score_members(table, ()).whole)
    answer: Answer = json.loads(b"{%b}" % members)["score_parts"][0]
    return answer


# trees: a forest of the case's providers, and candidates as rows of it


class _Tree:
    """The forest of a case, and a query that takes what one of its candidates takes."""

    def __init__(self, providers: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
        self._uuids = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in providers}
        ordered = sorted(providers, key=lambda name: "root" in providers[name])
        self.world = World([self._provider(name, providers[name]) for name in ordered])
        self.world.load()
        self._root_of = {name: provider.get("root", name) for name, provider in providers.items()}
        self._taken = candidate["allocations"]
        # The host takes part even where only sharing providers give something.
        self.slots = [Slot(GroupQuery("host", ()), ())]
        for name, amounts in self._taken.items():
            resources = tuple((self._class_id(each), amount) for each, amount in amounts.items())
            self.slots.append(Slot(GroupQuery(name, resources), resources))
        self.rows = np.array([[self._row(name) for name in (candidate["host"], *self._taken)]], np.int32)
        self.sharers = np.zeros(self.world.forest.count, bool)
        for name, root in self._root_of.items():
            self.sharers[self._row(name)] = root != candidate["host"]

    def _provider(self, name: str, provider: Mapping[str, Any]) -> NaiveProvider:
        records = provider.get("inventories", {})
        root = provider.get("root", name)
        return NaiveProvider(
            uuid=self._uuids[name],
            parent=None if root == name else self._uuids[root],
            inventories={
                each: Inventory(**{key: value for key, value in record.items() if key != "used"})
                for each, record in records.items()
            },
            used={each: record.get("used", 0) for each, record in records.items()},
        )

    def _class_id(self, name: str) -> int:
        """The id of a class, a new one if no provider has it."""
        return self.world.classes.setdefault(name, len(self.world.classes) + 1)

    def _row(self, name: str) -> int:
        return self.world.forest.row_of_uuid(self._uuids[name])

    def ranking(self, order: Order) -> CandidateScores:
        """The ranking of the candidate."""
        by_id = ForestOrder(order, self.world.classes)
        return CandidateScores(self.world.forest, by_id, self.slots, self.sharers)

    def score(self, order: Order) -> int:
        """The score of the candidate."""
        return int(self.ranking(order).of_candidates(self.rows)[0])

    def request(self) -> dict[str, int]:
        """What the candidate takes, by class."""
        total: dict[str, int] = defaultdict(int)
        for amounts in self._taken.values():
            for name, amount in amounts.items():
                total[name] += amount
        return dict(total)

    def sums(self, order: Order) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and use of the candidate's host in every class."""
        names = list(self.world.classes)
        hosts = HostSums(self.world.forest, self.slots, self.sharers, names, self.world.classes)
        found = hosts.of_candidates(self.rows, order.scope)
        return (
            {name: int(capacity[0]) for name, (_, capacity) in found.items()},
            {name: int(used[0]) for name, (used, _) in found.items()},
        )


def _order(case: Case, strategies: Sequence[Any]) -> Order:
    return parse_order({"strategies": strategies, "scope": case.get("scope", "tree")})


def _tree(case: Case) -> Answer:
    order = _order(case, [case["strategy"]])
    tree = _Tree(case["providers"], case["candidate"])
    capacity, used = tree.sums(order)
    expected = case["expect"]
    (members,) = lines(score_members(tree.ranking(order).table(tree.rows), ()).whole)
    return {
        **json.loads(b"{%b}" % members)["score_parts"][0],
        "request": tree.request(),
        # A class that nobody in scope has may be listed with 0 or left out.
        "capacity": {
            name: amount for name, amount in capacity.items() if amount or name in expected["capacity"]
        },
        "used": {name: amount for name, amount in used.items() if amount or name in expected["used"]},
    }


def _rank(case: Case) -> Answer:
    order = _order(case, case["strategies"])
    scores = [(each["id"], _Tree(case["providers"], each).score(order)) for each in case["candidates"]]
    ranked = sorted(scores, key=lambda scored: -scored[1])
    return {"order": [{"id": id_, "score": score} for id_, score in ranked]}


_KINDS: Mapping[str, Callable[[Case], Answer]] = {
    "shape": _shape,
    "curve": _curve,
    "weights": _weights,
    "host": _host,
    "tree": _tree,
    "rank": _rank,
}
