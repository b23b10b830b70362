"""Candidates by host: what each host offers, and how much of it is used before and after a claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from placement.pods.services.closed_nodes import Closure, closures
from placement.pods.state.host import Place
from placement.pods.state.node_info import NodeInfo
from placement.web import units

CapacityUseByClass = Mapping[str, tuple[int, int]]
"""Capacity and use of a host by resource class."""
_MOST_NAMES = 3
_NOTHING = (0, 0)


class ClaimedUse(NamedTuple):
    """The use of a class on a host before a claim and after it, of its capacity."""

    resource_class: str
    before: int
    after: int
    capacity: int


class CandidateRow(NamedTuple):
    """A candidate: what it gives and on which providers, its score with the parts, and the claim as JSON.

    `beyond` is a sentence if its node as a whole has less left, beside its pods, than the claim takes.
    """

    amounts: Mapping[str, int]
    providers: str
    score: str
    parts: Sequence[str]
    claim: str
    beyond: str


class CandidateHost(NamedTuple):
    """A host with its candidates, best first, and its use after the first of them is claimed.

    If it is a node, `closed` are the reasons for which it takes no pods, or only some.
    """

    uuid: str
    name: str
    candidates: list[CandidateRow]
    uses: Sequence[ClaimedUse]
    closed: Sequence[tuple[Closure, str]]


def by_host(
    candidates: Iterable[Mapping[str, Any]],
    uses: Mapping[str, CapacityUseByClass],
    nodes: Mapping[str, NodeInfo],
) -> list[CandidateHost]:
    """Return the hosts of candidates in the order of their best ones; `uses` and `nodes` are by host uuid."""
    found: dict[str, CandidateHost] = {}
    for each in candidates:
        uuid, name, node = each["host"]["uuid"], each["host"]["name"], nodes.get(each["host"]["uuid"])
        node_uses = [] if node is None else list(_node_uses(node, each["allocations"].values()))
        row = _row(each, node_uses)
        if uuid not in found:
            use = uses.get(uuid, {})
            after = [
                ClaimedUse(of, use[of][1], use[of][1] + amount, use[of][0])
                for of, amount in row.amounts.items()
                if use.get(of, _NOTHING)[0]
            ]
            closed = [] if node is None else list(closures(node))
            found[uuid] = CandidateHost(uuid, name, [], after + node_uses, closed)
        found[uuid].candidates.append(row)
    return list(found.values())


def _node_uses(node: NodeInfo, given: Iterable[Mapping[str, Any]]) -> Iterator[ClaimedUse]:
    """Yield the use of a node as a whole, pods included, before and after a claim that names its parts."""
    claim = {
        Place(node.identity.path(each["name"]), name): amount
        for each in given
        for name, amount in each["resources"].items()
    }
    named = {place.resource_class for place in claim}
    for name, use in sorted(node.host_after(claim).items()):
        if name not in named:
            yield ClaimedUse(name, *use)


def _row(candidate: Mapping[str, Any], uses: Iterable[ClaimedUse]) -> CandidateRow:
    given, host = candidate["allocations"], candidate["host"]["name"]
    beyond = " and ".join(
        units.share(use.capacity - use.before, use.capacity, use.resource_class)
        for use in uses
        if use.after > use.capacity
    )
    amounts = units.summed(each["resources"] for each in given.values())
    names = [without_host(each["name"], host) for each in given.values()]
    claim = {uuid: each["resources"] for uuid, each in given.items()}
    score = candidate["score"]
    parts = list(_parts(candidate["score_parts"]))
    return CandidateRow(
        amounts,
        units.listed(names, _MOST_NAMES),
        "" if score is None else str(score),
        parts,
        orjson.dumps(claim).decode(),
        beyond and f"The node has {beyond} left beside its pods: less than the claim takes.",
    )


def _parts(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if "type" not in part:
            yield f"prefers {part['prefer']}: {'met' if part['met'] else 'not met'}"
            continue
        weight = "" if part["weight"] == 1 else f" × {part['weight']}"
        classes = [
            f"{units.plain(name)} {figures.get('score', figures.get('skipped'))}"
            for name, figures in part["resources"].items()
        ]
        yield f"{part['type']} {part['score']}/{part['max_score']}{weight}: {', '.join(classes)}"


def without_host(name: str, host: str) -> str:
    """Return the name of a provider without that of its host in front."""
    return name.removeprefix(f"{host}/") if name != host else "the host itself"
