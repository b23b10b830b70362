"""What GET /allocation_candidates answers, beyond the worked examples.

Source: placement-api.md, "Response".
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from flask import Flask

from placement.allocations.candidates import SearchSettings
from placement.app import build
from placement.storage.database import Database
from tests.client import Client, custom, unique
from tests.conftest import compatible
from tests.server import database_url

pytestmark = pytest.mark.one_database

SHARE = "MISC_SHARES_VIA_AGGREGATE"


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


def test_flat_providers_give_one_candidate_each(place: Place):
    place.add("a", cpu=4, disk=10)
    place.add("b", cpu=4, disk=10)
    place.add("c", cpu=4)
    assert place.found("resources={cpu}:1,{disk}:1") == [
        {"a": {"cpu": 1, "disk": 1}},
        {"b": {"cpu": 1, "disk": 1}},
    ]


def test_units_and_capacity_filter(place: Place):
    place.add("a", cpu={"total": 8, "min_unit": 2, "max_unit": 4, "step_size": 2})
    place.add("b", cpu={"total": 4, "reserved": 1, "allocation_ratio": 1.5})
    assert place.found("resources={cpu}:4") == [{"a": {"cpu": 4}}, {"b": {"cpu": 4}}]
    assert place.found("resources={cpu}:3") == [{"b": {"cpu": 3}}]
    assert place.found("resources={cpu}:5") == []


def test_over_used_provider_is_absent_and_shown_with_its_use(place: Place):
    full = place.add("full", cpu=10, disk=5)
    place.api.claim({full: {place.cpu: 8}})
    place.api.offer(full, **{place.cpu: 4, place.disk: 5})
    assert place.found("resources={cpu}:1") == []
    summary = place.ask("resources={disk}:1")["provider_summaries"][full]
    assert summary["resources"][place.cpu] == {"capacity": 4, "used": 8}


def test_sharer_alone_is_found_once_not_once_per_anchor(place: Place):
    group = str(uuid.uuid4())
    for name in ("cn1", "cn2"):
        place.add(name, cpu=4, aggregates=group)
    place.add("ss", disk=100, traits=SHARE, aggregates=group)
    assert place.found("resources={disk}:5") == [{"ss": {"disk": 5}}]


def test_unsuffixed_group_on_a_sharer_meets_every_compute(place: Place):
    group = str(uuid.uuid4())
    for name in ("cn1", "cn2"):
        place.add(name, cpu=4, aggregates=group)
    place.add("ss", disk=100, traits=SHARE, aggregates=group)
    expected = [{"cn1": {"cpu": 1}, "ss": {"disk": 5}}, {"cn2": {"cpu": 1}, "ss": {"disk": 5}}]
    assert place.found("resources={disk}:5&resources1={cpu}:1") == expected
    assert place.found("resources={cpu}:1&resources1={disk}:5") == expected


def test_local_and_shared_disk_both_appear(place: Place):
    group = str(uuid.uuid4())
    place.add("cn", cpu=4, disk=10, aggregates=group)
    place.add("ss", disk=100, traits=SHARE, aggregates=group)
    assert place.found("resources={cpu}:1,{disk}:5") == [
        {"cn": {"cpu": 1}, "ss": {"disk": 5}},
        {"cn": {"cpu": 1, "disk": 5}},
    ]


def test_non_root_sharer_serves_others_though_its_home_cannot(place: Place):
    group = str(uuid.uuid4())
    home = place.add("home")
    place.add("kid", home, gpu=4, traits=SHARE, aggregates=group)
    place.add("cn", cpu=4, aggregates=group)
    expected = [{"cn": {"cpu": 1}, "kid": {"gpu": 1}}]
    assert place.found("resources={cpu}:1,{gpu}:1") == expected
    place.api.carry(home, "CUSTOM_HOME_OF_A_SHARER")
    assert place.found("resources={cpu}:1,{gpu}:1&root_required=!CUSTOM_HOME_OF_A_SHARER") == expected


def test_amounts_of_unsuffixed_and_suffixed_groups_add_up_exactly(place: Place):
    root = place.add("root")
    place.add("n0", root, cpu=8)
    place.add("n1", root, cpu=8)
    for policy in ("", "&group_policy=none", "&group_policy=isolate"):
        assert place.found("resources={cpu}:1&resources1={cpu}:1" + policy) == [
            {"n0": {"cpu": 1}, "n1": {"cpu": 1}},
            {"n0": {"cpu": 1}, "n1": {"cpu": 1}},
            {"n0": {"cpu": 2}},
            {"n1": {"cpu": 2}},
        ]


def test_sums_are_checked_against_capacity_and_max_unit(place: Place):
    place.add("narrow", cpu={"total": 8, "max_unit": 3})
    place.add("small", cpu=3)
    place.add("wide", cpu=8)
    query = "resources1={cpu}:2&resources2={cpu}:2&group_policy=none"
    assert place.found(query) == [{"wide": {"cpu": 4}}]


@pytest.mark.parametrize("version", ["1.33", "1.34"])
def test_permuted_groups_are_results_of_their_own(place: Place, version: str):
    root = place.add("root")
    place.add("f0", root, gpu=1)
    place.add("f1", root, gpu=1)
    query = "resources1={gpu}:1&resources2={gpu}:1&group_policy=isolate"
    found = place.ask(query, version)["allocation_requests"]
    assert len(found) == 2
    assert all(("mappings" in candidate) is (version == "1.34") for candidate in found)


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


def test_isolate_counts_resourceless_groups_but_not_the_unsuffixed_one(place: Place):
    place.add("alone", cpu=8, gpu=1)
    place.api.put("/traits/CUSTOM_ON_NOBODY_HERE")
    free = "required_B=!CUSTOM_ON_NOBODY_HERE"
    query = f"resources_A={place.cpu}:1&{free}&same_subtree=_A,_B&group_policy="
    assert place.found(query + "isolate") == []
    assert place.found(query + "none") == [{"alone": {"cpu": 1}}]
    query = "resources={gpu}:1&resources_A={cpu}:1&group_policy=isolate"
    assert place.found(query) == [{"alone": {"cpu": 1, "gpu": 1}}]


def test_below_1_29_no_two_providers_of_one_tree(place: Place):
    root = place.add("root", disk=10)
    nested = place.add("nested", root, cpu=4)
    assert place.found("resources={cpu}:1,{disk}:1", "1.28") == []
    assert place.found("resources={cpu}:1,{disk}:1", "1.29") == [{"nested": {"cpu": 1}, "root": {"disk": 1}}]
    single = place.ask("resources={cpu}:1", "1.28")
    assert list(single["provider_summaries"]) == [nested]
    assert set(place.ask("resources={cpu}:1", "1.29")["provider_summaries"]) == {root, nested}


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("1.16", {"resources"}),
        ("1.17", {"resources", "traits"}),
        ("1.28", {"resources", "traits"}),
        ("1.29", {"resources", "traits", "parent_provider_uuid", "root_provider_uuid"}),
    ],
)
def test_summaries_grow_with_the_version(place: Place, version: str, keys: set[str]):
    own = place.add("own", cpu=4, disk=4, traits="HW_CPU_X86_VMX")
    summary = place.ask("resources={cpu}:1", version)["provider_summaries"][own]
    assert summary.keys() == keys
    assert summary.get("traits", ["HW_CPU_X86_VMX"]) == ["HW_CPU_X86_VMX"]


@pytest.mark.parametrize(("version", "every"), [("1.26", False), ("1.27", True)])
def test_summaries_list_every_class_since_1_27(place: Place, version: str, every: bool):
    own = place.add("own", cpu=4, disk=4)
    resources = place.ask("resources={cpu}:1", version)["provider_summaries"][own]["resources"]
    assert resources.keys() == ({place.cpu, place.disk} if every else {place.cpu})


def test_summaries_of_whole_trees_include_providers_that_offer_nothing(place: Place):
    root = place.add("root")
    child = place.add("child", root, cpu=4)
    summaries = place.ask("resources={cpu}:1")["provider_summaries"]
    assert summaries[root] == {
        "resources": {},
        "traits": [],
        "parent_provider_uuid": None,
        "root_provider_uuid": root,
    }
    assert summaries[child]["parent_provider_uuid"] == root


def test_summaries_shrink_with_the_limit(place: Place):
    for name in ("a", "b", "c"):
        place.add(name, cpu=4)
    answer = place.ask("resources={cpu}:1&limit=2&limit=1")
    assert len(answer["allocation_requests"]) == len(answer["provider_summaries"]) == 2


def test_capacity_is_cut_to_an_integer(place: Place):
    own = place.add("own", cpu={"total": 5, "reserved": 1, "allocation_ratio": 1.3})
    place.api.claim({own: {place.cpu: 2}})
    summary = place.ask("resources={cpu}:1")["provider_summaries"][own]
    assert summary["resources"] == {place.cpu: {"capacity": 5, "used": 2}}


@pytest.mark.parametrize("version", ["1.10", "1.11", "1.12", "1.33", "1.34", "1.39"])
def test_form_of_allocations(place: Place, version: str):
    own = place.add("own", cpu=4)
    (candidate,) = place.ask("resources={cpu}:1", version)["allocation_requests"]
    if version in ("1.10", "1.11"):
        expected: Any = [{"resource_provider": {"uuid": own}, "resources": {place.cpu: 1}}]
    else:
        expected = {own: {"resources": {place.cpu: 1}}}
    assert candidate["allocations"] == expected
    assert ("mappings" in candidate) is (version in ("1.34", "1.39"))


@pytest.mark.parametrize("version", ["1.12", "1.28", "1.34", "1.39"])
def test_candidate_can_be_claimed_as_it_is(place: Place, version: str):
    own = place.add("own", cpu=4)
    (candidate,) = place.ask("resources={cpu}:3", version)["allocation_requests"]
    labels = Client.allocations({}, None)
    minor = int(version.split(".")[1])
    if minor < 38:
        del labels["consumer_type"]
    if minor < 28:
        del labels["consumer_generation"]
    answer = place.api.at(version).put(f"/allocations/{uuid.uuid4()}", {**labels, **candidate})
    assert answer.status_code == 204, answer.text
    assert place.api.used(own) == {place.cpu: 3}


def test_mappings_name_a_provider_once_per_group(place: Place):
    own = place.add("own", cpu=4, disk=4)
    (candidate,) = place.ask("resources={cpu}:1,{disk}:1&resources_A={cpu}:1")["allocation_requests"]
    assert candidate["mappings"] == {"": [own], "_A": [own]}


def test_same_query_on_the_same_data_gives_the_same_bytes(place: Place):
    for name in ("a", "b", "c"):
        root = place.add(name)
        place.add(f"{name}0", root, cpu=2)
        place.add(f"{name}1", root, cpu=2)
    path = f"/allocation_candidates?resources1={place.cpu}:1&resources2={place.cpu}:1&group_policy=none"
    assert place.api.get(path).data == place.api.get(path).data


# -- limits and strategies -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> Any:
    """Two roots with 64 one-unit children each, and applications with other settings on the same data."""
    with database_url("sqlite") as url:
        database = Database(url)
        api = Client(build(database, compatible()).test_client())
        for root in (api.provider("r0", VCPU=8), api.provider("r1", VCPU=8)):
            for _ in range(64):
                api.provider(unique(), root, FPGA=1)

        def application(**settings: Any) -> Flask:
            return build(database, compatible(), SearchSettings(**settings))

        yield application
        database.dispose()


def groups(count: int) -> str:
    fpgas = "&".join(f"resources{number}=FPGA:1" for number in range(1, count + 1))
    return f"/allocation_candidates?resources=VCPU:1&{fpgas}&group_policy=none"


def roots_of(answer: Any) -> set[str]:
    providers = answer["provider_summaries"]
    return {
        providers[provider]["root_provider_uuid"]
        for candidate in answer["allocation_requests"]
        for provider in candidate["allocations"]
    }


@pytest.mark.parametrize(("maximum", "expected"), [(0, 1), (1, 1), (10, 10), (None, 128)])
def test_maximum_bounds_what_is_generated(wide, maximum: int | None, expected: int):
    api = Client(wide(maximum=maximum).test_client())
    assert len(api.get(groups(1)).json["allocation_requests"]) == expected


@pytest.mark.parametrize(("depth_first", "roots"), [(True, 1), (False, 2)])
def test_strategies_cut_different_ends(wide, depth_first: bool, roots: int):
    api = Client(wide(maximum=10, depth_first=depth_first).test_client())
    answer = api.get(groups(2)).json
    assert len(answer["allocation_requests"]) == 10
    assert len(roots_of(answer)) == roots


def test_strategies_agree_when_nothing_is_cut(wide):
    def found(depth_first: bool) -> set[str]:
        api = Client(wide(maximum=None, depth_first=depth_first).test_client())
        return {str(candidate) for candidate in api.get(groups(1)).json["allocation_requests"]}

    assert found(True) == found(False)


def test_wide_trees_are_searched_quickly(wide):
    api = Client(wide(maximum=10).test_client())
    answer = api.get(groups(64)).json
    assert len(answer["allocation_requests"]) == 10
    assert len(roots_of(answer)) == 2


def test_wide_trees_that_lack_one_device_are_refused_quickly(wide):
    api = Client(wide(maximum=10).test_client())
    assert api.get(groups(65)).json == {"allocation_requests": [], "provider_summaries": {}}


def test_random_choice_differs_and_stays_within_what_is_generated(wide):
    api = Client(wide(maximum=100, randomize=True).test_client())
    everything = {
        str(c) for c in Client(wide(maximum=100).test_client()).get(groups(1)).json["allocation_requests"]
    }
    orders = [[str(c) for c in api.get(groups(1)).json["allocation_requests"]] for _ in range(3)]
    assert orders[0] != orders[1] or orders[1] != orders[2]
    assert all(set(order) == everything for order in orders)
    chosen = [str(c) for c in api.get(f"{groups(1)}&limit=5").json["allocation_requests"]]
    assert len(set(chosen)) == 5
    assert set(chosen) <= everything
