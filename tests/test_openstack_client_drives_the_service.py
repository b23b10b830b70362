"""An unmodified `openstack` client with its placement plugin works against a live service.

Every command at its lowest microversion and at the newest one. Source: placement-api.md, "What clients send".
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.client import NEWEST, custom, unique
from tests.patience import PATIENCE_SECONDS
from tests.server import RunningServer

pytest.importorskip("osc_placement")
VMX, SSD = "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"


class Failed(Exception):
    """The command ended with an error; the text is what it printed."""


def forget_clients() -> None:
    """The client keeps its connections for the whole process; each command is to start anew."""
    from openstackclient.common.clientmanager import ClientManager
    from osc_lib.clientmanager import ClientCache

    for base in ClientManager.__mro__:
        for attribute in vars(base).values():
            if isinstance(attribute, ClientCache):
                attribute._handle = None


class Shell:
    """The client at one microversion."""

    def __init__(self, url: str, version: str) -> None:
        self.version = version
        self._common = ["--os-auth-type", "admin_token", "--os-endpoint", url, "--os-token", "admin"]

    def __call__(self, command: str, *arguments: str) -> Any:
        """Run a command; what it prints as JSON, None if it prints nothing."""
        from openstackclient.shell import OpenStackShell

        out, err = io.StringIO(), io.StringIO()
        line = [*self._common, "--os-placement-api-version", self.version, *command.split(), *arguments]
        if command.split()[-1] in ("list", "show", "create", "set", "unset") and self._prints(command):
            line += ["-f", "json"]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            forget_clients()
            shell = OpenStackShell()
            shell.stdout = out
            code = shell.run(line)
        if code:
            raise Failed(err.getvalue() + out.getvalue())
        return json.loads(out.getvalue()) if out.getvalue().strip() else None

    @staticmethod
    def _prints(command: str) -> bool:
        return command not in ("resource class create", "resource class set", "trait create")


@pytest.fixture
def at(served: RunningServer):
    return lambda version: Shell(served.url, version)


def provider(shell: Shell, **inventories: int) -> str:
    own: str = shell("resource provider create", unique())["uuid"]
    if inventories:
        arguments = [part for key, total in inventories.items() for part in ("--resource", f"{key}={total}")]
        shell("resource provider inventory set", own, *arguments)
    return own


def versions(*least: str):
    return pytest.mark.parametrize("version", [*least, NEWEST])


@versions("1.0")
def test_resource_providers(at, version: str):
    shell, first = at(version), unique()
    own = shell("resource provider create", first, "--uuid", str(uuid.uuid4()))["uuid"]
    assert shell("resource provider show", own)["name"] == first
    assert shell("resource provider list", "--name", first)[0]["uuid"] == own
    assert shell("resource provider list", "--uuid", own)[0]["name"] == first
    second = unique()
    assert shell("resource provider set", own, "--name", second)["name"] == second
    assert "allocations" in shell("resource provider show", own, "--allocations")
    shell("resource provider delete", own)
    with pytest.raises(Failed, match="No resource provider with uuid"):
        shell("resource provider show", own)


@versions("1.14")
def test_nested_resource_providers(at, version: str):
    shell = at(version)
    root = provider(shell)
    child = shell("resource provider create", unique(), "--parent-provider", root)
    assert child["root_provider_uuid"] == root
    assert len(shell("resource provider list", "--in-tree", child["uuid"])) == 2
    orphan = provider(shell)
    moved = shell("resource provider set", orphan, "--name", unique(), "--parent-provider", root)
    assert moved["parent_provider_uuid"] == root


@pytest.mark.parametrize(
    ("version", "option"),
    [("1.3", "--member-of"), ("1.4", "--resource"), ("1.18", "--required"), ("1.22", "--forbidden")],
)
def test_provider_filters(at, version: str, option: str):
    group, newest = str(uuid.uuid4()), at(NEWEST)
    own = provider(newest, VCPU=2)
    shown = newest("resource provider show", own)
    newest("resource provider trait set", own, "--trait", VMX)
    generation = str(newest("resource provider show", own)["generation"])
    newest("resource provider aggregate set", own, "--aggregate", group, "--generation", generation)
    value = {"--member-of": group, "--resource": "VCPU=2", "--required": VMX, "--forbidden": SSD}[option]
    for shell in (at(version), newest):
        found = shell("resource provider list", "--name", shown["name"], option, value)
        assert [one["uuid"] for one in found] == [own]


def test_any_of_traits_and_aggregates(at):
    shell, group = at(NEWEST), str(uuid.uuid4())
    own = provider(shell)
    shell("resource provider trait set", own, "--trait", VMX)
    generation = str(shell("resource provider show", own)["generation"])
    shell("resource provider aggregate set", own, "--aggregate", group, "--generation", generation)
    found = shell(
        "resource provider list", "--required", f"{VMX},{SSD}", "--forbidden", SSD,
        "--member-of", f"{group},{uuid.uuid4()}",
    )  # fmt: skip
    assert [one["uuid"] for one in found] == [own]


@versions("1.0")
def test_inventories(at, version: str):
    shell = at(version)
    own = provider(shell, VCPU=8, DISK_GB=100)
    listed = shell("resource provider inventory list", own)
    assert {(record["resource_class"], record["total"]) for record in listed} == {
        ("VCPU", 8),
        ("DISK_GB", 100),
    }
    assert shell("resource provider inventory show", own, "VCPU")["max_unit"] == 2147483647
    changed = shell("resource provider inventory class set", own, "VCPU", "--total", "16", "--max_unit", "4")
    assert changed["total"] == 16
    shell("resource provider inventory set", own, "--amend", "--resource", "VCPU:allocation_ratio=2.0")
    assert shell("resource provider inventory show", own, "VCPU")["allocation_ratio"] == 2.0
    shell("resource provider inventory set", own, "--dry-run", "--resource", "VCPU=1")
    assert shell("resource provider inventory show", own, "VCPU")["total"] == 16
    usages = shell("resource provider usage show", own)
    assert {(one["resource_class"], one["usage"]) for one in usages} == {("VCPU", 0), ("DISK_GB", 0)}
    shell("resource provider inventory delete", own, "--resource-class", "VCPU")
    with pytest.raises(Failed, match="No inventory of class VCPU for "):
        shell("resource provider inventory show", own, "VCPU")
    with pytest.raises(Failed, match="No inventory of class VCPU found for delete"):
        shell("resource provider inventory delete", own, "--resource-class", "VCPU")
    with pytest.raises(Failed, match="Unknown resource class"):
        shell("resource provider inventory set", own, "--resource", "UNKNOWN_CPU=16")


@versions("1.5")
def test_delete_all_inventories(at, version: str):
    shell = at(version)
    own = provider(shell, VCPU=8)
    shell("resource provider inventory delete", own)
    assert shell("resource provider inventory list", own) == []


@versions("1.3")
def test_inventories_of_an_aggregate(at, version: str):
    shell, newest, group = at(version), at(NEWEST), str(uuid.uuid4())
    members = [provider(newest), provider(newest)]
    for own in members:
        newest("resource provider aggregate set", own, "--aggregate", group, "--generation", "0")
    shell("resource provider inventory set", group, "--aggregate", "--resource", "VCPU=3")
    for own in members:
        assert newest("resource provider inventory show", own, "VCPU")["total"] == 3


@versions("1.1")
def test_aggregates(at, version: str):
    shell, group = at(version), str(uuid.uuid4())
    own = provider(shell)
    guard = ["--generation", "0"] if version == NEWEST else []
    shell("resource provider aggregate set", own, "--aggregate", group, *guard)
    assert [one["uuid"] for one in shell("resource provider aggregate list", own)] == [group]
    with pytest.raises(Failed, match="is not a 'uuid'"):
        shell("resource provider aggregate set", own, "--aggregate", "x", *guard)
    if guard:
        with pytest.raises(Failed, match="Please update the generation"):
            shell("resource provider aggregate set", own, *guard)


@versions("1.6")
def test_traits(at, version: str):
    shell, trait = at(version), custom()
    shell("trait create", trait)
    shell("trait show", trait)
    assert shell("trait list", "--name", f"in:{trait}") == [{"name": trait}]
    own = provider(shell)
    shell("resource provider trait set", own, "--trait", trait, "--trait", VMX)
    assert {one["name"] for one in shell("resource provider trait list", own)} == {trait, VMX}
    assert {"name": trait} in shell("trait list", "--associated")
    shell("resource provider trait delete", own)
    shell("trait delete", trait)
    with pytest.raises(Failed, match="No such trait"):
        shell("trait show", trait)


@versions("1.2")
def test_resource_classes(at, version: str):
    shell, one = at(version), custom()
    shell("resource class create", one)
    assert shell("resource class show", one) == {"name": one}
    assert {"name": "VCPU"} in shell("resource class list")
    shell("resource class delete", one)
    with pytest.raises(Failed, match="No such resource class"):
        shell("resource class show", one)
    with pytest.raises(Failed, match="Cannot delete standard resource class"):
        shell("resource class delete", "VCPU")
    with pytest.raises(Failed, match="JSON does not validate"):
        shell("resource class create", "fake")


@versions("1.7")
def test_resource_class_set(at, version: str):
    shell, one = at(version), custom()
    for _ in range(2):
        shell("resource class set", one)
    assert shell("resource class show", one) == {"name": one}


@versions("1.0", "1.8", "1.12", "1.28")
def test_allocations(at, version: str):
    shell, consumer = at(version), str(uuid.uuid4())
    one, two = provider(shell, VCPU=4, MEMORY_MB=512), provider(shell, VCPU=4)
    labels = [] if version == "1.0" else ["--project-id", "p", "--user-id", "u"]
    labels += ["--consumer-type", "INSTANCE"] if version == NEWEST else []
    wanted = ["--allocation", f"rp={one},VCPU=2", "--allocation", f"rp={one},MEMORY_MB=128"]
    wanted += ["--allocation", f"rp={two},VCPU=1"]
    stored = shell("resource provider allocation set", consumer, *wanted, *labels)
    assert {entry["resource_provider"]: entry["resources"] for entry in stored} == {
        one: {"VCPU": 2, "MEMORY_MB": 128},
        two: {"VCPU": 1},
    }
    assert shell("resource provider allocation set", consumer, "--allocation", f"rp={one},VCPU=3", *labels)
    shown = shell("resource provider allocation show", consumer)
    assert [entry["resources"] for entry in shown] == [{"VCPU": 3}]
    with pytest.raises(Failed, match="HTTP 409"):
        shell("resource provider inventory delete", one, "--resource-class", "VCPU")
    shell("resource provider allocation delete", consumer)
    assert shell("resource provider allocation show", consumer) == []
    with pytest.raises(Failed, match="HTTP 404"):
        shell("resource provider allocation delete", consumer)


@versions("1.12", "1.28", "1.37")
def test_allocations_are_unset_in_part(at, version: str):
    shell, consumer = at(version), str(uuid.uuid4())
    one, two = provider(shell, VCPU=4, MEMORY_MB=512), provider(shell, VCPU=4)
    labels = ["--project-id", "p", "--user-id", "u"]
    labels += ["--consumer-type", "INSTANCE"] if version == NEWEST else []
    wanted = ["--allocation", f"rp={one},VCPU=2,MEMORY_MB=128", "--allocation", f"rp={two},VCPU=1"]
    shell("resource provider allocation set", consumer, *wanted, *labels)
    left = shell("resource provider allocation unset", consumer, "--resource-class", "MEMORY_MB")
    assert {entry["resource_provider"]: entry["resources"] for entry in left} == {
        one: {"VCPU": 2},
        two: {"VCPU": 1},
    }
    left = shell("resource provider allocation unset", consumer, "--provider", one)
    assert [entry["resource_provider"] for entry in left] == [two]
    assert not shell("resource provider allocation unset", consumer)
    assert shell("resource provider allocation show", consumer) == []


@pytest.mark.parametrize("version", ["1.9", "1.37"])
def test_usages_of_a_project(at, version: str):
    shell, project = at(version), unique()
    own = provider(shell, VCPU=4)
    labels = ["--project-id", project, "--user-id", "u"]
    shell("resource provider allocation set", str(uuid.uuid4()), "--allocation", f"rp={own},VCPU=2", *labels)
    usage = [{"resource_class": "VCPU", "usage": 2}]
    assert shell("resource usage show", project) == usage
    assert shell("resource usage show", project, "--user-id", "u") == usage
    assert shell("resource usage show", project, "--user-id", "other") == []


@versions("1.10", "1.12", "1.16", "1.17", "1.21", "1.22", "1.29")
def test_allocation_candidates(at, version: str):
    shell, newest, one = at(version), at(NEWEST), custom()
    minor, group = int(version.split(".")[1]), str(uuid.uuid4())
    newest("resource class create", one)
    own = provider(newest, **{one: 8})
    newest("resource provider trait set", own, "--trait", VMX)
    generation = str(newest("resource provider show", own)["generation"])
    newest("resource provider aggregate set", own, "--aggregate", group, "--generation", generation)
    options = ["--limit", "5"] if minor >= 16 else []
    options += ["--required", VMX] if minor >= 17 else []
    options += ["--member-of", group] if minor >= 21 else []
    options += ["--forbidden", SSD] if minor >= 22 else []
    (found,) = shell("allocation candidate list", "--resource", f"{one}=3", *options)
    assert found["resource provider"] == own
    assert found["allocation"] == f"{one}=3"


def test_granular_candidates(at):
    shell, one = at(NEWEST), custom()
    shell("resource class create", one)
    root = provider(shell)
    for _ in range(2):
        child = shell("resource provider create", unique(), "--parent-provider", root)["uuid"]
        shell("resource provider inventory set", child, "--resource", f"{one}=1")
    found = shell(
        "allocation candidate list",
        "--group", "A", "--resource", f"{one}=1", "--group", "B", "--resource", f"{one}=1",
        "--group-policy", "isolate",
    )  # fmt: skip
    assert len(found) == 4


def run(url: str, *arguments: str, version: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("openstack"))]
    command += ["--os-auth-type", "admin_token", "--os-endpoint", url, "--os-token", "admin"]
    command += ["--os-placement-api-version", version] if version else []
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize("version", [None, "1.39"])
def test_the_command_itself(served: RunningServer, version: str | None):
    created = run(served.url, "resource", "provider", "create", unique(), "-f", "json", version=version)
    assert created.returncode == 0, created.stderr
    own = json.loads(created.stdout)["uuid"]
    missing = run(served.url, "resource", "provider", "show", str(uuid.uuid4()), version=version)
    assert missing.returncode == 1
    assert "No resource provider with uuid" in missing.stderr
    assert "HTTP 404" in missing.stderr
    assert run(served.url, "resource", "provider", "delete", own, version=version).returncode == 0
