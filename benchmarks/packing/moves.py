"""What plans regain on a simulated cluster that is full: stranded cores, and room for refused requests.

python -m benchmarks.packing.moves              1000 hosts, 9 requests per host; takes an hour
python -m benchmarks.packing.moves --hosts 100  a quick look
python -m benchmarks.packing.moves --write      also puts figures and plot into docs/packing.md

The consumers of the simulation claim with their queries, which are kept with them.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import bulk
from benchmarks.packing.cluster import cluster
from benchmarks.packing.measures import PlanFigures, measure
from benchmarks.packing.orders import CLAIMED_BY
from benchmarks.packing.stream import COMMON, MIX, Arrival, Dedicated, Kind, arrivals
from benchmarks.wire import Wire
from placement.engine.domain.claims import MOVE_HEADER
from tests.server import database_url, running_service

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_FIGURES = re.compile(r"(<!-- figures of moves -->\n).*(<!-- end of figures of moves -->)", re.DOTALL)
_LARGEST = max((kind for kind in MIX if isinstance(kind, Dedicated)), key=lambda kind: kind.cores)
_PATIENT = {"OS_API__REQUEST_TIMEOUT": "600"}
_CLAIMANT = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
_SHARE = 0.05
_REFUSED = 5
_MOST_MOVES = 3


class _Full:
    """A cluster that is filled by claims through the service."""

    def __init__(self, url: str, order: str) -> None:
        self.wire = Wire(url)
        self.order = order
        self._held: dict[int, str] = {}
        self._leaving: dict[int, list[int]] = {}

    def fill(self, stream: Sequence[Arrival]) -> None:
        """Claim for everybody who arrives, and release who leaves."""
        for arrival in tqdm(stream, desc=self.order, unit="", mininterval=5):
            for number in self._leaving.pop(arrival.number, ()):
                self.wire.must("DELETE", f"/allocations/{self._held.pop(number)}")
            consumer = self.claim(arrival.kind)
            if consumer is not None:
                self._held[arrival.number] = consumer
                if arrival.leaves is not None:
                    self._leaving.setdefault(arrival.leaves, []).append(arrival.number)

    def claim(self, kind: Kind) -> str | None:
        """A new consumer with what it asks for, None if that is refused."""
        consumer = str(uuid.uuid4())
        body = {**_CLAIMANT, "consumer_uuid": consumer, "query": kind.query + CLAIMED_BY[self.order]}
        status, _ = self.wire.call("POST", "/ext/v1/claims", body)
        return consumer if status == 201 else None

    @property
    def consumers(self) -> int:
        """How many hold something."""
        return len(self._held)

    def plan(self, goal: dict[str, Any], moves: int, seconds: float) -> tuple[dict[str, Any], float]:
        """A plan, and how long it took."""
        body = {"goal": goal, "limits": {"moves": moves, "seconds": seconds}}
        started = time.perf_counter()
        plan: dict[str, Any] = json.loads(self.wire.must("POST", "/ext/v1/plans", body))
        return plan, time.perf_counter() - started

    def apply(self, move: dict[str, Any]) -> None:
        """Rewrite the allocations of a consumer, as `placement plan apply` does."""
        body = {
            **_CLAIMANT,
            "allocations": move["to_allocations"],
            "consumer_generation": move["consumer_generation"],
        }
        self.wire.must("PUT", f"/allocations/{move['consumer']}", body, {MOVE_HEADER: "true"})

    def clear(self) -> None:
        """Release everything."""
        for consumer in self._held.values():
            self.wire.call("DELETE", f"/allocations/{consumer}")


def _defragmented(full: _Full, seconds: float) -> PlanFigures:
    before = measure(full.wire).stranded_cores
    consumers = full.consumers
    goal = {"defragment": {"querystring": COMMON.query, "resource_class": "PCPU"}}
    plan, taken = full.plan(goal, int(_SHARE * consumers), seconds)
    curve = [before]
    for at, move in enumerate(plan["moves"], start=1):
        full.apply(move)
        if at % max(1, len(plan["moves"]) // 20) == 0:
            curve.append(measure(full.wire).stranded_cores)
    after = measure(full.wire).stranded_cores
    return PlanFigures(
        full.order, consumers, before, after, len(plan["moves"]), plan["bound"]["moves"], taken, curve
    )


def _made_to_fit(full: _Full, figures: PlanFigures, seconds: float) -> None:
    """The largest request again and again: what is refused is planned for, and the plan carried out."""
    while figures.refused < _REFUSED:
        if full.claim(_LARGEST) is not None:
            continue
        figures.refused += 1
        plan, taken = full.plan({"fit": {"querystring": _LARGEST.query}}, _MOST_MOVES, seconds)
        figures.fit_seconds += taken
        if not plan["reached"]:
            figures.impossible += plan["complete"]
            figures.undecided += not plan["complete"]
            return
        figures.made_to_fit += 1
        figures.fit_moves += len(plan["moves"])
        for move in plan["moves"]:
            full.apply(move)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing.moves", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--arrivals", type=float, default=9, help="requests per host (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120, help="for one plan (default %(default)s)")
    parser.add_argument("--orders", nargs="+", choices=CLAIMED_BY, default=list(CLAIMED_BY), metavar="ORDER")
    parser.add_argument("--write", action="store_true", help="write docs/packing.md and its plot")
    given = parser.parse_args()
    hosts = cluster(given.hosts)
    stream = arrivals(round(given.arrivals * given.hosts), given.seed)
    found = []
    for order in given.orders:
        # A database for each: what all consumers left would not be the same as nothing.
        with database_url("postgresql") as connection:
            bulk.fill(connection, hosts)
            with running_service(connection, workers=1, environment=_PATIENT) as server:
                full = _Full(server.url, order)
                full.fill(stream)
                figures = _defragmented(full, given.seconds)
                _made_to_fit(full, figures, given.seconds)
                found.append(figures)
                print(figures, flush=True)
    text = _tables(found)
    print(text)
    if given.write:
        from benchmarks.packing.plot import draw_moves

        page = _DOCS / "packing.md"
        head = (
            f"{given.hosts} hosts, {len(stream)} requests, seed {given.seed}; "
            f"at most {given.seconds:g} s for a plan, and {_REFUSED} refusals.\n\n"
        )
        page.write_text(_FIGURES.sub(lambda match: f"{match[1]}{head}{text}{match[2]}", page.read_text()))
        draw_moves(found, _DOCS / "packing-moves.svg")


def _tables(found: Sequence[PlanFigures]) -> str:
    lines = [
        "| order | consumers | stranded | after | regained | moves | of consumers | at least | seconds |",
        "| --- |" + " ---: |" * 8,
    ]
    lines += [
        f"| {each.order} | {each.consumers} | {each.stranded_before} | {each.stranded_after} "
        f"| {each.regained:.0%} | {each.moves} | {each.moves / each.consumers:.1%} | {each.bound} "
        f"| {each.seconds:.1f} |"
        for each in found
    ]
    lines += [
        "",
        "| order | refused | made to fit | moves each | shown impossible | undecided | seconds each |",
        "| --- |" + " ---: |" * 6,
    ]
    lines += [
        f"| {each.order} | {each.refused} | {each.made_to_fit} "
        f"| {each.fit_moves / max(1, each.made_to_fit):.1f} | {each.impossible} | {each.undecided} "
        f"| {each.fit_seconds / max(1, each.refused):.1f} |"
        for each in found
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
