"""`placement capacity`: how many more requests there is room for, as things are or as they would be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from placement.client import arguments as client_arguments
from placement.client.cells import amounts, lines
from placement.client.command import Listing
from placement.client.commands.flavor import OPTIONS, document_beside, note_ignored
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.units import each_once, name_of

if TYPE_CHECKING:
    pass

_COLUMNS = ("kind", "of", "room", "runs_out_first", "taking", "hosts", "fragmentation", "stranded")
_GROUPS = {"cluster": "clusters", "aggregate": "aggregates", "host": "hosts"}
_ALL = "all"
_SHOWN = 50


WORLD = (
    client_arguments.repeatable("--without", "HOST", "as if it were drained"),
    client_arguments.repeatable("--more", "HOST=N", "as if there were N more like it"),
    client_arguments.repeatable("--ratio", "CLASS=R", "as if that were the ratio"),
    client_arguments.repeatable("--reserved", "CLASS=N", "as if so much were reserved"),
)
"""The options that say how things would be different."""


class ShowCapacity(Listing):
    """Show how many more of queries, flavors and pods could be placed one after another.

    KIND is a .json file with a flavor as `openstack flavor show -f json` prints it, a file with the manifest
    of a pod (needs --cluster), or a query such as resources=VCPU:2,MEMORY_MB:512. All KEY=VALUE together are
    one query. An argument with & or with a name in front, small:resources=VCPU:2, is a query of its own.
    Options of flavors give a flavor without a file. The last options imagine hosts, ratios or reservations.
    """

    arguments = (
        client_arguments.argument("kinds", nargs="*", metavar="KIND", help="file, query parameter or query"),
        *OPTIONS,
        client_arguments.IN_CLUSTER,
        client_arguments.CLOSED,
        client_arguments.IN_AGGREGATES,
        client_arguments.argument(
            "--by",
            action="append",
            choices=list(_GROUPS),
            help="a row for each cluster (the default), aggregate or host; repeatable",
        ),
        *WORLD,
    )
    left_out_first = ("stranded", "fragmentation", "hosts", "taking")
    kept = ("of", "room", "runs_out_first")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Any]:
        by = parsed_args.by or ["cluster"]
        client = self.client
        kinds, world = kinds_of(parsed_args), world_of(parsed_args)
        for kind in kinds.values():
            note_ignored(self, kind)
        question = {
            "kinds": kinds,
            "by": by,
            "world": world,
            **client_arguments.given(cluster=parsed_args.cluster, closed=parsed_args.closed or None),
        }
        rows = []
        for name, kind in client.post("/ext/v1/capacity", question)["kinds"].items():
            resources = kind.get("resources", {}) if self.for_people(parsed_args) else {}
            rows.append(_row(name, _ALL, kind["total"], resources))
            for group in by:
                for room in kind.get(_GROUPS[group], ()):
                    called = self._called(parsed_args, group, room)
                    rows.append(_row(name, called, room, resources))
        return _COLUMNS, self.first(parsed_args, rows, _SHOWN)

    def _called(self, parsed_args: argparse.Namespace, group: str, room: Mapping[str, Any]) -> str:
        """Return the name of a cluster, an aggregate or a host; programs read the uuids of aggregates."""
        name: str = room["name"] or f"like {room['like']}" if group == "host" else room[group]
        if group == "aggregate" and self.for_people(parsed_args):
            return room.get("name") or name
        return name


def _row(name: str, of: str, room: Mapping[str, Any], resources: Mapping[str, str]) -> tuple[Any, ...]:
    """Return a row; classes with `resources` of Kubernetes are shown as these, each once."""
    count = room["lower"] if room["exact"] else f"{room['lower']} to {room['upper']}"
    stranded = {kind: each["stranded"] for kind, each in room["classes"].items() if each["stranded"]}
    sums = (room.get("taking"), room.get("hosts"), room.get("fragmentation"))
    first, cell = room["runs_out_first"], amounts(stranded)
    if resources:
        first = first and name_of(first, resources[first])
        cell = lines(each_once(stranded, resources))
    return (name, of, count, first, *sums, cell)


def kinds_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the kinds that `kinds` and the options of flavors describe, by name. Raises PlacementError."""
    kinds: dict[str, Any] = {}
    parameters = []
    words_of_kinds = client_arguments.take_cluster(parsed, parsed.kinds)
    for text in client_arguments.take_aggregates(parsed, words_of_kinds):
        name, words = _named(text)
        if "=" not in words:
            kinds[name or Path(words).stem or "it"] = _read(words, parsed)
        elif name or "&" in words:
            kinds[name or f"query-{len(kinds) + 1}"] = {"querystring": _in_aggregates(parsed, words)}
        else:
            parameters.append(words)
    if parsed.vcpus is not None and not kinds:
        kinds["flavor"] = document_beside(parsed)
    if parameters:
        kinds["query"] = {"querystring": _in_aggregates(parsed, _query(parameters))}
    if not kinds:
        raise client_arguments.UsageError(
            "nothing to count: give a file, a query such as resources=VCPU:2, or --vcpus"
        )
    return kinds


def _named(text: str) -> tuple[str, str]:
    """Return the name before a kind, empty if there is none, and the kind itself."""
    name, colon, rest = text.partition(":")
    # Another colon is part of a query or a path.
    is_name = colon and name and rest and not set("=&/.") & set(name)
    return (name, rest) if is_name else ("", text)


def _query(parameters: Sequence[str]) -> str:
    pairs = map(client_arguments.parameter, parameters)
    return urlencode(list(pairs))


def _in_aggregates(parsed: argparse.Namespace, query: str) -> str:
    return "&".join([query, *(urlencode({"member_of": name}) for name in parsed.aggregate)])


def _read(file: str, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return a pod or a flavor from a file. Raises PlacementError naming it."""
    if file != client_arguments.STANDARD_INPUT and not Path(file).exists():
        raise client_arguments.UsageError(f"{file}: is neither a file nor a query such as resources=VCPU:2")
    if file == client_arguments.STANDARD_INPUT or (Path(file).suffix == ".json" and not _is_pod(file)):
        return document_beside(parsed, file)
    documents = client_arguments.read_yaml(file)
    if len(documents) != 1:
        raise PlacementError(f"{file}: the manifest of one pod is expected")
    if parsed.aggregate:
        raise client_arguments.UsageError("--aggregate: is for queries and flavors, not for pods")
    return {"pod": documents[0]}


def _is_pod(file: str) -> bool:
    """Return whether a file of JSON has the manifest of a pod. Raises PlacementError naming the file."""
    document = client_arguments.read_json(file)
    return isinstance(document, dict) and document.get("kind") == "Pod"


def world_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what is to be different, as the API takes it. Raises PlacementError naming the option."""
    more = [
        {"like": host, "count": _whole("--more", number)} for host, number in _pairs("--more", parsed.more)
    ]
    inventories = [
        {"resource_class": name, "allocation_ratio": _ratio(number)}
        for name, number in _pairs("--ratio", parsed.ratio)
    ]
    inventories += [
        {"resource_class": name, "reserved": _whole("--reserved", number)}
        for name, number in _pairs("--reserved", parsed.reserved)
    ]
    world = {"without": parsed.without, "more": more, "inventories": inventories}
    return {name: value for name, value in world.items() if value}


def _pairs(option: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, separator, value = text.rpartition("=")
        if not separator:
            raise client_arguments.UsageError(f"{option}: {text} is not NAME=NUMBER")
        yield key, value


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise client_arguments.UsageError(f"{option}: {text} is not a whole number")
    return int(text)


def _ratio(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise client_arguments.UsageError(f"--ratio: {text} is not a number") from None
