"""The sample of rights in Kubernetes allows what the synchronisation and the extender do, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from placement.scheduling.command import ScheduleKubernetes
from placement.sync.watched_collections import collections
from placement.sync.watched_objects import ObjectKind

ETC = Path(__file__).resolve().parents[3] / "etc"
RIGHTS = [
    ETC / folder / "rights.yaml" for folder in ("kubernetes", "kubernetes-binding", "kubernetes-scheduling")
]


def manifests() -> list[Any]:
    return [manifest for file in RIGHTS for manifest in yaml.safe_load_all(file.read_text())]


def rules_of(role: str, kind: str) -> list[Any]:
    roles = [manifest for manifest in manifests() if manifest["kind"] == kind]
    (rules,) = [manifest["rules"] for manifest in roles if manifest["metadata"]["name"] == role]
    return rules


def granted(role: str, kind: str = "ClusterRole") -> set[tuple[str, str, str]]:
    """(group, resource, verb) that a role allows."""
    rules = rules_of(role, kind)
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_synchronisation_may_list_and_watch_its_collections_look_at_a_pod_and_hold_its_lease():
    needed = {("", "pods", "get")} | {("", "events", verb) for verb in ("get", "create", "patch")}
    for collection in collections([]):
        group = collection.api_version.rpartition("/")[0].partition("/")[0]
        resource = collection.path.rsplit("/", 1)[-1]
        needed |= {(group, resource, verb) for verb in ("list", "watch")}
    assert granted("placement-sync") == needed
    assert {collection.kind for collection in collections([])} == set(ObjectKind)
    assert granted("placement-sync", "Role") == {
        ("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")
    }


def test_binding_may_look_at_pods_and_create_bindings_and_nothing_else():
    looks = {("", "pods", "get"), ("", "pods", "list")}
    assert granted("placement-bind") == looks | {("", "pods/binding", "create")}


def test_scheduling_may_all_that_the_synchronization_may_and_what_is_its_own():
    own = {
        ("", "nodes", "get"),
        ("", "pods", "patch"),
        ("", "pods", "delete"),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        ("", "persistentvolumeclaims", "get"),
        ("", "persistentvolumes", "get"),
        ("policy", "poddisruptionbudgets", "list"),
        *(("scheduling.koordinator.sh", "reservations", verb) for verb in ("get", "patch")),
        ("scheduling.koordinator.sh", "reservations/status", "patch"),
    }
    assert granted("placement-schedule") == granted("placement-sync") | own
    assert granted("placement-schedule", "Role") == granted("placement-sync", "Role")


def test_only_the_lease_of_the_sample_may_be_changed():
    rules = rules_of("placement-sync", "Role")
    named = {rule["resourceNames"][0] for rule in rules if rule["verbs"] != ["create"]}
    assert {f"--lease=placement/{name}" for name in named} <= set(
        (ETC / "kubernetes" / "synchronization.yaml").read_text().replace("- ", " ").split()
    )
    assert len(named) == 1


def test_every_account_has_its_role_and_the_service_that_binds_nothing_none():
    accounts = {each["metadata"]["name"]: each for each in manifests() if each["kind"] == "ServiceAccount"}
    bindings = [manifest for manifest in manifests() if manifest["kind"] == "ClusterRoleBinding"]
    assert {binding["roleRef"]["name"]: binding["subjects"][0]["name"] for binding in bindings} == {
        name: name for name in accounts.keys() - {"placement"}
    }
    assert accounts["placement"]["automountServiceAccountToken"] is False


def test_binding_is_the_base_with_that_account_and_the_cluster_that_the_synchronization_follows():
    folder = ETC / "kubernetes-binding"
    base = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert base["resources"] == ["../kubernetes", "rights.yaml"]
    patch = yaml.safe_load((folder / base["patches"][0]["path"]).read_text())
    pod = patch["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "placement-bind"
    ((variable,),) = [container["env"] for container in pod["containers"]]
    assert variable["name"] == "OS_KUBERNETES__OWN_CLUSTER"
    assert f"--cluster={variable['value']}" in (ETC / "kubernetes" / "synchronization.yaml").read_text()


def test_scheduling_is_the_base_with_that_account_in_place_of_the_synchronization():
    folder = ETC / "kubernetes-scheduling"
    base = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert base["resources"] == ["../kubernetes", "rights.yaml"]
    patch = yaml.safe_load((folder / base["patches"][0]["path"]).read_text())
    pod = patch["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "placement-schedule"
    (container,) = pod["containers"]
    given = ScheduleKubernetes(None, None).get_parser("schedule kubernetes").parse_args(container["args"][2:])
    (rule,) = [each for each in rules_of("placement-schedule", "Role") if "resourceNames" in each]
    assert [given.lease.name] == rule["resourceNames"]
    assert container["args"][:2] == ["schedule", "kubernetes"]
