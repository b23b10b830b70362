"""What was probably meant: names that are close to one that the service does not know."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.client.client import Client

PARAMETERS = (
    *("resources", "required", "member_of", "in_tree", "split", "split_rule"),
    *("limit", "group_policy", "root_required", "same_subtree", "cluster", "order_by", "prefer"),
)
"""The parameters of our own search; the first six may have the suffix of a group behind them."""

_CLOSE = 0.65
_CLUSTER = "/ext/v1/clusters"
# What an error calls unknown, where the known names are, and the list and member that have them. Groups of
# the expression after the first one go into the path.
_UNKNOWN: tuple[tuple[re.Pattern[str], str, str, str], ...] = (
    (re.compile(r"No cluster (\S+) found"), _CLUSTER, "clusters", "name"),
    (re.compile(r"No node (\S+) found in cluster (\S+)"), f"{_CLUSTER}/{{}}/nodes", "nodes", "name"),
    (re.compile(r"No pod [^/]+/(\S+) found in cluster (\S+)"), f"{_CLUSTER}/{{}}/pods", "pods", "name"),
    (
        re.compile(r"No reservation (\S+) found in cluster (\S+)"),
        f"{_CLUSTER}/{{}}/reservations",
        "reservations",
        "name",
    ),
    (re.compile(r"No such resource class (\S+?)\."), "/resource_classes", "resource_classes", "name"),
    (re.compile(r"No such trait\(s\): ([^,]+?)[,.]"), "/traits", "traits", ""),
    (re.compile(r"there is no host '([^']+)'"), "/ext/v1/hosts", "hosts", "name"),
    (re.compile(r"^(\S+): no such resource provider"), "/ext/v1/hosts", "hosts", "name"),
)
_PARAMETER = re.compile(r"('(\w+)' is no parameter of this request)(?:; there are ([^;\n]+))?")


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words, at most three, that are written almost like this one, the closest first."""
    return difflib.get_close_matches(word, known, n=3, cutoff=_CLOSE)


def improved(error: str, connect: Callable[[], Client]) -> str:
    """Return the text of an error, with the names that were probably meant where it is about an unknown one.

    The names that are known are asked of the service, in one call.
    """
    if unknown := _PARAMETER.search(error):
        text, word, listed = unknown.groups()
        # Errors of the Placement API list none.
        known = listed.split(", ") if listed else PARAMETERS
        mended = f"{text}; {_meant(near(word, known)) or 'there are ' + ', '.join(known)}"
        return error[: unknown.start()] + mended + error[unknown.end() :]
    for pattern, path, listed, member in _UNKNOWN:
        if unknown := pattern.search(error):
            word, *parts = unknown.groups()
            meant = _meant(near(word, _names(connect(), path.format(*parts), listed, member)))
            return f"{error.rstrip('.')}; {meant}" if meant else error
    return error


def _names(client: Client, path: str, listed: str, member: str) -> list[str]:
    from placement.client.client import ServiceError

    try:
        entries: list[Any] = client.get(path)[listed]
    except ServiceError:
        # Another service has no such path, and not every caller may list.
        return []
    return [entry[member] if member else entry for entry in entries]


def _meant(names: list[str]) -> str:
    return f"did you mean {' or '.join(names)}?" if names else ""
