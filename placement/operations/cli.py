"""The `placement` command: options that every command understands, and how failures are shown."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import takewhile

from cliff.app import App

from placement import DISTRIBUTION
from placement.operations.commands.catalog import Catalog
from placement.operations.commands.colour import RED, painted
from placement.operations.commands.parsers import parsers

URL_VARIABLE = "PLACEMENT_URL"
TOKEN_VARIABLE = "PLACEMENT_TOKEN"
_DEFAULT_URL = "http://127.0.0.1:8778"
_DEFAULT_TOKEN = "admin"
_BROKEN_PIPE_EXIT = 141
_USAGE_EXIT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        exit_code = Placement().run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output closed it; the interpreter shall not complain while it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE_EXIT
    return exit_code


class Placement(App):
    """One run of the command."""

    NAME = "placement"
    # Not the root logger: `serve` leaves that to the worker processes.
    LOG = logging.getLogger("placement.command")

    def __init__(self) -> None:
        super().__init__("A resource allocation service.", None, Catalog(), deferred_help=True)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        """The options that may stand before or behind any command."""
        # Abbreviations could swallow options of a command.
        parser = argparse.ArgumentParser(
            self.NAME, description=description, add_help=False, allow_abbrev=False
        )
        parser.add_argument("-h", "--help", dest="deferred_help", action="store_true", help="show this list")
        parser.add_argument("--version", action=_Version, help="print the version")
        parser.add_argument("--debug", action="store_true", help="show tracebacks on errors")
        parser.add_argument(
            "--url",
            default=os.environ.get(URL_VARIABLE) or _DEFAULT_URL,
            help=f"service that client commands talk to (default ${URL_VARIABLE}, else {_DEFAULT_URL})",
        )
        parser.add_argument(
            "--token",
            default=os.environ.get(TOKEN_VARIABLE) or _DEFAULT_TOKEN,
            help=f"what they identify themselves with (default ${TOKEN_VARIABLE}, else {_DEFAULT_TOKEN})",
        )
        return parser

    def configure_logging(self) -> None:
        """Errors go to standard error, a line each."""
        handler = logging.StreamHandler(self.stderr)
        begin = painted(f"{self.NAME}:", RED, self.stderr)
        handler.setFormatter(logging.Formatter(f"{begin} %(message)s"))
        self.LOG.addHandler(handler)
        # The logging of the service, once it is set up, would say the same again.
        self.LOG.propagate = False

    def interact(self) -> None:
        """Without a command there is nothing to do but to show them."""
        self.list_commands()
        raise SystemExit(0)

    def print_help_if_requested(self) -> None:
        """Show the commands if that is all that was asked for."""
        if self.options.deferred_help:
            self.interact()

    def list_commands(self) -> None:
        """Print the options that stand before any command, and all commands."""
        self.parser.print_help(self.stdout)
        print("\ncommands:", file=self.stdout)
        for command in parsers(self):
            print(f"  {command.name:22}{command.summary.rstrip('.')}", file=self.stdout)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run the command that the arguments begin with."""
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            self.LOG.error(self._unknown(argv))
            return _USAGE_EXIT
        return super().run_subcommand(argv)

    def _unknown(self, argv: Sequence[str]) -> str:
        """What is said about words that begin no command, with those that were probably meant."""
        if argv[0].startswith("-"):
            return f"{argv[0]}: no such option; `{self.NAME} --help` lists them"
        words = list(takewhile(lambda word: not word.startswith("-"), argv))
        names = sorted(name for name, _ in self.command_manager)
        below = [name for name in names if name.split()[0] == words[0]]
        told = words[:1]
        if below and len(words) > 1:
            # The group is right, so only the second word is wrong.
            told = words[:2]
            verbs = {name.split()[1]: name for name in below if " " in name}
            below = [verbs[verb] for verb in _near(words[1], verbs)] or below
        elif not below:
            told = words[:2]
            starts = {name.split()[0] for name in names}
            below = _near(" ".join(words[:2]), names) or [
                name for name in names if name.split()[0] in _near(words[0], starts)
            ]
        near = f"did you mean {' or '.join(below)}?" if below else f"`{self.NAME} --help` lists them"
        return f"{' '.join(told)}: no such command; {near}"


def _near(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, known, n=3, cutoff=0.6)


class _Version(argparse.Action):
    """Prints the version; looking it up takes a while, so only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"placement {version(DISTRIBUTION)}")
        parser.exit()
