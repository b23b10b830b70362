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
        self.nobody, self.upper = str(uuid.uuid4()), self.root.upper()
        self.odd_a2 = self.a2.replace("-", "").upper()
        self.api.carry(self.root, SSD, VMX)
        self.api.carry(self.other, SSD, HDD)
        self.api.join(self.root, self.a1)
        self.api.join(self.other, self.a1, self.a2)
        assert self.api.claim({self.root: {"VCPU": 3}}).status_code == 204

    def filled(self, query: str) -> str:
        """The query with what it names."""
        return query.format_map(vars(self))

    def names(self, query: str, version: str) -> set[str]:
        answer = self.api.at(version).get(f"/resource_providers?{self.filled(query)}")
        assert answer.status_code == 200, answer.text
        return {
            provider["name"].removeprefix(f"{self.prefix}-")
            for provider in answer.json["resource_providers"]
            if provider["name"].startswith(self.prefix)
        }


@pytest.fixture(scope="module")
def scene(shared_application) -> Scene:
    return Scene(Client(shared_application.test_client()))


FOUND = [
    # Names and uuids are exact, both hold, and an empty name does not filter.
    ("1.0", "name={prefix}-root", "root"),
    ("1.39", "name={prefix}", ""),
    ("1.39", "name=", "root child other"),
    ("1.0", "uuid={root}", "root"),
    ("1.39", "uuid={nobody}", ""),
    ("1.39", "uuid={upper}", ""),
    ("1.39", "uuid={root}&name={prefix}-root", "root"),
    ("1.39", "uuid={root}&name={prefix}-child", ""),
    ("1.39", "name=nobody&name={prefix}-root", "root"),
    # An aggregate of the root does not cover children; uuids of aggregates compare in every spelling.
    ("1.3", "member_of={a1}", "root other"),
    ("1.3", "member_of={a2}", "other"),
    ("1.3", "member_of=in:{a1},{a2}", "root other"),
    ("1.39", "member_of=in:{a2}", "other"),
    ("1.39", "member_of={nobody}", ""),
    ("1.39", "member_of={odd_a2}", "other"),
    ("1.24", "member_of={a1}&member_of={a2}", "other"),
    ("1.32", "member_of=!{a2}", "root child"),
    ("1.32", "member_of=!in:{a2}", "root child"),
    ("1.32", "member_of=!in:{a2}&member_of={a1}", "root"),
    ("1.39", "member_of={a1}&member_of=!{a1}", ""),
    # All resources fit one provider.
    ("1.4", "resources=VCPU:7", "root other"),
    ("1.4", "resources=VCPU:8", "other"),
    ("1.4", "resources=VCPU:9", ""),
    ("1.4", "resources=VCPU:1,MEMORY_MB:1", "root"),
    ("1.4", "resources=VCPU:1,DISK_GB:5", ""),
    ("1.4", "resources=DISK_GB:50", "child"),
    ("1.4", "resources=DISK_GB:4", ""),
    ("1.4", "resources=DISK_GB:7", ""),
    ("1.4", "resources=DISK_GB:55", ""),
    ("1.4", "resources=VCPU:99,VCPU:8", "other"),
    ("1.4", "resources=VCPU:99999999999999999999999", ""),
    # Any member leads to its whole tree.
    ("1.14", "in_tree={root}", "root child"),
    ("1.14", "in_tree={child}", "root child"),
    ("1.39", "in_tree={nobody}", ""),
    ("1.39", "in_tree={upper}", ""),
    # Required traits are all there, forbidden ones are not; of repeated ones the last counts before 1.39.
    ("1.18", f"required={SSD}", "root other"),
    ("1.18", f"required={SSD},{VMX}", "root"),
    ("1.39", f"required=%20{SSD}%20,{VMX}", "root"),
    ("1.22", f"required=!{SSD}", "child"),
    ("1.39", f"required={SSD},!{HDD}", "root"),
    ("1.39", f"required=!!!{HDD}", "root child"),
    ("1.39", f"required={SSD},!{SSD}", ""),
    ("1.39", f"required=in:{HDD},{VMX}", "root other"),
    ("1.39", f"required=in:{HDD},{VMX}&required={SSD},!{HDD}", "root"),
    ("1.38", f"required={VMX}&required={SSD}", "root other"),
    ("1.39", f"required={VMX}&required={SSD}", "root"),
]


@pytest.mark.parametrize(("version", "query", "names"), FOUND)
def test_what_filters_find(scene: Scene, version: str, query: str, names: str):
    assert scene.names(query, version) == set(names.split())


UNEXPECTED = "Additional properties are not allowed ('{}' was unexpected)"


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("version", "query", "message"),
    [
        ("1.2", "member_of={root}", UNEXPECTED.format("member_of")),
        ("1.3", "resources=VCPU:1", UNEXPECTED.format("resources")),
        ("1.13", "in_tree={root}", UNEXPECTED.format("in_tree")),
        ("1.17", f"required={SSD}", UNEXPECTED.format("required")),
        ("1.21", f"required=!{SSD}", f"of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !{SSD}"),
        ("1.23", "member_of={a1}&member_of={a2}", "Multiple member_of parameters are not supported"),
        ("1.31", "member_of=!{a2}", "Forbidden member_of parameters are not supported"),
        ("1.31", "member_of=!in:{a2}", "Forbidden member_of parameters are not supported"),
        (
            "1.38",
            f"required=in:{HDD},{VMX}",
            "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39.",
        ),
    ],
)
def test_filters_exist_since_their_version(scene: Scene, version: str, query: str, message: str):
    answer = scene.api.at(version).get(f"/resource_providers?{scene.filled(query)}")
    assert answer.status_code == 400
    assert message in detail(answer)
