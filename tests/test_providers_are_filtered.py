"""GET /resource_providers: all filters hold for each provider alone.

Source: placement-api.md, "Provider list filters".
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest

from tests.client import Client, detail, unique

SSD, HDD, VMX = "STORAGE_DISK_SSD", "STORAGE_DISK_HDD", "HW_CPU_X86_VMX"


@dataclass
class Scene:
    """A root with a child, and a provider of its own; found by their own prefix of names."""

    api: Client
    prefix: str = field(default_factory=lambda: unique("filtered"))
    a1: str = field(default_factory=lambda: str(uuid.uuid4()))
    a2: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.root = self.api.provider(f"{self.prefix}-root", VCPU=10, MEMORY_MB=100)
        self.child = self.api.provider(
            f"{self.prefix}-child",
            self.root,
            DISK_GB={"total": 100, "reserved": 20, "min_unit": 5, "max_unit": 50, "step_size": 5},
        )
        self.other = self.api.provider(f"{self.prefix}-other", VCPU={"total": 4, "allocation_ratio": 2.0})
        self.api.carry(self.root, SSD, VMX)
        self.api.carry(self.other, SSD, HDD)
        self.api.join(self.root, self.a1)
        self.api.join(self.other, self.a1, self.a2)
        assert self.api.claim({self.root: {"VCPU": 3}}).status_code == 204

    def names(self, query: str, version: str = "1.39") -> set[str]:
        answer = self.api.at(version).get(f"/resource_providers?{query}")
        assert answer.status_code == 200, answer.text
        return {
            provider["name"].removeprefix(f"{self.prefix}-")
            for provider in answer.json["resource_providers"]
            if provider["name"].startswith(self.prefix)
        }


@pytest.fixture(scope="module")
def scene(shared_application) -> Scene:
    return Scene(Client(shared_application.test_client()))


def refused(api: Client, query: str, version: str = "1.39") -> str:
    answer = api.at(version).get(f"/resource_providers?{query}")
    assert answer.status_code == 400, answer.text
    return detail(answer)


def test_name_is_exact(scene: Scene):
    assert scene.names(f"name={scene.prefix}-root", "1.0") == {"root"}
    assert scene.names(f"name={scene.prefix}") == set()


def test_empty_name_does_not_filter(scene: Scene):
    assert scene.names("name=") == {"root", "child", "other"}


def test_uuid_is_exact(scene: Scene):
    assert scene.names(f"uuid={scene.root}", "1.0") == {"root"}
    assert scene.names(f"uuid={uuid.uuid4()}") == set()
    assert scene.names(f"uuid={scene.root.upper()}") == set()


def test_name_and_uuid_must_both_hold(scene: Scene):
    assert scene.names(f"uuid={scene.root}&name={scene.prefix}-root") == {"root"}
    assert scene.names(f"uuid={scene.root}&name={scene.prefix}-child") == set()


def test_last_of_repeated_names_counts(scene: Scene):
    assert scene.names(f"name=nobody&name={scene.prefix}-root") == {"root"}


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("key", "before", "since"),
    [
        ("member_of", "1.2", "1.3"),
        ("resources", "1.3", "1.4"),
        ("in_tree", "1.13", "1.14"),
        ("required", "1.17", "1.18"),
    ],
)
def test_filters_exist_since_their_version(scene: Scene, key: str, before: str, since: str):
    value = {"resources": "VCPU:1", "required": SSD}.get(key, scene.root)
    assert f"Additional properties are not allowed ('{key}' was unexpected)" in refused(
        scene.api, f"{key}={value}", before
    )
    scene.names(f"{key}={value}", since)


def test_member_of_one_or_any(scene: Scene):
    assert scene.names(f"member_of={scene.a2}", "1.3") == {"other"}
    assert scene.names(f"member_of=in:{scene.a1},{scene.a2}", "1.3") == {"root", "other"}
    assert scene.names(f"member_of=in:{scene.a2}") == {"other"}
    assert scene.names(f"member_of={uuid.uuid4()}") == set()


def test_aggregate_of_the_root_does_not_cover_children(scene: Scene):
    assert "child" not in scene.names(f"member_of={scene.a1}")


def test_aggregates_compare_in_every_spelling(scene: Scene):
    assert scene.names(f"member_of={scene.a2.replace('-', '').upper()}") == {"other"}


def test_repeated_member_of_is_400_before_1_24_and_all_count_since(scene: Scene):
    query = f"member_of={scene.a1}&member_of={scene.a2}"
    assert "Multiple member_of parameters are not supported" in refused(scene.api, query, "1.23")
    assert scene.names(query, "1.24") == {"other"}


@pytest.mark.parametrize("form", ["!{0}", "!in:{0}"])
def test_forbidden_aggregates_exist_since_1_32(scene: Scene, form: str):
    query = f"member_of={form.format(scene.a2)}"
    assert "Forbidden member_of parameters are not supported" in refused(scene.api, query, "1.31")
    assert scene.names(query, "1.32") == {"root", "child"}
    assert scene.names(f"{query}&member_of={scene.a1}") == {"root"}


def test_same_aggregate_wanted_and_forbidden_is_empty(scene: Scene):
    assert scene.names(f"member_of={scene.a1}&member_of=!{scene.a1}") == set()


@pytest.mark.parametrize(
    ("resources", "names"),
    [
        ("VCPU:7", {"root", "other"}),
        ("VCPU:8", {"other"}),
        ("VCPU:9", set()),
        ("VCPU:1,MEMORY_MB:1", {"root"}),
        ("VCPU:1,DISK_GB:5", set()),
        ("DISK_GB:50", {"child"}),
        ("DISK_GB:4", set()),
        ("DISK_GB:7", set()),
        ("DISK_GB:55", set()),
        ("VCPU:99,VCPU:8", {"other"}),
        ("VCPU:99999999999999999999999", set()),
    ],
)
def test_resources_must_fit_one_provider(scene: Scene, resources: str, names: set[str]):
    assert scene.names(f"resources={resources}", "1.4") == names


def test_in_tree_finds_the_whole_tree_from_any_member(scene: Scene):
    assert scene.names(f"in_tree={scene.root}", "1.14") == {"root", "child"}
    assert scene.names(f"in_tree={scene.child}") == {"root", "child"}
    assert scene.names(f"in_tree={uuid.uuid4()}") == set()
    assert scene.names(f"in_tree={scene.root.upper()}") == set()


def test_required_traits_must_all_be_there(scene: Scene):
    assert scene.names(f"required={SSD}", "1.18") == {"root", "other"}
    assert scene.names(f"required={SSD},{VMX}", "1.18") == {"root"}
    assert scene.names(f"required=%20{SSD}%20,{VMX}") == {"root"}


def test_forbidden_traits_exist_since_1_22(scene: Scene):
    message = refused(scene.api, f"required=!{SSD}", "1.21")
    assert "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. " in message
    assert f"Got: !{SSD}" in message
    assert scene.names(f"required=!{SSD}", "1.22") == {"child"}
    assert scene.names(f"required={SSD},!{HDD}") == {"root"}
    assert scene.names(f"required=!!!{HDD}") == {"root", "child"}
    assert scene.names(f"required={SSD},!{SSD}") == set()


def test_any_of_traits_exist_since_1_39(scene: Scene):
    query = f"required=in:{HDD},{VMX}"
    message = refused(scene.api, query, "1.38")
    assert "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39." in message
    assert scene.names(query, "1.39") == {"root", "other"}
    assert scene.names(f"{query}&required={SSD},!{HDD}") == {"root"}


def test_repeated_required_last_counts_before_1_39_all_since(scene: Scene):
    query = f"required={VMX}&required={SSD}"
    assert scene.names(query, "1.38") == {"root", "other"}
    assert scene.names(query, "1.39") == {"root"}
