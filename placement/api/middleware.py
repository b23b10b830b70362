"""What stands around the application: proxy headers, the request's id and log line, CORS, Keystone."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from oslo_config import cfg
from oslo_middleware import cors, http_proxy_to_wsgi

from placement.api.context import ENVIRONMENT_KEY, global_id
from placement.domain.deadline import DEADLINE_KEY, set_deadline

REQUEST_ID = "x-openstack-request-id"
LOG = logging.getLogger("placement.requests")

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH"]
_ALLOWED = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Identity-Status",
    "X-Roles",
    "X-Service-Catalog",
    "X-User-Id",
    "X-Tenant-Id",
    "OpenStack-API-Version",
]
_EXPOSED = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Subject-Token",
    "X-Service-Token",
    "OpenStack-API-Version",
]


def surrounded(
    application: Wsgi, configuration: cfg.ConfigOpts, *, keystone: bool, request_seconds: float
) -> Wsgi:
    """The application behind everything that the configuration asks for.

    Raises ImportError with what to install if Keystone is asked for and its middleware is missing.
    """
    cors.set_defaults(allow_methods=_METHODS, allow_headers=_ALLOWED, expose_headers=_EXPOSED)
    configuration.register_opts(cors.OPTS, group="cors")
    if keystone:
        application = _behind_keystone(application, configuration)
    if configuration.cors.allowed_origin:
        application = cors.CORS(application, configuration)
    logged = RequestLog(application, request_seconds)
    configuration.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    if not configuration.oslo_middleware.enable_proxy_headers_parsing:
        return logged
    return http_proxy_to_wsgi.HTTPProxyToWSGI(logged, configuration)


def _behind_keystone(application: Wsgi, configuration: cfg.ConfigOpts) -> Wsgi:
    try:
        from keystonemiddleware.auth_token import AuthProtocol
    except ImportError:
        raise ImportError(
            "auth_strategy keystone needs keystonemiddleware: install this package with its extra "
            "`keystone`, or choose another [api] auth_strategy."
        ) from None
    guarded = AuthProtocol(application, {"oslo_config_config": configuration})

    def skipping_the_version_document(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        chosen = application if environ.get("PATH_INFO") in ("", "/") else guarded
        return chosen(environ, start_response)

    return skipping_the_version_document


class RequestLog:
    """Gives every request an id and a deadline, and writes its log line, also if it is not let in."""

    def __init__(self, application: Wsgi, request_seconds: float) -> None:
        self._application = application
        self._request_seconds = request_seconds

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request_id = environ[ENVIRONMENT_KEY] = f"req-{uuid.uuid4()}"
        # Our own server counts from when the request was there, others begin with it at once.
        set_deadline(environ.get(DEADLINE_KEY) or time.monotonic() + self._request_seconds)
        # Mounted under a prefix the version document has an empty path, which the router would redirect.
        environ["PATH_INFO"] = environ.get("PATH_INFO") or "/"
        uri = _uri(environ)
        LOG.debug("Starting request: %s %s %s", request_id, environ["REQUEST_METHOD"], uri)

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            found = {name.lower(): value for name, value in headers}
            if REQUEST_ID not in found:
                headers = [*headers, (REQUEST_ID, request_id)]
            LOG.info(
                '%s %s "%s %s" status: %s len: %s microversion: %s',
                _ids(request_id, environ),
                environ.get("REMOTE_ADDR", "-"),
                environ["REQUEST_METHOD"],
                uri,
                status.partition(" ")[0],
                found.get("content-length", "-"),
                found.get("openstack-api-version", "-").rpartition(" ")[2],
            )
            return start_response(status, headers, *rest)

        return self._application(environ, start)


def _uri(environ: dict[str, Any]) -> str:
    """The request's URI, quoted: nobody writes lines of their own into the log."""
    path = quote(environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"], encoding="latin-1", errors="replace")
    query = environ.get("QUERY_STRING", "")
    return f"{path}?{quote(query, safe='%/?&=:,!+', encoding='latin-1')}" if query else path


def _ids(request_id: str, environ: dict[str, Any]) -> str:
    caller_id = global_id(environ.get("HTTP_X_OPENSTACK_REQUEST_ID", ""))
    return f"[{request_id} {caller_id}]" if caller_id else f"[{request_id}]"
