"""`placement man`: manual pages, written from the parsers of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from placement import DISTRIBUTION
from placement.client.arguments import ExplainedArgument, add_explained, argument
from placement.client.client import AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from placement.client.command import ActionCommand
from placement.client.parsers import CommandParser, parsers
from placement.engine.domain.errors import PlacementError

_SECTION = 1
_ENVIRONMENT = {
    "PLACEMENT_URL": "the service that commands ask, unless --url names it",
    "PLACEMENT_TOKEN": "the token of the caller, unless --token gives one",
    AUTHORITY_VARIABLE: "a file with the certificates of the authorities to trust",
    CERTIFICATE_VARIABLE: "a file with the client certificate",
    KEY_VARIABLE: "a file with its key, if the key is in a separate file",
    "COLUMNS": "the width of tables, instead of that of the terminal",
    "CLIFF_FIT_WIDTH": "if it is 1, tables also fit that width in pipes and files",
    "NO_COLOR": "if it is set, output has no colours",
}
_HELP = ("-h, --help", "show this help message and exit")
_EXIT = {
    "0": "done",
    "1": "refused or failed; also where a request fits nowhere",
    "2": "the arguments are wrong",
    "141": "the reader of the output has gone away",
}


class WriteManual(ActionCommand):
    """Write manual pages into a directory, a page for each command.

    man placement-node-show finds them if the directory is the man1 of a directory in $MANPATH.
    """

    app: Any
    arguments = (argument("directory", metavar="DIRECTORY", help="directory to write to; it is created"),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        directory = Path(parsed_args.directory)
        commands = list(parsers(self.app))
        arguments = add_explained(argparse.ArgumentParser(add_help=False), self.app.global_options())
        pages = {"placement": _main_page(arguments, commands)}
        pages |= {_title(command): _page(command) for command in commands}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for title, lines in pages.items():
                (directory / f"{title}.{_SECTION}").write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise PlacementError(f"{parsed_args.directory}: {error.strerror}") from None
        print(f"{len(pages)} pages written.")


def _main_page(arguments: Iterable[ExplainedArgument], commands: list[CommandParser]) -> Iterator[str]:
    yield from _begun("placement", "a resource allocation service and its client")
    yield from (".SH SYNOPSIS", ".B placement", "[OPTION]... COMMAND [ARGUMENT]...")
    yield ".SH COMMANDS"
    for command in commands:
        yield from (".TP", f".BR {_title(command)} (1)", _text(command.summary))
    yield from _listed("OPTIONS", [_explained(*each) for each in arguments])
    yield from _listed("ENVIRONMENT", list(_ENVIRONMENT.items()))
    yield from _listed("EXIT STATUS", list(_EXIT.items()))


def _page(command: CommandParser) -> Iterator[str]:
    summary = command.summary.rstrip(".")
    yield from _begun(_title(command), summary[:1].lower() + summary[1:])
    usage = " ".join(command.parser.format_usage().removeprefix("usage: ").split())
    yield from (".SH SYNOPSIS", _text(usage))
    yield ".SH DESCRIPTION"
    for line in command.description.splitlines():
        yield _text(line) if line else ".PP"
    if command.operands:
        yield from _listed("ARGUMENTS", [_explained(*each) for each in command.operands])
    yield from _listed("OPTIONS", [_HELP, *(_explained(*each) for each in command.options)])
    yield from (".SH EXAMPLE", _text(command.example))
    yield from (".SH SEE ALSO", ".BR placement (1)")


def _begun(title: str, summary: str) -> Iterator[str]:
    yield f'.TH {_text(title.upper())} {_SECTION} "" "{DISTRIBUTION} {version(DISTRIBUTION)}"'
    # Words that are as long as a line cannot be stretched to both margins.
    yield ".ad l"
    yield from (".SH NAME", f"{_text(title)} \\- {_text(summary)}")


def _explained(action: argparse.Action, meaning: str) -> tuple[str, str]:
    """Return an argument as it is written, and its meaning with the values that are named in it."""
    return _written(action), meaning % {**vars(action), "prog": "placement"}


def _listed(heading: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {heading}"
    for name, meaning in entries:
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(meaning))


def _title(command: CommandParser) -> str:
    return f"placement-{command.name.replace(' ', '-')}"


def _written(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    shown = ", ".join(action.option_strings)
    return shown if action.nargs == 0 else f"{shown} {value}"


def _text(text: str) -> str:
    """Return the text on one line, escaped so that troff takes none of it for a request."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
