"""A worker walks through what it loaded at its start only once, not with each full collection of garbage."""

from __future__ import annotations

import gc
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from placement.http.worker.lanes import WorkerLimits
from placement.server import processes
from tests import lane_server
from tests.commands import refusal
from tests.hostile import Wire

# Modules and what belongs to them; an interpreter by itself has fewer.
_MANY = 10_000


def test_what_a_worker_has_loaded_is_left_out_of_collections():
    with lane_server.running() as server, Wire(server.url) as client:
        assert int(client.get("/frozen").answer().body) > _MANY


def test_a_refused_start_leaves_collections_on(tmp_path: Path):
    assert "missing.conf is not a file" in refusal("serve", "--config-file", f"{tmp_path}/missing.conf")
    assert gc.isenabled()


def test_what_a_master_has_loaded_is_left_out_before_it_forks(monkeypatch: pytest.MonkeyPatch):
    """The command has collected nothing until then, and the master does again."""
    seen = []

    def run() -> None:
        seen.append((gc.get_freeze_count() > _MANY, gc.isenabled()))

    monkeypatch.setattr(processes, "Arbiter", lambda _: SimpleNamespace(run=run))
    gc.disable()
    try:
        processes.Server(socket.create_server(("127.0.0.1", 0)), 1, WorkerLimits).run()
    finally:
        gc.unfreeze()
        gc.enable()
    assert seen == [(True, True)]
