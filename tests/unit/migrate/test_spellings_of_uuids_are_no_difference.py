"""A comparison of services heeds uuids, and not how each of the two spells them."""

from __future__ import annotations

from typing import Any, cast

from placement.client.client import Client, ServiceError
from placement.migrate.comparison import Comparison

HOST, SERVER = "10000000-0000-4000-8000-00000000000a", "c0000000-0000-4000-8000-00000000000c"
RACK = "a0000000-0000-4000-8000-00000000000a"


class Service:
    """A service with one provider in one aggregate, and a consumer; both spelled as given."""

    def __init__(self, rack: str, server: str, used: int = 1, *, finds_all: bool = False) -> None:
        self._server, self._finds_all = server, finds_all
        resources = {"resources": {"VCPU": used}}
        self._answers: dict[str, Any] = {
            "/resource_classes": {"resource_classes": []},
            "/traits": {"traits": []},
            "/resource_providers": {"resource_providers": [{"uuid": HOST, "name": "host"}]},
            f"/resource_providers/{HOST}": {"uuid": HOST, "name": "host"},
            f"/resource_providers/{HOST}/aggregates": {"aggregates": [rack]},
            f"/resource_providers/{HOST}/allocations": {"allocations": {server: resources}},
            f"/allocations/{server}": {"allocations": {HOST: resources}},
        }
        for part in ("inventories", "usages", "traits"):
            self._answers[f"/resource_providers/{HOST}/{part}"] = {part: {}}

    def get(self, path: str) -> Any:
        if self._finds_all and path.lower() == f"/allocations/{SERVER}":
            path = f"/allocations/{self._server}"
        if path not in self._answers:
            raise ServiceError(path, 404)
        return self._answers[path]


def compared(a: Service, b: Service) -> list[str]:
    comparison = Comparison(lambda: cast(Client, a), lambda: cast(Client, b), 1)
    comparison.run(None, lambda *_: None)
    return [str(one) for one in comparison.differences]


def test_the_spelling_counts_on_neither_side():
    as_given, canonical = Service(RACK.upper(), SERVER.upper()), Service(RACK, SERVER, finds_all=True)
    assert compared(as_given, canonical) == []
    assert compared(canonical, as_given) == []


def test_what_they_hold_does():
    as_given, more = Service(RACK.upper(), SERVER.upper()), Service(RACK, SERVER, 2, finds_all=True)
    assert any(SERVER.upper() in line and "is 1 in A and 2 in B" in line for line in compared(as_given, more))
    assert len(compared(as_given, Service(HOST, SERVER, finds_all=True))) == 2
