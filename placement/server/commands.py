"""`placement serve`: running the service."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import platform
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING

from placement import DISTRIBUTION
from placement.client.arguments import argument, port_number, positive
from placement.client.command import ActionCommand
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import is_loopback
from placement.server.sources import OPTIONS, name_sources

if TYPE_CHECKING:
    from oslo_config import cfg

# What the command says goes to the terminal, what the service says to its log.
_SERVICE_LOG = logging.getLogger(__name__)
_HOST = "127.0.0.1"
_PORT = 8778
_BELIEVING = "noauth2"
_EVERYBODY = (
    "[api] auth_strategy is noauth2, so every caller on this machine is believed, and the user admin may "
    "do everything. For development only."
)


class Serve(ActionCommand):
    """Run the service."""

    arguments = (
        argument("--host", default=_HOST, help="address to listen on (default %(default)s)"),
        argument("--port", type=port_number, default=_PORT, help="port to listen on (default %(default)s)"),
        argument(
            "--workers",
            type=positive,
            help="worker processes (default as many as there are cores, at most four)",
        ),
        argument(
            "--auth",
            choices=("keystone", "token", _BELIEVING),
            help="how callers are identified, before any configuration; noauth2 believes every caller on "
            "this machine",
        ),
        argument(
            "--demo",
            action="store_true",
            help="load the example clusters into an empty database, and believe every caller on this machine "
            "unless something else is configured",
        ),
        argument(
            "--allow-remote-noauth",
            action="store_true",
            help="also believe callers on other machines, and listen beyond loopback",
        ),
        argument(
            "--tls-cert", metavar="FILE", help="speak TLS with this certificate, before any configuration"
        ),
        argument("--tls-key", metavar="FILE", help="its key"),
        argument(
            "--tls-client-ca",
            metavar="FILE",
            help="answer only clients with a certificate of this authority, except for probes",
        ),
        *OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Make the database ready and serve until stopped."""
        was_enabled = gc.isenabled()
        # To look for garbage among what is imported takes a seventh of the start; `Server` goes on with it.
        gc.disable()
        try:
            self._serve(parsed_args)
        finally:
            if was_enabled:
                gc.enable()

    def _serve(self, parsed_args: argparse.Namespace) -> None:
        from placement.metrics import sharing

        # Before anything is imported that counts.
        sharing.share()
        from placement.common import secrets
        from placement.server import demonstration, settings
        from placement.server.ports import listening
        from placement.server.preparation import prepare
        from placement.server.processes import Server, default_workers

        loaded = _configure(parsed_args)
        host, port = parsed_args.host, parsed_args.port
        url = settings.connection_of(loaded)
        tls = settings.tls_of(loaded)
        workers = parsed_args.workers or default_workers()
        settings.warn(loaded)
        listener = listening(host, port)
        version = settings.make_ready(loaded)
        os.environ[settings.MADE_READY_VARIABLE] = "1"
        _SERVICE_LOG.info(
            "%s %s, Python %s", DISTRIBUTION, package_version(DISTRIBUTION), platform.python_version()
        )
        _SERVICE_LOG.info("database %s, schema %s", secrets.shown(url), version)
        _SERVICE_LOG.info("callers: %s; workers: %d", loaded.api.auth_strategy, workers)
        _SERVICE_LOG.info(
            "TLS: %s", "no" if tls is None else f"yes, with the certificate in {tls.files.certificate}"
        )
        if parsed_args.demo:
            demonstration.load_into_empty(url)

        def greet() -> None:
            if loaded.api.auth_strategy == _BELIEVING:
                print(_EVERYBODY)
            demonstration.greet(host, port, url, with_examples=parsed_args.demo, encrypted=tls is not None)

        Server(listener, workers, lambda: settings.limits_of(prepare()), greet, tls).run()


def _configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration that the arguments choose, and leave it in the environment for workers.

    Tokens and rules are read here: what workers cannot use would only show when they start, one after the
    other. Raises PlacementError, also where every caller on other machines would be believed.
    """
    from placement.http.policy_files import is_set
    from placement.server import settings
    from placement.server.preparation import prepare

    name_sources(parsed, default=settings.DEMONSTRATION if parsed.demo else None)
    if parsed.allow_remote_noauth:
        os.environ[settings.REMOTE_VARIABLE] = "True"
    for variable, file in zip(
        settings.TLS_VARIABLES, (parsed.tls_cert, parsed.tls_key, parsed.tls_client_ca), strict=True
    ):
        if file:
            os.environ[variable] = file
    chosen, (loaded, _) = parsed.auth, settings.read()
    if chosen is None and parsed.demo and not is_set(loaded, "api", "auth_strategy"):
        chosen = _BELIEVING
    if chosen is not None:
        os.environ[settings.STRATEGY_VARIABLE] = chosen
    if chosen == _BELIEVING and not settings.sets_new_defaults(loaded):
        # The user admin passes every rule, unless the configuration says otherwise.
        os.environ[settings.NEW_DEFAULTS_VARIABLE] = "False"
    loaded, problems = settings.read()
    if not problems:
        settings.start_logging(loaded)
    prepare()
    believing = loaded.api.auth_strategy == _BELIEVING and not loaded.api.allow_remote_noauth
    if believing and not is_loopback(parsed.host):
        raise PlacementError(
            f"--host: {parsed.host} is not a loopback address, and with auth_strategy noauth2 every caller "
            "is believed. Listen on 127.0.0.1, or give --allow-remote-noauth if you want that."
        )
    return loaded
