"""`placement completion`: what shells need to complete commands, options and the values to choose from."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from placement import DISTRIBUTION
from placement.client.catalog import COMMANDS
from placement.client.client import AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from placement.client.display import ActionCommand, argument
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from cliff.app import App


# The parsers of all commands, for what is written from them: completion and manual pages.


class CommandParser(NamedTuple):
    """A command, such as `node show`, with its parser and what it does in one sentence."""

    name: str
    parser: argparse.ArgumentParser
    summary: str
    example: str = ""

    @property
    def options(self) -> list[argparse.Action]:
        """Return its options, without the hidden ones."""
        return [
            action
            for action in self.parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]

    @property
    def operands(self) -> list[argparse.Action]:
        """Return the arguments that it takes beside options."""
        return [action for action in self.parser._actions if not action.option_strings]


def parsers(app: App) -> Iterator[CommandParser]:
    """Yield every command in alphabetical order."""
    for name, place in sorted(app.command_manager):
        command = place.load()(app, None, name)
        parser = command.get_parser(f"{app.NAME} {name}")
        summary = command.get_description().splitlines()[0]
        yield CommandParser(name, parser, summary, f"{app.NAME} {name} {COMMANDS[name].example}".rstrip())


class PrintCompletion(ActionCommand):
    """Print a script that makes a shell complete the commands of placement.

    bash: source <(placement completion bash)
    zsh: source <(placement completion zsh), after compinit
    fish: placement completion fish | source
    """

    arguments = (argument("shell", choices=("bash", "fish", "zsh"), help="whose language the script is in"),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        # Imported here, as no other command should wait for it.
        import shtab

        root = self.app.build_option_parser(None, None)
        # Each command has its own --help; the other options of placement may stand behind any.
        everywhere = [action for action in root._actions if action.dest != "deferred_help"]
        groups = {"": _group(root)}
        for name, parser, summary, _ in parsers(self.app):
            first, _, last = name.rpartition(" ")
            if first not in groups:
                inner = argparse.ArgumentParser(add_help=False)
                groups[""].add_parser(first, help=f"{first} ...", made=inner)
                groups[first] = _group(inner)
            parser.description = summary.rstrip(".")
            groups[first].add_parser(last, help=parser.description, made=parser)
            for action in everywhere:
                parser._add_action(action)
            for action in parser._actions:
                if action.nargs != 0 and not action.choices:
                    # Options do not follow the cluster that completers of other names look at.
                    named = action.dest if action.dest == "cluster" or not action.option_strings else ""
                    vars(action)["complete"] = _NAMES.get(named, shtab.FILE)
        script = shtab.complete(root, parsed_args.shell)
        if parsed_args.shell == "zsh":
            # Without eval it would run as the function that zsh finds in a file of this name.
            script = f"eval {shlex.quote(script)}"
        print(script, file=self.app.stdout)


def _names_of(things: str, *, in_cluster: bool = True) -> dict[str, Any]:
    """Return a completer that asks the service for names, of a cluster that is the word before."""
    function, asked = f"_placement_{things}", f"placement {things} list {{}} -f value -c name 2>/dev/null"
    words = ('"${COMP_WORDS[COMP_CWORD-1]}"', '"${words[CURRENT-1]}"', "(commandline -opc)[-1]")
    bash, zsh, fish = (asked.format(word if in_cluster else "") for word in words)
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({fish})",
        "preamble": {
            "bash": f'{function}() {{\n  compgen -W "$({bash})" -- "$1"\n}}',
            "zsh": f'{function}() {{\n  compadd -- ${{(f)"$({zsh})"}}\n}}',
        },
    }


_NAMES = {
    "cluster": _names_of("cluster", in_cluster=False),
    **{things: _names_of(things) for things in ("node", "pod", "reservation")},
}
"""How the names of things in a service are completed, by what an argument is called."""


def _group(parser: argparse.ArgumentParser) -> Any:
    """Return the subcommands of a parser, to which parsers that are `made` already are added."""
    return parser.add_subparsers(parser_class=lambda *, made, **_: made)  # type: ignore[call-overload]


# `placement man`: manual pages, written from the parsers of the commands.


_SECTION = 1
_ENVIRONMENT = {
    "PLACEMENT_URL": "the service that commands ask, unless --url names it",
    "PLACEMENT_TOKEN": "what they identify themselves with, unless --token does",
    AUTHORITY_VARIABLE: "a file with the certificates of authorities that the service's is to be of",
    CERTIFICATE_VARIABLE: "a file with the certificate that commands show the service",
    KEY_VARIABLE: "a file with its key, if that is another one",
    "COLUMNS": "how wide the terminal is, if it is not to be asked",
    "CLIFF_FIT_WIDTH": "if it is 1, tables fit that width in pipes and files, too",
    "NO_COLOR": "if it is set, nothing is coloured",
}
_EXIT = {
    "0": "done",
    "1": "refused or failed; of questions where something fits: nowhere",
    "2": "the arguments make no sense",
    "141": "nobody reads what is printed any more",
}


class WriteManual(ActionCommand):
    """Write manual pages into a directory, a page for each command.

    man placement-node-show finds them if the directory is the man1 of a directory in $MANPATH.
    """

    arguments = (argument("directory", metavar="DIRECTORY", help="where to write; it is created"),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        directory = Path(parsed_args.directory)
        commands = list(parsers(self.app))
        pages = {"placement": _main_page(self.app.parser, commands)}
        pages |= {_title(command): _page(command) for command in commands}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for title, lines in pages.items():
                (directory / f"{title}.{_SECTION}").write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise PlacementError(f"{parsed_args.directory}: {error.strerror}") from None
        print(f"{len(pages)} pages written.")


def _main_page(parser: argparse.ArgumentParser, commands: list[CommandParser]) -> Iterator[str]:
    yield from _begun("placement", "a resource allocation service, and what asks it")
    yield from (".SH SYNOPSIS", ".B placement", "[OPTION]... COMMAND [ARGUMENT]...")
    yield ".SH COMMANDS"
    for command in commands:
        yield from (".TP", f".BR {_title(command)} (1)", _text(command.summary))
    yield from _explained("OPTIONS", CommandParser("", parser, "").options)
    yield from _listed("ENVIRONMENT", list(_ENVIRONMENT.items()))
    yield from _listed("EXIT STATUS", list(_EXIT.items()))


def _page(command: CommandParser) -> Iterator[str]:
    summary = command.summary.rstrip(".")
    yield from _begun(_title(command), summary[:1].lower() + summary[1:])
    usage = " ".join(command.parser.format_usage().removeprefix("usage: ").split())
    yield from (".SH SYNOPSIS", _text(usage))
    yield ".SH DESCRIPTION"
    for line in (command.parser.description or "").splitlines():
        yield _text(line) if line else ".PP"
    if command.operands:
        yield from _explained("ARGUMENTS", command.operands)
    yield from _explained("OPTIONS", command.options)
    yield from (".SH EXAMPLE", _text(command.example))
    yield from (".SH SEE ALSO", ".BR placement (1)")


def _begun(title: str, summary: str) -> Iterator[str]:
    yield f'.TH {_text(title.upper())} {_SECTION} "" "{DISTRIBUTION} {version(DISTRIBUTION)}"'
    # Words that are as long as a line cannot be stretched to both margins.
    yield ".ad l"
    yield from (".SH NAME", f"{_text(title)} \\- {_text(summary)}")


def _explained(heading: str, actions: list[argparse.Action]) -> Iterator[str]:
    meanings = ((action.help or "") % {**vars(action), "prog": "placement"} for action in actions)
    yield from _listed(heading, list(zip(map(_written, actions), meanings, strict=True)))


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
