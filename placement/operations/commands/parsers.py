"""The parsers of all commands, for what is written from them: completion and manual pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cliff.app import App


class CommandParser(NamedTuple):
    """A command, such as `node show`, with its parser and what it does in one sentence."""

    name: str
    parser: argparse.ArgumentParser
    summary: str

    @property
    def options(self) -> list[argparse.Action]:
        """Its options, without those that are not shown."""
        return [
            action
            for action in self.parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]

    @property
    def operands(self) -> list[argparse.Action]:
        """What it takes beside options."""
        return [action for action in self.parser._actions if not action.option_strings]


def parsers(app: App) -> Iterator[CommandParser]:
    """Every command in alphabetical order."""
    for name, place in sorted(app.command_manager):
        command = place.load()(app, None)
        parser = command.get_parser(f"{app.NAME} {name}")
        summary = command.get_description().splitlines()[0]
        yield CommandParser(name, parser, summary)


def explained(action: argparse.Action) -> str:
    """The help of an option with its default filled in."""
    values = {**vars(action), "prog": "placement"}
    return (action.help or "") % values if "%(" in (action.help or "") else (action.help or "")
