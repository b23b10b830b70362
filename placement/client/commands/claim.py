"""`placement claim`: the best candidates of a request, claimed in one call, under rules between consumers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from placement.client.arguments import (
    CLOSED,
    IN_AGGREGATES,
    IN_CLUSTER,
    UsageError,
    argument,
    consumer_uuid,
    given,
    parameter,
    positive,
    query_of,
    repeatable,
)
from placement.client.cells import amounts, lines
from placement.client.command import Listing
from placement.client.commands.capacity import WORLD, world_of
from placement.client.commands.flavor import OPTIONS, document_beside, note_ignored
from placement.client.provider_names import names_of
from placement.client.tables import ShownTable
from placement.engine.domain.member_rules import MOST_MEMBERS

_COLUMNS = ("provider", "amounts", "groups", "consumer", "uuid")
_OWNER = "operator"
_TYPE = "INSTANCE"
_FOR_MANY = f"for N new consumers, at most {MOST_MEMBERS}, all or none"


_RULES = (
    argument("--apart", action="store_true", help="on different hosts"),
    argument("--per-host", type=positive, metavar="N", help="at most N on a host"),
    argument("--together", action="store_true", help="all on one host"),
    repeatable("--spread", "AGGREGATE", "evenly over these aggregates, by uuid or name, repeatable"),
    argument("--soft", action="store_true", help="as far as that is possible"),
    argument(
        "--policy", metavar="POLICY", help="as a server group of nova has it, such as soft-anti-affinity"
    ),
    argument("--group", metavar="NAME", help="group that they join; rules count its consumers"),
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
        argument(
            "--count",
            type=positive,
            metavar="N",
            help=f"for N new consumers, all or none; at most {MOST_MEMBERS}",
        ),
        argument("--minimum", type=positive, metavar="N", help="for N of them at least, or none"),
        *_RULES,
        argument("--project", default=_OWNER, help="its project (default %(default)s)"),
        argument("--user", default=_OWNER, help="its user (default %(default)s)"),
        argument("--type", default=_TYPE, help="its type (default %(default)s)"),
        argument("query", nargs="*", type=parameter, metavar="KEY=VALUE", help="query parameter, as below"),
        *OPTIONS,
        IN_CLUSTER,
        CLOSED,
        IN_AGGREGATES,
        argument("--dry-run", action="store_true", help="claim nothing; show what they would get"),
        *WORLD,
    )
    explains_queries = True
    left_out_first = ("uuid", "groups", "consumer")
    kept = ("amounts",)

    def take_action(self, parsed_args: argparse.Namespace) -> ShownTable:
        if parsed_args.count is not None and parsed_args.count > MOST_MEMBERS:
            raise UsageError(f"--count: at most {MOST_MEMBERS}, not {parsed_args.count}")
        if parsed_args.count is not None and parsed_args.consumer is not None:
            raise UsageError("--count: is for new consumers, but --consumer names one")
        client = self.client
        claim = {
            "project_id": parsed_args.project,
            "user_id": parsed_args.user,
            "consumer_type": parsed_args.type,
            **_wanted(parsed_args),
        }
        note_ignored(self, claim)
        consumer = {"consumer_uuid": parsed_args.consumer or str(uuid4())}
        together = _together(parsed_args)
        if parsed_args.count is None and not together:
            body = client.post("/ext/v1/claims", {**claim, **consumer})
            self._say_how_to_release([body])
            return _COLUMNS, self._rows([body])
        count = parsed_args.count or 1
        members = [consumer, *({"consumer_uuid": str(uuid4())} for _ in range(count - 1))]
        atomic = given(atomic=True if parsed_args.minimum is None else None)
        body = client.post("/ext/v1/claims", {**claim, "members": members, **together, **atomic})
        placed = [each for each in body["members"] if "allocations" in each]
        if len(placed) < count:
            self.note(f"{len(placed)} of {count}: {_refusal(body['members'])}")
        if not parsed_args.dry_run:
            self._say_how_to_release(placed)
        return _COLUMNS, self._rows(placed)

    def _say_how_to_release(self, claimed: Sequence[Mapping[str, Any]]) -> None:
        for each in claimed:
            self.note(f"To release it: placement allocation delete {each['consumer_uuid']}")

    def _rows(self, claimed: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        known = names_of(self.client, {provider for each in claimed for provider in each["allocations"]})
        rows = []
        for each in claimed:
            mappings = each.get("mappings", {}).items()
            for provider, entry in each["allocations"].items():
                groups = lines([suffix or "(base)" for suffix, used in mappings if provider in used])
                name, held = known.get(provider, provider), amounts(entry["resources"])
                rows.append((name, held, groups, each["consumer_uuid"], provider))
        return rows


def _refusal(members: Sequence[Mapping[str, Any]]) -> str:
    """Return why the first consumer that got nothing was refused."""
    detail: str = next(each["error"]["detail"] for each in members if "error" in each)
    return detail.strip().splitlines()[-1].strip()


def _wanted(parsed: argparse.Namespace) -> dict[str, Any]:
    query = query_of(parsed)
    is_query = any(key not in ("cluster", "closed", "member_of") for key, _ in query)
    if is_query == (parsed.vcpus is not None):
        raise UsageError("nothing to claim: give a query such as resources=VCPU:2, or --vcpus and --ram")
    if is_query:
        return {"query": urlencode(query)}
    member_of = [value for key, value in query if key == "member_of"] or None
    beside = given(cluster=parsed.cluster, member_of=member_of, closed=parsed.closed or None)
    return {**document_beside(parsed), **beside}


def _together(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what applies to the consumers together, as the API takes it; empty if nothing does."""
    rules = _rules(parsed)
    if parsed.soft and not rules:
        raise UsageError("--soft: needs a rule to soften: --apart, --per-host, --together or --spread")
    groups = None if parsed.group is None else [parsed.group]
    beside = given(weight=1 if parsed.soft else None, groups=groups)
    server_group = {"policy": parsed.policy, **given(id=parsed.group)}
    return given(
        group=parsed.group,
        rules=[{**rule, **beside} for rule in rules] or None,
        server_group=None if parsed.policy is None else server_group,
        minimum=parsed.minimum,
        dry_run=parsed.dry_run or None,
        world=world_of(parsed) or None,
    )


def _rules(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rules between consumers that the options name."""
    rules: list[dict[str, Any]] = []
    if parsed.apart:
        rules.append({"kind": "at_most"})
    if parsed.per_host is not None:
        rules.append({"kind": "at_most", "count": parsed.per_host})
    if parsed.together:
        rules.append({"kind": "together"})
    if parsed.spread:
        rules.append({"kind": "spread", "per": "aggregate", "aggregates": parsed.spread})
    return rules
