"""Where a nova flavor fits: translation, then the ordinary search with the query string it gives.

search request -> limit and cluster taken out -> dialects.nova -> query string -> parser -> Candidates
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from placement.dialects.nova import (
    FlavorRefused,
    Problem,
    Translation,
    translate_document,
)
from placement.domain.groups import CandidateQuery
from placement.services.clusters.clusters import Clusters
from placement.services.placement.candidates import Candidates, Search

_SEARCH_PARTS = ("limit", "cluster")
ParseQuery = Callable[[str], CandidateQuery]
"""Reads the query string of allocation candidates. Raises BadRequest."""


@dataclass(frozen=True, slots=True)
class FlavorSearch:
    """A finished search for a flavor; `query_used` names the field of the translation that was searched."""

    translation: Translation
    search: Search
    query_used: Literal["querystring", "fallback_querystring"]


class Flavors:
    """Translates flavors and finds where they fit."""

    def __init__(self, clusters: Clusters, candidates: Candidates) -> None:
        self._clusters = clusters
        self._candidates = candidates

    @staticmethod
    def translate(document: object) -> Translation:
        """Translate a request of flavor, image and options. Raises FlavorRefused with every problem."""
        return translate_document(document)

    def find(self, document: object, parse: ParseQuery) -> FlavorSearch:
        """Translate and search.

        The document is a translation request with two more parts: `limit`, short for options.limit, and
        `cluster`, the name of the only cluster to search. Where the query finds nothing, the fallback query
        is searched if there is one. Raises FlavorRefused, NotFound for the cluster, BadRequest for classes
        and traits that do not exist, SearchTimeout, Unavailable.
        """
        request, cluster = _split(document)
        translation = translate_document(request)
        roots = () if cluster is None else (frozenset({self._clusters.get(cluster).aggregate_uuid}),)
        search = self._candidates.find(replace(parse(translation.querystring), root_member_of=roots))
        if len(search.answer) or translation.fallback_querystring is None:
            return FlavorSearch(translation, search, "querystring")
        fallback = replace(parse(translation.fallback_querystring), root_member_of=roots)
        return FlavorSearch(translation, self._candidates.find(fallback), "fallback_querystring")


def _split(document: object) -> tuple[object, str | None]:
    """The translation request in a search request, and the cluster. Raises FlavorRefused."""
    if not isinstance(document, Mapping):
        return document, None
    request: dict[str, Any] = {name: part for name, part in document.items() if name not in _SEARCH_PARTS}
    limit, cluster = (document.get(name) for name in _SEARCH_PARTS)
    problems = []
    if cluster is not None and not isinstance(cluster, str):
        problems.append(Problem("options_invalid", "cluster: must be the name of a cluster"))
    options = {} if request.get("options") is None else request["options"]
    if limit is not None and isinstance(options, Mapping):
        if options.get("limit") is not None:
            problems.append(Problem("options_invalid", "limit: is given as options.limit, too"))
        request["options"] = {**options, "limit": limit}
    if problems:
        raise FlavorRefused(tuple(problems))
    return request, cluster
