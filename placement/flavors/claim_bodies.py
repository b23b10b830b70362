"""The bodies of /ext/v1/claims: which consumer claims what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from placement.allocations import candidate_query
from placement.allocations.applications import Claimant, ClaimApplication, ClaimQuery
from placement.allocations.best_fit import MemberOptions
from placement.allocations.candidate_query import world_of
from placement.allocations.candidate_schemas import (
    MOST_MEMBERS,
    CandidatesBodySchema,
    ClaimForManySchema,
    NewClaimSchema,
    NewJsonClaimSchema,
)
from placement.allocations.world import WorldRequest
from placement.common.texts import disturbing
from placement.engine.domain.errors import BadRequest, BadValues
from placement.engine.domain.groups import MemberRule, Per, RuleKind
from placement.engine.domain.identifiers import normalize_uuid
from placement.flavors.nova.flavor import FlavorProblem, FlavorRefused
from placement.flavors.service import FlavorWish
from placement.http import context
from placement.http.context import use_cases
from placement.http.operations import load, read

CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")


def application(given: object) -> ClaimApplication:
    """Return the consumer that claims, and its wish. Raises BadRequest."""
    is_json = isinstance(given, dict) and isinstance(given.get("query"), dict)
    body = load(NewJsonClaimSchema if is_json else NewClaimSchema, context.version(), given)
    query = body.pop("query")
    return ClaimApplication(Claimant(**body), _wish(query, "query: "))


def wish_at(place: str, query: object) -> ClaimQuery:
    """Return the wish of a query, text or JSON, at a place of a body. Raises BadRequest naming the place."""
    given: str | Mapping[str, Any]
    if isinstance(query, dict):
        given = load(CandidatesBodySchema, context.version(), query, place=place)
    elif isinstance(query, str):
        given = query
    else:
        raise BadRequest(f"{place}: must be a query string or a query in JSON")
    try:
        return _wish(given, "")
    except BadValues as error:
        raise BadValues([f"{place}: {each}" for each in error.findings]) from None
    except BadRequest as error:
        raise BadRequest(f"{place}: {error}", code=error.code) from None


def _wish(given: str | Mapping[str, Any], place: str) -> ClaimQuery:
    """Return the wish of a query that keeps to its schema. Raises BadRequest."""
    query, options = (
        candidate_query.parse_extended(read(given))
        if isinstance(given, str)
        else candidate_query.parse_json(given)
    )
    if options.explain or query.limit is not None:
        name = "explain" if options.explain else "limit"
        raise BadRequest(f"{place}{name} makes no sense in a claim")
    return ClaimQuery(query, options)


# The bodies of /ext/v1/claims for many: members, and rules between them.


_OWN = CLAIMANT[1:]
_WHO = ("consumer_uuid", "consumer_uuids", "count")
# Members of a rule that only some kinds of rules, or of places, may have.
_OF_KINDS = {"count": RuleKind.AT_MOST, "max_skew": RuleKind.SPREAD}
_OF_PLACES = {
    "aggregates": Per.AGGREGATE,
    "resource_class": Per.PROVIDER,
    "trait": Per.PROVIDER,
    "depth": Per.PROVIDER,
}
_FLAVOR = ("flavor", "image", "options", "cluster")
_MARKERS = ("resource_class", "trait", "depth")


@dataclass(frozen=True, slots=True)
class ManyClaims:
    """The claims of many consumers and their conditions; `world`: what is to be different in a dry run."""

    applications: list[ClaimApplication]
    together: MemberOptions
    world: WorldRequest | None

    @property
    def is_one_decision(self) -> bool:
        """Return whether one outcome depends on others, so that all consumers are decided on together."""
        fallbacks = any(each.fallback for each in self.applications)
        return bool(self.together.rules or self.together.minimum) or fallbacks


def many_claims(given: object) -> ManyClaims:
    """Read the claims of a body for many. Raises BadRequest with the place."""
    body = load(ClaimForManySchema, context.version(), given)
    # Before any is made: a small body may name a hundred million.
    count = sum(each.get("count", len(each.get("consumer_uuids", "1"))) for each in body["members"])
    if count > MOST_MEMBERS:
        raise BadRequest(f"members: {count} consumers are more than {MOST_MEMBERS}, too many for a claim")
    servers = server_group(body["server_group"]) if "server_group" in body else None
    common = body.get("group", servers.groups[0] if servers and servers.groups else None)
    wishes: dict[bytes, FlavorWish] = {}
    found: list[ClaimApplication] = []
    for number, member in enumerate(body["members"]):
        stated = {name: member.get(name, body.get(name)) for name in _OWN}
        for name, value in stated.items():
            if value is None:
                place = f"members[{number}].{name}"
                raise BadRequest(f"{place}: is missing, and the claim says none for all members")
        wanted = _wanted(number, member, body, wishes)
        joined = member.get("group", common)
        for uuid, is_new, place in _consumers(number, member):
            claimant, name = Claimant(uuid, **stated), member.get("name")
            rest = (wanted.fallback, wanted.dedicated_cpus, place)
            found.append(ClaimApplication(claimant, wanted.wish, name, joined, is_new, *rest))
    first: dict[str, str] = {}
    for each in found:
        uuid = each.applicant.consumer_uuid
        if uuid in first:
            where = each.place if "." in each.place else f"{each.place}.consumer_uuid"
            raise BadRequest(f"{where}: {uuid} is that of {first[uuid]}, too")
        first[uuid] = each.place
    together = _together(body, len(found), servers)
    world = None
    if body.get("dry_run"):
        world = world_of(body.get("world", {}))
    elif "world" in body:
        raise BadRequest("world: nothing is claimed in another world; dry_run asks what would be")
    return ManyClaims(found, together, world)


def _wanted(
    number: int, member: Mapping[str, Any], body: Mapping[str, Any], known: dict[bytes, FlavorWish]
) -> FlavorWish:
    """Return the wish of a member: its query or flavor, else the claim's; equal ones share one wish."""
    place = f"members[{number}]"
    stated = member if "query" in member or "flavor" in member else body
    own = f"{place}." if stated is member else ""
    if "query" in stated and "flavor" in stated:
        raise BadRequest(f"{own}query: a claim is for a query or for a flavor, not for both")
    if "flavor" not in stated:
        for name in _FLAVOR[1:]:
            if name in member:
                raise BadRequest(f"{place}.{name}: is for flavors, and this member has a query")
        if "query" not in stated:
            raise BadRequest(f"{place}.query: is missing, and the claim says none for all members")
        key = orjson.dumps(stated["query"], option=orjson.OPT_SORT_KEYS)
        if key not in known:
            known[key] = FlavorWish(wish_at(f"{own}query", stated["query"]), None, None)
        return known[key]
    document = {name: body[name] for name in _FLAVOR if name in body}
    document |= {name: member[name] for name in _FLAVOR if name in member}
    key = orjson.dumps([document], option=orjson.OPT_SORT_KEYS)
    if key not in known:
        # Errors about a flavor name the member if it gave a part of it.
        prefix = f"{place}: " if any(name in member for name in _FLAVOR) else ""
        try:
            known[key] = use_cases().flavors.wish(document)
        except FlavorRefused as refused:
            problems = (FlavorProblem(each.code, f"{prefix}{each.message}") for each in refused.problems)
            raise FlavorRefused(tuple(problems)) from None
        except BadRequest as error:
            raise BadRequest(f"{prefix}{error}", code=error.code) from None
    return known[key]


def _consumers(number: int, member: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    """Yield the consumers of a member, whether each is a new one, and its place in the body."""
    place = f"members[{number}]"
    given = [name for name in _WHO if name in member]
    if not given:
        raise BadRequest(f"{place}.consumer_uuid: is missing, and so are consumer_uuids and count")
    if len(given) > 1:
        raise BadRequest(f"{place}.{given[1]}: {given[0]} names the consumer already")
    if "count" in member:
        yield from ((str(uuid4()), True, place) for _ in range(member["count"]))
    elif "consumer_uuid" in member:
        yield member["consumer_uuid"], False, place
    else:
        for at, uuid in enumerate(member["consumer_uuids"]):
            yield uuid, False, f"{place}.consumer_uuids[{at}]"


def _together(body: Mapping[str, Any], count: int, servers: MemberRule | None) -> MemberOptions:
    minimum = body.get("minimum", 0)
    if body.get("atomic"):
        if "minimum" in body:
            raise BadRequest("minimum: all or none were asked for by atomic")
        minimum = count
    if minimum > count:
        raise BadRequest(f"minimum: there are {count} consumers only")
    names = {member["name"] for member in body["members"] if "name" in member}
    rules = [_rule(f"rules[{at}]", given, names) for at, given in enumerate(body.get("rules", ()))]
    if servers is not None:
        rules.append(servers)
    named = len({uuid for rule in rules for uuid in rule.consumers})
    if named > MOST_MEMBERS:
        raise BadRequest(f"rules: name {named} consumers, at most {MOST_MEMBERS}; groups may have any number")
    return MemberOptions(tuple(rules), minimum)


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
    rest: dict[str, Any] = {"kind": kind, "per": per, "place": place}
    for name, value in given.items():
        rest.setdefault(name, tuple(value) if isinstance(value, list) else value)
    if "members" in given:
        rest["members"] = frozenset(given["members"])
    return MemberRule(**rest)


# Server groups of nova as rules between members: its policies, and how many servers may be on a host.
#
# Source: nova-flavors.md, "Server groups".


_WEIGHT = 1.0
_POLICIES: dict[str, tuple[RuleKind, float | None]] = {
    "affinity": (RuleKind.TOGETHER, None),
    "anti-affinity": (RuleKind.AT_MOST, None),
    "soft-affinity": (RuleKind.TOGETHER, _WEIGHT),
    "soft-anti-affinity": (RuleKind.AT_MOST, _WEIGHT),
}
_MEMBERS = {"id", "name", "policy", "policies", "rules", "members", "metadata", "project_id", "user_id"}
_MOST = "max_server_per_host"


def server_group(document: object) -> MemberRule:
    """Return the rule of a server group, as nova's API shows it; its servers are claimed into its group.

    Raises BadRequest naming the member.
    """
    if not isinstance(document, Mapping):
        raise BadRequest("server_group: must be an object")
    unknown = sorted(str(name) for name in document.keys() - _MEMBERS)
    if unknown:
        raise BadRequest(f"server_group: {', '.join(unknown)} is no member of a server group")
    policy, policies = document.get("policy"), document.get("policies")
    if policy is None and isinstance(policies, list) and len(policies) == 1:
        # Before microversion 2.64 of nova the policy is the only one of a list.
        policy = policies[0]
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise BadRequest(f"server_group.policy: must be one of {', '.join(_POLICIES)}")
    group = document.get("id")
    if group is not None and (not isinstance(group, str) or not 0 < len(group) <= 255):
        raise BadRequest("server_group.id: must be a text of 1 to 255 characters")
    if found := disturbing(group or ""):
        raise BadRequest(f"server_group.id: has {found}, which no name may have")
    most = _most_per_host(document.get("rules"), policy)
    members = document.get("members", [])
    if not isinstance(members, list):
        raise BadRequest("server_group.members: must be a list of uuids")
    servers = []
    for at, each in enumerate(members):
        uuid = normalize_uuid(each) if isinstance(each, str) else None
        if uuid is None:
            raise BadRequest(f"server_group.members[{at}]: must be a uuid")
        servers.append(uuid)
    kind, weight = _POLICIES[policy]
    return MemberRule(
        kind,
        Per.HOST,
        count=most,
        consumers=tuple(servers),
        groups=() if group is None else (group,),
        weight=weight,
        place="server_group",
    )


def _most_per_host(rules: object, policy: str) -> int:
    if not rules:
        return 1
    if not isinstance(rules, Mapping) or set(rules) != {_MOST}:
        raise BadRequest(f"server_group.rules: the only rule of server groups is {_MOST}")
    most = rules[_MOST]
    if isinstance(most, str) and most.isdecimal():
        most = int(most)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise BadRequest(f"server_group.rules.{_MOST}: must be an integer above 0")
    if policy != "anti-affinity":
        raise BadRequest(f"server_group.rules.{_MOST}: is for the policy anti-affinity")
    return most
