"""No reader of a filter leaves a field of it out: lists and pages show the records that were asked for."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass, fields
from typing import Any

import pytest

from placement.allocations.statements import lists
from placement.audit.service import AuditTrail
from placement.engine.domain.audit import AuditFilter
from placement.engine.domain.claims import AllocationFilter
from placement.storage.database import Database
from tests.client import Client

SENT = f"req-{uuid.UUID(int=7)}"
# For each field, what applies to one of the two changes below and not to the other.
WANTED: dict[str, Any] = {
    "user_id": "first",
    "project_id": "of-first",
    "request_id": SENT,
    "action": "create",
    "kind": "trait",
    "consumer_id": str(uuid.UUID(int=1)),
    "targets": ("CUSTOM_A",),
}


def ids(database: Database, wanted: AuditFilter) -> list[int]:
    """Return the ids of the records that apply; lists and pages must agree on them."""
    trail = AuditTrail(database)
    found = [each.id for each in trail.listed(wanted, None, 10)[0]]
    assert [each.id for each in trail.described(wanted, None, 10)[0]] == found
    older, _ = trail.described(wanted, found[0] if found else None, 10)
    assert [each.id for each in older] == found[1:]
    return found


def test_each_field_of_the_filter_of_changes_narrows(api: Client, database: Database):
    root = api.provider("root", VCPU=8)
    api.claim({root: {"VCPU": 1}}, WANTED["consumer_id"])
    before = ids(database, AuditFilter())
    first = api.as_("first:of-first", X_Roles="admin")
    first.put("/traits/CUSTOM_A", X_Openstack_Request_Id=SENT)
    (made,) = set(ids(database, AuditFilter())) - set(before)
    api.delete(f"/allocations/{WANTED['consumer_id']}")
    everything = ids(database, AuditFilter())
    records = AuditTrail(database).listed(AuditFilter(), None, 10)[0]
    moment = {each.id: each.recorded_at for each in records}
    times = {"since": moment[made], "until": moment[made] + datetime.timedelta(microseconds=1)}
    for field in fields(AuditFilter):
        found = ids(database, AuditFilter(**{field.name: {**WANTED, **times}[field.name]}))
        assert 0 < len(found) < len(everything), field.name
        assert (made in found) == (field.name != "consumer_id"), field.name


@dataclass(frozen=True)
class Newer(AuditFilter):
    """A filter with a field that no reader knows."""

    address: str | None = None


def test_a_field_that_a_reader_does_not_know_is_an_error(database: Database):
    trail = AuditTrail(database)
    with pytest.raises(KeyError, match="address"):
        trail.listed(Newer(address="127.0.0.1"), None, 1)
    with database.read() as connection, pytest.raises(KeyError, match="consumer_uuid"):
        lists.sums(connection, AllocationFilter(consumer_uuid="x"), None, 1)
