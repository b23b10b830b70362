"""`placement claim`: the best candidate of a request, claimed in one call."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from placement.domain.errors import PlacementError
from placement.operations.commands import names
from placement.operations.commands.arguments import QUERY, argument, consumer_uuid, positive
from placement.operations.commands.columns import Lines, ResourceAmounts
from placement.operations.commands.display import Listing

_COLUMNS = ("Consumer", "Provider", "Amounts", "Groups", "UUID")
_OWNER = "operator"
_TYPE = "INSTANCE"


class ClaimRequest(Listing):
    """Let a consumer hold the best candidate of a request; repeating it changes nothing.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2.
    """

    arguments = (
        argument(
            "--consumer", type=consumer_uuid, metavar="UUID", help="who shall hold it (default a new one)"
        ),
        argument("--count", type=positive, metavar="N", help="for so many new consumers, all or none"),
        argument("--project", default=_OWNER, help="its project (default %(default)s)"),
        argument("--user", default=_OWNER, help="its user (default %(default)s)"),
        argument("--type", default=_TYPE, help="what it is (default %(default)s)"),
        QUERY,
    )
    left_out_first = ("UUID", "Groups")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Claim and list."""
        if parsed_args.count is not None and parsed_args.consumer is not None:
            raise PlacementError("--count: is for new consumers, of which --consumer names one")
        claim: dict[str, Any] = {
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            "query": urlencode(parsed_args.query),
        }
        if parsed_args.count is None:
            claim["consumer_uuid"] = str(uuid4()) if parsed_args.consumer is None else parsed_args.consumer
        else:
            claim["atomic"] = True
            claim["members"] = [{"consumer_uuid": str(uuid4())} for _ in range(parsed_args.count)]
        body = self.client.post("/ext/v1/claims", claim)
        return _COLUMNS, self._rows(body.get("members", [body]))

    def _rows(self, claimed: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        known = names.of(self.client, {provider for each in claimed for provider in each["allocations"]})
        return [
            (
                each["consumer_uuid"],
                known.get(provider, provider),
                ResourceAmounts(entry["resources"]),
                Lines([suffix or "(base)" for suffix, used in _groups(each) if provider in used]),
                provider,
            )
            for each in claimed
            for provider, entry in each["allocations"].items()
        ]


def _groups(claimed: Mapping[str, Any]) -> Collection[tuple[str, list[str]]]:
    """Which group got which providers."""
    mappings: Mapping[str, list[str]] = claimed.get("mappings", {})
    return mappings.items()
