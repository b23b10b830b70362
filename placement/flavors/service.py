"""The search for where a nova flavor fits: translation, then the ordinary search with its query string.

search request -> limit and cluster taken out -> flavors.nova -> query string -> parser -> Candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from placement.allocations.applications import Claimant, ClaimApplication, ClaimedCandidate, ClaimQuery
from placement.allocations.best_fit import BestFit
from placement.allocations.candidate_query import parse_newest
from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult
from placement.allocations.claims import Claims
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BODY, BadRequest, Conflict, RequestPlace
from placement.engine.domain.groups import UNSUFFIXED, CandidateQuery
from placement.flavors.nova.problems import Problems
from placement.flavors.nova.translation import Translation, translate_document
from placement.flavors.schemas import LONGEST_AGGREGATES, MOST_AGGREGATES
from placement.http.operations import PREFIX
from placement.http.query_grammar import parse_member_of
from placement.pods.services.clusters import Clusters
from placement.providers.called import CalledUuids

_SEARCH_PARTS = ("limit", "cluster", "explain", "closed", "member_of")
_NOT_IN_CLAIMS = ("limit", "explain")
_MEMBER_OF = BODY / "member_of"


@dataclass(frozen=True, slots=True)
class FlavorSearch:
    """A finished search for a flavor; `query_used` names the field of the translation that was searched.

    `explained`: whether the caller asked for the explanation of that search.
    """

    translation: Translation
    search: SearchResult
    query_used: Literal["querystring", "fallback_querystring"]
    explained: bool = False


@dataclass(frozen=True, slots=True)
class FlavorClaim:
    """The query of a claim for a flavor, its fallback if it has one, and the guest's dedicated CPUs.

    Fallback and CPUs are None for queries that come from no flavor.
    """

    query: ClaimQuery
    fallback_query: ClaimQuery | None
    dedicated_cpus: str | None


class Flavors:
    """The service that translates flavors and finds where they fit."""

    for_bound_callers = True

    def __init__(
        self, clusters: Clusters, candidates: CandidateSearch, best_fit: BestFit, claims: Claims
    ) -> None:
        self._clusters = clusters
        self._candidates = candidates
        self._best_fit = best_fit
        self._claims = claims

    def find(self, document: object) -> FlavorSearch:
        """Translate and search.

        The document is a translation request with four more parts: `limit`, short for options.limit,
        `cluster`, the name of the only cluster to search, `member_of`, the aggregates of hosts, `explain`,
        whether to explain the search, and `closed`, whether closed hosts count. Where the query finds
        nothing, the fallback query is searched if there is one. Raises FlavorRefused, NotFound for the
        cluster, BadRequest for classes, traits and aggregates that do not exist, SearchTimeout, Unavailable.
        """
        flavor_request = _split(document)
        translation = translate_document(flavor_request.request)
        aggregate = (
            None
            if flavor_request.cluster is None
            else self._clusters.get(flavor_request.cluster).aggregate_uuid
        )
        options = SearchOptions(
            cluster=flavor_request.cluster,
            cluster_aggregate=aggregate,
            explain=flavor_request.is_explained,
            open_only=not flavor_request.counts_closed,
        )
        query = self._in_aggregates(query_of(translation), flavor_request)
        try:
            search = self._candidates.find(query, options)
        except BadRequest as error:
            # The query is ours: its parameters are in no body.
            findings = (replace(each, place=RequestPlace(each.place.text)) for each in error.findings)
            raise error.with_findings(findings) from None
        if len(search.answer) or translation.fallback_querystring is None:
            return FlavorSearch(translation, search, "querystring", flavor_request.is_explained)
        fallback_query = self._in_aggregates(parse_newest(translation.fallback_querystring), flavor_request)
        fallback = self._candidates.find(fallback_query, options)
        return FlavorSearch(translation, fallback, "fallback_querystring", flavor_request.is_explained)

    def _in_aggregates(self, query: CandidateQuery, flavor_request: _FlavorRequest) -> CandidateQuery:
        return in_aggregates(query, flavor_request.member_of, self._candidates.called, flavor_request.cluster)

    def claim(self, claimant: Claimant, document: object) -> tuple[ClaimedCandidate, str]:
        """Let a consumer hold the best candidate for a flavor; return it, and the guest's dedicated CPUs.

        The document is that of `find` without `limit` and `explain`. The CPUs are noted after the claim: if
        only that fails, the consumer holds its candidate, and repeating the call, which is always allowed,
        notes them. Raises as `find` and `BestFit.claim` do.
        """
        claim = self.claim_of(document)
        try:
            fitted = self._best_fit.claim(ClaimApplication(claimant, claim.query))
        except Conflict:
            # The consumer may hold what the fallback asks for, or get it now.
            if claim.fallback_query is None:
                raise
            fitted = self._best_fit.claim(ClaimApplication(claimant, claim.fallback_query))
        cpus = claim.dedicated_cpus or ""
        if cpus or not fitted.fresh:
            # What was held already may have been claimed for another flavor.
            self._claims.note_dedicated_cpus(claimant.consumer_uuid, fitted.generation, cpus or None)
        return fitted, cpus

    def claim_of(self, document: object) -> FlavorClaim:
        """Return the queries of a claim for a flavor. Raises FlavorRefused, BadRequest."""
        for name in _NOT_IN_CLAIMS:
            if isinstance(document, Mapping) and name in document:
                raise BadRequest("makes no sense in a claim", place=BODY / name)
        flavor_request = _split(document)
        translation = translate_document(flavor_request.request)
        options = self._candidates.options(
            cluster=flavor_request.cluster, closed=flavor_request.counts_closed
        )
        # A limit makes no sense in a claim.
        query = replace(self._in_aggregates(query_of(translation), flavor_request), limit=None)
        fallback_query = None
        if translation.fallback_querystring is not None:
            unpinned = self._in_aggregates(parse_newest(translation.fallback_querystring), flavor_request)
            unpinned = replace(unpinned, limit=None)
            fallback_query = ClaimQuery(unpinned, options)
        return FlavorClaim(ClaimQuery(query, options), fallback_query, translation.dedicated_cpus)


def query_of(translation: Translation) -> CandidateQuery:
    """Return the query of a flavor, for core trees as well as for others."""
    return replace(parse_newest(translation.querystring), on_core_trees=translation.core_tree_query)


def query_in_aggregates(
    document: Mapping[str, Any], called: CalledUuids, cluster: str | None = None
) -> CandidateQuery:
    """Return the query of a translation request, which may have `member_of`, the aggregates of hosts.

    Raises FlavorRefused, and BadRequest naming the member.
    """
    flavor_request = _split(document)
    return in_aggregates(
        query_of(translate_document(flavor_request.request)), flavor_request.member_of, called, cluster
    )


def in_aggregates(
    query: CandidateQuery, member_of: Sequence[str], called: CalledUuids, cluster: str | None = None
) -> CandidateQuery:
    """Return the query of a flavor for hosts in aggregates, and not in the ones with `!` in front.

    Each text is as `member_of` in a query string, by names or UUIDs. Raises BadRequest naming the member.
    """
    if not member_of:
        return query
    try:
        required, forbidden = parse_member_of(list(member_of), NEWEST, named=True)
    except BadRequest as error:
        findings = (replace(each, what=each.what.removeprefix(PREFIX)) for each in error.findings)
        raise error.with_findings(findings).within(_MEMBER_OF) from None
    uuids = called.aggregates(dict.fromkeys(frozenset().union(forbidden, *required), _MEMBER_OF), cluster)
    homes = tuple(frozenset(uuids[name] for name in any_of) for any_of in required)
    avoided = frozenset(uuids[name] for name in forbidden)
    return _in_homes(query, homes, avoided)


def _in_homes(
    query: CandidateQuery, homes: tuple[frozenset[str], ...], avoided: frozenset[str]
) -> CandidateQuery:
    """Return the query, also that of core trees, for roots in one of each of the `homes`."""
    groups = query.groups
    if avoided:
        # Of the group without suffix a search asks it of roots, and with them of whole trees.
        if not any(group.suffix == UNSUFFIXED and group.resources for group in groups):
            raise BadRequest(
                "this flavor asks for NUMA nodes only, so no aggregate can be avoided", place=_MEMBER_OF
            )
        groups = tuple(
            replace(group, forbidden_aggregates=avoided) if group.suffix == UNSUFFIXED else group
            for group in groups
        )
    cored = query.on_core_trees
    return replace(
        query,
        groups=groups,
        root_member_of=(*query.root_member_of, *homes),
        on_core_trees=None if cored is None else _in_homes(cored, homes, avoided),
    )


class _FlavorRequest(NamedTuple):
    """The parts of a search request for a flavor; `request` is what is translated."""

    request: object
    cluster: str | None = None
    is_explained: bool = False
    counts_closed: bool = False
    member_of: tuple[str, ...] = ()


def _split(document: object) -> _FlavorRequest:
    """Return the parts of a search request. Raises FlavorRefused."""
    if not isinstance(document, Mapping):
        return _FlavorRequest(document)
    request: dict[str, Any] = {name: part for name, part in document.items() if name not in _SEARCH_PARTS}
    limit, cluster, explain, closed, member_of = (document.get(name) for name in _SEARCH_PARTS)
    problems = Problems()
    if cluster is not None and not isinstance(cluster, str):
        problems.add("options_invalid", "cluster", "must be the name of a cluster")
    for name, flag in (("explain", explain), ("closed", closed)):
        if flag is not None and not isinstance(flag, bool):
            problems.add("options_invalid", name, "must be true or false")
    aggregates: list[Any] = member_of if isinstance(member_of, list) else []
    if member_of is not None and not _are_names(member_of):
        problems.add("options_invalid", "member_of", f"must be a list of 1 to {MOST_AGGREGATES} aggregates")
    options = {} if request.get("options") is None else request["options"]
    if limit is not None and isinstance(options, Mapping):
        if options.get("limit") is not None:
            problems.add("options_invalid", "limit", "is also given as options.limit")
        request["options"] = {**options, "limit": limit}
    problems.raise_if_any()
    return _FlavorRequest(request, cluster, bool(explain), bool(closed), tuple(aggregates))


def _are_names(member_of: object) -> bool:
    if not isinstance(member_of, list) or not 1 <= len(member_of) <= MOST_AGGREGATES:
        return False
    return all(isinstance(each, str) and 0 < len(each) <= LONGEST_AGGREGATES for each in member_of)
