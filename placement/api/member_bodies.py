"""The bodies of /ext/v1/claims for many: members, and rules between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from placement.api import context
from placement.api.bodies import BODY_PREFIX
from placement.api.capacity_question import world_of
from placement.api.claim_bodies import CLAIMANT, wish_at
from placement.api.schemas.base import load
from placement.api.schemas.candidates import MOST_MEMBERS, ClaimForMany
from placement.domain.errors import BadRequest
from placement.domain.member_rules import MemberRule, Per, RuleKind
from placement.services.placement.applications import Applicant, Application
from placement.services.placement.best_fit import Together
from placement.services.placement.shortlists import Wish
from placement.services.planning.world import WorldRequest

_OWN = CLAIMANT[1:]
_WHO = ("consumer_uuid", "consumer_uuids", "count")
# What is said only of some kinds of rules, or of some kinds of places.
_OF_KINDS = {"count": RuleKind.AT_MOST, "max_skew": RuleKind.SPREAD}
_OF_PLACES = {
    "aggregates": Per.AGGREGATE,
    "resource_class": Per.PROVIDER,
    "trait": Per.PROVIDER,
    "depth": Per.PROVIDER,
}
_MARKERS = ("resource_class", "trait", "depth")


@dataclass(frozen=True, slots=True)
class ManyClaims:
    """Who claims what, and what they keep to; `world` is what is to be different where nothing is written."""

    applications: list[Application]
    together: Together
    world: WorldRequest | None
    places: list[str]


def many_claims(given: object) -> ManyClaims:
    """The claims in a body for many. Raises BadRequest naming the place."""
    body = load(ClaimForMany, context.version(), given, BODY_PREFIX)
    wishes: dict[str | bytes, Wish] = {}
    found: list[Application] = []
    places: list[str] = []
    for number, member in enumerate(body["members"]):
        said = {name: _said(name, number, member, body) for name in _OWN}
        query = _said("query", number, member, body)
        key = query if isinstance(query, str) else orjson.dumps(query, option=orjson.OPT_SORT_KEYS)
        if key not in wishes:
            wishes[key] = wish_at(f"members[{number}]", query)
        group = member.get("group", body.get("group"))
        for uuid, is_new, place in _consumers(number, member):
            applicant = Applicant(uuid, **said)
            found.append(Application(applicant, wishes[key], member.get("name"), group, is_new))
            places.append(place)
    if len(found) > MOST_MEMBERS:
        raise BadRequest(
            f"members: {len(found)} consumers are too many for one claim, at most {MOST_MEMBERS}"
        )
    _refuse_twins(found, places)
    return ManyClaims(found, _together(body, len(found)), _world(body), places)


def _consumers(number: int, member: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    """The consumers of a member, whether each is a new one, and its place in the body."""
    place = f"members[{number}]"
    given = [name for name in _WHO if name in member]
    if not given:
        raise BadRequest(
            f"{BODY_PREFIX}'consumer_uuid' is a required property of {place}, unless it has consumer_uuids "
            "or count"
        )
    if len(given) > 1:
        raise BadRequest(f"{place}.{given[1]}: {given[0]} says already who claims")
    if "count" in member:
        yield from ((str(uuid4()), True, place) for _ in range(member["count"]))
    elif "consumer_uuid" in member:
        yield member["consumer_uuid"], False, place
    else:
        for at, uuid in enumerate(member["consumer_uuids"]):
            yield uuid, False, f"{place}.consumer_uuids[{at}]"


def _said(name: str, number: int, member: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    """What a member says, or all have in common."""
    value = member.get(name, body.get(name))
    if value is None:
        raise BadRequest(f"members[{number}].{name}: is missing, and the claim says none for all members")
    return value


def _refuse_twins(found: list[Application], places: list[str]) -> None:
    first: dict[str, int] = {}
    for at, each in enumerate(found):
        uuid = each.applicant.consumer_uuid
        if first.setdefault(uuid, at) != at:
            here = places[at] if "consumer_uuids" in places[at] else f"{places[at]}.consumer_uuid"
            raise BadRequest(f"{here}: {uuid} is that of {places[first[uuid]]}, too")


def _together(body: Mapping[str, Any], count: int) -> Together:
    minimum = body.get("minimum", 0)
    if body.get("atomic"):
        if "minimum" in body:
            raise BadRequest("minimum: all or none were asked for by atomic")
        minimum = count
    if minimum > count:
        raise BadRequest(f"minimum: there are {count} consumers only")
    names = {member["name"] for member in body["members"] if "name" in member}
    rules = [_rule(f"rules[{at}]", given, names) for at, given in enumerate(body.get("rules", ()))]
    return Together(tuple(rules), minimum)


def _rule(place: str, given: Mapping[str, Any], names: set[str]) -> MemberRule:
    kind, per = RuleKind(given["kind"]), Per(given.get("per", Per.HOST))
    for name, wanted in _OF_KINDS.items():
        if name in given and kind is not wanted:
            raise BadRequest(f"{place}.{name}: is for rules of the kind {wanted}")
    for name, of_per in _OF_PLACES.items():
        if name in given and per is not of_per:
            raise BadRequest(f"{place}.{name}: is for rules per {of_per}")
    if kind is RuleKind.SPREAD and (per is not Per.AGGREGATE or "aggregates" not in given):
        raise BadRequest(f"{place}.aggregates: says over which aggregates to spread, with per aggregate")
    if per is Per.PROVIDER and sum(name in given for name in _MARKERS) != 1:
        raise BadRequest(f"{place}.per: provider needs one of {', '.join(_MARKERS)}")
    for at, name in enumerate(given.get("members", ())):
        if name not in names:
            raise BadRequest(f"{place}.members[{at}]: no member has the name {name!r}")
    return MemberRule(
        kind,
        per,
        given.get("count", 1),
        given.get("max_skew", 1),
        tuple(given.get("aggregates", ())),
        given.get("resource_class"),
        given.get("trait"),
        given.get("depth"),
        frozenset(given["members"]) if "members" in given else None,
        tuple(given.get("consumers", ())),
        tuple(given.get("groups", ())),
        given.get("weight"),
    )


def _world(body: Mapping[str, Any]) -> WorldRequest | None:
    if body.get("dry_run"):
        return world_of(body.get("world", {}))
    if "world" in body:
        raise BadRequest("world: nothing is claimed in another world; dry_run asks what would be")
    return None
