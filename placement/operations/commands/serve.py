"""`placement serve`: running the service."""

from __future__ import annotations

import argparse
import ipaddress
import os
from typing import TYPE_CHECKING

from placement.domain.errors import PlacementError
from placement.operations.commands import connection
from placement.operations.commands.display import Action

if TYPE_CHECKING:
    from oslo_config import cfg

_HOST = "127.0.0.1"
_PORT = 8778


class Serve(Action):
    """Run the service."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Where to listen and what on."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--host", default=_HOST, help="address to listen on (default %(default)s)")
        parser.add_argument("--port", type=int, default=_PORT, help="port to listen on (default %(default)s)")
        parser.add_argument("--workers", type=_positive, help="worker processes")
        parser.add_argument(
            "--demo", action="store_true", help="load the example clusters into an empty database"
        )
        parser.add_argument(
            "--allow-remote-noauth",
            action="store_true",
            help="listen beyond loopback although every caller is believed",
        )
        connection.add_options(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Make the database ready and serve until stopped."""
        from placement.operations import demonstration, settings
        from placement.operations.server import Server, default_workers, listening
        from placement.services.ordering import order_of_text

        loaded = connection.configure(parsed_args)
        if not settings.configuration_files() and not settings.is_set(loaded, "api", "auth_strategy"):
            loaded = _develop()
        host, port = parsed_args.host, parsed_args.port
        believing = loaded.api.auth_strategy == "noauth2" and not parsed_args.allow_remote_noauth
        if believing and not _is_loopback(host):
            raise PlacementError(
                f"--host: {host} is not a loopback address, and with auth_strategy noauth2 every caller is "
                "believed. Listen on 127.0.0.1, or give --allow-remote-noauth if that is what you want."
            )
        url = settings.connection_of(loaded)
        # A bad order would only show when the workers start, one after the other.
        order_of_text(loaded.scoring.order_by, "[scoring] order_by")
        settings.start_logging(loaded)
        listener = listening(host, port)
        settings.make_ready(loaded)
        os.environ[settings.MADE_READY_VARIABLE] = "1"
        if parsed_args.demo:
            demonstration.load_into_empty(url)
        workers = default_workers() if parsed_args.workers is None else parsed_args.workers

        def greet() -> None:
            demonstration.greet(host, port, url, with_examples=parsed_args.demo)

        Server(listener, workers, settings.limits_of(loaded), greet).run()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _develop() -> cfg.ConfigOpts:
    """Choose what lets a developer in: nobody has configured who may."""
    from placement.operations import settings

    os.environ[settings.STRATEGY_VARIABLE] = "noauth2"
    os.environ.setdefault(settings.NEW_DEFAULTS_VARIABLE, "False")
    print(
        "No configuration: [api] auth_strategy is noauth2, so every caller is believed, and the user admin "
        "may do everything. For development only."
    )
    return settings.load()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
