"""The tutorial for OpenStack, as a reader follows it; another copy of the service stands for the original."""

from __future__ import annotations

from pathlib import Path

from tests import tutorials
from tests.commands import run
from tests.incumbent import Incumbent, incumbent_database
from tests.server import database_url, free_port, running_service

TUTORIAL = (tutorials.ROOT / "docs" / "tutorial-openstack.md").read_text()
_AMOUNTS = {"VCPU": (32, 4.0, 8), "MEMORY_MB": (65536, 1.0, 16384), "DISK_GB": (500, 1.0, 80)}


def filled(original: Incumbent) -> None:
    """Add three hosts and two servers."""
    original.add("projects", id=1, external_id="shop")
    original.add("users", id=1, external_id="nova")
    original.add("consumer_types", id=1, name="INSTANCE")
    for host in (1, 2, 3):
        uuid = f"{host}0000000-0000-4000-8000-000000000000"
        row = {"id": host, "uuid": uuid, "name": f"compute-0{host}", "root_provider_id": host}
        original.add("resource_providers", generation=1, **row)
    for number in (1, 2):
        uuid = f"c0000000-0000-4000-8000-00000000000{number}"
        original.add("consumers", uuid=uuid, project_id=1, user_id=1, generation=1, consumer_type_id=1)
    for number, (name, (total, ratio, used)) in enumerate(_AMOUNTS.items(), 1):
        original.add("resource_classes", id=number, name=name)
        for host in (1, 2, 3):
            row = {"resource_provider_id": host, "resource_class_id": number, "allocation_ratio": ratio}
            row |= {"total": total, "reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1}
            original.add("inventories", **row)
        for server in (1, 2):
            row = {"resource_provider_id": server, "resource_class_id": number, "used": used}
            original.add("allocations", consumer_id=f"c0000000-0000-4000-8000-00000000000{server}", **row)


def followed(folder: Path) -> list[tuple[str, str]]:
    """Follow the tutorial in this folder; return its commands with what they print."""
    with incumbent_database("sqlite") as original, database_url("sqlite") as beside:
        filled(original)
        (folder / "incumbent.conf").write_text(f"[placement_database]\nconnection = {original.url}\n")
        assert run("import", original.url, "--database", beside).returncode == 0
        with running_service(beside, workers=1) as service:
            addresses = {":8778": f":{service.url.rpartition(':')[2]}", "8779": str(free_port())}
            return tutorials.followed(TUTORIAL, folder, addresses, TOKEN="admin")


def test_every_block_prints_what_is_shown(tmp_path: Path):
    assert followed(tmp_path) == tutorials.examples(TUTORIAL)
