"""`placement help`: what commands there are, or what one of them does."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.help import HelpCommand


class Help(HelpCommand):
    """Explain a command, or list all of them."""

    app: Any

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the help of a command; without one the list."""
        if parsed_args.cmd:
            return super().take_action(parsed_args)
        self.app.list_commands()
        return 0
