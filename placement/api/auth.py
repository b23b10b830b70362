"""Authentication: the caller of a request. Source: placement-api.md, "Authentication"."""

from __future__ import annotations

from collections.abc import Callable

from flask import request

from placement.api.context import Caller
from placement.api.errors import HttpError
from placement.api.tokens import Tokens

Strategy = Callable[[], Caller]


def noauth2() -> Caller:
    """Believe the token: `user` or `user:project`. For development and tests only.

    The user `admin` has the role admin unless X-Roles says otherwise. Raises HttpError 401 without a token.
    """
    token = request.headers.get("X-Auth-Token")
    if token is None:
        raise HttpError(401, "A token is required in the X-Auth-Token header.")
    user, _, project = token.partition(":")
    sent_roles = request.headers.get("X-Roles")
    roles = _roles(sent_roles or "") if sent_roles is not None else frozenset({"admin"} & {user})
    system_scope = request.headers.get("OpenStack-System-Scope") == "all"
    project_id = request.headers.get("X-Project-Id") or project or user
    return Caller(user, None if system_scope else project_id, roles, system_scope)


def static_tokens(tokens: Tokens) -> Strategy:
    """Look the token up; it may come in X-Auth-Token, as a bearer, or as the password of Basic."""

    def strategy() -> Caller:
        caller = tokens.caller(_sent_token())
        if caller is None:
            raise HttpError(
                401,
                "A known token is required in the X-Auth-Token header, or as Authorization: Bearer.",
                headers={"WWW-Authenticate": 'Bearer realm="placement"'},
            )
        return caller

    return strategy


def _sent_token() -> str:
    token = request.headers.get("X-Auth-Token")
    if token is not None:
        return token
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        # Callers that can set no header, such as kube-scheduler, have it in their URL: https://:TOKEN@host.
        sent = request.authorization
        return (sent.password if sent is not None else None) or ""
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _roles(text: str) -> frozenset[str]:
    return frozenset(role.strip().lower() for role in text.split(",") if role.strip())
