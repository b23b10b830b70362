"""What is lost, and how long claims fail, when the leader of PostgreSQL dies under a storm of claims.

python -m benchmarks.failover --etcd /usr/bin/etcd
python -m benchmarks.failover --etcd etcd.xz --rounds 5 --clients 16

Each round kills the leader with everything on it, waits until claims succeed again, and lets it come back.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.patroni import LOOP_SECONDS, TTL_SECONDS, Node, Nodes, three_nodes
from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from placement.storage import schema
from placement.storage.database import Database
from tests.faults.ledger import (
    Ledger,
    await_recovery,
    claim_body,
    make_providers,
    shown_use,
    stored_use,
    storm,
    violations,
)
from tests.server import running_service
from tests.service import Service, ServiceError

ETCD_VARIABLE = "PLACEMENT_BENCHMARK_ETCD"
_CALM_SECONDS = 5.0
_PROBES = 4
_PROVIDERS = 8
_PATIENCE_SECONDS = 120
_ACCEPTED = 204


@dataclass
class Probe:
    """When claims were answered that succeeded, by clients that do nothing else."""

    url: str
    provider: str
    succeeded: list[float] = field(default_factory=list)

    def first_after(self, moment: float) -> float:
        """Wait for a claim that succeeds and is answered after this moment; when that was."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for answered in list(self.succeeded):
                if answered > moment:
                    return answered
            time.sleep(0.01)
        raise TimeoutError("claims did not succeed again")

    @contextmanager
    def running(self) -> Iterator[Probe]:
        """Claim and release again and again."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._run, args=(stop,), daemon=True) for _ in range(_PROBES)]
        for thread in threads:
            thread.start()
        yield self
        stop.set()
        for thread in threads:
            thread.join(_PATIENCE_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        service = Service(self.url)
        while not stop.is_set():
            consumer = str(uuid.uuid4())
            with suppress(ServiceError, OSError):
                if (
                    service.call("PUT", f"/allocations/{consumer}", claim_body(self.provider)).status
                    == _ACCEPTED
                ):
                    self.succeeded.append(time.monotonic())
                    service.call("DELETE", f"/allocations/{consumer}")
            time.sleep(0.02)


@dataclass(frozen=True)
class Round:
    """One death: seconds until another node took writes, and until a claim succeeded there."""

    killed: str
    elected_after: float
    claimed_after: float


def main() -> None:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--etcd", type=Path, default=os.environ.get(ETCD_VARIABLE), help="the program, perhaps packed with xz"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=16)
    given = parser.parse_args()
    if given.etcd is None:
        parser.error(f"--etcd, or {ETCD_VARIABLE} in the environment, has to name the program etcd")
    with three_nodes(Path(given.etcd)) as nodes:
        _measure(nodes, given.rounds, given.clients)


def _measure(nodes: Nodes, rounds: int, clients: int) -> None:
    database = Database(nodes.url())
    schema.upgrade(database)
    with running_service(nodes.url(), workers=2) as one, running_service(nodes.url(), workers=2) as two:
        services = [Service(one.url), Service(two.url)]
        providers = make_providers(services[0], _PROVIDERS + 1)
        found = []
        with (
            Probe(one.url, providers.pop()).running() as probe,
            storm([one.url, two.url], providers, clients) as ledger,
        ):
            for _ in range(rounds):
                leader = nodes.await_whole()
                time.sleep(_CALM_SECONDS)
                found.append(_kill(nodes, leader, probe))
                leader.start()
            nodes.await_whole()
            time.sleep(_CALM_SECONDS)
        await_recovery(services, providers[0])
        _tell(found, ledger, violations(services[0], providers, ledger))
        expected = stored_use(services[0], providers)
        alike = all(shown_use(service).items() >= expected.items() for service in services for _ in range(4))
    print("Searches of all processes show what is stored." if alike else "SEARCHES SHOW WHAT IS NOT STORED.")
    wrong = checks.check_database(database, MigrationOwner("p", "u")).violations
    print("\n".join(one.sentence for one in wrong) or "placement db check: everything holds.")
    database.dispose()


def _kill(nodes: Nodes, leader: Node, probe: Probe) -> Round:
    leader.kill()
    killed_at = time.monotonic()
    while nodes.leader() is None:
        if time.monotonic() > killed_at + _PATIENCE_SECONDS:
            raise TimeoutError("no other node became the leader")
        time.sleep(0.01)
    elected_at = time.monotonic()
    claimed_at = probe.first_after(killed_at + 0.1)
    return Round(leader.name, elected_at - killed_at, claimed_at - killed_at)


def _tell(rounds: list[Round], ledger: Ledger, wrong: list[str]) -> None:
    load = os.getloadavg()[0]
    print(f"ttl {TTL_SECONDS} s, loop_wait {LOOP_SECONDS} s, synchronous, load {load:.1f}")
    print("killed  a leader after  a claim after  difference")
    for one in rounds:
        difference = one.claimed_after - one.elected_after
        print(
            f"{one.killed:6}  {one.elected_after:12.2f} s  {one.claimed_after:11.2f} s  {difference:8.2f} s"
        )
    print(f"answers: {dict(sorted(ledger.statuses.items()))}; slowest {ledger.slowest:.1f} s")
    print(f"{len(ledger.held)} claims acknowledged and not released, {len(ledger.uncertain)} in doubt")
    print(f"lost or wrong: {len(wrong)}")
    for sentence in wrong:
        print(f"  {sentence}")


if __name__ == "__main__":
    main()
