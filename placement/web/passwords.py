"""Passwords that Keystone makes tokens of, for signing in to the pages."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from placement.engine.domain.waiting_room import Full, WaitingRoom
from placement.http.errors import HttpError, Misconfigured
from placement.http.strategies.token_middleware import ANSWER_SECONDS, GROUP

_DOMAIN = "Default"
# Fewer than a lane has threads for signing in: threads not held by a slow Keystone refuse others at once.
_ASKING_AT_ONCE = 2
_MOST_GUESSES, _GUESSES_SECONDS = 20, 60
_MOST_ADDRESSES = 10_000


class Passwords:
    """A gateway that takes passwords to Keystone: few at a time, and few wrong ones from an address.

    A guess is a wrong password of the last minute.
    """

    def __init__(self) -> None:
        self._waiting_room = WaitingRoom(_ASKING_AT_ONCE)
        self._turn = threading.Lock()
        self._guesses: OrderedDict[str | None, deque[float]] = OrderedDict()

    def token_for(self, configuration: Any, address: str | None, **given: str) -> str:
        """Return a token for the password that came from this address, as `token_for` below.

        Raises PasswordRefused, HttpError 429 after too many wrong passwords, HttpError 503 if too many
        sign-ins wait for Keystone or it does not answer, Misconfigured.
        """
        # It counts as a guess from the start, or guesses at the same time would be free.
        self._begin(address)
        was_wrong = False
        try:
            with self._waiting_room.entered():
                return token_for(configuration, **given)
        except PasswordRefused:
            was_wrong = True
            raise
        except Full:
            message = "Too many sign-ins wait for the identity service; sign in again in a moment."
            raise HttpError(503, message, headers={"Retry-After": "1"}) from None
        finally:
            if not was_wrong:
                with self._turn:
                    times = self._guesses.get(address)
                    if times:
                        times.pop()

    def _begin(self, address: str | None) -> None:
        now = time.monotonic()
        with self._turn:
            times = self._guesses.setdefault(address, deque())
            self._guesses.move_to_end(address)
            while len(self._guesses) > _MOST_ADDRESSES:
                self._guesses.popitem(last=False)
            while times and times[0] <= now - _GUESSES_SECONDS:
                times.popleft()
            if len(times) >= _MOST_GUESSES:
                seconds = math.ceil(times[0] + _GUESSES_SECONDS - now)
                message = "Too many wrong passwords came from this address; sign in again in a minute."
                raise HttpError(429, message, headers={"Retry-After": str(seconds)})
            times.append(now)


class PasswordRefused(Exception):
    """A refused sign-in; the message says why."""


def token_for(
    configuration: Any, *, user: str, password: str, project: str, user_domain: str, project_domain: str
) -> str:
    """Return a token for the user in the project. Domains are names, `Default` if empty.

    Keystone is at `www_authenticate_uri`, else at `auth_url`. Raises PasswordRefused, HttpError 503 if it
    does not answer, Misconfigured.
    """
    options = configuration[GROUP]
    found = options.www_authenticate_uri or getattr(options, "auth_url", None)
    if not found:
        raise Misconfigured(f"[{GROUP}] www_authenticate_uri is not set.")
    plugin = v3.Password(
        auth_url=str(found).rstrip("/").removesuffix("/v3") + "/v3",
        username=user,
        password=password,
        user_domain_name=user_domain or _DOMAIN,
        project_name=project or None,
        project_domain_name=(project_domain or _DOMAIN) if project else None,
    )
    verify = False if options.insecure else options.cafile or True
    session = Session(verify=verify, timeout=ANSWER_SECONDS)
    try:
        token = plugin.get_access(session).auth_token
    except exceptions.Unauthorized:
        raise PasswordRefused(
            "Keystone does not know this user with this password in this project."
        ) from None
    except exceptions.ClientException as error:
        raise HttpError(503, f"Keystone cannot be asked: {type(error).__name__}") from None
    return str(token)
