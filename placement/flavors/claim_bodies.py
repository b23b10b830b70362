"""The bodies of /ext/v1/claims: which consumer claims what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from placement.allocations import candidate_query, candidate_schemas
from placement.allocations.applications import Claimant, ClaimApplication, ClaimQuery
from placement.allocations.best_fit import MemberOptions
from placement.allocations.candidate_query import world_of
from placement.allocations.candidates import CandidateSearch
from placement.allocations.world import WorldRequest
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BODY, BadRequest, RequestPlace
from placement.engine.domain.member_rules import MOST_MEMBERS, MemberRule, Per, RuleKind
from placement.flavors.server_groups import server_group
from placement.flavors.service import FlavorClaim, Flavors
from placement.http.operations import load
from placement.http.query_strings import read

CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")
_OWN = CLAIMANT[1:]
_CONSUMERS = ("consumer_uuid", "consumer_uuids", "count")
# Members of a rule that only some kinds of rules, or of places, may have.
_OF_KINDS = {"count": RuleKind.AT_MOST, "max_skew": RuleKind.SPREAD}
_OF_PLACES = {
    "aggregates": Per.AGGREGATE,
    "resource_class": Per.PROVIDER,
    "trait": Per.PROVIDER,
    "depth": Per.PROVIDER,
}
_FLAVOR = ("flavor", "image", "options", "member_of", "cluster", "closed")
_MARKERS = ("resource_class", "trait", "depth")


def application(given: object, search: CandidateSearch) -> ClaimApplication:
    """Return the consumer that claims, and its query. Raises BadRequest."""
    is_json = isinstance(given, dict) and isinstance(given.get("query"), dict)
    body = load(
        candidate_schemas.NewJsonClaimSchema if is_json else candidate_schemas.NewClaimSchema, NEWEST, given
    )
    query = body.pop("query")
    return ClaimApplication(Claimant(**body), _query(query, BODY / "query", search))


def query_at(place: RequestPlace, query: object, search: CandidateSearch) -> ClaimQuery:
    """Return the query, text or JSON, at a place of a body. Raises BadRequest naming the place."""
    given: str | Mapping[str, Any]
    if isinstance(query, dict):
        given = load(candidate_schemas.CandidatesBodySchema, NEWEST, query, place=place)
    elif isinstance(query, str):
        given = query
    else:
        raise BadRequest("must be a query string or a query in JSON", place=place)
    return _query(given, place, search)


def _query(given: str | Mapping[str, Any], place: RequestPlace, search: CandidateSearch) -> ClaimQuery:
    """Return the query of a claim, which keeps to its schema. Raises BadRequest."""
    try:
        query, options = (
            candidate_query.parse_extended(read(given), search)
            if isinstance(given, str)
            else candidate_query.parse_json(given, search)
        )
    except BadRequest as error:
        raise error.within(place) from None
    if options.explain or query.limit is not None:
        name = "explain" if options.explain else "limit"
        raise BadRequest(f"{name} makes no sense in a claim", place=place)
    return ClaimQuery(query, options)


@dataclass(frozen=True, slots=True)
class ManyClaims:
    """The claims of many consumers and their conditions; `world`: the differences of a dry run."""

    applications: list[ClaimApplication]
    together: MemberOptions
    world: WorldRequest | None

    @property
    def is_one_decision(self) -> bool:
        """Return whether one outcome depends on others, so that all consumers are decided on together."""
        fallbacks = any(each.fallback for each in self.applications)
        return bool(self.together.rules or self.together.minimum) or fallbacks


def many_claims(given: object, search: CandidateSearch, flavors: Flavors) -> ManyClaims:
    """Read the claims of a body for many. Raises BadRequest with the place."""
    body = load(candidate_schemas.ClaimForManySchema, NEWEST, given)
    # Before any is made: a small body may name a hundred million.
    count = sum(each.get("count", len(each.get("consumer_uuids", "1"))) for each in body["members"])
    if count > MOST_MEMBERS:
        raise BadRequest(
            f"{count} consumers are more than {MOST_MEMBERS}, too many for a claim",
            place=BODY / "members",
        )
    server_rule = server_group(body["server_group"]) if "server_group" in body else None
    common = body.get("group", server_rule.groups[0] if server_rule and server_rule.groups else None)
    claims: dict[bytes, FlavorClaim] = {}
    applications: list[ClaimApplication] = []
    for number, member in enumerate(body["members"]):
        owner = _owner(number, member, body)
        claim = _claim(number, member, body, claims, search, flavors)
        joined = member.get("group", common)
        is_listed = "consumer_uuids" in member
        for uuid, is_new, place in _consumers(number, member):
            claimant, name = Claimant(uuid, **owner), member.get("name")
            rest = (claim.fallback_query, claim.dedicated_cpus, place, is_listed)
            applications.append(ClaimApplication(claimant, claim.query, name, joined, is_new, *rest))
    _refuse_repeated(applications)
    together = _together(body, len(applications), server_rule, search)
    world = None
    if body.get("dry_run"):
        world = world_of(body.get("world", {}))
    elif "world" in body:
        raise BadRequest("nothing can be claimed in an imagined world; use dry_run", place=BODY / "world")
    return ManyClaims(applications, together, world)


def _owner(number: int, member: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the project, user and type of a member's consumers, its own or the claim's."""
    owner = {name: member.get(name, body.get(name)) for name in _OWN}
    for name, value in owner.items():
        if value is None:
            raise BadRequest(
                "is missing, and the claim says none for all members",
                place=BODY / "members" / number / name,
            )
    return owner


def _refuse_repeated(applications: Iterable[ClaimApplication]) -> None:
    """Raise BadRequest for a consumer that is named twice."""
    first: dict[str, RequestPlace] = {}
    for each in applications:
        uuid = each.claimant.consumer_uuid
        if uuid in first:
            place = each.place if each.is_listed else each.place / "consumer_uuid"
            raise BadRequest(f"{uuid} is already that of {first[uuid]}", place=place)
        first[uuid] = each.place


def _claim(
    number: int,
    member: Mapping[str, Any],
    body: Mapping[str, Any],
    known: dict[bytes, FlavorClaim],
    search: CandidateSearch,
    flavors: Flavors,
) -> FlavorClaim:
    """Return the query or flavor of a member, else the claim's; equal ones are read once."""
    place = BODY / "members" / number
    stated = member if "query" in member or "flavor" in member else body
    own = place if stated is member else BODY
    if "query" in stated and "flavor" in stated:
        raise BadRequest("a claim is for a query or for a flavor, not for both", place=own / "query")
    if "flavor" in stated:
        return _claim_of_flavor(place, member, body, known, flavors)
    for name in _FLAVOR[1:]:
        if name in member:
            raise BadRequest("is for flavors, and this member has a query", place=place / name)
    if "query" not in stated:
        raise BadRequest("is missing, and the claim says none for all members", place=place / "query")
    key = orjson.dumps(stated["query"], option=orjson.OPT_SORT_KEYS)
    if key not in known:
        known[key] = FlavorClaim(query_at(own / "query", stated["query"], search), None, None)
    return known[key]


def _claim_of_flavor(
    place: RequestPlace,
    member: Mapping[str, Any],
    body: Mapping[str, Any],
    known: dict[bytes, FlavorClaim],
    flavors: Flavors,
) -> FlavorClaim:
    """Return the claim for a flavor; a member may change its parts."""
    document = {name: body[name] for name in _FLAVOR if name in body}
    document |= {name: member[name] for name in _FLAVOR if name in member}
    key = orjson.dumps([document], option=orjson.OPT_SORT_KEYS)
    if key not in known:
        # Errors about a flavor name the member if it gave a part of it.
        try:
            known[key] = flavors.claim_of(document)
        except BadRequest as error:
            raise error.within(place if any(name in member for name in _FLAVOR) else BODY) from None
    return known[key]


def _consumers(number: int, member: Mapping[str, Any]) -> Iterator[tuple[str, bool, RequestPlace]]:
    """Yield the consumers of a member, whether each is a new one, and its place in the body."""
    place = BODY / "members" / number
    given = [name for name in _CONSUMERS if name in member]
    if not given:
        raise BadRequest("is missing, and so are consumer_uuids and count", place=place / "consumer_uuid")
    if len(given) > 1:
        raise BadRequest(f"{given[0]} names the consumer already", place=place / given[1])
    if "count" in member:
        yield from ((str(uuid4()), True, place) for _ in range(member["count"]))
    elif "consumer_uuid" in member:
        yield member["consumer_uuid"], False, place
    else:
        for at, uuid in enumerate(member["consumer_uuids"]):
            yield uuid, False, place / "consumer_uuids" / at


def _together(
    body: Mapping[str, Any], count: int, server_rule: MemberRule | None, search: CandidateSearch
) -> MemberOptions:
    minimum = body.get("minimum", 0)
    if body.get("atomic"):
        if "minimum" in body:
            raise BadRequest("all or none were asked for by atomic", place=BODY / "minimum")
        minimum = count
    if minimum > count:
        raise BadRequest(f"there are {count} consumers only", place=BODY / "minimum")
    names = {member["name"] for member in body["members"] if "name" in member}
    rules = [
        _rule(BODY / "rules" / at, given, names, search) for at, given in enumerate(body.get("rules", ()))
    ]
    if server_rule is not None:
        rules.append(server_rule)
    named = len({uuid for rule in rules for uuid in rule.consumers})
    if named > MOST_MEMBERS:
        raise BadRequest(
            f"name {named} consumers, at most {MOST_MEMBERS}; groups may have any number",
            place=BODY / "rules",
        )
    return MemberOptions(tuple(rules), minimum)


def _rule(
    place: RequestPlace, given: Mapping[str, Any], names: set[str], search: CandidateSearch
) -> MemberRule:
    kind, per = RuleKind(given["kind"]), Per(given.get("per", Per.HOST))
    _check_rule(place, given, kind, per)
    for at, name in enumerate(given.get("members", ())):
        if name not in names:
            raise BadRequest(f"no member has the name {name!r}", place=place / "members" / at)
    rest: dict[str, Any] = {"kind": kind, "per": per, "place": place}
    for name, value in given.items():
        rest.setdefault(name, tuple(value) if isinstance(value, list) else value)
    if "members" in given:
        rest["members"] = frozenset(given["members"])
    if "aggregates" in given:
        called = {name: place / "aggregates" / at for at, name in enumerate(given["aggregates"])}
        uuids = search.called.aggregates(called)
        rest["aggregates"] = tuple(dict.fromkeys(uuids[name] for name in given["aggregates"]))
    return MemberRule(**rest)


def _check_rule(place: RequestPlace, given: Mapping[str, Any], kind: RuleKind, per: Per) -> None:
    """Raise BadRequest for members of a rule that its kind or place does not have, or lacks."""
    for name, of_kind in _OF_KINDS.items():
        if name in given and kind is not of_kind:
            raise BadRequest(f"is for rules of the kind {of_kind}", place=place / name)
    for name, of_per in _OF_PLACES.items():
        if name in given and per is not of_per:
            raise BadRequest(f"is for rules per {of_per}", place=place / name)
    if kind is RuleKind.SPREAD and (per is not Per.AGGREGATE or "aggregates" not in given):
        raise BadRequest(
            "says over which aggregates to spread, with per aggregate", place=place / "aggregates"
        )
    if per is Per.PROVIDER and sum(name in given for name in _MARKERS) != 1:
        raise BadRequest(f"provider needs one of {', '.join(_MARKERS)}", place=place / "per")
