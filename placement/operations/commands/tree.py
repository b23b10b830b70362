"""`placement tree`: the tree that a provider is in."""

from __future__ import annotations

import argparse
from typing import Any

from placement.operations.commands import provider_tree
from placement.operations.commands.arguments import argument
from placement.operations.commands.display import DRAWING, Drawing
from placement.operations.commands.drawing import draw


class TreeDrawing(Drawing):
    """A command that draws a provider tree."""

    def drawn(self, parsed_args: argparse.Namespace, root: provider_tree.Provider) -> tuple[Any, list[Any]]:
        """The tree as lines or as rows, whatever format was asked for."""
        if parsed_args.formatter == DRAWING:
            return ("Tree",), [(line,) for line in draw(root, self.app.stdout)]
        return provider_tree.COLUMNS, list(provider_tree.rows(root))


class ShowTree(TreeDrawing):
    """Draw the tree that a provider is in, with capacity and use."""

    arguments = (argument("provider", metavar="UUID_OR_NAME", help="any provider of the tree"),)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Fetch and draw."""
        return self.drawn(parsed_args, provider_tree.fetch(self.client, parsed_args.provider))
