"""A worker walks through what it loaded at its start only once, not with each full collection of garbage."""

from __future__ import annotations

from tests import lane_server
from tests.hostile import Wire

# Modules and what belongs to them; an interpreter by itself has fewer.
_MANY = 10_000


def test_what_a_worker_has_loaded_is_left_out_of_collections():
    with lane_server.running() as server, Wire(server.url) as client:
        assert int(client.get("/frozen").answer().body) > _MANY
