"""What was probably meant: names that are close to one that the service does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from placement.engine.domain.identifiers import meant, near

if TYPE_CHECKING:
    from placement.client.client import Client

PARAMETERS = (
    *("resources", "required", "member_of", "in_tree", "split", "split_rule"),
    *("limit", "group_policy", "root_required", "same_subtree", "cluster", "order_by", "prefer"),
)
"""The parameters of our own search; the first six may have the suffix of a group behind them."""

_MOST = 3
_CLUSTER = "/ext/v1/clusters"
_NAME = ("name",)
# What an error calls unknown, where the known names are, and the list and members that have them, without
# members of a list of names. Groups of the expression after the first one go into the path.
_UNKNOWN: tuple[tuple[re.Pattern[str], str, str, tuple[str, ...]], ...] = (
    (re.compile(r"No cluster (\S+) found"), _CLUSTER, "clusters", _NAME),
    (re.compile(r"No node (\S+) found in cluster (\S+)"), f"{_CLUSTER}/{{}}/nodes", "nodes", _NAME),
    (
        re.compile(r"No pod [^/]+/(\S+) found in cluster (\S+)"),
        f"{_CLUSTER}/{{}}/pods",
        "pods",
        ("namespace", "name"),
    ),
    (
        re.compile(r"No reservation (\S+) found in cluster (\S+)"),
        f"{_CLUSTER}/{{}}/reservations",
        "reservations",
        _NAME,
    ),
    (re.compile(r"No such resource class (\S+?)\."), "/resource_classes", "resource_classes", _NAME),
    (re.compile(r"No such trait(?:\(s\):)? ([^,]+?)[,.]"), "/traits", "traits", ()),
    (re.compile(r"there is no host '([^']+)'"), "/ext/v1/hosts", "hosts", _NAME),
    (re.compile(r"^(\S+): no such resource provider"), "/ext/v1/hosts", "hosts", _NAME),
)
# Errors of our own paths say what was meant.
_PARAMETER = re.compile(r"'(\w+)' is no parameter of this request")


def improved(error: str, connect: Callable[[], Client]) -> str:
    """Return the text of an error, with the names that were probably meant where it is about an unknown one.

    The names that are known are asked of the service, in one call.
    """
    if unknown := _PARAMETER.search(error):
        hint = meant(near(unknown[1], PARAMETERS)) or f"; there are {', '.join(PARAMETERS)}"
        return error[: unknown.end()] + hint + error[unknown.end() :]
    for pattern, path, listed, members in _UNKNOWN:
        if unknown := pattern.search(error):
            word, *parts = unknown.groups()
            names = _names(connect(), path.format(*parts), listed, members)
            question = meant([full for name in near(word, names) for full in names[name]][:_MOST])
            return error.rstrip(".") + question if question else error
    return error


def _names(client: Client, path: str, listed: str, members: Sequence[str]) -> dict[str, list[str]]:
    """Return what is listed by name; the names of pods are full ones, with the namespace."""
    from placement.client.client import ServiceError

    try:
        entries: list[Any] = client.get(path)[listed]
    except ServiceError:
        # Another service has no such path, and not every caller may list.
        return {}
    known: dict[str, list[str]] = {}
    for entry in entries:
        parts = [entry[member] for member in members] or [entry]
        known.setdefault(parts[-1], []).append("/".join(parts))
    return known
