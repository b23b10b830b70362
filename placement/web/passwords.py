"""A token of Keystone for a user's password."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from placement.api.errors import HttpError, Misconfigured
from placement.services.waiting_room import Full, WaitingRoom

_GROUP = "keystone_authtoken"
_ANSWER_SECONDS = 5
_DOMAIN = "Default"
# Fewer than a lane has threads for signing in: what a slow Keystone does not hold refuses the others at once.
_ASKING_AT_ONCE = 2
_MOST_GUESSES, _GUESSES_SECONDS = 20, 60
_MOST_ADDRESSES = 10_000


class PasswordRefused(Exception):
    """Nobody is signed in; the message says why."""


class Passwords:
    """The way of passwords to Keystone: few at a time, and few wrong ones from an address."""

    def __init__(self) -> None:
        self._room = WaitingRoom(_ASKING_AT_ONCE)
        self._guesses = _Guesses()

    def token_for(self, configuration: Any, address: str | None, **given: str) -> str:
        """Return a token for the password that came from this address, as `token_for` below.

        Raises PasswordRefused, HttpError 429 after too many wrong passwords, HttpError 503 if too many
        sign-ins wait for Keystone or it does not answer, Misconfigured.
        """
        try:
            with self._guesses.attempt(address), self._room.entered():
                return token_for(configuration, **given)
        except Full:
            message = "Too many sign-ins wait for the identity service; sign in again in a moment."
            raise HttpError(503, message, headers={"Retry-After": "1"}) from None


class _Guesses:
    """The wrong passwords of the last minute, by the address that they came from."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._times: OrderedDict[str | None, deque[float]] = OrderedDict()

    @contextmanager
    def attempt(self, address: str | None) -> Iterator[None]:
        """Count the block as a guess if it raises PasswordRefused. Raises HttpError 429."""
        # It counts from the start, or guesses at the same time would be free.
        self._begin(address)
        try:
            yield
        except PasswordRefused:
            raise
        except BaseException:
            self._forget(address)
            raise
        self._forget(address)

    def _begin(self, address: str | None) -> None:
        now = time.monotonic()
        with self._turn:
            times = self._times.setdefault(address, deque())
            self._times.move_to_end(address)
            while len(self._times) > _MOST_ADDRESSES:
                self._times.popitem(last=False)
            while times and times[0] <= now - _GUESSES_SECONDS:
                times.popleft()
            if len(times) >= _MOST_GUESSES:
                seconds = math.ceil(times[0] + _GUESSES_SECONDS - now)
                message = "Too many wrong passwords came from this address; sign in again in a minute."
                raise HttpError(429, message, headers={"Retry-After": str(seconds)})
            times.append(now)

    def _forget(self, address: str | None) -> None:
        with self._turn:
            times = self._times.get(address)
            if times:
                times.pop()


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
