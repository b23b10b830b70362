"""The consumers of a resource class are listed, and where claims on a host are found is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client import Client, detail
from tests.commands import refusal, run
from tests.conftest import application_on
from tests.server import BACKENDS, hosted

ALLOCATIONS = "/ext/v1/allocations"


@pytest.fixture(scope="module", params=BACKENDS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where two hosts are served; on one of them two consumers hold GPUs, on both one holds none."""
    with application_on(request.param) as application:
        api = Client(application.test_client())
        with_gpus, without = api.provider("gpu-1", VCPU=8, PGPU=4), api.provider("cpu-1", VCPU=8)
        for held in ({with_gpus: {"VCPU": 1, "PGPU": 1}}, {with_gpus: {"PGPU": 2}}, {without: {"VCPU": 2}}):
            assert api.claim(held).status_code == 204
        listed = api.get(f"{ALLOCATIONS}?resource_class=PGPU").json["consumers"]
        amounts = sorted(each["allocations"][with_gpus]["resources"]["PGPU"] for each in listed)
        assert amounts == [1, 2]
        assert {tuple(each["allocations"][with_gpus]["resources"]) for each in listed} == {("PGPU",)}
        assert len(api.get(f"{ALLOCATIONS}?resource_class=PGPU&limit=1").json["consumers"]) == 1
        unknown = api.get(f"{ALLOCATIONS}?resource_class=PGPUS")
        assert (unknown.status_code, unknown.json["errors"][0]["suggestion"]) == (400, "PGPU")
        assert "No such resource class PGPUS" in detail(unknown)
        for number in range(60):
            assert api.put(f"/traits/CUSTOM_T{number}").status_code == 201
        with hosted(application) as served:
            yield served


def test_the_command_lists_the_consumers_of_a_class(url: str):
    done = run(
        "--url", url, "allocation", "list", "--class", "PGPU", "-f", "csv", "-c", "provider", "-c", "amounts"
    )
    assert done.returncode == 0, done
    rows = done.stdout.splitlines()[1:]
    assert len(rows) == 2
    assert all("gpu-1" in row and "PGPU" in row and "VCPU" not in row for row in rows)
    assert run("--url", url, "allocation", "list", "--class", "FPGA").stderr == "No such allocations.\n"
    assert "did you mean PGPU" in refusal("--url", url, "allocation", "list", "--class", "PGPUS")


def test_the_changes_of_a_host_say_where_its_claims_are(url: str):
    done = run("--url", url, "audit", "--target", "gpu-1")
    assert done.stderr == (
        "Claims are changes of their consumers: `placement allocation list --provider gpu-1` lists these, "
        "--consumer their changes.\n"
    )
    assert "more" not in done.stdout


def test_changes_that_are_left_out_are_hinted_at(url: str):
    shown = run("--url", url, "audit", "--type", "trait")
    assert shown.stdout.splitlines()[-1] == "... there are more; --limit N shows more"
    assert "more" not in run("--url", url, "audit", "--type", "trait", "--limit", "5").stdout
    of_programs = run("--url", url, "audit", "--type", "trait", "-f", "csv")
    assert len(of_programs.stdout.splitlines()) == 51
