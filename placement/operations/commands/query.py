"""Query parameters as arguments: KEY=VALUE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from placement.domain.errors import PlacementError

Pairs = list[tuple[str, str]]


def add_query(parser: argparse.ArgumentParser) -> None:
    """The arguments that make up a query."""
    parser.add_argument("query", nargs="+", metavar="KEY=VALUE", help="query parameter, repeatable")


def query_of(texts: Sequence[str]) -> Pairs:
    """The parameters in their order. Raises PlacementError naming the text that is none."""
    return [_parameter(text) for text in texts]


def _parameter(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise PlacementError(f"{text}: is no KEY=VALUE, such as resources=VCPU:2")
    return key, value
