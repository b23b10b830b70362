"""PodGroups of four kinds say of which gangs pods are; odd values fault nothing."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest

from placement.common.documents import pods_manifests
from placement.common.gang import (
    GANG_GROUPS,
    GANG_MIN_AVAILABLE,
    GANG_MODE,
    GANG_NAME,
    GANG_WAITING_TIME,
    Gang,
    gang_of,
)
from placement.common.pod_groups import named_pod_group, pod_group_kind
from placement.engine.domain.errors import BadRequest
from tests.pod_groups import KINDS, NAMES, NATIVE, SIGS, VOLCANO, X_K8S, gang_name, in_group, pod_group

POD = {"kind": "Pod", "metadata": {"name": "a", "namespace": "default"}, "spec": {}}
ODD = [None, "", "many", "3 ", "0", 0, -1, 2.0, True, 10**30, "9" * 5000, [], [2], {}, {"a": {"b": 1}}]


def gang(pod: dict[str, Any], *groups: dict[str, Any]) -> Gang | None:
    (found,) = pods_manifests([*groups, pod])
    return gang_of(found, "default")


@pytest.mark.parametrize(("member", "key", "api_version"), NAMES)
def test_labels_and_annotations_name_pod_groups(member, key, api_version):
    pod = {**POD, "metadata": {**POD["metadata"], member: {key: "web"}}}
    named = named_pod_group(pod)
    assert (named.kind.api_version, named.namespace, named.name) == (api_version, "default", "web")


@pytest.mark.parametrize("api_version", KINDS)
@pytest.mark.parametrize("least", [1, 3, "3", 999_999_999])
def test_each_kind_says_how_many(api_version, least):
    pod = in_group(POD, api_version)
    found = gang(pod, pod_group(api_version, least))
    assert (found.name, found.least) == (gang_name(api_version), int(least))
    assert found.waiting_time == datetime.timedelta(minutes=10)
    assert gang(pod) is None
    assert gang(pod, pod_group(api_version, least, "another")) is None


def test_pod_groups_of_one_name_and_different_kinds_are_different_gangs():
    groups = [pod_group(api_version, 2 + number) for number, api_version in enumerate(KINDS)]
    for number, api_version in enumerate(KINDS):
        found = gang(in_group(POD, api_version), *groups)
        assert (found.name, found.least) == (gang_name(api_version), 2 + number)
    assert len({gang_name(api_version) for api_version in KINDS}) == len(KINDS)


def test_pod_groups_count_in_their_namespace_and_in_any_version():
    elsewhere = pod_group(X_K8S)
    elsewhere["metadata"]["namespace"] = "another"
    assert gang(in_group(POD, X_K8S), elsewhere) is None
    later = pod_group(NATIVE) | {"apiVersion": "scheduling.k8s.io/v1beta1"}
    assert gang(in_group(POD, NATIVE), later).least == 2
    unnamed = in_group({**POD, "metadata": {"name": "a"}}, X_K8S)
    assert gang(unnamed, pod_group(X_K8S)).name == gang_name(X_K8S)


@pytest.mark.parametrize("api_version", KINDS)
def test_seconds_are_the_time_that_members_wait(api_version):
    pod = in_group(POD, api_version)
    for seconds, expected in ((90, 90), ("90", 90), (10**30, 600), ("x", 600), ({}, 600), (10**10, 86400)):
        group = pod_group(api_version, scheduleTimeoutSeconds=seconds)
        assert gang(pod, group).waiting_time == datetime.timedelta(seconds=expected)


def test_annotations_of_koordinator_count_on_its_own_kind():
    annotations = {GANG_MODE: "NonStrict", GANG_GROUPS: '["default/db"]', GANG_NAME: "not this"}
    for api_version in KINDS:
        group = pod_group(api_version)
        group["metadata"]["annotations"] = annotations
        found = gang(in_group(POD, api_version), group)
        own = gang_name(api_version)
        assert found.name == own
        assert found.is_strict == (api_version != SIGS)
        assert found.together == ({own, "default/db"} if api_version == SIGS else {own})


@pytest.mark.parametrize("api_version", KINDS)
def test_what_a_pod_says_itself_counts_before_its_pod_group(api_version):
    pod = in_group(POD, api_version)
    own = pod["metadata"].get("annotations", {}) | {GANG_MIN_AVAILABLE: "5", GANG_WAITING_TIME: "1s"}
    pod["metadata"]["annotations"] = own
    found = gang(pod, pod_group(api_version, scheduleTimeoutSeconds=60))
    assert (found.name, found.least) == (gang_name(api_version), 5)
    assert found.waiting_time == datetime.timedelta(seconds=1)


@pytest.mark.parametrize("api_version", [X_K8S, VOLCANO, NATIVE])
def test_a_pod_that_names_its_gang_is_of_no_other(api_version):
    pod = in_group(POD, api_version)
    pod["metadata"].setdefault("annotations", {}).update({GANG_NAME: "mine", GANG_MIN_AVAILABLE: "3"})
    assert named_pod_group(pod) is None
    found = gang(pod, pod_group(api_version, scheduleTimeoutSeconds=60))
    assert (found.name, found.least) == ("default/mine", 3)
    assert found.waiting_time == datetime.timedelta(minutes=10)


def test_the_first_kind_that_a_pod_names_counts():
    for first, second in itertools.combinations(KINDS, 2):
        pod = in_group(in_group(POD, second, "second"), first, "first")
        named = named_pod_group(pod)
        assert (named.kind.api_version, named.name) == (first, "first")


def test_groups_that_ask_for_no_minimum_make_no_gang():
    for api_version in (SIGS, X_K8S, VOLCANO):
        for least in (None, 0, "0"):
            assert gang(in_group(POD, api_version), pod_group(api_version, least)) is None
        assert GANG_NAME not in named_pod_group(in_group(POD, api_version)).stated(pod_group(api_version, 0))
    basic = pod_group(NATIVE, schedulingPolicy={"basic": {}})
    assert named_pod_group(in_group(POD, NATIVE)).stated(basic) == {}


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("api_version", KINDS)
def test_a_minimum_that_is_no_number_is_a_finding_and_not_none(api_version, odd):
    pod = in_group(POD, api_version)
    named, group = named_pod_group(pod), pod_group(api_version, odd)
    (found,) = pods_manifests([group, pod])
    assert gang_of(found, "default") is None
    reason = named.misstated(named.stated(group), found)
    if api_version != NATIVE and odd in (None, 0, "0"):
        assert reason is None
    else:
        assert reason.startswith(f"PodGroup default/web of {api_version.partition('/')[0]} asks for ")
        assert len(reason) < 300


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_policies_that_are_neither_gang_nor_basic_are_findings(odd):
    pod = in_group(POD, NATIVE)
    named = named_pod_group(pod)
    policies = [odd, {"gang": odd}, {"basic": None}, {"other": odd}]
    policies += [] if odd is None else [{"gang": odd, "basic": {}}]
    specs = [{"schedulingPolicy": policy} for policy in policies] + [odd, [odd], {"gang": {"minCount": 2}}]
    for spec in specs:
        group = pod_group(NATIVE) | {"spec": spec}
        (found,) = pods_manifests([group, pod])
        assert gang_of(found, "default") is None
        assert named.misstated(named.stated(group), found).endswith("members, not a number of pods from 1 on")


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_pods_and_groups_fault_nothing(odd):
    for member in ("metadata", "spec"):
        for api_version in KINDS:
            pods_manifests([{**pod_group(api_version), member: odd}, in_group(POD, api_version)])
            pods_manifests([pod_group(api_version), {**in_group(POD, api_version), member: odd}])
    for member, inner in (
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("metadata", "namespace"),
        ("metadata", "name"),
        ("spec", "schedulingGroup"),
    ):
        for api_version in KINDS:
            pod, group = in_group(POD, api_version), pod_group(api_version)
            for odd_pod, odd_group in (
                ({**pod, member: {**pod[member], inner: odd}}, group),
                (pod, {**group, member: {**group[member], inner: odd}}),
            ):
                pods_manifests([odd_group, odd_pod])
    for api_version in KINDS:
        named = named_pod_group(in_group(POD, api_version, odd))
        assert (named is not None) == (isinstance(odd, str) and odd != "")


@pytest.mark.parametrize("api_version", ["scheduling.example.com/v1", "v1", "", None, 3, []])
def test_a_pod_group_of_an_unknown_kind_is_named(api_version):
    group = pod_group(SIGS) | {"apiVersion": api_version}
    assert pod_group_kind(group) is None
    with pytest.raises(BadRequest, match=r"expected a PodGroup of scheduling\.sigs\.k8s\.io, ") as refused:
        pods_manifests([group, POD])
    assert [finding.place.field for finding in refused.value.findings] == ["/apiVersion"]
