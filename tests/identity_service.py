"""A stand-in of OpenStack Identity v3: enough for services that validate their callers' tokens.

It knows the tokens that a test gives it, counts who asks, and hangs for as long as a test wants it to.
Source: Identity API v3, "Validate and show information for token".
"""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from keystoneauth1 import loading
from keystonemiddleware.opts import list_auth_token_opts
from oslo_config import cfg

GROUP = "keystone_authtoken"
_DOMAIN = {"id": "default", "name": "Default"}
_SERVICE_TOKEN = "the-service-itself"
_REGION = "RegionOne"


def project_token(*roles: str, project: str = "platform", user: str = "somebody") -> dict[str, Any]:
    """What a token of a user in a project stands for."""
    return {**_owner(user, roles), "project": {"id": project, "name": project, "domain": _DOMAIN}}


def domain_token(*roles: str, domain: str = "customer1") -> dict[str, Any]:
    """What a token of a user in a whole domain stands for."""
    return {**_owner("somebody", roles), "domain": {"id": domain, "name": domain}}


def system_token(*roles: str) -> dict[str, Any]:
    """What a token for the whole system stands for."""
    return {**_owner("somebody", roles), "system": {"all": True}}


def unscoped_token() -> dict[str, Any]:
    """What a token without any scope stands for: it has no roles."""
    return _owner("somebody", ())


def _owner(user: str, roles: tuple[str, ...]) -> dict[str, Any]:
    named = [{"id": role, "name": role} for role in roles]
    return {"user": {"id": user, "name": user, "domain": _DOMAIN}, "roles": named}


class IdentityService:
    """One of them, at `url`; `tokens` may change while it runs."""

    def __init__(self, tokens: dict[str, dict[str, Any]]) -> None:
        self.tokens = tokens
        self.passwords: dict[tuple[str, str, str | None], str] = {}
        """The token that somebody gets by user, password and project."""
        self.asked: list[str] = []
        """The subject tokens that somebody wanted validated, in order."""
        self.signed_in: list[str] = []
        """The users whose passwords were sent, in order, right or wrong."""
        self.own_password = "password-of-the-service"
        self.services: dict[str, str] = {}
        """The addresses of further services of the catalog, by type."""
        self.catalog_is_empty = False
        self._answers = threading.Event()
        self._answers.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v3"

    def signing_in(self, user: str) -> None:
        """Note that somebody signs in with a password; waits while it hangs."""
        self.signed_in.append(user)
        self._answers.wait(300)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer no validation and no password for the time of the block."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def close(self) -> None:
        """Take no more connections; before that they wait for nothing unless it is running."""
        self._server.server_close()

    @contextmanager
    def running(self) -> Iterator[IdentityService]:
        """Answer for the time of the block."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._answers.set()
            self._server.shutdown()
            self.close()

    def options(self) -> dict[str, str]:
        """The options of group keystone_authtoken for a service that asks here."""
        return {
            "www_authenticate_uri": self.url,
            "auth_url": self.url,
            "auth_type": "password",
            "username": "placement",
            "password": self.own_password,
            "project_name": "service",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        }

    def configure(self, configuration: cfg.ConfigOpts) -> None:
        """Let a service with this configuration ask here."""
        for group, options in list_auth_token_opts():
            configuration.register_opts(options, group=group)
        loading.register_auth_conf_options(configuration, GROUP)
        configuration.register_opts(loading.get_auth_plugin_conf_options("password"), group=GROUP)
        for name, value in self.options().items():
            configuration.set_override(name.replace("-", "_"), value, group=GROUP)

    def text(self) -> str:
        """The same for a configuration file."""
        return "\n".join([f"[{GROUP}]", *(f"{name} = {value}" for name, value in self.options().items()), ""])

    def validated(self, token: str) -> dict[str, Any] | None:
        """The body about a token, None if nobody knows it; waits while it hangs."""
        self.asked.append(token)
        self._answers.wait(300)
        owner = self.tokens.get(token)
        return None if owner is None else self.body(owner)

    def body(self, owner: dict[str, Any]) -> dict[str, Any]:
        """A token body that expires in an hour, with this service in its catalog."""
        now = datetime.datetime.now(datetime.UTC)
        services = {} if self.catalog_is_empty else {"identity": self.url, **self.services}
        catalog = [
            {"id": kind, "type": kind, "name": kind, "endpoints": _endpoints(url)}
            for kind, url in services.items()
        ]
        return {
            "token": {
                "methods": ["password"],
                "issued_at": _time(now),
                "expires_at": _time(now + datetime.timedelta(hours=1)),
                "audit_ids": ["an-audit-id"],
                "catalog": catalog,
                **owner,
            }
        }


def _endpoints(url: str) -> list[dict[str, str]]:
    return [
        {"id": name, "interface": name, "region": _REGION, "region_id": _REGION, "url": url}
        for name in ("public", "internal", "admin")
    ]


def _time(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000000Z")


def _handler(service: IdentityService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not self.path.startswith("/v3/auth/tokens"):
                version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": service.url}]}
                return self._send(200, {"version": version})
            body = service.validated(self.headers.get("X-Subject-Token", ""))
            if body is None:
                return self._send(404, {"error": {"code": 404, "message": "unknown", "title": "Not Found"}})
            return self._send(200, body)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))["auth"]
            user = asked["identity"]["password"]["user"]
            project = asked.get("scope", {}).get("project", {}).get("name")
            if user["name"] == "placement":
                if user["password"] != service.own_password:
                    return self._send(401, {"error": {"code": 401, "message": "no", "title": "Unauthorized"}})
                itself = project_token("service", project="service", user="placement")
                return self._send(201, service.body(itself), ("X-Subject-Token", _SERVICE_TOKEN))
            service.signing_in(user["name"])
            token = service.passwords.get((user["name"], user["password"], project))
            if token is None:
                return self._send(401, {"error": {"code": 401, "message": "no", "title": "Unauthorized"}})
            return self._send(201, service.body(service.tokens[token]), ("X-Subject-Token", token))

        def _send(self, status: int, body: dict[str, Any], *headers: tuple[str, str]) -> None:
            sent = json.dumps(body).encode()
            try:
                self.send_response(status)
                for name, value in (("Content-Type", "application/json"), *headers):
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)
            except OSError:
                # Whoever asked gave up waiting.
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
