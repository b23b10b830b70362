"""A token of Keystone for a user's password."""

from __future__ import annotations

from typing import Any

from placement.api.errors import HttpError, Misconfigured

_GROUP = "keystone_authtoken"
_ANSWER_SECONDS = 5
_DOMAIN = "Default"


class PasswordRefused(Exception):
    """Nobody is signed in; the message says why."""


def token_for(
    configuration: Any, *, user: str, password: str, project: str, user_domain: str, project_domain: str
) -> str:
    """A token for the user in the project. Domains are names, `Default` if empty.

    Raises PasswordRefused, HttpError 503 if Keystone does not answer, Misconfigured.
    """
    from keystoneauth1 import exceptions
    from keystoneauth1.identity import v3
    from keystoneauth1.session import Session

    address = _address(configuration)
    plugin = v3.Password(
        auth_url=address,
        username=user,
        password=password,
        user_domain_name=user_domain or _DOMAIN,
        project_name=project or None,
        project_domain_name=(project_domain or _DOMAIN) if project else None,
    )
    options = configuration[_GROUP]
    verify = False if options.insecure else options.cafile or True
    session = Session(verify=verify, timeout=_ANSWER_SECONDS)
    try:
        token = plugin.get_access(session).auth_token
    except exceptions.Unauthorized:
        raise PasswordRefused(
            "Keystone does not know this user with this password in this project."
        ) from None
    except exceptions.ClientException as error:
        raise HttpError(503, f"Keystone cannot be asked: {type(error).__name__}") from None
    return str(token)


def _address(configuration: Any) -> str:
    """Where people sign in, which is `www_authenticate_uri`, else where the service does."""
    options = configuration[_GROUP]
    found = options.www_authenticate_uri or getattr(options, "auth_url", None)
    if not found:
        raise Misconfigured(f"[{_GROUP}] www_authenticate_uri is not set.")
    address = str(found).rstrip("/")
    return address if address.endswith("/v3") else f"{address}/v3"
