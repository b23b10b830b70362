"""The page "Why not": a request in a form, its stages, near misses and candidates."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import orjson
from flask import Response, request

from placement.allocations import candidate_query
from placement.allocations.candidate_schemas import ExplanationShownSchema
from placement.allocations.candidates import NO_OPTIONS, CandidateSearch, SearchOptions, SearchResult
from placement.allocations.rendering import CandidatesRenderer, score_members
from placement.common.documents import MOST_MANIFEST_VALUES, manifest_of_kind, parse_yaml
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest, Forbidden, NotFound, parameter
from placement.engine.domain.units import unit_of
from placement.engine.scoring.order import WITHOUT_SHAPE
from placement.flavors.nova.translation import translation_document
from placement.flavors.service import Flavors
from placement.http import context, query_strings
from placement.http.context import component, service
from placement.http.schemas import dump
from placement.http.suggestions import meant_by
from placement.pods.schemas import PodTranslationSchema, PreviewSchema
from placement.pods.services.pods import Pods
from placement.pods.services.translation import PodTranslation
from placement.pods.services.views import HostViews
from placement.providers.fleet import Hosts, QueryNames
from placement.providers.service import Aggregates
from placement.providers.statements.providers import NamedPlace
from placement.web.answers import HTML, PageTable, address, asked, refuse_others, shown, to, wanted, whole
from placement.web.callers import clusters, may, require
from placement.web.candidate_hosts import by_host
from placement.web.examples import Example, examples
from placement.web.funnel import funnel, hints
from placement.web.mending import Mend, hopeless, mend, query_text
from placement.web.mistakes import Mistake, is_of_query, mistake
from placement.web.near_misses import missed_hosts
from placement.web.templating import page, uuids_in

Found = TypeVar("Found")
KINDS = ("query", "flavor", "pod")
FIELDS = ("kind", "query", "vcpus", "ram", "disk", "specs", "image", "aggregate", "pod", "cluster")
"""The fields of every form that describes a request."""
_USUAL, _MOST = 20, 200
EXAMPLE_POD = """apiVersion: v1
kind: Pod
metadata:
  name: example
  namespace: default
  labels: {koordinator.sh/qosClass: LSR}
spec:
  priority: 9500
  containers:
    - name: main
      image: example.org/main
      resources:
        requests: {cpu: "4", memory: 8Gi}
        limits: {cpu: "4", memory: 8Gi}
"""
_AMOUNTS = {"vcpus": "vcpus", "ram": "memory_mb", "disk": "root_gb"}


# Forms with pods and flavors are sent with POST: what is pasted into them stays out of logs and histories.
@page("/why")
@page("/why", "POST", reads=True)
def _why() -> Response:
    if moved := as_query("/why"):
        return moved
    refuse_others(*FIELDS, "order_by", "limit")
    kind, given = chosen_kind(), asked()
    found, mistakes = answered(lambda: _ASKED[kind](given), given)
    document = {} if found is None else found.document
    cluster = given.get("cluster") or None
    drawn = _drawn(found, given) if found is not None and wanted() == HTML else {}
    return shown_answer(
        "why.html",
        found,
        mistakes,
        document,
        lambda: _table(document),
        consumer_uuid=str(uuid.uuid4()),
        strategies=WITHOUT_SHAPE,
        may_claim=may("clusters:pods:update", cluster) if kind == "pod" else may("allocations:update"),
        **drawn,
    )


def shown_answer(
    template: str,
    found: object | None,
    mistakes: Sequence[Mistake],
    document: Any,
    table: Callable[[], PageTable],
    **beside: Any,
) -> Response:
    """Return a form with the answer to it, or with what is wrong with it."""
    given = asked()
    # Beside an answer only its own cluster is offered, as the page gets the rest.
    own = [given["cluster"]] if given.get("cluster") else []
    return shown(
        template,
        {"problems": [each.message for each in mistakes]} if found is None else document,
        (lambda: (("problem",), [(each.message,) for each in mistakes])) if mistakes else table,
        mistakes[0].status if mistakes else 200,
        kind=chosen_kind(),
        given=given,
        mistakes=mistakes,
        example_pod=EXAMPLE_POD,
        examples=_examples() if found is None and wanted() == HTML else [],
        clusters=list(dict.fromkeys([*(each.name for each in clusters()), *own])) if found is None else own,
        **beside,
    )


def _examples() -> list[Example]:
    """Return example queries of what is offered here."""
    return list(examples(_offered().classes))


def _offered() -> QueryNames:
    """Return what queries may name, nothing for callers that may not list it."""
    if may("resource_classes:list") and may("traits:list"):
        return service(Hosts).names()
    return QueryNames()


@page("/names/queries")
def _names() -> Response:
    """Return as JSON what queries may name: classes with their units, and traits."""
    names = _offered()
    # CPUs first, then the standard classes, then custom ones.
    usual = sorted(names.classes, key=lambda each: (each.startswith("CUSTOM_"), not each.endswith("CPU")))
    counted = [(each, unit_of(each)) for each in usual]
    classes = [{"name": each, "unit": unit.name, "divisor": unit.divisor} for each, unit in counted]
    body = orjson.dumps({"classes": classes, "traits": names.traits})
    return Response(body, content_type="application/json")


def as_query(path: str) -> Response | None:
    """Return the way to the page with the parameters of the API as its query, None if there are none."""
    given = [each for each in request.args.items(multi=True) if is_of_query(each[0])]
    if not given or "query" in request.args:
        return None
    others = {name: value for name, value in request.args.items() if not is_of_query(name)}
    return to(address(path, **others, query=query_text(given)))


def chosen_kind() -> str:
    """Return the kind of request in the form. Raises BadRequest."""
    kind = asked().get("kind", KINDS[0])
    if kind not in KINDS:
        raise BadRequest(f"{kind!r} is not one of {', '.join(KINDS)}", place=parameter("kind"))
    return kind


def answered(
    ask: Callable[[], Found], given: Mapping[str, str], filled: Sequence[str] = ("query", "vcpus", "pod")
) -> tuple[Found | None, list[Mistake]]:
    """Return the answer to a form if any of the fields `filled` is filled in, and what is wrong with it."""
    if not any(given.get(name, "").strip() for name in filled):
        return None, []
    try:
        return ask(), []
    except NotFound as error:
        return None, [Mistake(str(error), status=404)]
    except BadRequest as error:
        return None, [mistake(each, given, meant_by(each)) for each in error.shown]


def _limit(given: Mapping[str, str]) -> int:
    return whole("limit", given.get("limit") or str(_USUAL), _MOST)


class SearchFound(NamedTuple):
    """An answer as a document and, unless it is about a pod, the search with the hosts of its providers.

    `cluster`: the one that was searched, None for all hosts.
    """

    document: dict[str, Any]
    search: SearchResult | None = None
    places: Mapping[str, NamedPlace] = {}
    cluster: str | None = None


def _drawn(found: SearchFound, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a page about an answer that its document has in another form."""
    explanation = found.document["explanation"]
    missed = missed_hosts(explanation["nearest"], found.places)
    drawn: dict[str, Any] = {"missed": missed, "steps": funnel(explanation), "called": {}}
    drawn["hints"] = hints(explanation)
    if found.search is not None:
        snapshot = service(Hosts).look(found.cluster)
        given_by = {each["host"]["uuid"] for each in found.document["candidates"]}
        hosts = given_by | {place.root_uuid for place in found.places.values()}
        classes = {stage["resource_class"] for stage in explanation["stages"] if "resource_class" in stage}
        uses = found.search.uses(sorted(hosts), classes & found.search.names.class_ids.keys())
        nodes = service(HostViews).nodes(given_by, lambda cluster: may("clusters:nodes:show", cluster))
        drawn["hosts"] = by_host(found.document["candidates"], uses, nodes)
        texts = [str(each["score_parts"]) for each in found.document["candidates"]]
        drawn["called"] = service(Aggregates).called(found.cluster, uuids_in(" ".join(texts)))
        pairs = typed_query(given)
        drawn["mend"] = _mended(found, pairs) or hopeless(explanation, snapshot)
    if "query_used" in found.document:
        used = found.document["translation"][found.document["query_used"]]
        drawn["asked_with"] = query_text(query_strings.read(used))
    return drawn


def _mended(found: SearchFound, pairs: query_strings.Parameters) -> Mend | None:
    """Return the query of some parameters with an amount split, if it may fit then."""
    why = None if found.search is None else found.search.explanation
    alternative = None if why is None else why.alternative
    if alternative is None or not pairs:
        return None
    return mend(found.document["explanation"], pairs, alternative, found.places[alternative.provider].name)


def mend_of(given: Mapping[str, str]) -> Mend | None:
    """Return the query in a form with an amount split, if it may fit then and the caller may ask."""
    try:
        pairs = [pair for pair in typed_query(given) if pair[0] != "by"]
        return _mended(_query({**given, "query": query_text(pairs)}), pairs)
    except Forbidden:
        return None


def typed_query(given: Mapping[str, str]) -> query_strings.Parameters:
    """Return the parameters of the query in a form. Raises BadRequest."""
    return query_strings.read(given.get("query", "").strip().lstrip("?"))


def _query(given: Mapping[str, str]) -> SearchFound:
    pairs = typed_query(given)
    named = dict(reversed(pairs))
    limit = _limit({"limit": named.get("limit") or given.get("limit", "")})
    for name, value in (
        ("cluster", given.get("cluster")),
        ("order_by", given.get("order_by")),
        ("limit", str(limit)),
    ):
        if value and name not in named:
            pairs.append((name, value))
    require("allocation_candidates:list", query_strings.single(pairs, "cluster"))
    pairs = [pair for pair in pairs if pair[0] != "explain"] + [("explain", "1")]
    query, options = candidate_query.parse_extended(pairs, service(CandidateSearch))
    return _searched("query", service(CandidateSearch).find(query, options), options, options.cluster)


def _flavor(given: Mapping[str, str]) -> SearchFound:
    cluster = given.get("cluster") or None
    require("flavors:candidates", cluster)
    document = {**flavor_document(given), "limit": _limit(given), "explain": True}
    if cluster:
        document["cluster"] = cluster
    found = service(Flavors).find(document)
    translation = translation_document(found.translation)
    beside = {
        "translation": translation,
        "query_used": found.query_used,
        "warnings": translation["ignored"],
    }
    return _searched("flavor", found.search, NO_OPTIONS, cluster, **beside)


def flavor_document(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the flavor in a form, as a translation request. Raises BadRequest."""
    flavor: dict[str, Any] = {"extra_specs": _pairs("extra specs", given.get("specs", ""))}
    for name, field in _AMOUNTS.items():
        text = given.get(name, "").strip() or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise BadRequest(f"must be a whole number, not {text!r}", place=parameter(name))
        flavor[field] = int(text)
    document = {"flavor": flavor, "image": _pairs("image properties", given.get("image", ""))}
    aggregates = aggregates_in(given)
    return document | ({"member_of": aggregates} if aggregates else {})


def aggregates_in(given: Mapping[str, str]) -> list[str]:
    """Return what the field for aggregates of a form has, by commas."""
    return [name.strip() for name in given.get("aggregate", "").split(",") if name.strip()]


def _pairs(what: str, text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign:
            raise BadRequest(f"{line!r} is not KEY=VALUE", place=parameter(what))
        found[name.strip()] = value.strip()
    return found


def _searched(
    kind: str, search: SearchResult, options: SearchOptions, cluster: str | None, **beside: Any
) -> SearchFound:
    """Return a search as the API answers it, with names, and without the summaries of trees."""
    renderer = component(CandidatesRenderer)
    table = search.answer.scores()
    scores = None if table is None else score_members(table, options.preferences)
    context.current().candidates = len(search.answer)
    elements = orjson.loads(renderer.elements(search, NEWEST, scores))
    explanation = dump(ExplanationShownSchema, search.explanation)
    mentioned = {uuid for each in elements for uuid in each["allocations"]}
    mentioned |= {each["resource_provider"]["uuid"] for each in explanation["nearest"]}
    if search.explanation is not None and search.explanation.alternative is not None:
        mentioned.add(search.explanation.alternative.provider)
    places = service(HostViews).places(mentioned)
    candidates = [_candidate(each, places) for each in elements]
    document = {"kind": kind, "candidates": candidates, "explanation": explanation, **beside}
    return SearchFound(document, search, places, cluster)


def _candidate(element: Mapping[str, Any], places: Mapping[str, NamedPlace]) -> dict[str, Any]:
    """Return a candidate with the names of its providers, and the host that most of them belong to."""
    allocations = element["allocations"]
    known = {uuid: places.get(uuid) or NamedPlace(uuid, uuid, uuid) for uuid in allocations}
    roots = [(place.root_uuid, place.root_name) for place in known.values()]
    uuid, name = max(roots, key=roots.count)
    return {
        "host": {"uuid": uuid, "name": name},
        "score": element.get("score"),
        "max_score": element.get("max_score"),
        "score_parts": element.get("score_parts", []),
        "allocations": {
            uuid: {"name": known[uuid].name, "resources": given["resources"]}
            for uuid, given in allocations.items()
        },
        "mappings": element.get("mappings", {}),
    }


def _pod(given: Mapping[str, str]) -> SearchFound:
    cluster = cluster_of_pod(given)
    require("clusters:pods:preview", cluster)
    pod = manifest_of(given)
    preview = service(Pods).preview(cluster, pod, None, _limit(given))
    body = dump(PreviewSchema, preview, context=cluster)
    translation = None
    if may("clusters:pods:translate", cluster):
        translated = service(PodTranslation).translate(cluster, pod)
        translation = dump(PodTranslationSchema, translated)
    return SearchFound({"kind": "pod", **body, "translation": translation})


def cluster_of_pod(given: Mapping[str, str]) -> str:
    """Return the cluster that a form asks about. Raises BadRequest if there is none."""
    cluster = given.get("cluster", "")
    if not cluster:
        raise BadRequest("choose the cluster for the pod", place=parameter("cluster"))
    return cluster


def manifest_of(given: Mapping[str, str]) -> Any:
    """Return the pod in a form. Raises BadRequest, ManifestError."""
    return manifest_of_kind(
        "Pod", parse_yaml(given.get("pod", "").encode("utf-8", "replace"), MOST_MANIFEST_VALUES)
    )


_ASKED = {"query": _query, "flavor": _flavor, "pod": _pod}


def _table(document: Mapping[str, Any]) -> PageTable:
    if document.get("kind") == "pod":
        nodes = ("rank", "node", "uuid", "score", "cpuset")
        return nodes, [
            (rank, each["name"], each["resource_provider"], each["score"], each["cpuset"])
            for rank, each in enumerate(document["nodes"], 1)
        ]
    names = ("rank", "host", "provider", "uuid", "class", "amount", "score")
    return names, [
        (rank, each["host"]["name"], given["name"], uuid, name, amount, each["score"])
        for rank, each in enumerate(document.get("candidates", ()), 1)
        for uuid, given in each["allocations"].items()
        for name, amount in given["resources"].items()
    ]
