"""A service with something of everything in it, for requests made of its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from flask import Flask

from placement.health import Health
from placement.http.registry import registry_of
from tests.client import Client
from tests.conftest import application_on, compatible
from tests.reservations import reservation

TOKEN = f"an-administrator-{'x' * 32}"
ROOT, CHILD = (f"0a000000-0000-4000-8000-00000000000{digit}" for digit in (1, 2))
CONSUMER, AGGREGATE = "0c000000-0000-4000-8000-000000000001", "0e000000-0000-4000-8000-000000000001"
# What is there, by the names of path parameters.
KNOWN = {
    "uuid": (ROOT, CHILD),
    "consumer": (CONSUMER,),
    "resource_class": ("VCPU", "MEMORY_MB"),
    "name": ("CUSTOM_GOLD", "VCPU", "packet-core", "kept"),
    "cluster": ("edge",),
    "namespace": ("default",),
    "node": ("edge-01",),
    "asset": ("start.js",),
}
_EXAMPLES = Path(__file__).resolve().parents[1] / "etc" / "examples"


@contextmanager
def described_service(directory: Path) -> Iterator[Flask]:
    """The service in this process with something of everything in it; only who has TOKEN is served."""
    tokens = directory / "tokens.yaml"
    tokens.write_text(json.dumps({TOKEN: {"user": "root", "project": "p", "roles": ["admin", "service"]}}))
    tokens.chmod(0o600)
    settings = compatible(auth_strategy="token", tokens_file=tokens)
    with application_on("sqlite", settings=settings) as application:
        fill(Client(application.test_client(), token=TOKEN))
        yield application


def fill(api: Client) -> None:
    """Bring about what is missing of it."""
    # Probes tell what was found a moment ago, and nobody looks again here.
    registry_of(api.http.application)[Health].look()
    for uuid, parent in ((ROOT, None), (CHILD, ROOT)):
        body = {"name": uuid, "uuid": uuid, "parent_provider_uuid": parent}
        if api.post("/resource_providers", body).status_code == 200:
            api.offer(uuid, VCPU=64, MEMORY_MB={"total": 65536, "allocation_ratio": 1.5})
            api.carry(uuid, "CUSTOM_GOLD", "HW_CPU_X86_AVX")
            api.join(uuid, AGGREGATE)
    if not api.used_by(CONSUMER):
        assert api.claim({ROOT: {"VCPU": 2}, CHILD: {"MEMORY_MB": 512}}, CONSUMER).status_code == 204
    _fill_cluster(api)


def _fill_cluster(api: Client) -> None:
    cluster = "/ext/v1/clusters/edge"
    if api.get(cluster).status_code == 200:
        return
    assert api.put(cluster, {"description": "at the edge"}).status_code == 201
    for file in sorted((_EXAMPLES / "edge" / "nodes").iterdir())[:2]:
        documents = list(yaml.safe_load_all(file.read_text()))
        name = documents[0]["metadata"]["name"]
        assert api.put(f"{cluster}/nodes/{name}", {"kind": "List", "items": documents}).status_code == 201
    pod = yaml.safe_load((_EXAMPLES / "pod.yaml").read_text())
    assert api.put(f"{cluster}/pods/default/{pod['metadata']['name']}", pod).status_code == 201
    assert api.put(f"{cluster}/reservations/kept", reservation()).status_code == 201
