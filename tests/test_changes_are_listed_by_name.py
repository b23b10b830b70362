"""Lists of changes have the names of providers and hosts, as far as these still exist, in one statement."""

from __future__ import annotations

import uuid

from placement.audit.service import AuditTrail
from placement.engine.domain.audit import AuditFilter
from placement.storage.database import Database
from tests.client import Client


def test_changes_have_the_names_of_their_hosts(api: Client, database: Database):
    first, second = api.provider("host-a", DISK_GB=9), api.provider("host-b", PCPU=4)
    core = api.provider("host-a/core", first, PCPU=4)
    consumer = str(uuid.uuid4())
    api.claim({core: {"PCPU": 2}, first: {"DISK_GB": 1}}, consumer)
    api.put(f"/allocations/{consumer}", Client.allocations({second: {"PCPU": 2}}, 1))
    api.delete(f"/allocations/{consumer}")
    deleted, moved, made = AuditTrail(database).described(AuditFilter(consumer_id=consumer), None, 9)[0]
    assert (made.hosts_before, made.hosts_after) == ((), ("host-a",))
    assert (moved.hosts_before, moved.hosts_after) == (("host-a",), ("host-b",))
    assert (deleted.hosts_before, deleted.hosts_after) == (("host-b",), ())
    inventories = AuditFilter(kind="inventories", targets=(core,))
    assert AuditTrail(database).described(inventories, None, 1)[0][0].provider == "host-a/core"
    for gone in (core, first):
        assert api.delete(f"/resource_providers/{gone}").status_code == 204
    known = AuditTrail(database).described(AuditFilter(consumer_id=consumer), None, 9)[0]
    assert [each.hosts_before for each in known] == [("host-b",), (), ()]
    assert AuditTrail(database).described(inventories, None, 1)[0][0].provider is None


def test_a_page_of_records_with_several_names_is_whole(api: Client, database: Database):
    hosts = [api.provider(f"host-{number}", VCPU=4) for number in range(3)]
    for number in range(3):
        api.claim({host: {"VCPU": 1} for host in hosts}, str(uuid.UUID(int=number + 1)))
    trail, wanted = AuditTrail(database), AuditFilter(kind="allocations")
    page, following = trail.described(wanted, None, 2)
    assert [(each.target, len(each.hosts_after)) for each in page] == [
        (str(uuid.UUID(int=3)), 3),
        (str(uuid.UUID(int=2)), 3),
    ]
    rest, end = trail.described(wanted, following, 2)
    assert ([each.target for each in rest], end) == ([str(uuid.UUID(int=1))], None)
