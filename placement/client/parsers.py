"""The parsers of all commands, for what is written from them: help, completion and manual pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from placement.client.arguments import ExplainedArgument
from placement.client.catalog import COMMANDS

if TYPE_CHECKING:
    from cliff.app import App


class CommandParser(NamedTuple):
    """A command, such as `node show`, with its parser, its arguments, what it does, and an example."""

    name: str
    parser: argparse.ArgumentParser
    arguments: Sequence[ExplainedArgument]
    description: str
    example: str

    @property
    def summary(self) -> str:
        """Return what it does in one sentence."""
        return self.description.splitlines()[0]

    @property
    def options(self) -> list[ExplainedArgument]:
        """Return its options, without --help and the hidden ones."""
        return [
            each
            for each in self.arguments
            if each.action.option_strings and each.meaning != argparse.SUPPRESS
        ]

    @property
    def operands(self) -> list[ExplainedArgument]:
        """Return the arguments that it takes beside options."""
        return [each for each in self.arguments if not each.action.option_strings]


def parsers(app: App) -> Iterator[CommandParser]:
    """Yield the parsers of all commands in alphabetical order."""
    for name, place in sorted(app.command_manager):
        command: Any = place.load()(app, None, name)
        parser = command.get_parser(f"{app.NAME} {name}")
        example = f"{app.NAME} {name} {COMMANDS[name].example}".rstrip()
        yield CommandParser(name, parser, command.explained, command.get_description(), example)
