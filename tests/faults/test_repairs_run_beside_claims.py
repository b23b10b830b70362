"""`placement db check --repair` sets sums right while others claim, and takes nothing from them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement.providers.statements import providers
from placement.server import checks
from placement.server.online_migrations import MigrationOwner
from placement.storage.database import Database
from tests.faults.ledger import make_providers, shown_use, stored_use, storm, violations
from tests.server import BACKENDS, database_url, running_service
from tests.service import Service

_OWNER = MigrationOwner("p", "u")
_ROUNDS = 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_are_right_after_repairs_in_a_storm(backend: str):
    with database_url(backend) as url, running_service(url, workers=2) as server:
        service = Service(server.url)
        hosts = make_providers(service, 3)
        database = Database(url)
        with storm([server.url], hosts, clients=8) as ledger:
            for _ in range(_ROUNDS):
                with database.write() as transaction:
                    # In the order of all writers: without it, claims and this one may wait for each other.
                    providers.lock_all(transaction, hosts)
                    transaction.execute(sa.text("UPDATE inventories SET used = used + 5"))
                assert checks.check(url, _OWNER).errors
                checks.repair(url, _OWNER)
                assert checks.check(url, _OWNER).errors == []
        database.dispose()
        assert ledger.faults() == 0, ledger.statuses
        assert violations(service, hosts, ledger) == []
        assert shown_use(service) == stored_use(service, hosts)
