"""What GET /allocation_candidates understands and answers: worked examples, granular cases, and the rest.

Source: placement-api.md, "Response".
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from placement.allocations.candidates import SearchSettings
from placement.app import build
from placement.engine.domain.inventories import Inventory
from placement.storage.database import Database
from tests.cases import granular
from tests.cases.__main__ import load
from tests.client import Client, custom, unique
from tests.conftest import compatible
from tests.installation import installed
from tests.naive import NaiveProvider
from tests.server import database_url
from tests.service import Service

pytestmark = pytest.mark.one_database


class Place:
    """A corner of the shared database: its providers are found by custom classes nobody else uses."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.cpu, self.disk, self.gpu = (custom(name) for name in ("CPU", "DISK", "GPU"))
        for name in (self.cpu, self.disk, self.gpu):
            api.put(f"/resource_classes/{name}")
        self.names: dict[str, str] = {}

    def add(
        self,
        name: str,
        parent: str | None = None,
        *,
        traits: str = "",
        aggregates: str = "",
        **inventories: Any,
    ) -> str:
        records = {getattr(self, key): value for key, value in inventories.items()}
        own = self.api.provider(unique(name), parent, **records)
        self.names[own] = name
        if traits:
            self.api.carry(own, *traits.split())
        if aggregates:
            self.api.join(own, *aggregates.split())
        return own

    def ask(self, query: str, version: str = "1.39") -> Any:
        answer = self.api.at(version).get(
            "/allocation_candidates?" + query.format(cpu=self.cpu, disk=self.disk, gpu=self.gpu)
        )
        assert answer.status_code == 200, answer.text
        return answer.json

    def found(self, query: str, version: str = "1.39") -> list[dict[str, dict[str, int]]]:
        """The allocations of all candidates, with short names, sorted."""
        short = {self.cpu: "cpu", self.disk: "disk", self.gpu: "gpu"}
        candidates = [
            {
                self.names[provider]: {short[name]: amount for name, amount in held["resources"].items()}
                for provider, held in candidate["allocations"].items()
            }
            for candidate in self.ask(query, version)["allocation_requests"]
        ]
        return sorted(
            candidates, key=lambda candidate: sorted((n, sorted(r.items())) for n, r in candidate.items())
        )


@pytest.fixture
def place(shared: Client) -> Place:
    return Place(shared)


def test_over_used_provider_is_absent_and_shown_with_its_use(place: Place):
    full = place.add("full", cpu=10, disk=5)
    place.api.claim({full: {place.cpu: 8}})
    place.api.offer(full, **{place.cpu: {"total": 5, "reserved": 1, "allocation_ratio": 1.3}, place.disk: 5})
    assert place.found("resources={cpu}:1") == []
    summary = place.ask("resources={disk}:1")["provider_summaries"][full]
    # The capacity of 5.2 is cut to an integer.
    assert summary["resources"][place.cpu] == {"capacity": 5, "used": 8}


def test_permuted_groups_are_results_of_their_own(place: Place):
    root = place.add("root")
    for name in ("f0", "f1"):
        place.add(name, root, gpu=1)
    query = "resources1={gpu}:1&resources2={gpu}:1&group_policy=isolate"
    for version in ("1.33", "1.34"):
        assert len(place.ask(query, version)["allocation_requests"]) == 2


@pytest.mark.parametrize("condition", ["in_tree_B={other}", "required_B=!{trait}", "member_of_B=!{group}"])
def test_resourceless_group_needs_no_positive_trait(place: Place, condition: str):
    root = place.add("root")
    place.add("n0", root, cpu=8)
    place.api.put("/traits/CUSTOM_ON_NOBODY_HERE")
    chosen = condition.format(other=root, trait="CUSTOM_ON_NOBODY_HERE", group=uuid.uuid4())
    found = place.ask(f"resources_A={place.cpu}:1&{chosen}&same_subtree=_A,_B&group_policy=isolate")[
        "allocation_requests"
    ]
    assert len(found) == 1
    assert found[0]["mappings"]["_B"] == [root]


def test_below_1_29_no_two_providers_of_one_tree(place: Place):
    root = place.add("root", disk=10)
    nested = place.add("nested", root, cpu=4)
    empty = place.add("empty", root)
    assert place.found("resources={cpu}:1,{disk}:1", "1.28") == []
    assert place.found("resources={cpu}:1,{disk}:1", "1.29") == [{"nested": {"cpu": 1}, "root": {"disk": 1}}]
    assert list(place.ask("resources={cpu}:1", "1.28")["provider_summaries"]) == [nested]
    summaries = place.ask("resources={cpu}:1", "1.29")["provider_summaries"]
    assert summaries.keys() == {root, nested, empty}
    tree = {"parent_provider_uuid": root, "root_provider_uuid": root}
    assert summaries[empty] == {"resources": {}, "traits": [], **tree}
    of_root = summaries[root]
    assert (of_root["parent_provider_uuid"], of_root["root_provider_uuid"]) == (None, root)


@pytest.mark.parametrize(
    ("version", "keys", "every_class"),
    [
        ("1.16", {"resources"}, False),
        ("1.17", {"resources", "traits"}, False),
        ("1.26", {"resources", "traits"}, False),
        ("1.27", {"resources", "traits"}, True),
        ("1.28", {"resources", "traits"}, True),
        ("1.29", {"resources", "traits", "parent_provider_uuid", "root_provider_uuid"}, True),
    ],
)
def test_summaries_grow_with_the_version(place: Place, version: str, keys: set[str], every_class: bool):
    own = place.add("own", cpu=4, disk=4, traits="HW_CPU_X86_VMX")
    summary = place.ask("resources={cpu}:1", version)["provider_summaries"][own]
    assert summary.keys() == keys
    assert summary.get("traits", ["HW_CPU_X86_VMX"]) == ["HW_CPU_X86_VMX"]
    assert summary["resources"].keys() == ({place.cpu, place.disk} if every_class else {place.cpu})


def test_summaries_shrink_with_the_limit(place: Place):
    for name in ("a", "b", "c"):
        place.add(name, cpu=4)
    answer = place.ask("resources={cpu}:1&limit=2&limit=1")
    assert len(answer["allocation_requests"]) == len(answer["provider_summaries"]) == 2


@pytest.mark.parametrize("version", ["1.10", "1.11", "1.12", "1.28", "1.33", "1.34", "1.39"])
def test_candidates_have_the_form_of_their_version_and_can_be_claimed_as_they_are(place: Place, version: str):
    own, minor = place.add("own", cpu=4), int(version.split(".")[1])
    (candidate,) = place.ask("resources={cpu}:3", version)["allocation_requests"]
    expected: Any = {own: {"resources": {place.cpu: 3}}}
    if minor < 12:
        expected = [{"resource_provider": {"uuid": own}, "resources": {place.cpu: 3}}]
    assert candidate["allocations"] == expected
    assert ("mappings" in candidate) is (minor >= 34)
    labels = Client.allocations({}, None)
    for name, since in (("consumer_type", 38), ("consumer_generation", 28)):
        if minor < since:
            del labels[name]
    answer = place.api.at(version).put(f"/allocations/{uuid.uuid4()}", {**labels, **candidate})
    assert answer.status_code == 204, answer.text
    assert place.api.used(own) == {place.cpu: 3}


def test_mappings_name_a_provider_once_per_group(place: Place):
    own = place.add("own", cpu=4, disk=4)
    (candidate,) = place.ask("resources={cpu}:1,{disk}:1&resources_A={cpu}:1")["allocation_requests"]
    assert candidate["mappings"] == {"": [own], "_A": [own]}


# -- limits and strategies -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> Any:
    """What is found on two roots with 64 one-unit children each, for so many of them, with other settings."""
    with database_url("sqlite") as url:
        database = Database(url)
        api = Client(build(database, compatible()).test_client())
        for root in (api.provider("r0", VCPU=8), api.provider("r1", VCPU=8)):
            for _ in range(64):
                api.provider(unique(), root, FPGA=1)

        def found(count: int, more: str = "", **settings: Any) -> Any:
            fpgas = "&".join(f"resources{number}=FPGA:1" for number in range(1, count + 1))
            client = Client(build(database, compatible(), SearchSettings(**settings)).test_client())
            return client.get(f"/allocation_candidates?resources=VCPU:1&{fpgas}&group_policy=none{more}").json

        yield found
        database.dispose()


def texts(answer: Any) -> set[str]:
    return {str(candidate) for candidate in answer["allocation_requests"]}


def roots_of(answer: Any) -> set[str]:
    providers = answer["provider_summaries"]
    used = {provider for each in answer["allocation_requests"] for provider in each["allocations"]}
    return {providers[provider]["root_provider_uuid"] for provider in used}


@pytest.mark.parametrize(("maximum", "expected"), [(0, 1), (1, 1), (10, 10), (None, 128)])
def test_maximum_bounds_what_is_generated(wide, maximum: int | None, expected: int):
    assert len(wide(1, maximum=maximum)["allocation_requests"]) == expected


def test_strategies_cut_different_ends_and_agree_when_nothing_is_cut(wide):
    for depth_first, roots in ((True, 1), (False, 2)):
        answer = wide(2, maximum=10, depth_first=depth_first)
        assert (len(answer["allocation_requests"]), len(roots_of(answer))) == (10, roots)
    assert texts(wide(1, maximum=None, depth_first=True)) == texts(wide(1, maximum=None, depth_first=False))


def test_wide_trees_are_searched_quickly_and_refused_quickly_for_one_device_too_many(wide):
    answer = wide(64, maximum=10)
    assert (len(answer["allocation_requests"]), len(roots_of(answer))) == (10, 2)
    assert wide(65, maximum=10) == {"allocation_requests": [], "provider_summaries": {}}


def test_random_choice_differs_and_stays_within_what_is_generated(wide):
    everything = texts(wide(1, maximum=100))
    answers = [wide(1, maximum=100, randomize=True) for _ in range(3)]
    orders = [[str(each) for each in answer["allocation_requests"]] for answer in answers]
    assert orders[0] != orders[1] or orders[1] != orders[2]
    assert all(set(order) == everything for order in orders)
    chosen = texts(wide(1, "&limit=5", maximum=100, randomize=True))
    assert len(chosen) == 5
    assert chosen <= everything


# -- what each version understands --------------------------------------------------------------------

U, U2 = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
VMX, SSD = "HW_CPU_X86_VMX", "STORAGE_DISK_SSD"
TWO = "resources1=VCPU:1&resources2=VCPU:1"

FINE = [
    ("1.10", "resources=VCPU:1"),
    ("1.10", "resources=VCPU:1,VCPU:2&resources=DISK_GB:1"),
    ("1.10", "resources=NOPE:1&resources=VCPU:1"),
    ("1.10", "resources=VCPU:99999999999999999999999999"),
    ("1.16", "resources=VCPU:1&limit=5"),
    ("1.16", "resources=VCPU:1&limit=99999999999999999999"),
    ("1.17", f"resources=VCPU:1&required={VMX},{SSD}"),
    ("1.17", f"resources=VCPU:1&required=%20{VMX}%20"),
    ("1.21", f"resources=VCPU:1&member_of={U}"),
    ("1.21", f"resources=VCPU:1&member_of=in:{U},{U2}"),
    ("1.22", f"resources=VCPU:1&required={VMX},!{SSD}"),
    ("1.24", f"resources=VCPU:1&member_of={U}&member_of={U2}"),
    ("1.25", "resources1=VCPU:1"),
    ("1.25", "resources12345678901234567890=VCPU:1"),
    ("1.25", "resources=VCPU:1&resources1=VCPU:1"),
    ("1.25", f"{TWO}&group_policy=none"),
    ("1.25", f"{TWO}&group_policy=isolate&group_policy=none"),
    ("1.31", f"resources=VCPU:1&in_tree={U}"),
    ("1.31", f"resources1=VCPU:1&in_tree1={U}"),
    ("1.31", f"resources=VCPU:1&in_tree=%20{U}%20"),
    ("1.32", f"resources=VCPU:1&member_of=!{U}&member_of=!in:{U},{U2}"),
    ("1.33", "resources_A=VCPU:1"),
    ("1.33", "resources01=VCPU:1"),
    ("1.33", f"resources{'x' * 64}=VCPU:1"),
    ("1.35", f"resources=VCPU:1&root_required={VMX},!{SSD}"),
    ("1.36", "resources_A=VCPU:1&same_subtree=_A"),
    ("1.36", "resources_A=VCPU:1&same_subtree=%20_A%20,_A"),
    ("1.36", f"resources_A=VCPU:1&required_B={VMX}&same_subtree=_A,_B&group_policy=none"),
    ("1.38", f"resources=VCPU:1&required={VMX}&required={SSD}"),
    ("1.39", f"resources=VCPU:1&required=in:{VMX},{SSD}&required={VMX}"),
    ("1.39", f"resources=VCPU:1&required=in:{VMX},{SSD},!x".replace(",!x", f"&required=!{VMX}")),
]


@pytest.mark.parametrize(("version", "query"), FINE)
def test_understood(embedded: Client, version: str, query: str):
    answer = embedded.at(version).get(f"/allocation_candidates?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json == {"allocation_requests": [], "provider_summaries": {}}


# -- granular cases and worked examples ------------------------------------------------------------------

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("file", ["granular.json", "worked-examples.json"])
def test_granular_cases(hosted_url: str, file: str):
    """Beside other data, and nothing stays of them."""
    document, _ = load(DATA / file)
    service = Service(hosted_url)
    offered = {"VCPU": Inventory(8), "SRIOV_NET_VF": Inventory(8)}
    foreign = NaiveProvider(str(uuid.uuid4()), None, offered)
    child = NaiveProvider(str(uuid.uuid4()), foreign.uuid, {"SRIOV_NET_VF": Inventory(8)})
    with installed(service, [foreign, child]):
        outcomes = dict(granular.run(document, hosted_url))
        left = service.must("GET", "/resource_providers")["resource_providers"]
    assert {id_: reason for id_, reason in outcomes.items() if reason is not None} == {}
    assert len(outcomes) == len(document["cases"])
    assert {provider["uuid"] for provider in left} == {foreign.uuid, child.uuid}
