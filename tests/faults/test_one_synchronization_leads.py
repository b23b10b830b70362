"""Two synchronizations of a real Kubernetes take turns by a Lease: only one sends, and one always does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.client import unique
from tests.faults.around_kubernetes import CLUSTER, TOKEN, Lab, lab
from tests.faults.relay import relay_to
from tests.patience import eventually
from tests.probes import probed
from tests.real_kubernetes import ControlPlane, Refused
from tests.server import database_url, free_port
from tests.synchronizing import ENVIRONMENT, Synchronizing

_SECONDS = 6
_WOULD_HAVE_SENT_SECONDS = 4
_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/placement/rolebindings"
# The one that the Role of the sample allows.
LEASE = "placement-sync-edge"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/placement/leases"
_LEADS, _STANDS_BY = "this process leads", "stands by"


@pytest.fixture
def around(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    # What is tested is in front of the database.
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path) as found:
        found.add_node("host-0")
        yield found
    with suppress(Refused):
        kubernetes.call("DELETE", f"{_LEASES}/{LEASE}")


@contextmanager
def contender(
    around: Lab, lease: str, *options: str, kubeconfig: Path | None = None, at_first: str = _LEADS
) -> Iterator[Synchronizing]:
    """A synchronization that takes turns, during the block, which begins when it leads or stands by."""
    output = around.folder / f"contender-{unique()}.txt"
    config = kubeconfig or around.kubernetes.sync_kubeconfig(CLUSTER)
    command = [sys.executable, "-m", "placement.client", "--url", around.url, "sync", "kubernetes"]
    command += ["--cluster", CLUSTER, "--kubeconfig", str(config), "--lease", f"placement/{lease}"]
    command += ["--lease-duration", str(_SECONDS), *options]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, "PLACEMENT_TOKEN": TOKEN},
        )
    try:
        sync = Synchronizing(process, output)
        eventually(at_first, lambda: last_word(sync))
        yield sync
    finally:
        process.kill()
        process.wait()


def last_word(sync: Synchronizing) -> str:
    """What the process said last about who leads."""
    said = [line for line in sync.said.splitlines() if line.startswith("Lease ")]
    return next((word for word in (_LEADS, _STANDS_BY) if said and word in said[-1]), "")


def spec(around: Lab, lease: str) -> Any:
    return around.kubernetes.call("GET", f"{_LEASES}/{lease}")["spec"]


def test_the_other_leads_when_the_leader_is_killed(around: Lab):
    lease = LEASE
    with contender(around, lease) as first:
        eventually({"host-0"}, around.nodes)
        with contender(around, lease, at_first=_STANDS_BY) as second:
            assert "nodes 1" not in second.said
            held = spec(around, lease)
            first.process.kill()
            around.add_node("host-1")
            eventually(_LEADS, lambda: last_word(second))
            eventually({"host-0", "host-1"}, around.nodes)
            after = spec(around, lease)
            assert after["holderIdentity"] != held["holderIdentity"]
            assert after["leaseTransitions"] == held["leaseTransitions"] + 1
            second.end()


def test_who_is_told_to_end_leaves_at_once(around: Lab):
    lease = LEASE
    with contender(around, lease) as first, contender(around, lease, at_first=_STANDS_BY) as second:
        first.end()
        assert spec(around, lease)["holderIdentity"] == "" or last_word(second) == _LEADS
        eventually(_LEADS, lambda: last_word(second))
        second.end()


def test_a_leader_that_was_asleep_writes_nothing_any_more(around: Lab):
    lease = LEASE
    with contender(around, lease) as first:
        eventually({"host-0"}, around.nodes)
        with contender(around, lease, at_first=_STANDS_BY) as second:
            first.process.send_signal(signal.SIGSTOP)
            eventually(_LEADS, lambda: last_word(second))
            first.process.send_signal(signal.SIGCONT)
            eventually(_STANDS_BY, lambda: last_word(first))
            around.add_node("host-1")
            eventually({"host-0", "host-1"}, around.nodes)
            second.process.send_signal(signal.SIGSTOP)
            # Who leads again looks at everything again: what happened meanwhile is sent.
            around.add_node("host-2")
            eventually(_LEADS, lambda: last_word(first))
            eventually({"host-0", "host-1", "host-2"}, around.nodes)
            first.end()


def test_a_leader_that_may_not_renew_writes_nothing_any_more(around: Lab):
    lease = LEASE
    with contender(around, lease) as only:
        eventually({"host-0"}, around.nodes)
        binding = around.kubernetes.call("GET", f"{_BINDINGS}/placement-sync")
        around.kubernetes.call("DELETE", f"{_BINDINGS}/placement-sync")
        try:
            eventually(_STANDS_BY, lambda: last_word(only))
            # It goes on watching, so it knows of this at once.
            around.add_node("host-1")
            time.sleep(_WOULD_HAVE_SENT_SECONDS)
            assert around.nodes() == {"host-0"}
        finally:
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            around.kubernetes.call("POST", _BINDINGS, binding)
        eventually(_LEADS, lambda: last_word(only))
        eventually({"host-0", "host-1"}, around.nodes)
        assert "forbidden" in only.said
        only.end()


def test_a_leader_whom_kubernetes_does_not_answer_gives_way(around: Lab, tmp_path: Path):
    lease = LEASE
    port = int(around.kubernetes.url.rpartition(":")[2])
    with relay_to(port) as relay:
        config = around.kubernetes.sync_kubeconfig(CLUSTER).read_text()
        through = tmp_path / "through.kubeconfig"
        through.write_text(config.replace(f":{port}", f":{relay.port}"))
        through.chmod(0o600)
        with (
            contender(around, lease, kubeconfig=through) as first,
            contender(around, lease, at_first=_STANDS_BY) as second,
        ):
            relay.refuses = True
            relay.freeze()
            eventually(_STANDS_BY, lambda: last_word(first))
            eventually(_LEADS, lambda: last_word(second))
            second.end()


def test_a_leader_that_the_service_refuses_does_not_stand_by(around: Lab):
    port = free_port()
    options = ("--token", "wrong", "--health-port", str(port))
    with contender(around, LEASE, *options) as refused:
        told = f"http://127.0.0.1:{port}", "/readyz?verbose"
        # Not only when it is far behind.
        soon = re.compile(r"\[-\]caught-up failed: not once since the start, [1-5]?[0-9] s ago")
        eventually(True, lambda: soon.search(probed(*told)[1]) is not None)
        refused.end()
