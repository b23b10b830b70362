"""Who is calling. Source: Placement API, authentication."""

from __future__ import annotations

from flask import request

from placement.api.context import Caller
from placement.api.errors import HttpError


def noauth2() -> Caller:
    """Believe the token: `user` or `user:project`. For development and tests only.

    The user `admin` has the role admin unless X-Roles says otherwise. Raises HttpError 401 without a token.
    """
    token = request.headers.get("X-Auth-Token")
    if token is None:
        raise HttpError(401, "A token is required in the X-Auth-Token header.")
    user, _, project = token.partition(":")
    sent_roles = request.headers.get("X-Roles")
    if sent_roles is not None:
        roles = frozenset(role.strip().lower() for role in sent_roles.split(",") if role.strip())
    else:
        roles = frozenset({"admin"}) if user == "admin" else frozenset()
    system_scope = request.headers.get("OpenStack-System-Scope") == "all"
    project_id = request.headers.get("X-Project-Id") or project or user
    return Caller(user, None if system_scope else project_id, roles, system_scope)
