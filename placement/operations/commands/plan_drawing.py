"""A plan as text: what it achieves, its moves, and its hosts before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from placement.operations.commands.drawing import bar

_OF = {"fit": "requests fit", "empty": "hosts are empty", "free": "more hosts are empty"}
_GUESSED = "guessed: its request is not known, so amounts and traits are kept"


def summary(plan: Mapping[str, Any]) -> str:
    """What a plan achieves, and how far from the best it may be, in a sentence or two."""
    moves, bound = len(plan["moves"]), plan["bound"]
    told = _achieved(plan)
    if moves:
        told += f" after {moves} {'move' if moves == 1 else 'moves'}"
    if not plan["reached"]:
        return f"{told}; {_out_of_reach(plan)}"
    if moves and bound["moves"] >= moves:
        how = {"sums": "sums show", "search": "all with fewer were tried"}[bound["by"]]
        told += f"; no plan has fewer: {how}"
    elif moves and bound["moves"]:
        told += f"; {bound['moves']} at least are needed, whether so few do is not known"
    return told


def _out_of_reach(plan: Mapping[str, Any]) -> str:
    """Why a plan does not reach its goal; plans that were written before they told so have no `why`."""
    if not plan["complete"]:
        return f"more may be possible: {plan.get('why') or 'the time was up before all was tried'}"
    impossible = plan["bound"]["by"] == "impossible"
    certain = "no number of moves does it" if impossible else "no plan within the limits does it"
    return f"{certain}: {plan['why']}" if plan.get("why") else certain


def _achieved(plan: Mapping[str, Any]) -> str:
    if plan["goal"] == "defragment":
        return ", ".join(
            f"{each['after']} of {each['before']} {name} are stranded"
            if each["before"]
            else f"no {name} is stranded"
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
    if any(move["kind"] == "guessed" for move in plan["moves"]):
        yield _GUESSED
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
