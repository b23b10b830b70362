"""`placement completion`: what shells need to complete commands, options and the values to choose from."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from placement.operations.commands.arguments import argument
from placement.operations.commands.display import Action
from placement.operations.commands.parsers import CommandParser, explained, parsers

if TYPE_CHECKING:
    from cliff.app import App

_GLOBAL = ""


class PrintCompletion(Action):
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
    """Which words may follow which; a command is known by its words, the one without any is placement."""

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
        """Every word or words that a command begins with or consists of."""
        found = {name for name in self.commands if name}
        return sorted(found | {name for name in self.next if name})

    def choices(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """(command, option or "" for an operand, the values to choose from)."""
        for name, command in self.commands.items():
            for action in [*command.options, *command.operands]:
                if action.choices:
                    for string in action.option_strings or [""]:
                        yield name, string, [str(choice) for choice in action.choices]

    def strings(self, name: str) -> list[str]:
        """The options of a command as they are written, and those that may stand anywhere."""
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
    """What may come at the cursor, as the list `reply`; an empty one means a file."""
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
    # Those of all commands may stand behind any.
    line = _fish_line(name) if name != _GLOBAL else "complete -c placement"
    return f"{line} {' '.join(strings)} -d {shlex.quote(explained(action))}"
