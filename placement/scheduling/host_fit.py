"""Whether a host as a whole has room for a pod, in the words of kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from placement.dialects.koordinator.resources import host_class, numa_class
from placement.domain.explanation import Kind, Obstacle
from placement.numa.amounts import Amounts, NumaAmounts
from placement.numa.amplification import bound_cost
from placement.numa.refusal import Refusal
from placement.scheduling.node_offers import PODS_CLASS, NodeOffers, Place
from placement.scheduling.numa_fit import AMPLIFIED

TOO_MANY_PODS = "Too many pods"
Left = Callable[[Place], int]
"""The units that are left at a place."""


def lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, *, bound: bool
) -> Refusal | None:
    """Everything a host has too little of for a pod, None if it fits; the first of it is the obstacle.

    `free` are the units left of each class of the host itself, `left` tells those of its NUMA nodes, which
    count for what the host does not offer as a whole. The comparison is the one that the claim makes.
    `bound`: the pod would get CPUs of its own, each of which costs the ratio of the host.
    """
    lacks = list(_lacking(offers, free, left, requests, bound))
    if not lacks:
        return None
    return Refusal(tuple(words for _, words in lacks), obstacle=Obstacle(Kind.AMOUNT, lacks[0][0]))


def _lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, bound: bool
) -> Iterator[tuple[str, str]]:
    """The class of each amount that is too large, and the words for it."""
    if free.get(PODS_CLASS, 0) < 1:
        yield PODS_CLASS, TOO_MANY_PODS
    for resource, amount in requests.items():
        kind = host_class(resource)
        room = free.get(kind.name)
        if room is None:
            room = sum(left(place) for place in _below(offers, resource).values())
        if -(-amount // kind.unit) > room:
            yield kind.name, f"Insufficient {resource}"
        elif resource == "cpu" and bound and bound_cost(amount, offers.ratio) > room:
            yield kind.name, AMPLIFIED


def loose_amounts(offers: NodeOffers, left: Left, requests: Amounts, aligned: NumaAmounts) -> NumaAmounts:
    """Where to count requests that only NUMA nodes offer, of a pod that is aligned to none with them.

    NUMA nodes give what they have left, lowest ids first; less than the request if there is not enough.
    """
    given: dict[int, dict[str, int]] = {}
    for resource, amount in requests.items():
        if any(resource in row for row in aligned.values()):
            continue
        unit = numa_class(resource).unit
        for numa, place in _below(offers, resource).items():
            share = min(amount, left(place) * unit)
            if share:
                given.setdefault(numa, {})[resource] = share
                amount -= share
    return NumaAmounts(given)


def _below(offers: NodeOffers, resource: str) -> dict[int, Place]:
    """Where NUMA nodes offer what the host as a whole would otherwise offer in the same class."""
    if host_class(resource) != numa_class(resource) or offers.host(resource) is not None:
        return {}
    return offers.on_numa_nodes(resource)
