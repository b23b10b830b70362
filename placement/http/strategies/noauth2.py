"""Callers that are believed whatever name they give: for development and tests only."""

from __future__ import annotations

from functools import lru_cache

from flask import request

from placement.http.context import Caller, roles_in
from placement.http.errors import HttpError


def noauth2() -> Caller:
    """Return the caller that the token names, `user` or `user:project`. For development and tests only.

    The user `admin` has the role admin unless X-Roles says otherwise. Raises HttpError 401 without a token.
    """
    sent = request.environ
    token = sent.get("HTTP_X_AUTH_TOKEN")
    if token is None:
        raise HttpError(401, "A token is required in the X-Auth-Token header.")
    system_scope = sent.get("HTTP_OPENSTACK_SYSTEM_SCOPE") == "all"
    return _caller(token, sent.get("HTTP_X_ROLES"), sent.get("HTTP_X_PROJECT_ID"), system_scope)


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def _caller(token: str, sent_roles: str | None, sent_project: str | None, system_scope: bool) -> Caller:
    user, _, project = token.partition(":")
    roles = roles_in(sent_roles) if sent_roles is not None else frozenset({"admin"} & {user})
    project_id = sent_project or project or user
    return Caller(user, None if system_scope else project_id, roles, system_scope)
