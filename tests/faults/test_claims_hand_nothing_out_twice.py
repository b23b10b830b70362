"""Many clients claim from few providers at once, through two workers."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.claimants import CLIENTS, Claimant, bulk_outcomes, providers, recorded_use
from tests.server import RunningServer


def in_parallel(work: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(work, range(CLIENTS)))


def test_claims_fill_providers_exactly_and_no_conflict_is_seen(two_workers: RunningServer) -> None:
    """Two thousand claims for exactly what there is: all succeed, the next is refused, nothing is over."""
    capacity, number = 672, 3
    setting = Claimant(two_workers.url)
    hosts = providers(setting, capacity, number)
    each = capacity * number // CLIENTS

    def work(client_number: int) -> Counter[int]:
        client, answers = Claimant(two_workers.url), Counter()
        for at in range(each):
            host = hosts[(client_number + at) % number]
            amounts = {"VCPU": 1, "MEMORY_MB": 2}
            answers[client.claim(str(uuid.uuid4()), {host: amounts}).status_code] += 1
        return answers

    answers = sum(in_parallel(work), Counter())
    assert answers == {204: capacity * number}
    for host in hosts:
        used, summed = recorded_use(setting, host)
        assert used == summed == {"VCPU": capacity, "MEMORY_MB": 2 * capacity}
        refused = setting.claim(str(uuid.uuid4()), {host: {"VCPU": 1}})
        assert refused.status_code == 409
        assert "exceed the capacity" in refused.text


def test_claiming_replacing_moving_and_releasing_keep_use_equal_to_allocations(
    two_workers: RunningServer,
) -> None:
    capacity = 40
    setting = Claimant(two_workers.url)
    hosts = providers(setting, capacity)
    faults: list[str] = []

    def work(client_number: int) -> Counter[int]:
        client, answers, chance = Claimant(two_workers.url), Counter(), random.Random(client_number)
        held: dict[str, int] = {}
        for _ in range(60):
            if held and chance.random() < 0.3:
                consumer = chance.choice(sorted(held))
                answer = client.call("DELETE", f"/allocations/{consumer}")
                held.pop(consumer)
            else:
                known = sorted(held)
                consumer = chance.choice(known) if known and chance.random() < 0.5 else str(uuid.uuid4())
                chosen = chance.sample(hosts, chance.randint(1, 2))
                wanted = {host: {"VCPU": chance.randint(1, 6), "MEMORY_MB": 4} for host in chosen}
                answer = client.claim(consumer, wanted, held.get(consumer))
                if answer.status_code == 204:
                    held[consumer] = held.get(consumer, 0) + 1
            answers[answer.status_code] += 1
            if answer.status_code >= 500 or (
                answer.status_code == 409 and "exceed the capacity" not in answer.text
            ):
                faults.append(answer.text)
        return answers

    answers = sum(in_parallel(work), Counter())
    assert not faults
    assert answers[204] > CLIENTS
    for host in hosts:
        used, summed = recorded_use(setting, host)
        assert used == summed
        assert used["VCPU"] <= capacity
        assert used["MEMORY_MB"] <= 2 * capacity


def test_one_of_many_writers_creates_a_consumer(two_workers: RunningServer) -> None:
    setting = Claimant(two_workers.url)
    (host,) = providers(setting, 1000, 1)
    for _ in range(10):
        consumer = str(uuid.uuid4())
        barrier = threading.Barrier(CLIENTS)

        def work(_: int, consumer: str = consumer, barrier: threading.Barrier = barrier) -> int:
            client = Claimant(two_workers.url)
            barrier.wait()
            return client.claim(consumer, {host: {"VCPU": 1}}).status_code

        assert Counter(in_parallel(work)) == {204: 1, 409: CLIENTS - 1}


def test_the_last_unit_goes_to_exactly_one(two_workers: RunningServer) -> None:
    setting = Claimant(two_workers.url)
    (host,) = providers(setting, CLIENTS - 1, 1)
    barrier = threading.Barrier(CLIENTS)

    def work(_: int) -> int:
        client = Claimant(two_workers.url)
        barrier.wait()
        return client.claim(str(uuid.uuid4()), {host: {"VCPU": 1}}).status_code

    assert Counter(in_parallel(work)) == {204: CLIENTS - 1, 409: 1}


def test_claims_in_bulk_fill_providers_exactly(two_workers: RunningServer) -> None:
    """All or none, or each by itself: nobody gets more than there is, nothing is left while somebody asks."""
    setting = Claimant(two_workers.url)
    hosts = providers(setting, 40, 12)
    sizes = (1, 7, 20)

    def work(client_number: int) -> int:
        client, chance, given = Claimant(two_workers.url), random.Random(client_number), 0
        for _ in range(8):
            members = claim_in_bulk(client, chance.choice(sizes), atomic=chance.random() < 0.5)
            given += sum(status == 201 for status in members)
        return given

    given = sum(map(int, in_parallel(work)))
    # What claims for all or none left, because it was not enough for them, goes one by one.
    while left := sum(status == 201 for status in claim_in_bulk(setting, 50, atomic=False)):
        given += left
    assert given == 40 * len(hosts)
    for host in hosts:
        used, summed = recorded_use(setting, host)
        assert used == summed == {"VCPU": 40, "MEMORY_MB": 40}


def claim_in_bulk(client: Claimant, count: int, *, atomic: bool) -> list[int]:
    """The outcomes of so many new consumers; none of a claim for all or none that was refused."""
    members = [{"consumer_uuid": str(uuid.uuid4())} for _ in range(count)]
    return bulk_outcomes(client, members, atomic=atomic)
