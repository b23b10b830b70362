"""Arguments of commands: whole numbers, parameters of queries (KEY=VALUE), and files that are read."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import sys
from argparse import Action, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from placement.engine.domain.errors import PlacementError
from placement.engine.domain.identifiers import normalize_uuid


class Arguments(Protocol):
    """A parser, or a group of its options, to which arguments are added."""

    def add_argument(self, *names: str, **options: Any) -> Action:
        """Add an argument, as argparse does."""


Argument = Callable[[Arguments], Action]
"""A function that adds an argument to a parser."""


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command, as argparse takes it."""
    return lambda parser: parser.add_argument(*names, **options)


def repeatable(name: str, metavar: str, help: str, **options: Any) -> Argument:
    """Return an option that may be given several times; its values are a list."""
    return argument(name, action="append", default=[], metavar=metavar, help=help, **options)


def limit(help: str, default: int | None = None) -> Argument:
    """Return the option that bounds how much is listed."""
    return argument("--limit", type=positive, metavar="N", help=help, default=default)


class ExplainedArgument(NamedTuple):
    """An argument as a parser has it, and its meaning."""

    action: Action
    meaning: str


def add_explained(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> list[ExplainedArgument]:
    """Add arguments to a parser, and return them."""
    actions = [add(parser) for add in arguments]
    return [ExplainedArgument(action, action.help or "") for action in actions]


class FoldedOptions:
    """A group of options that work, and that the help of a command leaves out; the manual has them all.

    Formatters of cliff take it for the parser that they add their options to.
    """

    def __init__(self, parser: argparse.ArgumentParser, explained: list[ExplainedArgument]) -> None:
        self._group: Any = parser.add_argument_group()
        self._explained = explained

    def add_argument(self, *names: str, **options: Any) -> Action:
        """Add an option without its meaning, which goes to the manual."""
        meaning = options.pop("help")
        action: Action = self._group.add_argument(*names, **options, help=argparse.SUPPRESS)
        self._explained.append(ExplainedArgument(action, meaning))
        return action

    def add_argument_group(self, *_: object, **__: object) -> FoldedOptions:
        """Return this group: without headings, one is as good as several."""
        return self


class UsageError(PlacementError):
    """An error about the arguments of a command, which argparse cannot find."""

    exit_status = 2
    """How a command ends then."""


def given(**members: Any) -> dict[str, Any]:
    """Return the members of a body that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _whole(least: int, most: float, what: str) -> Callable[[str], int]:
    """Return what reads a whole number. It raises ArgumentTypeError, which comes with the usage."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be {what}, not {text!r}")
        return int(text)

    return read


positive = _whole(1, math.inf, "a whole number from 1 on")
# Not 0, which would be any port.
port_number = _whole(1, 65535, "a port from 1 to 65535")


_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> datetime.timedelta:
    """Return a length of time, such as 90m, 24h or 3d. Raises ArgumentTypeError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"must be a length of time such as 90m, 24h or 3d, not {text!r}")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})


_SIZE = re.compile(r"([0-9]{1,15})(?:([kmgt])(?:i?b)?)?", re.IGNORECASE)
_POWERS = {"k": 0, "m": 1, "g": 2, "t": 3}


def _size(unit: str) -> Callable[[str], int]:
    """Return what reads a size in a unit, also one like 8G or 8GiB. It raises ArgumentTypeError."""

    def read(text: str) -> int:
        found = _SIZE.fullmatch(text)
        if found is None:
            raise ArgumentTypeError(f"must be a size such as 8192 ({unit.upper()}iB) or 8G, not {text!r}")
        amount = int(found[1]) << 10 * _POWERS[(found[2] or unit).lower()]
        size, rest = divmod(amount, 1 << 10 * _POWERS[unit])
        if rest:
            raise ArgumentTypeError(f"must be a whole number of {unit.upper()}iB, not {text!r}")
        return size

    return read


mebibytes, gibibytes = _size("m"), _size("g")


def consumer_uuid(text: str) -> str:
    """Return the UUID of a consumer. Raises ArgumentTypeError."""
    if normalize_uuid(text) is None:
        raise ArgumentTypeError(f"must be a UUID, not {text!r}")
    return text


QueryPairs = list[tuple[str, str]]
"""The parameters of a query, in order."""
# A query by examples, in the words of docs/candidates.md.
GRAMMAR = (
    ("resources=VCPU:2,MEMORY_MB:4096", "amounts, each from one provider of a host"),
    ("resources_net=SRIOV_NET_VF:1", "a group, all from one provider; any suffix"),
    ("required=CUSTOM_SSD,!CUSTOM_OLD", "traits to have and not to have; or in:A,B"),
    ("member_of=in:rack-1,rack-2", "in one of these aggregates; !rack-1: not in it"),
    ("in_tree=cloud/compute-01", "on this host; or the host of a provider, by name or UUID"),
    ("group_policy=isolate", "groups from different providers; or none"),
    ("same_subtree=_net,_cpus", "groups from a provider and the providers below it"),
    ("root_required=CUSTOM_GOLD", "traits of the host"),
    ("split_cpus=PCPU", "PCPU of group _cpus from several providers"),
    ("cluster=edge", "in this cluster only"),
    ("order_by=pack", "the fullest hosts first; or spread"),
    ("prefer=CUSTOM_SSD", "hosts with this trait or aggregate first"),
    ("limit=5", "at most 5 candidates"),
    ("closed=true", "closed hosts as well"),
)
"""Parameters of a query, each with an example and its meaning."""


_AMOUNTS = re.compile("[A-Z][A-Z0-9_]*:[0-9]+(,[A-Z][A-Z0-9_]*:[0-9]+)*")


def _instead_of(text: str) -> str:
    """Return how something that is not a query parameter is asked for."""
    if _AMOUNTS.fullmatch(text.upper()):
        return f"did you mean resources={text.upper()}?"
    if text.isdecimal():
        return "such as resources=VCPU:2; `placement flavor candidates` asks for flavors"
    return "such as resources=VCPU:2"


def parameter(text: str) -> tuple[str, str]:
    """Return a query parameter. Raises ArgumentTypeError."""
    key, separator, value = text.partition("=")
    if not separator:
        raise ArgumentTypeError(f"{text}: is not KEY=VALUE, {_instead_of(text)}")
    if key == "limit":
        try:
            positive(value)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"limit: {error}") from None
    return key, value


QUERY = argument("query", nargs="+", type=parameter, metavar="KEY=VALUE", help="query parameter, as below")
CLUSTER = argument("cluster", help="name of the cluster")
IN_CLUSTER = argument("--cluster", help="in this cluster only; cluster=NAME says the same")
CLOSED = argument("--closed", action="store_true", help="count closed hosts as well")
IN_AGGREGATES = repeatable(
    "--aggregate", "UUID_OR_NAME", "in this aggregate only; member_of=NAME says the same, repeatable"
)
_MEMBER_OF = "member_of"


def query_of(parsed: Namespace) -> QueryPairs:
    """Return the query parameters, with --aggregate, --cluster, --limit and --closed.

    Raises UsageError for two of one.
    """
    words = [f"{key}={value}" for key, value in parsed.query]
    options = [option for option in ("limit", "cluster") if hasattr(parsed, option)]
    for option in options:
        words = _take(option, parsed, words)
    query = [(key, value) for key, _, value in (word.partition("=") for word in words)]
    asked = given(**{option: getattr(parsed, option) for option in options})
    query += ((_MEMBER_OF, each) for each in getattr(parsed, "aggregate", ()))
    query += ((option, str(value)) for option, value in asked.items())
    if parsed.closed and all(key != "closed" for key, _ in query):
        query.append(("closed", "true"))
    return query


def take_cluster(parsed: Namespace, words: Iterable[str]) -> list[str]:
    """Take cluster=NAME out of words, as --cluster; return the other words. Raises UsageError for two."""
    return _take("cluster", parsed, words)


def take_aggregates(parsed: Namespace, words: Iterable[str]) -> list[str]:
    """Take each member_of=NAME out of words, as --aggregate; return the other words."""
    rest, start = [], f"{_MEMBER_OF}="
    for word in words:
        if word.startswith(start):
            parsed.aggregate = [*parsed.aggregate, word.removeprefix(start)]
        else:
            rest.append(word)
    return rest


def _take(option: str, parsed: Namespace, words: Iterable[str]) -> list[str]:
    rest = []
    for word in words:
        key, _, value = word.partition("=")
        if key != option:
            rest.append(word)
            continue
        before = getattr(parsed, option)
        if before is not None and str(before) != value:
            raise UsageError(f"{option}: give either {before} or {value}")
        setattr(parsed, option, value)
    return rest


STANDARD_INPUT = "-"


def read_bytes(name: str) -> bytes:
    """Return the content of the file, or of standard input. Raises PlacementError naming the file."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise PlacementError(f"{name}: {getattr(error, 'strerror', None) or error}") from None


def read_yaml(name: str) -> list[Any]:
    """Return the YAML documents in the file. Raises PlacementError naming the file."""
    # Importing it takes long.
    from placement.common.documents import parse_yaml

    text = read_bytes(name)
    try:
        return parse_yaml(text)
    except PlacementError as error:
        raise PlacementError(f"{name}: {error}") from None


def read_json(name: str) -> object:
    """Return the JSON in the file. Raises PlacementError naming the file."""
    try:
        document: object = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{name}: is not JSON: {error}") from None
    return document
