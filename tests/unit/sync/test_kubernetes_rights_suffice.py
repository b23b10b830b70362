"""The sample of rights in Kubernetes allows what the synchronisation and the extender do, and no more."""

from __future__ import annotations

from pathlib import Path

import yaml

from placement.sync.watching import ObjectKind, collections

RIGHTS = Path(__file__).resolve().parents[3] / "etc" / "kubernetes" / "rights.yaml"


def granted(role: str, kind: str = "ClusterRole") -> set[tuple[str, str, str]]:
    """(group, resource, verb) that a role allows."""
    roles = [manifest for manifest in yaml.safe_load_all(RIGHTS.read_text()) if manifest["kind"] == kind]
    (rules,) = [manifest["rules"] for manifest in roles if manifest["metadata"]["name"] == role]
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


def test_every_account_has_its_role():
    manifests = list(yaml.safe_load_all(RIGHTS.read_text()))
    accounts = {
        manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "ServiceAccount"
    }
    bindings = [manifest for manifest in manifests if manifest["kind"] == "ClusterRoleBinding"]
    assert {binding["roleRef"]["name"]: binding["subjects"][0]["name"] for binding in bindings} == {
        name: name for name in accounts
    }
