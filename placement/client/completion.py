"""`placement completion`: what shells need to complete commands, options and the values to choose from."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from placement.client.arguments import ExplainedArgument, add_explained, argument
from placement.client.command import ActionCommand
from placement.client.parsers import parsers


class PrintCompletion(ActionCommand):
    """Print a script that makes a shell complete the commands of placement.

    bash: source <(placement completion bash)
    zsh: source <(placement completion zsh), after compinit
    fish: placement completion fish | source
    """

    app: Any
    arguments = (argument("shell", choices=("bash", "fish", "zsh"), help="shell that reads the script"),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        # Imported here, as no other command should wait for it.
        import shtab

        root = argparse.ArgumentParser(self.app.NAME, add_help=False)
        _describe(add_explained(root, self.app.global_options()), shtab.FILE)
        # Each command has its own --help; the other options of placement may stand behind any.
        _, *everywhere = self.app.global_options()
        groups = {"": _subcommands_of(root)}
        for command in parsers(self.app):
            first, _, last = command.name.rpartition(" ")
            if first not in groups:
                inner = argparse.ArgumentParser(add_help=False)
                groups[""].add_parser(first, help=f"{first} ...", made=inner)
                groups[first] = _subcommands_of(inner)
            description = command.summary.rstrip(".")
            command.parser.description = description
            groups[first].add_parser(last, help=description, made=command.parser)
            _describe([*command.arguments, *add_explained(command.parser, everywhere)], shtab.FILE)
        script = shtab.complete(root, parsed_args.shell)
        if parsed_args.shell == "zsh":
            # Without eval it would run as the function that zsh finds in a file of this name.
            script = f"eval {shlex.quote(script)}"
        print(script, file=self.app.stdout)


def _describe(arguments: Sequence[ExplainedArgument], files: object) -> None:
    """Let the actions say what they mean, also folded ones, and how their values are completed."""
    for action, meaning in arguments:
        action.help = meaning
        if action.nargs != 0 and not action.choices:
            # Options do not follow the cluster that completers of other names look at.
            named = action.dest if action.dest == "cluster" or not action.option_strings else ""
            vars(action)["complete"] = _NAMES.get(named, files)


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


def _subcommands_of(parser: argparse.ArgumentParser) -> Any:
    """Return the subcommands of a parser, to which parsers that are `made` already are added."""
    return parser.add_subparsers(parser_class=lambda *, made, **_: made)  # type: ignore[call-overload]
