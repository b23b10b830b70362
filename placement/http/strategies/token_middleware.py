"""The token middleware of OpenStack Identity, complete from the start on.

By itself it imports what its cache needs with the first request: the client of memcached, and the ciphers of
`memcache_security_strategy`. A service without them would start, call itself ready, and answer 500 to every
caller. Identity and memcached are asked by nothing here but `sign_in` and `silent_caches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from keystoneauth1.exceptions import ClientException, Unauthorized
from oslo_config import cfg

from placement.engine.domain.errors import PlacementError
from placement.http.errors import Misconfigured

GROUP = "keystone_authtoken"
"""The group of its options."""
ANSWER_SECONDS = 5
"""How long Identity has for an answer, unless `http_connect_timeout` says otherwise."""
_RETRIES = 1
# Of each memcached once in five minutes, so that one that hangs holds up no caller for long.
_CACHE_SECONDS = 1
_V3 = (3, 0)
ProtectedApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class NotSignedIn(PlacementError):
    """A failed sign-in of the service at Identity; the text says why."""


class TokenMiddleware:
    """The middleware before an application, which only requests with valid tokens reach."""

    def __init__(self, application: ProtectedApplication, configuration: cfg.ConfigOpts) -> None:
        """Build it. Raises Misconfigured with what to install or to configure."""
        try:
            from keystonemiddleware.auth_token import AuthProtocol
            from keystonemiddleware.opts import list_auth_token_opts
        except ImportError:
            raise Misconfigured(
                "auth_strategy keystone needs keystonemiddleware: install this package with its extra "
                "`keystone`, or choose another [api] auth_strategy."
            ) from None
        try:
            for group, options in list_auth_token_opts():
                configuration.register_opts(options, group=group)
            # Without these the middleware would wait for an answer forever.
            configuration.set_default("http_connect_timeout", ANSWER_SECONDS, group=GROUP)
            configuration.set_default("http_request_max_retries", _RETRIES, group=GROUP)
            configuration.set_default("memcache_pool_socket_timeout", _CACHE_SECONDS, group=GROUP)
            self._options = configuration[GROUP]
            settings: dict[str, Any] = {"oslo_config_config": configuration}
            if not self._options.memcached_servers:
                # A cache of its own would only prolong the time for which we remember callers.
                settings["token_cache_time"] = "-1"
            self._guarded = AuthProtocol(application, settings)
            self._complete()
            is_chosen = self._options.auth_type or self._options.auth_section
        except ImportError as error:
            raise Misconfigured(
                f"[keystone_authtoken] cannot be used: {error}; install this package with its extra "
                "`keystone`."
            ) from None
        except Exception as error:
            # Plugins and caches have errors of their own, most of them undocumented.
            raise Misconfigured(f"[keystone_authtoken] cannot be used: {_words(error)}") from None
        if not is_chosen:
            raise Misconfigured(
                f"auth_strategy keystone needs [{GROUP}] auth_type, and what goes with it, to ask Keystone "
                "about tokens; or choose another [api] auth_strategy."
            )

    def _complete(self) -> None:
        """Make what the middleware would make for its first request, and encrypt something. Nothing is sent.

        Raises ImportError of what is missing, and what libraries raise of addresses.
        """
        cache = self._guarded._token_cache
        cache.initialize({})
        with cache._cache_pool.reserve():
            pass
        _, keys = cache._get_cache_key("start")
        try:
            cache._serialize(b"{}", keys)
        except Exception as error:
            if type(error).__name__ != "CryptoUnavailableError":
                raise
            raise ImportError("memcache_security_strategy needs the package cryptography") from None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass a valid request on, or answer it. Raises ClientException where Identity cannot be asked."""
        answer: Iterable[bytes] = self._guarded(environ, start_response)
        return answer

    @property
    def address(self) -> str:
        """Return the configured address of Identity; empty if only a plugin knows it."""
        return str(getattr(self._options, "auth_url", None) or "")

    def sign_in(self, seconds: float | None = None) -> None:
        """Sign in as the service, and look up in its catalog where tokens are validated.

        Each of the few requests waits for at most `seconds`, as configured if None. Raises NotSignedIn.
        """
        session, adapter = self._guarded._session, self._guarded._identity_server._adapter
        if seconds is not None:
            session.timeout = min(session.timeout or seconds, seconds)
        try:
            session.get_token(self._guarded._auth)
        except Unauthorized:
            user = getattr(self._options, "username", None) or "of the service"
            raise NotSignedIn(
                f"{self.address} refuses the user {user}: its password, project or domains in [{GROUP}] are "
                "wrong, so the token of every caller is answered 503"
            ) from None
        except ClientException as error:
            raise NotSignedIn(f"{self.address} cannot be asked: {_words(error)}") from None
        try:
            endpoint, reason = (
                adapter.get_endpoint(version=_V3),
                "it is not in the catalog, or does not answer",
            )
        except ClientException as error:
            endpoint, reason = None, _words(error)
        if endpoint is None:
            raise NotSignedIn(f"{self.address} names no endpoint to validate tokens at: {reason}")

    @property
    def caches(self) -> list[str]:
        """Return the addresses of memcached."""
        return list(self._options.memcached_servers or ())

    def silent_caches(self) -> Iterator[str]:
        """Yield each memcached that gives no answer within seconds."""
        for server in self.caches:
            try:
                answers = bool(self._statistics(server))
            except OSError:
                answers = False
            if not answers:
                yield server

    def _statistics(self, server: str) -> Mapping[str, Any]:
        """Return what one memcached tells of itself. Raises OSError."""
        options = self._options
        if options.memcache_tls_enabled or options.memcache_sasl_enabled:
            import bmemcached

            login = (options.memcache_username, options.memcache_password)
            context = self._guarded._token_cache._tls_context
            client = bmemcached.Client([server], *login, socket_timeout=_CACHE_SECONDS, tls_context=context)
            found: Mapping[str, Any] = next(iter(client.stats().values())) or {}
            return found
        import memcache

        answers = memcache.Client([server], socket_timeout=_CACHE_SECONDS).get_stats()
        return dict(answers[0][1]) if answers else {}


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
