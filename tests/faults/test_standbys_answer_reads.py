"""A service on a standby answers what reads, says of writes why not, and takes them once it is promoted."""

from __future__ import annotations

import uuid

from tests.faults.cluster import cluster, standby
from tests.faults.ledger import claim_body, make_providers, shown_use, stored_use
from tests.faults.test_the_history_is_proved import await_answer, claim
from tests.patience import eventually
from tests.server import running_service
from tests.service import Service


def test_a_service_on_a_standby_follows_the_primary():
    with cluster() as primary, standby(primary) as replica:  # noqa: SIM117
        with (
            running_service(primary.url(), workers=1) as one,
            running_service(replica.url(), workers=1) as two,
        ):
            writing, reading = Service(one.url), Service(two.url)
            providers = make_providers(writing, 2)
            for number in range(5):
                claim(writing, providers[number % 2])
                expected = stored_use(writing, providers)
                eventually(expected, lambda: shown_use(reading))
            refused = reading.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(providers[0]))
            assert refused.status == 503
            assert "read-only" in str(refused.body)
            ready = reading.call("GET", "/readyz?verbose")
            assert ready.status == 503
            assert "it takes no writes" in str(ready.body)
            assert shown_use(reading) == expected
            replica.promote()
            await_answer(reading)
            eventually(204, lambda: put(reading, providers[1]))
            assert shown_use(reading) == stored_use(reading, providers)


def put(service: Service, provider: str) -> int:
    return service.call("PUT", f"/allocations/{uuid.uuid4()}", claim_body(provider)).status
