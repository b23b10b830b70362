"""`placement verify`: whether two running services say the same."""

from __future__ import annotations

import argparse

from placement.operations.commands.arguments import argument, positive
from placement.operations.commands.display import Action
from placement.operations.commands.moving import Meter


class VerifyServices(Action):
    """Compare two running placement services, ours or OpenStack Placement's, by reading both over HTTP.

    Prints what differs, and ends with 1 if anything does. Whoever asks needs the right to read everything.
    """

    arguments = (
        argument("url_a", metavar="URL_A", help="one service"),
        argument("url_b", metavar="URL_B", help="the other one"),
        argument("--token-b", metavar="TOKEN", help="identification at B, if it is another than --token"),
        argument(
            "--sample", type=positive, metavar="N", help="read only so many providers, chosen by chance"
        ),
        argument(
            "--clients", type=positive, default=4, metavar="N", help="readers at once (default %(default)s)"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Compare and print; 1 if anything differs."""
        from placement.operations.agreement import Comparison
        from placement.operations.client import Client

        token = self.app.options.token
        token_b = token if parsed_args.token_b is None else parsed_args.token_b
        found = Comparison(
            lambda: Client(parsed_args.url_a, token),
            lambda: Client(parsed_args.url_b, token_b),
            parsed_args.clients,
        ).run(parsed_args.sample, Meter())
        for difference in found.differences:
            print(difference)
        compared = ", ".join(f"{count} {what}" for what, count in found.compared.items())
        outcome = f"{len(found.differences)} differences" if found.differences else "no difference"
        print(f"{compared}: {outcome}.")
        return 1 if found.differences else 0
