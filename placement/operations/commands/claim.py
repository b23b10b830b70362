"""`placement claim`: the best candidate of a request, claimed in one call."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from placement.operations.commands import names
from placement.operations.commands.arguments import QUERY, argument, consumer_uuid
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
        argument("--project", default=_OWNER, help="its project (default %(default)s)"),
        argument("--user", default=_OWNER, help="its user (default %(default)s)"),
        argument("--type", default=_TYPE, help="what it is (default %(default)s)"),
        QUERY,
    )
    left_out_first = ("UUID", "Groups")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Claim and list."""
        claim = {
            "consumer_uuid": str(uuid4()) if parsed_args.consumer is None else parsed_args.consumer,
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            "query": urlencode(parsed_args.query),
        }
        client = self.client
        body = client.post("/ext/v1/claims", claim)
        held, mappings = body["allocations"], body.get("mappings", {})
        known = names.of(client, held)
        return _COLUMNS, [
            (
                body["consumer_uuid"],
                known.get(provider, provider),
                ResourceAmounts(entry["resources"]),
                Lines([suffix or "(base)" for suffix, used in mappings.items() if provider in used]),
                provider,
            )
            for provider, entry in held.items()
        ]
