"""A real kube-scheduler and the synchronization show their certificates to a service that wants them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.faults.around_kubernetes import Lab, lab
from tests.patience import eventually
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import ENVIRONMENT


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def around(
    kubernetes: ControlPlane, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    client = authority.sign("client")
    tls = ssl.create_default_context(cafile=authority.file)
    tls.load_cert_chain(client.certificate, client.key)
    for name, file in (("CACERT", authority.file), ("CERT", client.certificate), ("KEY", client.key)):
        monkeypatch.setitem(ENVIRONMENT, f"PLACEMENT_{name}", str(file))
    arguments = [*authority.sign("server").arguments, "--tls-client-ca", str(authority.file)]
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path, arguments, tls) as found:
        found.add_node("host-0")
        yield found


def test_pods_are_scheduled_bound_and_followed(around: Lab, authority: Authority):
    scheduler = authority.sign("kube-scheduler")
    tls = {
        "caFile": str(authority.file),
        "certFile": str(scheduler.certificate),
        "keyFile": str(scheduler.key),
    }
    extender = around.extender(enableHTTPS=True, tlsConfig=tls)
    with around.synchronized(1) as sync, around.kubernetes.scheduler(extender):
        around.create_pod("web", cpus=4)
        eventually({"web"}, around.bound)
        # Reported, no longer only claimed.
        eventually(False, lambda: around.service("GET", "/pods/default/web")["scheduled"])
        assert around.used("host-0") == 4
        around.kubernetes.delete_pod("web")
        eventually({}, around.claims)
        sync.end()
