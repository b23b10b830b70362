"""The search for where a nova flavor fits: translation, then the ordinary search with its query string.

search request -> limit and cluster taken out -> flavors.nova -> query string -> parser -> Candidates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from placement.allocations.applications import Claimant, ClaimApplication, ClaimedCandidate, ClaimQuery
from placement.allocations.best_fit import BestFit
from placement.allocations.candidate_query import parse_newest
from placement.allocations.candidates import CandidateSearch, SearchOptions, SearchResult
from placement.allocations.claims import Claims
from placement.engine.domain.errors import BadRequest, Conflict
from placement.engine.domain.groups import CandidateQuery
from placement.flavors.nova.flavor import Problems
from placement.flavors.nova.translation import Translation, translate_document
from placement.pods.clusters import Clusters

_SEARCH_PARTS = ("limit", "cluster", "explain")
_NOT_IN_CLAIMS = ("limit", "explain")


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
class FlavorWish:
    """The wish of a flavor, the fallback where that finds nothing, and the guest's dedicated CPUs.

    Fallback and CPUs are None for queries that come from no flavor.
    """

    wish: ClaimQuery
    fallback: ClaimQuery | None
    dedicated_cpus: str | None


class Flavors:
    """A service that translates flavors and finds where they fit."""

    def __init__(
        self, clusters: Clusters, candidates: CandidateSearch, best_fit: BestFit, claims: Claims
    ) -> None:
        self._clusters = clusters
        self._candidates = candidates
        self._best_fit = best_fit
        self._claims = claims

    def find(self, document: object) -> FlavorSearch:
        """Translate and search.

        The document is a translation request with three more parts: `limit`, short for options.limit,
        `cluster`, the name of the only cluster to search, and `explain`, whether to explain the search. Where
        the query finds nothing, the fallback query is searched if there is one. Raises FlavorRefused,
        NotFound for the cluster, BadRequest for classes and traits that do not exist, SearchTimeout,
        Unavailable.
        """
        request, cluster, explain = _split(document)
        translation = translate_document(request)
        aggregate = None if cluster is None else self._clusters.get(cluster).aggregate_uuid
        options = SearchOptions(cluster=cluster, cluster_aggregate=aggregate, explain=explain)
        search = self._candidates.find(query_of(translation), options)
        if len(search.answer) or translation.fallback_querystring is None:
            return FlavorSearch(translation, search, "querystring", explain)
        fallback = self._candidates.find(parse_newest(translation.fallback_querystring), options)
        return FlavorSearch(translation, fallback, "fallback_querystring", explain)

    def claim(self, applicant: Claimant, document: object) -> tuple[ClaimedCandidate, str]:
        """Let a consumer hold the best candidate for a flavor; return it, and the guest's dedicated CPUs.

        The document is that of `find` without `limit` and `explain`. The CPUs are noted after the claim: if
        only that fails, the consumer holds its candidate, and repeating the call, which is always allowed,
        notes them. Raises as `find` and `BestFit.claim` do.
        """
        wanted = self.wish(document)
        try:
            fitted = self._best_fit.claim(ClaimApplication(applicant, wanted.wish))
        except Conflict:
            # The consumer may hold what the fallback asks for, or get it now.
            if wanted.fallback is None:
                raise
            fitted = self._best_fit.claim(ClaimApplication(applicant, wanted.fallback))
        cpus = wanted.dedicated_cpus or ""
        if cpus or not fitted.fresh:
            # What was held already may have been claimed for another flavor.
            self._claims.note_dedicated_cpus(applicant.consumer_uuid, fitted.generation, cpus or None)
        return fitted, cpus

    def wish(self, document: object) -> FlavorWish:
        """Return what a claim for a flavor asks for. Raises FlavorRefused, BadRequest."""
        for name in _NOT_IN_CLAIMS:
            if isinstance(document, Mapping) and name in document:
                raise BadRequest(f"{name}: makes no sense in a claim")
        request, cluster, _ = _split(document)
        translation = translate_document(request)
        options = self._candidates.options(cluster=cluster)
        # A limit makes no sense in a claim.
        query = replace(query_of(translation), limit=None)
        fallback = None
        if translation.fallback_querystring is not None:
            unpinned = replace(parse_newest(translation.fallback_querystring), limit=None)
            fallback = ClaimQuery(unpinned, options)
        return FlavorWish(ClaimQuery(query, options), fallback, translation.dedicated_cpus)


def query_of(translation: Translation) -> CandidateQuery:
    """Return the query of a flavor, for core trees as well as for others."""
    return replace(parse_newest(translation.querystring), on_core_trees=translation.on_core_trees)


def _split(document: object) -> tuple[object, str | None, bool]:
    """Return the translation request in a search request, the cluster, and whether to explain.

    Raises FlavorRefused.
    """
    if not isinstance(document, Mapping):
        return document, None, False
    request: dict[str, Any] = {name: part for name, part in document.items() if name not in _SEARCH_PARTS}
    limit, cluster, explain = (document.get(name) for name in _SEARCH_PARTS)
    problems = Problems()
    if cluster is not None and not isinstance(cluster, str):
        problems.add("options_invalid", "cluster: must be the name of a cluster")
    if explain is not None and not isinstance(explain, bool):
        problems.add("options_invalid", "explain: must be true or false")
    options = {} if request.get("options") is None else request["options"]
    if limit is not None and isinstance(options, Mapping):
        if options.get("limit") is not None:
            problems.add("options_invalid", "limit: is given as options.limit, too")
        request["options"] = {**options, "limit": limit}
    problems.raise_if_any()
    return request, cluster, bool(explain)
