"""The `placement` command: options that every command understands, and how failures are shown."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, version
from itertools import groupby, takewhile
from typing import Any

from cliff.app import App
from cliff.command import Command
from cliff.commandmanager import CommandManager
from cliff.help import HelpCommand

from placement import DISTRIBUTION
from placement.client.arguments import Argument, UsageError, add_explained, argument
from placement.client.catalog import COMMANDS
from placement.client.parsers import parsers
from placement.client.terminal import RED, harmless, paint
from placement.engine.domain.identifiers import near

_OF_KUBECTL = {"cordon", "drain", "label", "taint", "uncordon"}
_OF_CLIFF = {"complete", "help"}


class Catalog(CommandManager):
    """A command manager that knows the commands of this package, and looks for none in others."""

    def __init__(self) -> None:
        super().__init__()
        for name, entry in COMMANDS.items():
            self.commands[name] = EntryPoint(name, entry.place, "placement.commands")

    def add_command(self, name: str, command_class: type[Command]) -> None:
        """Add a command, except for the ones that cliff adds to every program: ours are better."""
        if name not in _OF_CLIFF:
            super().add_command(name, command_class)


URL_VARIABLE = "PLACEMENT_URL"
TOKEN_VARIABLE = "PLACEMENT_TOKEN"
_DEFAULT_URL = "http://127.0.0.1:8778"
_DEFAULT_TOKEN = "admin"
_BROKEN_PIPE_EXIT = 141


def main(arguments: Sequence[str] | None = None, program: str | None = None) -> int:
    """Run one command and return the exit code; `program` has this command only, and its help that name."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        exit_code = Placement(program).run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output closed it; the interpreter shall not complain while it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE_EXIT
    return exit_code


class _ErrorLines(logging.Formatter):
    """A format of errors, which may quote what strangers wrote: lines of theirs do not begin as ours do."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text with its further lines indented."""
        first, *more = super().format(record).split("\n")
        return "\n".join([harmless(first), *(f"  {harmless(line.removeprefix('  '))}" for line in more)])


class Placement(App):
    """A run of the command."""

    NAME = "placement"
    # Not the root logger: `serve` leaves that to the worker processes.
    LOG = logging.getLogger("placement.command")

    def __init__(self, program: str | None = None) -> None:
        self.program = program
        super().__init__("A resource allocation service.", None, Catalog(), deferred_help=True)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        """Return a parser of the options that every command understands."""
        # Abbreviations could swallow options of a command.
        parser = argparse.ArgumentParser(
            self.NAME,
            usage="%(prog)s [OPTION]... COMMAND [ARGUMENT]...",
            description=description,
            add_help=False,
            allow_abbrev=False,
        )
        add_explained(parser, self.global_options())
        return parser

    def global_options(self) -> list[Argument]:
        """Return the options that may stand before or behind any command, --help first."""
        return [
            argument("-h", "--help", dest="deferred_help", action="store_true", help="show this list"),
            argument("--version", action=_Version, help="print the version"),
            argument("--debug", action="store_true", help="show tracebacks on errors"),
            argument(
                "--url",
                default=os.environ.get(URL_VARIABLE) or _DEFAULT_URL,
                help=f"service that client commands talk to (default ${URL_VARIABLE}, else {_DEFAULT_URL})",
            ),
            argument(
                "--token",
                default=os.environ.get(TOKEN_VARIABLE) or _DEFAULT_TOKEN,
                help=f"token of the caller (default ${TOKEN_VARIABLE}, else {_DEFAULT_TOKEN})",
            ),
        ]

    def configure_logging(self) -> None:
        """Write errors to standard error, a line each."""
        handler = logging.StreamHandler(self.stderr)
        begin = paint(f"{self.NAME}:", RED, self.stderr)
        handler.setFormatter(_ErrorLines(f"{begin} %(message)s"))
        # A process may run several commands, each with streams of its own.
        self.LOG.handlers[:] = [handler]
        # The logging of the service, once it is set up, would repeat each line.
        self.LOG.propagate = False

    def interact(self) -> None:
        """List the commands where none is given, and exit."""
        self.list_commands()
        raise SystemExit(0)

    def print_help_if_requested(self) -> None:
        """Show the commands if that is all that was asked for."""
        if self.options.deferred_help:
            self.interact()

    def list_commands(self) -> None:
        """Print the options that stand before any command, and all commands by section."""
        self.parser.print_help(self.stdout)
        known = {command.name: command for command in parsers(self)}
        for section, entries in groupby(COMMANDS.items(), lambda named: named[1].section):
            print(f"\n{section}:", file=self.stdout)
            for name, _ in entries:
                print(f"  {name:22}{known[name].summary.rstrip('.')}", file=self.stdout)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run the command that the arguments begin with."""
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            self.LOG.error(self._unknown(argv))
            return UsageError.exit_status
        return super().run_subcommand(argv)

    def _unknown(self, argv: Sequence[str]) -> str:
        """Return the error for words that begin no command, with the commands that were probably meant."""
        if argv[0].startswith("-"):
            return f"{argv[0]}: no such option; `{self.NAME} --help` lists them"
        words = list(takewhile(lambda word: not word.startswith("-"), argv))
        if words[:1] == ["node"] and _OF_KUBECTL.intersection(words[1:2]):
            return f"{' '.join(words[:2])}: no such command; `kubectl {words[1]}` does it"
        names = sorted(name for name, _ in self.command_manager)
        in_group = [name for name in names if name.split()[0] == words[0]]
        meant = _meant_in_group(words, in_group) if in_group else self._meant_anywhere(words, names)
        typed = words[:1] if in_group and len(words) == 1 else words[:2]
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"`{self.NAME} --help` lists them"
        return f"{' '.join(typed)}: no such command; {hint}"

    def _meant_anywhere(self, words: Sequence[str], names: Sequence[str]) -> Sequence[str]:
        """Return the commands that are like these words, begin like them, or do what they say."""
        if like := near(" ".join(words[:2]), names):
            return like
        groups = near(words[0], {name.split()[0] for name in names})
        if begun := [name for name in names if name.split()[0] in groups]:
            return begun
        # Commands are called by what they do, too: `release`.
        return [each.name for each in parsers(self) if each.summary.lower().startswith(f"{words[0]} ")]


def _meant_in_group(words: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the commands of a group that are like these words, or all of them."""
    if len(words) == 1:
        return names
    # The group is right, so only the second word is wrong.
    verbs = {name.split()[1]: name for name in names if " " in name}
    return [verbs[verb] for verb in near(words[1], verbs)] or names


class _Version(argparse.Action):
    """An option that prints the version, which is looked up only then, as that takes a while."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"placement {version(DISTRIBUTION)}")
        parser.exit()


class Help(HelpCommand):
    """Explain a command, or list all of them."""

    app: Any

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = Command.get_parser(self, prog_name)
        self.explained = add_explained(parser, [argument("cmd", nargs="*", help="name of the command")])
        return parser

    def get_epilog(self) -> str:
        """Return nothing, as cliff would read the files of all packages to name the one of this command."""
        return ""

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.cmd:
            return super().take_action(parsed_args)
        self.app.list_commands()
        return 0
