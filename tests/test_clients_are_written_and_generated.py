"""The client of docs/client.md, and one that is generated from /openapi.json, search, claim and release."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import requests

from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "client.md"
# The program, and what it prints.
_BLOCK = re.compile(r"^```(?:python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OWNER = {"project_id": "demo", "user_id": "operator", "consumer_type": "INSTANCE"}


def test_the_documented_client_prints_what_is_shown(demonstration: RunningServer) -> None:
    program, shown, *_ = _BLOCK.findall(_PAGE.read_text())
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PLACEMENT_URL": demonstration.url, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.stdout, finished.stderr) == (shown, "")


def test_the_documented_loop_follows_changes(demonstration: RunningServer) -> None:
    program, _, loop, *_ = _BLOCK.findall(_PAGE.read_text())
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program + loop],
        env={**os.environ, "PLACEMENT_URL": demonstration.url, "NO_PROXY": "127.0.0.1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            assert following.stdout is not None
            assert "read everything None\n" in following.stdout
            provider = str(uuid.uuid4())
            requests.post(
                f"{demonstration.url}/resource_providers",
                json={"name": provider, "uuid": provider},
                headers={"X-Auth-Token": "admin"},
                timeout=PATIENCE_SECONDS,
            ).raise_for_status()
            # What the program itself has written may come before.
            assert any(provider in line for line in following.stdout)
        finally:
            following.kill()


def test_a_generated_client_searches_claims_and_releases(
    demonstration: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    document, settings = tmp_path / "placement.json", tmp_path / "settings.yaml"
    document.write_bytes(requests.get(f"{demonstration.url}/openapi.json", timeout=PATIENCE_SECONDS).content)
    # The generator would call ruff by its name.
    settings.write_text("post_hooks: []\n")
    where = ["--path", document, "--config", settings, "--output-path", tmp_path / "placement_client"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *where, "--meta", "none"]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path)
    generated = importlib.import_module("placement_client")
    models = importlib.import_module("placement_client.models")
    search, put, shown, delete = (
        importlib.import_module(f"placement_client.api.{name}")
        for name in (
            "allocation_candidates.get_allocation_candidates",
            "allocations.put_allocations_consumer",
            "allocations.get_allocations_consumer",
            "allocations.delete_allocations_consumer",
        )
    )
    client = generated.AuthenticatedClient(
        demonstration.url, token="admin", auth_header_name="X-Auth-Token", prefix=""
    )
    consumer = uuid.uuid4()
    (best,) = search.sync(client=client, resources="VCPU:2", limit=1).to_dict()["allocation_requests"]
    body = models.Allocations.from_dict({**best, **_OWNER, "consumer_generation": None})
    assert put.sync_detailed(consumer, client=client, body=body).status_code == 204
    held = shown.sync(consumer, client=client).to_dict()["allocations"]
    assert [each["resources"] for each in held.values()] == [{"VCPU": 2}]
    assert delete.sync_detailed(consumer, client=client).status_code == 204
    assert not shown.sync(consumer, client=client).to_dict()["allocations"]
    example = _PAGE.read_text().rpartition("```py\n")[2].partition("```")[0]
    exec(example, {"client": client})
    assert capsys.readouterr().out.startswith("no candidate: 2000 VCPU free")


def test_the_versions_are_listed_by_an_operation_with_a_name(demonstration: RunningServer) -> None:
    document = requests.get(f"{demonstration.url}/openapi.json", timeout=PATIENCE_SECONDS).json()
    assert document["paths"]["/"]["get"]["operationId"] == "list_versions"
