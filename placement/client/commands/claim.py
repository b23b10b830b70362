"""`placement claim`: the best candidates of a request, claimed in one call, under rules between consumers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import uuid4

from placement.client import display
from placement.client.commands.aggregate import resolved, uuid_of
from placement.client.commands.capacity import WORLD, world_of
from placement.client.commands.flavor import OPTIONS, document_beside, note_ignored
from placement.client.display import (
    IN_CLUSTER,
    Listing,
    UsageError,
    argument,
    consumer_uuid,
    given,
    parameter,
    positive,
    query_of,
    repeatable,
)
from placement.client.formats import amounts, lines

if TYPE_CHECKING:
    from placement.client.client import Client

_COLUMNS = ("provider", "amounts", "groups", "consumer", "uuid")
_OWNER = "operator"
_TYPE = "INSTANCE"


_RULES = (
    argument("--apart", action="store_true", help="on different hosts"),
    argument("--per-host", type=positive, metavar="N", help="at most N on a host"),
    argument("--together", action="store_true", help="all on one host"),
    repeatable("--spread", "AGGREGATE", "evenly over these aggregates, by uuid or name, repeatable"),
    argument("--soft", action="store_true", help="as far as that is possible"),
    argument("--policy", metavar="POLICY", help="of a server group of nova, such as soft-anti-affinity"),
    argument("--group", metavar="NAME", help="they join it, and its consumers count in rules"),
)


class ClaimRequest(Listing):
    """Let consumers hold the best candidates of a request; repeating it changes nothing.

    The arguments are the parameters of GET /ext/v1/allocation_candidates, such as resources=VCPU:2; or
    options give a flavor. With --dry-run nothing is claimed, and the last options say what is different then.
    """

    arguments = (
        argument(
            "--consumer",
            type=consumer_uuid,
            metavar="UUID",
            help="the consumer that holds it (default a new one)",
        ),
        argument("--count", type=positive, metavar="N", help="for N new consumers, all or none"),
        argument("--minimum", type=positive, metavar="N", help="for N of them at least, or none"),
        *_RULES,
        argument("--project", default=_OWNER, help="its project (default %(default)s)"),
        argument("--user", default=_OWNER, help="its user (default %(default)s)"),
        argument("--type", default=_TYPE, help="what it is (default %(default)s)"),
        argument("query", nargs="*", type=parameter, metavar="KEY=VALUE", help="query parameter, as below"),
        *OPTIONS,
        IN_CLUSTER,
        argument("--dry-run", action="store_true", help="claim nothing, show what they would get"),
        *WORLD,
    )
    explains_queries = True
    left_out_first = ("uuid", "groups", "consumer")
    kept = ("amounts",)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        if parsed_args.count is not None and parsed_args.consumer is not None:
            raise UsageError("--count: is for new consumers, of which --consumer names one")
        client = self.client
        claim = {
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            **_wanted(client, parsed_args),
        }
        note_ignored(self, claim)
        consumer = {"consumer_uuid": parsed_args.consumer or str(uuid4())}
        together = _together(client, parsed_args)
        if parsed_args.count is None and not together:
            body = client.post("/ext/v1/claims", {**claim, **consumer})
            self._say_how_to_release([body])
            return _COLUMNS, self._rows([body])
        count = parsed_args.count or 1
        members = [consumer, *({"consumer_uuid": str(uuid4())} for _ in range(count - 1))]
        claim |= {"members": members, **together}
        if parsed_args.minimum is None:
            claim["atomic"] = True
        body = client.post("/ext/v1/claims", claim)
        placed = [each for each in body["members"] if "allocations" in each]
        if len(placed) < count:
            refused = next(each for each in body["members"] if "error" in each)
            reason = refused["error"]["detail"].strip().splitlines()[-1].strip()
            self.note(f"{len(placed)} of {count}: {reason}")
        if not parsed_args.dry_run:
            self._say_how_to_release(placed)
        return _COLUMNS, self._rows(placed)

    def _say_how_to_release(self, claimed: Sequence[Mapping[str, Any]]) -> None:
        for each in claimed:
            self.note(f"To release it: placement allocation delete {each['consumer_uuid']}")

    def _rows(self, claimed: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        known = display.of(self.client, {provider for each in claimed for provider in each["allocations"]})
        rows = []
        for each in claimed:
            mappings = each.get("mappings", {}).items()
            for provider, entry in each["allocations"].items():
                groups = lines([suffix or "(base)" for suffix, used in mappings if provider in used])
                name, held = known.get(provider, provider), amounts(entry["resources"])
                rows.append((name, held, groups, each["consumer_uuid"], provider))
        return rows


def _wanted(client: Client, parsed: argparse.Namespace) -> dict[str, Any]:
    query = resolved(client, query_of(parsed))
    is_query = any(key != "cluster" for key, _ in query)
    if is_query == (parsed.vcpus is not None):
        raise UsageError("what to claim is a query such as resources=VCPU:2, or --vcpus and --ram")
    if is_query:
        return {"query": urlencode(query)}
    return {**document_beside(parsed), **given(cluster=parsed.cluster)}


def _together(client: Client, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what applies to the consumers together, as the API takes it; empty if nothing does."""
    rules: list[dict[str, Any]] = []
    if parsed.apart:
        rules.append({"kind": "at_most"})
    if parsed.per_host is not None:
        rules.append({"kind": "at_most", "count": parsed.per_host})
    if parsed.together:
        rules.append({"kind": "together"})
    if parsed.spread:
        aggregates = [uuid_of(client, each) for each in parsed.spread]
        rules.append({"kind": "spread", "per": "aggregate", "aggregates": aggregates})
    if parsed.soft and not rules:
        raise UsageError("--soft: needs a rule to soften: --apart, --per-host, --together or --spread")
    beside: dict[str, Any] = {"weight": 1} if parsed.soft else {}
    found: dict[str, Any] = {}
    if parsed.group is not None:
        found["group"], beside["groups"] = parsed.group, [parsed.group]
    if rules:
        found["rules"] = [{**rule, **beside} for rule in rules]
    if parsed.policy is not None:
        found["server_group"] = {"policy": parsed.policy, **given(id=parsed.group)}
    if parsed.minimum is not None:
        found["minimum"] = parsed.minimum
    if parsed.dry_run:
        found["dry_run"] = True
    if world := world_of(parsed):
        found["world"] = world
    return found
