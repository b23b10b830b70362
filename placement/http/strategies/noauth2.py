"""Callers that are believed whatever name they give: for development and tests only."""

from __future__ import annotations

from flask import request

from placement.http.context import Caller, roles_in
from placement.http.errors import HttpError


def noauth2() -> Caller:
    """Return the caller that the token names, `user` or `user:project`. For development and tests only.

    The user `admin` has the role admin unless X-Roles says otherwise. Raises HttpError 401 without a token.
    """
    token = request.headers.get("X-Auth-Token")
    if token is None:
        raise HttpError(401, "A token is required in the X-Auth-Token header.")
    user, _, project = token.partition(":")
    sent_roles = request.headers.get("X-Roles")
    roles = roles_in(sent_roles) if sent_roles is not None else frozenset({"admin"} & {user})
    system_scope = request.headers.get("OpenStack-System-Scope") == "all"
    project_id = request.headers.get("X-Project-Id") or project or user
    return Caller(user, None if system_scope else project_id, roles, system_scope)
