"""Amounts in explanations have the units that people read on pages, and those of their classes in the API."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.client import Client
from tests.questions import words

pytestmark = pytest.mark.one_database


@pytest.fixture
def hosts(api: Client) -> Client:
    """Two hosts with 4 CPUs, 8 GiB and 100 GiB of disk each."""
    for name in ("a", "b"):
        api.provider(name, VCPU=4, MEMORY_MB=8192, DISK_GB=100)
    return api


def test_the_class_that_ends_first(hosts: Client):
    query = "/ui/why?query=resources%3DMEMORY_MB:4096,DISK_GB:10"
    document = hosts.get(f"{query}&format=json").json
    (hint,) = document["explanation"]["hints"]
    assert hint.startswith("MEMORY_MB ends first: 16384 MEMORY_MB free")
    page = words(hosts.get(query).text)
    assert "MEMORY_MB ends first: 16 GiB free on 2 hosts with a candidate, room for 4 such requests" in page
    assert "16384" not in page


_APART = "resources1=MEMORY_MB:6144&resources2=MEMORY_MB:6144&resources3=DISK_GB:60&resources4=DISK_GB:60"
_SPLIT = "resources_1=MEMORY_MB:20480&split_1=MEMORY_MB&resources_2=DISK_GB:1"


@pytest.mark.parametrize(
    ("query", "plain", "shown"),
    [
        (
            _APART,
            "lacks 4096 MEMORY_MB for 1 and 2: 12288 wanted, 8192 free",
            "4 GiB of MEMORY_MB missing: 8 of 12 GiB free on the host itself",
        ),
        (_SPLIT, "8192 of 20480 MEMORY_MB for group _1", "8 of 20 GiB of MEMORY_MB for group _1"),
    ],
)
def test_what_hosts_lack_of_a_whole_request(hosts: Client, query: str, plain: str, shown: str):
    path = f"/ui/why?{urlencode({'query': f'{query}&group_policy=none'})}"
    nearest = hosts.get(f"{path}&format=json").json["explanation"]["nearest"]
    assert plain in nearest[0]["sentences"][0]
    page = words(hosts.get(path).text)
    assert shown in page
    assert plain not in page
