"""Clients that claim and release under faults, and keep a ledger of what they were told."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.service import Service, ServiceError

_ACCEPTED, _GONE = 204, 404
PROJECT, USER = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))


@dataclass
class Ledger:
    """What clients were told: who certainly holds, who certainly does not, and who may."""

    held: dict[str, dict[str, int]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def told(
        self, consumer: str, claimed: Mapping[str, int] | None, status: int | None, seconds: float
    ) -> None:
        """Note the answer to a claim of what is given, or to a release; no status: no answer."""
        with self._lock:
            self.statuses[str(status)] += 1
            self.slowest = max(self.slowest, seconds)
            if status == _ACCEPTED and claimed is not None:
                self.held[consumer] = dict(claimed)
            elif claimed is None and status in (_ACCEPTED, _GONE):
                self.held.pop(consumer, None)
                self.released.add(consumer)
            elif status is None or status >= 500:
                self.held.pop(consumer, None)
                self.uncertain.add(consumer)

    def seen(self, status: int | None) -> None:
        """Note the answer to something that changes nothing."""
        with self._lock:
            self.statuses[str(status)] += 1

    def faults(self) -> int:
        """How many answers had a status of 500."""
        return self.statuses["500"]


def claim_body(provider: str, amount: int = 1, generation: int | None = None) -> dict[str, object]:
    """The body of a claim of VCPUs."""
    return {
        "allocations": {provider: {"resources": {"VCPU": amount}}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def make_providers(service: Service, count: int, vcpus: int = 1_000_000) -> list[str]:
    """Providers with VCPUs."""
    made = []
    for number in range(count):
        name = str(uuid.uuid4())
        body = service.must("POST", "/resource_providers", {"name": f"{name}-{number}", "uuid": name})
        inventory = {"total": vcpus}
        content = {
            "resource_provider_generation": body["generation"],
            "inventories": {"VCPU": inventory},
        }
        service.must("PUT", f"/resource_providers/{name}/inventories", content)
        made.append(name)
    return made


def _client(urls: Sequence[str], providers: Sequence[str], ledger: Ledger, stop: threading.Event) -> None:
    services = [Service(url) for url in urls]
    mine: list[str] = []
    while not stop.is_set():
        service = random.choice(services)
        if random.random() < 0.25:
            ledger.seen(_status(service, "GET", "/allocation_candidates?resources=VCPU:1&limit=5"))
            continue
        if mine and random.random() < 0.3:
            consumer, claimed = mine.pop(), None
            begun = time.monotonic()
            status = _status(service, "DELETE", f"/allocations/{consumer}")
        else:
            consumer, provider = str(uuid.uuid4()), random.choice(providers)
            claimed = {provider: 1}
            begun = time.monotonic()
            status = _status(service, "PUT", f"/allocations/{consumer}", claim_body(provider))
            if status == _ACCEPTED:
                mine.append(consumer)
        ledger.told(consumer, claimed, status, time.monotonic() - begun)


def _status(service: Service, method: str, path: str, body: object = None) -> int | None:
    try:
        return service.call(method, path, body).status
    except (ServiceError, OSError, ValueError):
        return None
    except Exception:
        return None


@contextmanager
def storm(urls: Sequence[str], providers: Sequence[str], clients: int = 16) -> Iterator[Ledger]:
    """Clients at work for as long as the block runs; the ledger is complete after it."""
    ledger, stop = Ledger(), threading.Event()
    threads = [
        threading.Thread(target=_client, args=(urls, providers, ledger, stop), daemon=True)
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield ledger
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)


def violations(service: Service, providers: Sequence[str], ledger: Ledger) -> list[str]:
    """What of the ledger is not so: claims lost, releases undone, use that nobody claimed."""
    found, stored = [], {}
    for provider in providers:
        held = service.must("GET", f"/resource_providers/{provider}/allocations")["allocations"]
        used = service.must("GET", f"/resource_providers/{provider}/usages")["usages"]["VCPU"]
        total = sum(entry["resources"]["VCPU"] for entry in held.values())
        if used != total:
            found.append(f"{provider}: use {used}, allocated {total}")
        for consumer in held:
            stored.setdefault(consumer, {})[provider] = held[consumer]["resources"]["VCPU"]
    for consumer, claimed in ledger.held.items():
        if stored.get(consumer) != claimed:
            found.append(f"{consumer} was told {claimed} and holds {stored.get(consumer)}")
    known = ledger.held.keys() | ledger.uncertain
    for consumer in stored.keys() - known:
        found.append(f"{consumer} holds {stored[consumer]}, which nobody was told")
    return found


def shown_use(service: Service) -> dict[str, int]:
    """The use of VCPUs as a search shows it, per provider."""
    body = service.must("GET", "/allocation_candidates?resources=VCPU:1")
    return {
        provider: summary["resources"]["VCPU"]["used"]
        for provider, summary in body["provider_summaries"].items()
    }


def stored_use(service: Service, providers: Sequence[str]) -> dict[str, int]:
    """The use of VCPUs as the tables have it."""
    return {
        provider: service.must("GET", f"/resource_providers/{provider}/usages")["usages"]["VCPU"]
        for provider in providers
    }


def await_recovery(services: Sequence[Service], provider: str, seconds: float = 60, times: int = 10) -> None:
    """Wait until claims and searches succeed, then see that they go on to do so."""
    deadline = time.monotonic() + seconds
    while not all(_works(service, provider) for service in services):
        assert time.monotonic() < deadline, "the service did not recover by itself"
        time.sleep(0.1)
    for number in range(times):
        for service in services:
            assert _works(service, provider), f"failed again after recovery, attempt {number}"


def _works(service: Service, provider: str) -> bool:
    consumer = str(uuid.uuid4())
    statuses = (
        _status(service, "GET", "/allocation_candidates?resources=VCPU:1&limit=1"),
        _status(service, "PUT", f"/allocations/{consumer}", claim_body(provider)),
        _status(service, "DELETE", f"/allocations/{consumer}"),
    )
    return statuses == (200, _ACCEPTED, _ACCEPTED)
