"""A plan as text: what it achieves, its moves, and its hosts before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TextIO

from placement.client.tree_drawing import bar
from placement.common.titles import GUESSED_MOVES

_OF = {"fit": "requests fit", "empty": "hosts are empty", "free": "more hosts are empty"}


def draw_plan(plan: Mapping[str, Any], stdout: TextIO) -> Iterator[str]:
    """Yield the lines of a plan, in characters that the output can take."""
    yield summary(plan)
    yield from map(_move, list_moves(plan))
    if any(move["kind"] == "guessed" for move in plan["moves"]):
        yield GUESSED_MOVES
    for each in plan["left"]:
        yield f"stays {name_mover(each)}: {each['why']}"
    # Plans that older releases wrote count no watched kinds.
    for each in plan.get("watched", ()):
        before, after = (_count(each[moment]) for moment in ("before", "after"))
        where = "" if each["cluster"] is None else f" in {each['cluster']}"
        yield f"room for {each['kind']}{where}: {before} -> {after}"
    for host in plan["hosts"]:
        yield ""
        yield from _host(host, stdout)


def _count(room: Mapping[str, int]) -> str:
    """Return how many fit, or between which numbers that is."""
    lower, upper = room["lower"], room["upper"]
    return str(lower) if lower == upper else f"{lower} to {upper}"


def _move(numbered: NumberedMove) -> str:
    evicted = ", by eviction" if numbered.move["by"] == "eviction" else ""
    kind = numbered.move["kind"]
    where = f"{numbered.before} -> {numbered.after}"
    if numbered.before == numbered.after:
        where = f"{numbered.before}, other {'CPUs' if kind == 'pod' else 'providers'} of the same host"
    return f"{numbered.number:>4}  {numbered.consumer}  {where}  ({kind}{evicted})"


def _host(host: Mapping[str, Any], stdout: TextIO) -> Iterator[str]:
    """Yield the consumers of a host, and the classes that are used more or less, before and after."""
    consumers = f"{host['consumers_before']} -> {host['consumers_after']} consumers"
    yield f"{host['name'] or host['uuid']}: {consumers}"
    changed = {name: use for name, use in host["classes"].items() if use["before"] != use["after"]}
    width = max((len(name) for name in changed), default=0)
    for name, use in changed.items():
        before, after = (bar(use[moment], use["capacity"], stdout) for moment in ("before", "after"))
        amounts = f"{use['before']} -> {use['after']} of {use['capacity']}"
        yield f"  {name:{width}}  {before}  {after}  {amounts}"


class NumberedMove(NamedTuple):
    """A move of a plan with its number, and the names of its consumer and of its hosts before and after."""

    number: int
    move: Mapping[str, Any]
    consumer: str
    before: str
    after: str


def list_moves(plan: Mapping[str, Any]) -> Iterator[NumberedMove]:
    """Yield the moves of a plan."""
    hosts = {host["uuid"]: host["name"] for host in plan.get("hosts", ())}
    for number, move in enumerate(plan["moves"], start=1):
        before, after = move["from_host"], move["to_host"]
        names = hosts.get(before) or before, hosts.get(after) or after
        yield NumberedMove(number, move, name_mover(move), *names)


def summary(plan: Mapping[str, Any]) -> str:
    """Return what a plan achieves, and how far from the best it may be, in a sentence or two."""
    moves, bound = len(plan["moves"]), plan["bound"]
    if plan["goal"] == "defragment":
        shown = ", ".join(
            f"{each['after']} of {each['before']} {name} are stranded"
            if each["before"]
            else f"no {name} is stranded"
            for name, each in plan["stranded"].items()
        )
    else:
        shown = f"{plan['achieved']} of {plan['wanted']} {_OF[plan['goal']]}"
    if moves:
        shown += f" after {moves} {'move' if moves == 1 else 'moves'}"
    if not plan["reached"]:
        return f"{shown}; {_out_of_reach(plan)}"
    if moves and bound["moves"] >= moves:
        how = {"sums": "sums show", "search": "all plans with fewer moves were tried"}[bound["by"]]
        shown += f"; no plan has fewer: {how}"
    elif moves and bound["moves"]:
        shown += f"; {bound['moves']} at least are needed, so a plan with fewer than {moves} may exist"
    return shown


def _out_of_reach(plan: Mapping[str, Any]) -> str:
    """Return why a plan does not reach its goal; plans that older releases wrote have no `why`."""
    if not plan["complete"]:
        return f"more may be possible: {plan.get('why') or 'time ran out before all plans were tried'}"
    impossible = plan["bound"]["by"] == "impossible"
    certain = "no number of moves is enough" if impossible else "no plan within the limits is enough"
    return f"{certain}: {plan['why']}" if plan.get("why") else certain


def name_mover(move: Mapping[str, Any]) -> str:
    """Return the name of the pod that is moved or stays, or the uuid of another consumer."""
    pod = move.get("pod")
    return str(move["consumer"]) if pod is None else f"{pod['namespace']}/{pod['name']}"
