"""The `placement` command: options that every command understands, and how failures are shown."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, version
from itertools import takewhile
from typing import Any

from cliff.app import App
from cliff.command import Command
from cliff.commandmanager import CommandManager
from cliff.help import HelpCommand

from placement import DISTRIBUTION
from placement.client.completion import parsers
from placement.client.formats import RED, painted

# The commands, and where they live; a command is imported when it is wanted.


_COMMANDS = {
    "serve": "server.commands:Serve",
    "config check": "server.commands:CheckConfiguration",
    "db upgrade": "server.commands:Upgrade",
    "db version": "server.commands:ShowSchemaVersion",
    "db check": "server.commands:CheckDatabase",
    "import": "migrate.commands:ImportIncumbent",
    "export": "migrate.commands:ExportIncumbent",
    "verify": "migrate.commands:VerifyServices",
    "candidates": "client.commands.candidates:ListCandidates",
    "explain": "client.commands.candidates:ExplainRequest",
    "capacity": "client.commands.capacity:ShowCapacity",
    "plan make": "client.commands.plan:MakePlan",
    "plan show": "client.commands.plan:ShowPlan",
    "plan check": "client.commands.plan:CheckPlan",
    "plan apply": "client.commands.plan:ApplyPlan",
    "claim": "client.commands.claim:ClaimRequest",
    "tree": "client.commands.node:ShowTree",
    "cluster list": "client.commands.cluster:ListClusters",
    "cluster show": "client.commands.cluster:ShowCluster",
    "cluster create": "client.commands.cluster:CreateCluster",
    "cluster set": "client.commands.cluster:SetCluster",
    "cluster unset": "client.commands.cluster:UnsetCluster",
    "cluster delete": "client.commands.cluster:DeleteCluster",
    "node list": "client.commands.node:ListNodes",
    "node show": "client.commands.node:ShowNode",
    "node import": "client.commands.node:ImportNodes",
    "node delete": "client.commands.node:DeleteNode",
    "pod list": "client.commands.pod:ListPods",
    "pod show": "client.commands.pod:ShowPod",
    "pod create": "client.commands.pod:CreatePods",
    "pod delete": "client.commands.pod:DeletePod",
    "pod preview": "client.commands.pod:PreviewPod",
    "pod explain": "client.commands.pod:ExplainPod",
    "pod translate": "client.commands.pod:TranslatePod",
    "reservation list": "client.commands.reservation:ListReservations",
    "reservation show": "client.commands.reservation:ShowReservation",
    "reservation create": "client.commands.reservation:CreateReservations",
    "reservation delete": "client.commands.reservation:DeleteReservation",
    "allocation list": "client.commands.allocation:ListAllocations",
    "allocation show": "client.commands.allocation:ShowAllocation",
    "allocation delete": "client.commands.allocation:DeleteAllocation",
    "audit": "client.commands.audit:ListAudit",
    "sync kubernetes": "sync.command:SyncKubernetes",
    "flavor translate": "client.commands.flavor:TranslateFlavor",
    "flavor candidates": "client.commands.flavor:ListFlavorCandidates",
    "flavor explain": "client.commands.flavor:ExplainFlavor",
    "completion": "client.completion:PrintCompletion",
    "help": "client.cli:Help",
    "man": "client.completion:WriteManual",
}


_OF_CLIFF = {"complete", "help"}
_PREFIX = "placement"
_LOCAL = {"serve", "config", "db", "import", "export", "verify", "completion", "help", "man"}
"""First words of commands that are no question to one service, so the `openstack` client lacks them."""


def entry_points() -> dict[str, str]:
    """Return the commands that the `openstack` client has, too, as entry points of pyproject.toml."""
    return {
        f"{_PREFIX}_{name.replace(' ', '_')}": f"placement.{place}"
        for name, place in _COMMANDS.items()
        if name.split()[0] not in _LOCAL
    }


class Catalog(CommandManager):
    """A command manager that knows the commands of this package, and looks for none in others."""

    def __init__(self) -> None:
        super().__init__()
        for name, place in _COMMANDS.items():
            self.commands[name] = EntryPoint(name, f"placement.{place}", "placement.commands")

    def add_command(self, name: str, command_class: type[Command]) -> None:
        """Add a command, except for the ones that cliff adds to every program: ours are better."""
        if name not in _OF_CLIFF:
            super().add_command(name, command_class)


URL_VARIABLE = "PLACEMENT_URL"
TOKEN_VARIABLE = "PLACEMENT_TOKEN"
_DEFAULT_URL = "http://127.0.0.1:8778"
_DEFAULT_TOKEN = "admin"
_BROKEN_PIPE_EXIT = 141
_USAGE_EXIT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
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
    """A run of the command."""

    NAME = "placement"
    # Not the root logger: `serve` leaves that to the worker processes.
    LOG = logging.getLogger("placement.command")

    def __init__(self) -> None:
        super().__init__("A resource allocation service.", None, Catalog(), deferred_help=True)

    def build_option_parser(
        self, description: str | None, version: str | None, argparse_kwargs: object = None
    ) -> argparse.ArgumentParser:
        """Return a parser of the options that may stand before or behind any command."""
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
        """Write errors to standard error, a line each."""
        handler = logging.StreamHandler(self.stderr)
        begin = painted(f"{self.NAME}:", RED, self.stderr)
        handler.setFormatter(logging.Formatter(f"{begin} %(message)s"))
        self.LOG.addHandler(handler)
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
        """Return the error for words that begin no command, with the commands that were probably meant."""
        if argv[0].startswith("-"):
            return f"{argv[0]}: no such option; `{self.NAME} --help` lists them"
        words = list(takewhile(lambda word: not word.startswith("-"), argv))
        names = sorted(name for name, _ in self.command_manager)
        below = [name for name in names if name.split()[0] == words[0]]
        typed = words[:1]
        if below and len(words) > 1:
            # The group is right, so only the second word is wrong.
            typed = words[:2]
            verbs = {name.split()[1]: name for name in below if " " in name}
            below = [verbs[verb] for verb in _near(words[1], verbs)] or below
        elif not below:
            typed = words[:2]
            starts = {name.split()[0] for name in names}
            below = _near(" ".join(words[:2]), names) or [
                name for name in names if name.split()[0] in _near(words[0], starts)
            ]
        near = f"did you mean {' or '.join(below)}?" if below else f"`{self.NAME} --help` lists them"
        return f"{' '.join(typed)}: no such command; {near}"


def _near(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, known, n=3, cutoff=0.6)


class _Version(argparse.Action):
    """An option that prints the version, which is looked up only then, as that takes a while."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"placement {version(DISTRIBUTION)}")
        parser.exit()


# `placement help`: what commands there are, or what one of them does.


class Help(HelpCommand):
    """Explain a command, or list all of them."""

    app: Any

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.cmd:
            return super().take_action(parsed_args)
        self.app.list_commands()
        return 0
