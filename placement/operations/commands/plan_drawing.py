"""A plan as text: what it achieves, its moves, and its hosts before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from placement.operations.commands.drawing import bar

_OF = {"fit": "requests fit", "empty": "hosts are empty", "free": "more hosts are empty"}


def summary(plan: Mapping[str, Any]) -> str:
    """What a plan achieves, and how far from the best it may be, in a sentence or two."""
    moves, bound = len(plan["moves"]), plan["bound"]
    told = f"{_achieved(plan)} after {moves} {'move' if moves == 1 else 'moves'}"
    if not plan["complete"]:
        return f"{told}; the time was up before all was tried"
    if bound["by"] == "impossible":
        return f"{told}; no number of moves does it"
    if plan["reached"]:
        how = {"sums": "sums show", "search": "all with fewer were tried"}[bound["by"]]
        least = "no plan has fewer" if bound["moves"] >= moves else f"no plan has fewer than {bound['moves']}"
        return f"{told}; {least}: {how}" if moves else told
    return told


def _achieved(plan: Mapping[str, Any]) -> str:
    if plan["goal"] == "defragment":
        return ", ".join(
            f"{each['after']} of {each['before']} {name} are stranded"
            for name, each in plan["stranded"].items()
        )
    return f"{plan['achieved']} of {plan['wanted']} {_OF[plan['goal']]}"


def _marked(move: Mapping[str, Any]) -> str:
    return f"{move['kind']}, by eviction" if move["by"] == "eviction" else str(move["kind"])


def drawn(plan: Mapping[str, Any], stdout: TextIO) -> Iterator[str]:
    """The lines of a plan, in characters that the output can take."""
    yield summary(plan)
    hosts = {host["uuid"]: host["name"] or host["uuid"] for host in plan["hosts"]}
    for at, move in enumerate(plan["moves"], start=1):
        pod = move.get("pod")
        who = move["consumer"] if pod is None else f"{pod['namespace']}/{pod['name']}"
        ends = " -> ".join(hosts.get(move[end], move[end]) for end in ("from_host", "to_host"))
        yield f"{at:>4}  {who}  {ends}  ({_marked(move)})"
    for each in plan["left"]:
        yield f"stays {each['consumer']}: {each['why']}"
    for host in plan["hosts"]:
        yield ""
        yield f"{hosts[host['uuid']]}: {host['consumers_before']} -> {host['consumers_after']} consumers"
        changed = {name: use for name, use in host["classes"].items() if use["before"] != use["after"]}
        width = max((len(name) for name in changed), default=0)
        for name, use in changed.items():
            before, after = (bar(use[moment], use["capacity"], stdout) for moment in ("before", "after"))
            amounts = f"{use['before']} -> {use['after']} of {use['capacity']}"
            yield f"  {name:{width}}  {before}  {after}  {amounts}"
