"""Sums of amounts, which show at once that a goal is out of reach, however consumers are moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from placement.engine.search.simulation import Draws
from placement.planning.simulation import MoveSimulation, PlacedConsumer


def sums_of(draws: Draws) -> Counter[int]:
    """Return the sum of the amounts of each class."""
    sums: Counter[int] = Counter()
    for draw in draws:
        sums[draw.class_id] += draw.amount
    return sums


def shortage(simulation: MoveSimulation, wanted: Mapping[int, int], hosts: str) -> str:
    """Return why open hosts never have these amounts by class; empty if sums do not show that.

    `hosts` is the name of these hosts in the text.
    """
    roots = {root for root in simulation.forest.roots.tolist() if simulation.closed[root] <= 0}
    slack = _slack(each for root in roots for each in simulation.on.get(root, {}).values())
    for class_id, amount in wanted.items():
        free = simulation.forest.by_root(class_id)
        left = sum(free[root][0] for root in free.keys() & roots) + slack[class_id]
        if amount > left:
            name = simulation.class_name(class_id)
            return f"{hosts} have at most {left} {name} left in all, {amount} are needed"
    return ""


def most_empty(
    simulation: MoveSimulation, roots: Sequence[int], wanted: int, staying: Collection[int]
) -> tuple[int, str]:
    """Return how many more hosts, at most `wanted`, can be empty by sums, and why no more.

    Hosts in `staying` have a consumer that may not be moved.
    """
    consumers = [each for root in roots for each in simulation.on.get(root, {}).values()]
    occupied = sum(bool(simulation.on.get(root)) for root in roots)
    slack = _slack(consumers)
    most, why = occupied - len(staying), "consumers that cannot move stay on too many hosts"
    demands = [each.demand for each in consumers if each.demand is not None]
    for class_id in sorted({class_id for demand in demands for class_id in demand.wanted}):
        found = simulation.forest.by_root(class_id)
        amounts = {root: found[root] for root in found.keys() & set(roots)}
        held = sum(used for _, used in amounts.values()) - slack[class_id]
        offered = {root: free + used for root, (free, used) in amounts.items()}
        needed = _hosts_for(held, offered, roots, staying)
        if needed is not None and occupied - needed < most:
            most = occupied - needed
            name = simulation.class_name(class_id)
            why = f"{held} {name} are held, which takes at least {needed} hosts"
    return (wanted, "") if most >= wanted else (max(most, 0), why)


def _hosts_for(
    amount: int, offered: Mapping[int, int], roots: Sequence[int], staying: Collection[int]
) -> int | None:
    """Return the least number of hosts, with all in `staying`, that offer an amount; None if all lack it."""
    left, count = sum(offered.get(root, 0) for root in staying), len(staying)
    others = (offered.get(root, 0) for root in roots if root not in staying)
    for most in sorted(others, reverse=True):
        if left >= amount:
            break
        left, count = left + most, count + 1
    return count if left >= amount else None


def _slack(consumers: Iterable[PlacedConsumer]) -> Counter[int]:
    """Return how much less consumers could hold elsewhere than they hold now, by class."""
    slack: Counter[int] = Counter()
    for each in consumers:
        if each.demand is not None and not each.fixed:
            least = each.demand.wanted
            slack.update(
                {name: max(0, held - least.get(name, 0)) for name, held in sums_of(each.spot.draws).items()}
            )
    return slack
