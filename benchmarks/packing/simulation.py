"""One run: a stream of requests against one order of candidates."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.data import DataSet, claim_body
from benchmarks.packing.measures import Measures, measure
from benchmarks.packing.orders import ORDERS, Candidate, Client
from benchmarks.packing.stream import Arrival
from benchmarks.wire import Wire

_AT_ONCE = 200


@dataclass(frozen=True)
class Run:
    """What one order made of one stream; `half` was measured when half of the requests had arrived.

    `load` is the number of requests, `amounts` the sum of what was placed, by class.
    """

    load: int
    order: str
    seed: int
    placed: Counter[str]
    refused: Counter[str]
    amounts: Counter[str]
    half: Measures
    end: Measures


@dataclass
class _Cluster:
    """The service, and who holds what in it."""

    wire: Wire
    client: Client
    held: dict[int, tuple[str, Candidate]] = field(default_factory=dict)
    leaving: dict[int, list[int]] = field(default_factory=dict)

    def claim(self, arrival: Arrival, candidate: Candidate) -> None:
        """Let a new consumer hold the candidate."""
        consumer = str(uuid.uuid4())
        body = {**claim_body({}), "allocations": candidate["allocations"]}
        self.wire.must("PUT", f"/allocations/{consumer}", body)
        self.held[arrival.number] = consumer, candidate
        if arrival.leaves is not None:
            self.leaving.setdefault(arrival.leaves, []).append(arrival.number)

    def release_before(self, arrival: Arrival) -> None:
        """Release what leaves before this arrival."""
        for number in self.leaving.pop(arrival.number, ()):
            self._release(number)

    def clear(self) -> None:
        """Release everything, many consumers at once."""
        consumers = [consumer for consumer, _ in self.held.values()]
        nothing = {**claim_body({}), "consumer_generation": 1}
        for start in range(0, len(consumers), _AT_ONCE):
            some = consumers[start : start + _AT_ONCE]
            self.wire.must("POST", "/allocations", dict.fromkeys(some, nothing))
        self.held.clear()

    def _release(self, number: int) -> None:
        consumer, candidate = self.held.pop(number)
        self.wire.must("DELETE", f"/allocations/{consumer}")
        self.client.released(candidate)


def simulate(url: str, data: DataSet, order: str, seed: int, stream: Sequence[Arrival]) -> Run:
    """Place everything that fits, release what leaves, measure, and leave the cluster empty again."""
    client = Client(url, data, seed)
    cluster = _Cluster(Wire(url), client)
    placed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    amounts: Counter[str] = Counter()
    for arrival in tqdm(stream, desc=f"{order}, seed {seed}", unit="", mininterval=1):
        if arrival.number == len(stream) // 2:
            half = measure(cluster.wire)
        cluster.release_before(arrival)
        candidate = ORDERS[order](client, arrival.kind)
        if candidate is None:
            refused[arrival.kind.name] += 1
            continue
        cluster.claim(arrival, candidate)
        placed[arrival.kind.name] += 1
        amounts.update(arrival.kind.amounts)
    end = measure(cluster.wire)
    cluster.clear()
    return Run(len(stream), order, seed, placed, refused, amounts, half, end)
