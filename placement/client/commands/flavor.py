"""`placement flavor`: nova flavors translated, here or by a service that also knows where they fit."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from placement.client.commands import candidates
from placement.client.commands.candidates import Explaining
from placement.client.display import ENOUGH, Details, argument, read_json
from placement.client.formats import Cells, Groups, Lines
from placement.engine.domain.errors import PlacementError

if TYPE_CHECKING:
    from placement.client.client import Client

# The options for amounts: the fields of the flavor, and what they mean.
_AMOUNTS = {
    "vcpus": ("vcpus", "guest CPUs"),
    "ram": ("memory_mb", "MiB of memory"),
    "disk": ("root_gb", "GiB of root disk"),
    "ephemeral": ("ephemeral_gb", "GiB of ephemeral disk"),
    "swap": ("swap_mb", "MiB of swap"),
}
_SHOWN_AS: dict[str, Callable[[Any], object]] = {
    "groups": Groups,
    "root_required": Lines,
    "same_subtree": lambda subtrees: Lines([",".join(suffixes) for suffixes in subtrees]),
    "cells": Cells,
    "warnings": Lines,
}
OPTIONS = (
    *(argument(f"--{name}", type=int, metavar="N", help=meaning) for name, (_, meaning) in _AMOUNTS.items()),
    argument("--property", action="append", default=[], metavar="KEY=VALUE", help="extra spec, repeatable"),
    argument("--image", metavar="FILE", help="image as `openstack image show -f json` prints it; - likewise"),
    argument(
        "--image-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="image property, repeatable",
    ),
    argument("--granular", action="store_true", help="a request group for each guest NUMA cell"),
    argument("--strict", action="store_true", help="refuse what nova's validation refuses"),
    argument(
        "--pcpu-fallback", action="store_true", help="also ask for shared CPUs in place of dedicated ones"
    ),
    argument("--boot-from-volume", action="store_true", help="leave the root disk out"),
)
"""The options that describe a flavor, or add to one."""
_FLAVOR = (
    argument("file", nargs="?", metavar="FILE", help="flavor as JSON; - for standard input"),
    *OPTIONS,
    argument("--limit", type=int, metavar="N", help="candidates at most"),
)
_CLUSTER = argument("--cluster", help="look in this cluster only")


class TranslateFlavor(Details):
    """Translate a flavor to a candidates query and to the guest's CPU layout; needs no service.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = _FLAVOR
    auth_required = False

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Translate and show."""
        from placement.flavors.nova import translate_document, translation_document

        answer = translation_document(translate_document(document(parsed_args)))
        shown = [_SHOWN_AS[name](value) if name in _SHOWN_AS else value for name, value in answer.items()]
        return tuple(answer), shown


class ListFlavorCandidates(candidates.CandidateListing):
    """List the candidates of a flavor, a row for each provider of each candidate.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = (*_FLAVOR, _CLUSTER)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and list."""
        limited = parsed_args.limit is not None
        if self.for_people(parsed_args) and not limited:
            parsed_args.limit = candidates.SHOWN + ENOUGH
        found = _searched(self.client, parsed_args)
        if found["query_used"] == "fallback_querystring":
            self.note("No dedicated CPUs are free; these candidates give shared ones.")
        return candidates.COLUMNS, self.rows(parsed_args, found["candidates"], limited=limited)


class ExplainFlavor(Explaining):
    """Explain where a flavor fits, or which of its conditions no provider meets and which come closest.

    FILE is what `openstack flavor show -f json` prints; options override what it says.
    """

    arguments = (*_FLAVOR, _CLUSTER)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Ask and tell."""
        parsed_args.limit = parsed_args.limit or ENOUGH
        found = _searched(self.client, parsed_args, explain=True)
        if found["query_used"] == "fallback_querystring":
            self.note("No dedicated CPUs are free; this is about shared ones.")
        return self.told(parsed_args, found["explanation"])


def _searched(client: Client, parsed: argparse.Namespace, **parts: object) -> Any:
    """Return the answer of the service about a flavor."""
    request = {**document(parsed), **parts}
    if parsed.cluster is not None:
        request["cluster"] = parsed.cluster
    return client.post("/ext/v1/flavors/candidates", request)


def document(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the translation request that the arguments stand for."""
    if parsed.file == "-" and parsed.image == "-":
        raise PlacementError("--image: standard input is read for the flavor already")
    return {"flavor": _flavor(parsed), "image": _image(parsed), "options": _options(parsed)}


def document_beside(parsed: argparse.Namespace, file: str | None = None) -> dict[str, Any]:
    """Return the request, as `document` does, for a command without FILE and limit for its flavor options."""
    return document(argparse.Namespace(**{**vars(parsed), "file": file, "limit": None}))


def _flavor(parsed: argparse.Namespace) -> dict[str, Any]:
    from placement.flavors.nova import flavor_from_openstack_json

    flavor: dict[str, Any] = {"extra_specs": {}}
    if parsed.file is not None:
        flavor = asdict(flavor_from_openstack_json(read_json(parsed.file)))
    given = {field: getattr(parsed, name) for name, (field, _) in _AMOUNTS.items()}
    flavor.update({field: amount for field, amount in given.items() if amount is not None})
    if not {"vcpus", "memory_mb"} <= flavor.keys():
        raise PlacementError("a flavor is needed: --vcpus and --ram, or a FILE")
    flavor["extra_specs"] = {**flavor["extra_specs"], **_pairs("--property", parsed.property)}
    return flavor


def _image(parsed: argparse.Namespace) -> dict[str, str]:
    from placement.flavors.nova import image_from_openstack_json

    properties = {} if parsed.image is None else image_from_openstack_json(read_json(parsed.image))
    return {**properties, **_pairs("--image-property", parsed.image_property)}


def _options(parsed: argparse.Namespace) -> dict[str, Any]:
    from placement.flavors.nova.flavor import FLAT, GRANULAR

    return {
        "boot_from_volume": parsed.boot_from_volume,
        "limit": parsed.limit,
        "strict": parsed.strict,
        "pcpu_fallback": parsed.pcpu_fallback,
        "numa": GRANULAR if parsed.granular else FLAT,
    }


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise PlacementError(f"{option}: {text} is no KEY=VALUE")
        pairs[key] = value
    return pairs
