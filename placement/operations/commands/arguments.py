"""Arguments of commands: whole numbers, query parameters (KEY=VALUE), and files that are read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from placement.domain.errors import PlacementError
from placement.domain.identifiers import normalize_uuid

Argument = Callable[[argparse.ArgumentParser], object]
"""Adds itself to a parser."""
Pairs = list[tuple[str, str]]
STANDARD_INPUT = "-"


def argument(*names: str, **options: Any) -> Argument:
    """An argument of a command, as argparse takes it."""
    return lambda parser: parser.add_argument(*names, **options)


CLUSTER = argument("cluster", help="name of the cluster")


def positive(text: str) -> int:
    """A whole number from 1 on. Raises ArgumentTypeError, which comes with the usage."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def port_number(text: str) -> int:
    """A port to listen on; 0 would be any. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 1 to 65535, not {text!r}")
    return int(text)


def consumer_uuid(text: str) -> str:
    """The UUID of a consumer. Raises ArgumentTypeError."""
    if normalize_uuid(text) is None:
        raise argparse.ArgumentTypeError(f"must be a UUID, not {text!r}")
    return text


def parameter(text: str) -> tuple[str, str]:
    """A query parameter. Raises ArgumentTypeError."""
    key, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text}: is no KEY=VALUE, such as resources=VCPU:2")
    return key, value


QUERY = argument("query", nargs="+", type=parameter, metavar="KEY=VALUE", help="query parameter, repeatable")


def read_bytes(name: str) -> bytes:
    """What is in the file, or comes from standard input. Raises PlacementError naming the file."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise PlacementError(f"{name}: {reason or error}") from None


def read_json(name: str) -> object:
    """The JSON in the file. Raises PlacementError naming the file."""
    try:
        document: object = json.loads(read_bytes(name))
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{name}: is no JSON: {error}") from None
    return document
