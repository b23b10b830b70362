"""`placement flavor`: nova flavors translated, here or by a service that also knows where they fit."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from placement.client.arguments import (
    CLOSED,
    IN_AGGREGATES,
    IN_CLUSTER,
    UsageError,
    argument,
    gibibytes,
    given,
    mebibytes,
    positive,
    read_json,
    repeatable,
    take_aggregates,
    take_cluster,
)
from placement.client.cells import TextCell, lines
from placement.client.command import ENOUGH, ActionCommand, Details
from placement.client.commands import candidates
from placement.client.explanations import Explaining
from placement.client.tables import ShownTable

# The options for amounts: the fields of the flavor, and what they mean.
_AMOUNTS: dict[str, tuple[str, str, Callable[[str], int]]] = {
    "vcpus": ("vcpus", "guest CPUs", int),
    "ram": ("memory_mb", "MiB of memory, or 8G", mebibytes),
    "disk": ("root_gb", "GiB of root disk", gibibytes),
    "ephemeral": ("ephemeral_gb", "GiB of ephemeral disk", gibibytes),
    "swap": ("swap_mb", "MiB of swap", mebibytes),
}
OPTIONS = (
    *(
        argument(f"--{name}", type=read, metavar="N", help=meaning)
        for name, (_, meaning, read) in _AMOUNTS.items()
    ),
    repeatable("--property", "KEY=VALUE", "extra spec, repeatable"),
    argument(
        "--image",
        metavar="FILE",
        help="image as `openstack image show -f json` prints it; - for standard input",
    ),
    repeatable("--image-property", "KEY=VALUE", "image property, repeatable"),
    argument("--granular", action="store_true", help="a request group for each guest NUMA cell"),
    argument("--strict", action="store_true", help="refuse flavors that nova's validation refuses"),
    argument(
        "--pcpu-fallback", action="store_true", help="also ask for shared CPUs in place of dedicated ones"
    ),
    argument("--boot-from-volume", action="store_true", help="leave the root disk out"),
)
"""The options that describe a flavor, or add to one."""
_LIMIT = argument("--limit", type=positive, metavar="N", help="candidates at most")
_FLAVOR = (
    argument("file", nargs="?", metavar="FILE", help="flavor as JSON; - for standard input"),
    *OPTIONS,
    _LIMIT,
)
_SEARCHED = (
    argument("words", nargs="*", metavar="FILE", help="flavor as JSON; - for standard input"),
    *OPTIONS,
    _LIMIT,
    CLOSED,
    IN_CLUSTER,
    IN_AGGREGATES,
)


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> TextCell:
    """Return a cell of one request group a line: its suffix, its amounts, its traits."""
    texts = []
    for suffix, group in groups.items():
        asked = [f"{name}={amount}" for name, amount in sorted(group.get("resources", {}).items())]
        forbidden = [f"!{name}" for name in group.get("forbidden", ())]
        texts.append(f"{suffix or '(base)'}: {' '.join([*asked, *group.get('required', ()), *forbidden])}")
    return TextCell(groups, texts)


def _cells(cells: Sequence[Mapping[str, Any]] | None) -> TextCell:
    from placement.engine.numa.cpus import format_cpu_list

    texts = []
    for cell in cells or ():
        shared, dedicated = (format_cpu_list(cell[name]) or "none" for name in ("cpuset", "pcpuset"))
        texts.append(f"{cell['id']}: shared {shared}, dedicated {dedicated}, {cell['memory']} MiB")
    return TextCell(cells, texts)


_SHOWN_AS: dict[str, Callable[[Any], object]] = {
    "groups": _groups,
    "root_required": lines,
    "same_subtree": lambda subtrees: lines([",".join(suffixes) for suffixes in subtrees]),
    "cells": _cells,
    "warnings": lines,
    "ignored": lines,
}


class TranslateFlavor(Details):
    """Translate a flavor to a candidates query and to the guest's CPU layout; needs no service.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = _FLAVOR
    auth_required = False

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        from placement.flavors.nova.translation import translate_document, translation_document

        answer = translation_document(translate_document(document(parsed_args)))
        shown = [_SHOWN_AS[name](value) if name in _SHOWN_AS else value for name, value in answer.items()]
        return tuple(answer), shown


class ListFlavorCandidates(candidates.CandidateListing):
    """List the candidates of a flavor, a row for each provider of each candidate.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = _SEARCHED
    explained_by = "flavor explain"

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        limited = parsed_args.limit is not None
        if self.for_people(parsed_args) and not limited:
            parsed_args.limit = candidates.SHOWN + ENOUGH
        found = _searched(self, parsed_args)
        if found["query_used"] == "fallback_querystring":
            self.note("No dedicated CPUs are free; these candidates give shared ones.")
        return candidates.COLUMNS, self.rows(parsed_args, found["candidates"], limited=limited)


class ExplainFlavor(Explaining):
    """Explain where a flavor fits, or which condition no host meets and which hosts come closest.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = _SEARCHED

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        parsed_args.limit = parsed_args.limit or ENOUGH
        found = _searched(self, parsed_args, explain=True)
        if found["query_used"] == "fallback_querystring":
            self.note("No dedicated CPUs are free; this is about shared ones.")
        return self.result(parsed_args, found["explanation"])


def _searched(command: ActionCommand, parsed: argparse.Namespace, **parts: object) -> Any:
    files = take_aggregates(parsed, take_cluster(parsed, parsed.words))
    if len(files) > 1:
        raise UsageError(f"FILE: one flavor is expected, not {', '.join(files)}")
    parsed.file = files[0] if files else None
    request = {**document(parsed), **parts, **given(cluster=parsed.cluster, closed=parsed.closed or None)}
    note_ignored(command, request)
    return command.client.post("/ext/v1/flavors/candidates", request)


def document(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the translation request that the arguments stand for."""
    from placement.flavors.nova.flavor import FLAT, GRANULAR
    from placement.flavors.nova.openstack_json import flavor_from_openstack_json, image_from_openstack_json

    if parsed.file == "-" and parsed.image == "-":
        raise UsageError("--image: standard input already has the flavor")
    flavor: dict[str, Any] = {"extra_specs": {}}
    if parsed.file is not None:
        flavor = asdict(flavor_from_openstack_json(read_json(parsed.file)))
    flavor |= given(**{field: getattr(parsed, name) for name, (field, *_) in _AMOUNTS.items()})
    if not {"vcpus", "memory_mb"} <= flavor.keys():
        raise UsageError("a flavor is needed: --vcpus and --ram, or a FILE")
    flavor["extra_specs"] = {**flavor["extra_specs"], **_pairs("--property", parsed.property)}
    properties = {} if parsed.image is None else image_from_openstack_json(read_json(parsed.image))
    options = {
        "boot_from_volume": parsed.boot_from_volume,
        "limit": parsed.limit,
        "strict": parsed.strict,
        "pcpu_fallback": parsed.pcpu_fallback,
        "numa": GRANULAR if parsed.granular else FLAT,
    }
    image = {**properties, **_pairs("--image-property", parsed.image_property)}
    aggregates = getattr(parsed, "aggregate", None) or None
    return {"flavor": flavor, "image": image, "options": options, **given(member_of=aggregates)}


def note_ignored(command: ActionCommand, request: Mapping[str, Any]) -> None:
    """Print in one line what a translation ignores of the flavor in the request, if there is one."""
    from placement.flavors.nova.extra_spec_rules import NOT_DECIDED, ignored_extra_specs

    if "flavor" not in request:
        return
    ignored = ignored_extra_specs(request["flavor"]["extra_specs"])
    if request["options"]["strict"]:
        # The others are refused.
        ignored = tuple(each for each in ignored if each.code == NOT_DECIDED)
    if ignored:
        command.note(f"Ignored: {'; '.join(str(each) for each in ignored)}")


def document_beside(parsed: argparse.Namespace, file: str | None = None) -> dict[str, Any]:
    """Return the request, as `document` does, for a command without FILE and limit for its flavor options."""
    return document(argparse.Namespace(**{**vars(parsed), "file": file, "limit": None}))


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"{option}: {text} is not KEY=VALUE")
        pairs[key] = value
    return pairs
