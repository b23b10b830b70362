"""Tokens of OpenStack Identity count for what they were issued for: a project, not a domain or the system.

The table is what the incumbent (16.0.0) answers to the same tokens with the same roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from placement.storage.database import Database
from tests.client import Client, detail
from tests.conftest import application_of, configured, with_options
from tests.identity_service import IdentityService, domain_token, project_token, system_token, unscoped_token

ROLES = ("admin", "reader", "member", "service")
TOKENS: dict[str, dict[str, Any]] = {
    **{f"project-{role}": project_token(role, project="zoo") for role in ROLES},
    **{f"domain-{role}": domain_token(role) for role in ROLES},
    **{f"system-{role}": system_token(role) for role in ROLES},
    "unscoped": unscoped_token(),
    **{f"unscoped-{role}": {**unscoped_token(), "roles": [{"id": role, "name": role}]} for role in ROLES},
}
CONSUMER = "00000000-0000-0000-0000-000000000001"
ROUTES = {
    "resource_providers:list": ("GET", "/resource_providers", 200),
    "resource_classes:list": ("GET", "/resource_classes", 200),
    "traits:list": ("GET", "/traits", 200),
    "allocations:list": ("GET", f"/allocations/{CONSUMER}", 200),
    "allocation_candidates:list": ("GET", "/allocation_candidates", 400),
    "clusters:list": ("GET", "/ext/v1/clusters", 200),
}


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityService]:
    with IdentityService(TOKENS).running() as service:
        yield service


@contextmanager
def service(database: Database, identity: IdentityService, **policy: Any) -> Iterator[Client]:
    """The service that asks this Identity about tokens."""
    configuration = configured(**policy)
    identity.configure(configuration)
    settings = with_options(configuration, auth_strategy="keystone")
    with application_of(database, settings) as application:
        yield Client(application.test_client())


@pytest.fixture(scope="module")
def api(embedded_database: Database, identity: IdentityService) -> Iterator[Client]:
    with service(embedded_database, identity) as client:
        yield client


@pytest.mark.parametrize("rule", ROUTES)
def test_tokens_count_by_their_role_for_a_project_and_not_at_all_for_other_scopes(api: Client, rule: str):
    method, path, passed = ROUTES[rule]
    for token in TOKENS:
        answer = api.as_(token).call(method, path)
        if token in ("project-admin", "project-service"):
            assert answer.status_code == passed, token
            continue
        assert answer.status_code == 403, token
        if token.startswith("project"):
            assert detail(answer) == f"Policy does not allow placement:{rule} to be performed."
        elif token.startswith("unscoped"):
            # Not for want of roles: a token of nothing counts nowhere, whatever roles it has.
            assert "This token has no scope" in detail(answer)
        else:
            # In the incumbent's words: a refusal of the scope is the name of the rule alone.
            assert detail(answer) == f"placement:{rule}"


def test_use_of_a_project_is_for_its_readers(api: Client):
    for token, project, status in (
        ("project-reader", "zoo", 200),
        ("project-reader", "farm", 403),
        ("project-reader", "None", 403),
        ("project-reader", "", 403),
        ("project-member", "zoo", 403),
        ("project-admin", "farm", 200),
        ("project-service", "farm", 200),
        ("domain-reader", "customer1", 403),
        *((f"{scope}-reader", "None", 403) for scope in ("domain", "system", "unscoped")),
        ("unscoped-reader", "", 403),
        ("unscoped-reader", "somebody", 403),
    ):
        asked = api.as_(token).get(f"/usages?project_id={project}")
        assert asked.status_code == status, (token, project)
    assert api.as_("unscoped-reader").get("/usages").status_code == 403


@pytest.mark.parametrize(
    ("token", "enforced", "status"),
    [
        ("project-admin", True, 403),
        ("project-admin", False, 400),
        ("project-service", True, 400),
        ("domain-admin", False, 403),
        ("system-admin", False, 403),
        ("domain-service", True, 403),
    ],
)
def test_older_defaults_do_not_widen_the_scope(
    embedded_database: Database, identity: IdentityService, token: str, enforced: bool, status: int
):
    with service(embedded_database, identity, enforce_new_defaults=enforced) as api:
        assert api.as_(token).post("/reshaper", {}).status_code == status


def test_forged_identity_headers_count_for_nothing(api: Client):
    forged = {"X_Domain_Id": "", "X_Roles": "admin", "X_Project_Id": "zoo", "X_User_Id": "root"}
    for token, status in (("project-member", 403), ("domain-admin", 403), (None, 401), ("unknown", 401)):
        assert api.as_(token, **forged).get("/traits").status_code == status, token
    # Nor does a token in another header.
    assert api.as_(None, X_Storage_Token="project-admin").get("/traits").status_code == 401
    assert api.as_(None).get("/traits").status_code == 401
