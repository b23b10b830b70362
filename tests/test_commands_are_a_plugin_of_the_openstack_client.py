"""`openstack placement ...` runs the commands of `placement`, signed in as that client is.

Beside osc-placement, with a real python-openstackclient against a running service.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from placement.client import catalog, cli
from placement.server.demonstration import examples
from tests.commands import run, run_openstack

pytest.importorskip("openstackclient")
ROOT = Path(__file__).resolve().parents[1]
ADMIN = ("--os-auth-type", "admin_token", "--os-token", "admin")
POD = str(examples() / "pod.yaml")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def openstack(examples_url) -> Run:
    return lambda *arguments: run_openstack(*ADMIN, "--os-endpoint", examples_url, *arguments)


def test_the_plugin_has_every_command_that_asks_a_service():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared["openstack.placement_forest.v1"] == catalog.entry_points()
    assert len(catalog.entry_points()) > 25
    local = {name for name, _ in cli.Catalog()} - {
        name.removeprefix("placement_").replace("_", " ") for name in catalog.entry_points()
    }
    of_service = {"config check", "db check", "db upgrade", "db version", "serve"}
    assert local == {*of_service, "completion", "export", "help", "import", "man", "verify"}


def test_no_other_plugin_has_these_names():
    ours = {name.replace("_", " ") for name in catalog.entry_points()}
    theirs = {
        point.name.replace("_", " ")
        for group in entry_points().groups
        if group.startswith("openstack.") and group != "openstack.placement_forest.v1"
        for point in entry_points(group=group)
    }
    assert len(theirs) > 100
    assert not ours & theirs


@pytest.mark.parametrize(
    "command",
    [
        ["node", "show", "edge", "edge-01"],
        ["explain", "resources=PCPU:64"],
        ["pod", "preview", "edge", POD, "-f", "json"],
        ["flavor", "translate", "--vcpus", "1", "--ram", "64", "-f", "yaml"],
        ["tree", "nobody"],
    ],
    ids=" ".join,
)
def test_both_commands_say_the_same(examples_url, openstack, command):
    ours = run("--url", examples_url, *command)
    theirs = openstack("placement", *command)
    assert (theirs.returncode, theirs.stdout) == (ours.returncode, ours.stdout)
    assert theirs.stderr == ours.stderr.replace("placement: ", "")


def test_what_is_claimed_is_seen_by_the_plugin_of_openstack_placement(openstack):
    held = json.loads(
        openstack("placement", "claim", "resources=PCPU:2", "cluster=edge", "-f", "json").stdout
    )
    consumer = held[0]["consumer"]
    seen = json.loads(openstack("resource", "provider", "allocation", "show", consumer, "-f", "json").stdout)
    assert [entry["resources"] for entry in seen] == [{"PCPU": 2}]
    assert openstack("placement", "allocation", "delete", consumer).returncode == 0


def test_a_client_without_a_token_is_told_why_it_is_refused(examples_url):
    refused = run_openstack(
        "--os-auth-type", "none", "--os-endpoint", examples_url, "placement", "cluster", "list"
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "Policy does not allow placement:clusters:list to be performed. "
        "With auth_strategy noauth2 the token `admin` has a role, others have none.\n"
    )


def test_a_service_that_is_not_there_is_one_line():
    failed = run_openstack(*ADMIN, "--os-endpoint", "http://127.0.0.1:1", "placement", "cluster", "list")
    assert failed.returncode == 1
    assert "http://127.0.0.1:1/ext/v1/clusters" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
