"""`placement capacity`: how many more requests there is room for, as things are or as they would be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement.client.commands.aggregate import resolved
from placement.client.commands.flavor import OPTIONS, document_beside, note_ignored
from placement.client.display import (
    IN_CLUSTER,
    STANDARD_INPUT,
    Listing,
    UsageError,
    argument,
    given,
    parameter,
    read_yaml,
    repeatable,
    take_cluster,
)
from placement.client.formats import amounts, lines
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.units import each_once, name_of

if TYPE_CHECKING:
    from placement.client.client import Client

_COLUMNS = ("kind", "of", "room", "runs_out_first", "taking", "hosts", "fragmentation", "stranded")
_GROUPS = {"cluster": "clusters", "aggregate": "aggregates", "host": "hosts"}
_ALL = "all"
_SHOWN = 50


WORLD = (
    repeatable("--without", "HOST", "as if it were drained"),
    repeatable("--more", "HOST=N", "as if there were N more like it"),
    repeatable("--ratio", "CLASS=R", "as if that were the ratio"),
    repeatable("--reserved", "CLASS=N", "as if so much were reserved"),
)
"""The options that say how things would be different."""


class ShowCapacity(Listing):
    """Show how many more of queries, flavors and pods could be placed one after another.

    KIND is a .json file with a flavor as `openstack flavor show -f json` prints it, a file with the manifest
    of a pod (needs --cluster), or a query such as resources=VCPU:2,MEMORY_MB:512: all KEY=VALUE together are
    one query, one with & is a query by itself, and so is one with a name before it: small:resources=VCPU:2.
    Options of flavors give one without a file. The last options ask what would fit if things were different.
    """

    arguments = (
        argument("kinds", nargs="*", metavar="KIND", help="file, query parameter or query"),
        *OPTIONS,
        IN_CLUSTER,
        argument(
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
        kinds, world = kinds_of(client, parsed_args), world_of(parsed_args)
        for kind in kinds.values():
            note_ignored(self, kind)
        question = {"kinds": kinds, "by": by, "world": world, **given(cluster=parsed_args.cluster)}
        rows = []
        for name, kind in client.post("/ext/v1/capacity", question)["kinds"].items():
            resources = kind.get("resources", {}) if self.for_people(parsed_args) else {}
            rows.append(_row(name, _ALL, kind["total"], resources))
            for group in by:
                for room in kind.get(_GROUPS[group], ()):
                    called = room["name"] or f"like {room['like']}" if group == "host" else room[group]
                    if group == "aggregate" and self.for_people(parsed_args):
                        called = room.get("name") or called
                    rows.append(_row(name, called, room, resources))
        return _COLUMNS, self.first(parsed_args, rows, _SHOWN)


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


def kinds_of(client: Client, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the kinds that `kinds` and the options of flavors describe, by name. Raises PlacementError."""
    kinds: dict[str, Any] = {}
    parameters = []
    for text in take_cluster(parsed, parsed.kinds):
        name, colon, rest = text.partition(":")
        if not (colon and name and rest) or set("=&/.") & set(name):
            # The colon is part of a query or a path.
            name, rest = "", text
        if "=" not in rest:
            kinds[name or Path(rest).stem or "it"] = _read(rest, parsed)
        elif name or "&" in rest:
            kinds[name or f"query-{len(kinds) + 1}"] = {"querystring": rest}
        else:
            parameters.append(rest)
    if parsed.vcpus is not None and not kinds:
        kinds["flavor"] = document_beside(parsed)
    if parameters:
        pairs = resolved(client, [parameter(text) for text in parameters])
        kinds["query"] = {"querystring": "&".join(f"{key}={value}" for key, value in pairs)}
    if not kinds:
        raise UsageError("what to count is missing: a file, a query such as resources=VCPU:2, or --vcpus")
    return kinds


def _read(file: str, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return a pod or a flavor from a file. Raises PlacementError naming it."""
    if file != STANDARD_INPUT and not Path(file).exists():
        raise UsageError(f"{file}: is no file and no query, such as resources=VCPU:2")
    if Path(file).suffix == ".json" or file == STANDARD_INPUT:
        return document_beside(parsed, file)
    documents = read_yaml(file)
    if len(documents) != 1:
        raise PlacementError(f"{file}: the manifest of one pod is expected")
    return {"pod": documents[0]}


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
            raise UsageError(f"{option}: {text} is no NAME=NUMBER")
        yield key, value


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{option}: {text} is no whole number")
    return int(text)


def _ratio(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--ratio: {text} is no number") from None
