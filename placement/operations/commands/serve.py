"""`placement serve`: running the service."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from placement.domain.errors import PlacementError
from placement.domain.identifiers import is_loopback
from placement.operations.commands import connection
from placement.operations.commands.arguments import argument, port_number, positive
from placement.operations.commands.display import Action

if TYPE_CHECKING:
    from oslo_config import cfg

_HOST = "127.0.0.1"
_PORT = 8778
_BELIEVING = "noauth2"
_EVERYBODY = (
    "[api] auth_strategy is noauth2, so every caller on this machine is believed, and the user admin may "
    "do everything. For development only."
)


class Serve(Action):
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
            help="believe callers on other machines, too, and listen beyond loopback",
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
        *connection.OPTIONS,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Make the database ready and serve until stopped."""
        from placement.metrics import sharing

        # Before anything is imported that counts.
        sharing.share()
        from placement.operations import demonstration, settings
        from placement.operations.reloading import prepare
        from placement.operations.server import Server, default_workers, listening

        loaded = _configure(parsed_args)
        settings.require_strategy(loaded)
        host, port = parsed_args.host, parsed_args.port
        _refuse_strangers(host, loaded)
        url = settings.connection_of(loaded)
        tls = settings.tls_of(loaded)
        settings.start_logging(loaded)
        # What workers cannot use would only show when they start, one after the other.
        prepare()
        settings.warn_of_open_secrets(loaded)
        listener = listening(host, port)
        settings.make_ready(loaded)
        os.environ[settings.MADE_READY_VARIABLE] = "1"
        if parsed_args.demo:
            demonstration.load_into_empty(url)
        workers = default_workers() if parsed_args.workers is None else parsed_args.workers

        def greet() -> None:
            if loaded.api.auth_strategy == _BELIEVING:
                print(_EVERYBODY)
            demonstration.greet(host, port, url, with_examples=parsed_args.demo, encrypted=tls is not None)

        Server(listener, workers, lambda: settings.limits_of(settings.load()), greet, tls).run()


def _configure(parsed: argparse.Namespace) -> cfg.ConfigOpts:
    """The configuration with what the arguments choose, left in the environment for the workers."""
    from placement.operations import settings

    loaded = connection.configure(parsed, default=connection.DEMONSTRATION if parsed.demo else None)
    settings.connection_of(loaded)
    if parsed.allow_remote_noauth:
        os.environ[settings.REMOTE_VARIABLE] = "True"
    for variable, file in zip(
        settings.TLS_VARIABLES, (parsed.tls_cert, parsed.tls_key, parsed.tls_client_ca), strict=True
    ):
        if file:
            os.environ[variable] = file
    chosen = parsed.auth
    if chosen is None and parsed.demo and not settings.is_set(loaded, "api", "auth_strategy"):
        chosen = _BELIEVING
    if chosen is not None:
        os.environ[settings.STRATEGY_VARIABLE] = chosen
    if chosen == _BELIEVING:
        _develop()
    return settings.load()


def _develop() -> None:
    """Let the user admin pass every rule, unless the configuration says otherwise."""
    from placement.operations import settings

    if not settings.sets_new_defaults():
        os.environ[settings.NEW_DEFAULTS_VARIABLE] = "False"


def _refuse_strangers(host: str, loaded: cfg.ConfigOpts) -> None:
    believing = loaded.api.auth_strategy == _BELIEVING and not loaded.api.allow_remote_noauth
    if believing and not is_loopback(host):
        raise PlacementError(
            f"--host: {host} is not a loopback address, and with auth_strategy noauth2 every caller is "
            "believed. Listen on 127.0.0.1, or give --allow-remote-noauth if that is what you want."
        )
