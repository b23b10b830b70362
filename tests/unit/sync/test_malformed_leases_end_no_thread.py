"""A Lease that is not as it must be is trouble that is noted: the thread goes on, and does not lead by it."""

from __future__ import annotations

from typing import Any

import pytest

from placement.sync.leadership import Leadership
from placement.sync.settings import LeaseName

HELD = {"holderIdentity": "another", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}


class Noted:
    """A journal that keeps what it is given."""

    def __init__(self) -> None:
        self.troubles: list[str] = []

    def trouble(self, _source: str, sentence: str) -> None:
        self.troubles.append(sentence)

    def well(self, _source: str) -> None: ...

    def note(self, _sentence: str) -> None: ...


class OneLease:
    """An API server with this Lease."""

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        self.written: list[Any] = []

    def get(self, _path: str) -> Any:
        return self.lease

    def put(self, _path: str, body: Any) -> None:
        self.written.append(body)


@pytest.mark.parametrize(
    "lease",
    [
        *(
            {"spec": {**HELD, "leaseDurationSeconds": odd}}
            for odd in ("fifteen", "15", [15], 1.5, float("nan"))
        ),
        {"spec": {**HELD, "holderIdentity": "", "leaseTransitions": "one"}},
        {"spec": None},
        {"spec": []},
        {},
        [],
    ],
)
def test_it_is_noted_and_nothing_is_taken(lease: Any):
    api_server, journal = OneLease(lease), Noted()
    leadership = Leadership(api_server, LeaseName("placement", "sync"), 15, journal)  # type: ignore[arg-type]
    leadership._look()
    assert not leadership.leads
    assert len(journal.troubles) == 1
    assert api_server.written == []
    api_server.lease = {"spec": {**HELD, "holderIdentity": "", "leaseDurationSeconds": 15}}
    leadership._look()
    assert leadership.leads
