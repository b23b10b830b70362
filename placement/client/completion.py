"""`placement completion`: what shells need to complete commands, options and the values to choose from."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from placement import DISTRIBUTION
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
        command = place.load()(app, None)
        parser = command.get_parser(f"{app.NAME} {name}")
        summary = command.get_description().splitlines()[0]
        yield CommandParser(name, parser, summary)


def explained(action: argparse.Action) -> str:
    """Return the help of an option with its default filled in."""
    values = {**vars(action), "prog": "placement"}
    return (action.help or "") % values if "%(" in (action.help or "") else (action.help or "")


_GLOBAL = ""


class PrintCompletion(ActionCommand):
    """Print a script that makes a shell complete the commands of placement.

    bash: source <(placement completion bash)
    zsh: source <(placement completion zsh), after compinit
    fish: placement completion fish | source
    """

    arguments = (argument("shell", choices=("bash", "fish", "zsh"), help="whose language the script is in"),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print it."""
        writers: dict[str, Callable[[_Words], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
        for line in writers[parsed_args.shell](_Words(self.app)):
            print(line, file=self.app.stdout)


class _Words:
    """The words that may follow each command; a command is known by its words, placement itself by none."""

    def __init__(self, app: App) -> None:
        known = list(parsers(app))
        root = CommandParser(_GLOBAL, app.parser, "")
        self.commands = {command.name: command for command in [root, *known]}
        self.next: dict[str, dict[str, str]] = {}
        for name, command in self.commands.items():
            words = name.split()
            for at, word in enumerate(words):
                last = at == len(words) - 1
                summary = command.summary.rstrip(".") if last else f"{word} ..."
                self.next.setdefault(" ".join(words[:at]), {})[word] = summary

    @property
    def prefixes(self) -> list[str]:
        """Return all sequences of words that a command begins with or consists of."""
        found = {name for name in self.commands if name}
        return sorted(found | {name for name in self.next if name})

    def choices(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield (command, option or "" for an operand, the values to choose from)."""
        for name, command in self.commands.items():
            for action in [*command.options, *command.operands]:
                if action.choices:
                    for string in action.option_strings or [""]:
                        yield name, string, [str(choice) for choice in action.choices]

    def strings(self, name: str) -> list[str]:
        """Return the options of a command as they are written, and the options that may stand anywhere."""
        actions = [*self.commands[name].options, *(self.commands[_GLOBAL].options if name != _GLOBAL else ())]
        return list(dict.fromkeys(string for action in actions for string in action.option_strings))


# The words before the cursor that belong to the command: both shells know this much of the same language.
_FIND = """\
  local command="" word
  for word in "${before[@]}"; do
    case "${command:+$command }$word" in
      %s) command="${command:+$command }$word" ;;
    esac
  done"""


def _find(words: _Words) -> str:
    return _FIND % "|".join(f'"{prefix}"' for prefix in words.prefixes)


def _cases(words: _Words) -> Iterator[str]:
    """Yield shell code that puts what may come at the cursor into `reply`; an empty list means a file."""
    yield '  case "$command|$previous" in'
    for name, option, choices in words.choices():
        if option:
            yield f'    "{name}|{option}") reply="{" ".join(choices)}"; return ;;'
    yield "  esac"
    yield '  if [[ "$current" == -* ]]; then'
    yield '    case "$command" in'
    for name in words.commands:
        yield f'      "{name}") reply="{" ".join(words.strings(name))}" ;;'
    yield "    esac"
    yield "    return"
    yield "  fi"
    yield '  case "$command" in'
    for name, following in words.next.items():
        yield f'    "{name}") reply="{" ".join(sorted(following))}" ;;'
    for name, option, choices in words.choices():
        if not option:
            yield f'    "{name}") reply="{" ".join(choices)}" ;;'
    yield "  esac"


def _bash(words: _Words) -> Iterator[str]:
    yield "_placement_words() {"
    yield _find(words)
    yield from _cases(words)
    yield "}"
    yield "_placement() {"
    yield '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" reply=""'
    yield '  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")'
    yield "  _placement_words"
    yield '  COMPREPLY=($(compgen -W "$reply" -- "$current"))'
    yield "}"
    yield "complete -o default -F _placement placement"


def _zsh(words: _Words) -> Iterator[str]:
    yield "#compdef placement"
    yield "_placement_words() {"
    yield _find(words)
    yield from _cases(words)
    yield "}"
    yield "_placement() {"
    yield '  local current="${words[CURRENT]}" previous="${words[CURRENT-1]}" reply=""'
    yield '  local -a before; before=("${(@)words[2,CURRENT-1]}")'
    yield "  _placement_words"
    yield '  if [[ -n "$reply" ]]; then compadd -- ${=reply}; else _files; fi'
    yield "}"
    yield "compdef _placement placement"


def _fish(words: _Words) -> Iterator[str]:
    yield "function __placement_command"
    yield "    set -l command ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        set -l longer (string trim "$command $word")'
    yield f"        if contains -- $longer {' '.join(shlex.quote(prefix) for prefix in words.prefixes)}"
    yield "            set command $longer"
    yield "        end"
    yield "    end"
    yield "    echo $command"
    yield "end"
    yield "function __placement_at"
    yield "    test (__placement_command) = $argv[1]"
    yield "end"
    for name, following in words.next.items():
        for word, summary in sorted(following.items()):
            yield f"{_fish_line(name)} -f -a {word} -d {shlex.quote(summary)}"
    for name, command in words.commands.items():
        for action in command.options:
            yield _fish_option(name, action)
    for name, option, choices in words.choices():
        if not option:
            yield f"{_fish_line(name)} -f -a {shlex.quote(' '.join(choices))}"


def _fish_line(name: str) -> str:
    condition = f"__placement_at {shlex.quote(name)}"
    return f"complete -c placement -n {shlex.quote(condition)}"


def _fish_option(name: str, action: argparse.Action) -> str:
    strings = [
        f"-l {string[2:]}" if string.startswith("--") else f"-s {string[1:]}"
        for string in action.option_strings
    ]
    if action.nargs != 0:
        strings.append("-r")
    if action.choices:
        strings.append(f"-f -a {shlex.quote(' '.join(map(str, action.choices)))}")
    # Options of all commands may stand behind any.
    line = _fish_line(name) if name != _GLOBAL else "complete -c placement"
    return f"{line} {' '.join(strings)} -d {shlex.quote(explained(action))}"


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
        """Write them."""
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
    root = CommandParser("", parser, "")
    yield from _listed("OPTIONS", [(_written(action), explained(action)) for action in root.options])
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
    operands = [(_written(action), explained(action)) for action in command.operands]
    if operands:
        yield from _listed("ARGUMENTS", operands)
    yield from _listed("OPTIONS", [(_written(action), explained(action)) for action in command.options])
    yield from (".SH SEE ALSO", ".BR placement (1)")


def _begun(title: str, summary: str) -> Iterator[str]:
    yield f'.TH {_text(title.upper())} {_SECTION} "" "{DISTRIBUTION} {version(DISTRIBUTION)}"'
    # Words that are as long as a line cannot be stretched to both margins.
    yield ".ad l"
    yield from (".SH NAME", f"{_text(title)} \\- {_text(summary)}")


def _listed(heading: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {heading}"
    for name, meaning in entries:
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(meaning))


def _title(command: CommandParser) -> str:
    return f"placement-{command.name.replace(' ', '-')}"


def _written(action: argparse.Action) -> str:
    """Return an argument as it is typed, with what stands for its value."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    told = ", ".join(action.option_strings)
    return told if action.nargs == 0 else f"{told} {value}"


def _text(text: str) -> str:
    """Return the text on one line, escaped so that troff takes none of it for a request."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
