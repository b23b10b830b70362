"""The page "Why not": the stages, near misses and candidates of a request, and claims of these."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import orjson
from flask import Response, current_app, request

from placement.allocations import candidate_query
from placement.allocations.candidate_schemas import ExplanationShownSchema
from placement.allocations.candidates import NO_OPTIONS, SearchOptions, SearchResult
from placement.allocations.rendering import score_members
from placement.common.documents import MOST_MANIFEST_VALUES, manifest_of_kind, parse_yaml
from placement.common.microversions import NEWEST
from placement.engine.domain import request_scope
from placement.engine.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.inventories import ConsumerClaim
from placement.engine.domain.units import unit_of
from placement.engine.numa.cpus import parse_cpu_list
from placement.flavors.nova.flavor import FlavorRefused
from placement.flavors.nova.translation import translation_document
from placement.http import operations
from placement.http.context import use_cases
from placement.http.schemas import NAME, dump
from placement.pods.reading import PodDocument
from placement.pods.schemas import PodTranslationSchema, PreviewSchema
from placement.pods.views import NamedPlace
from placement.providers.fleet import QueryNames
from placement.web.examples import Example, examples
from placement.web.mistakes import Mistake, in_field, is_of_query, mistake
from placement.web.search_results import Mend, by_host, funnel, hopeless, mend, missed_hosts, query_text
from placement.web.templating import (
    HTML,
    Table,
    address,
    asked,
    clusters,
    html,
    may,
    page,
    require,
    shown,
    to,
    uuids_in,
    wanted,
    whole,
)

# The form: a query, a flavor or a pod, and what is wrong with it.


Found = TypeVar("Found")
KINDS = ("query", "flavor", "pod")
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
        may_claim=may("clusters:pods:update", cluster) if kind == "pod" else may("allocations:update"),
        **drawn,
    )


def shown_answer(
    template: str,
    found: object | None,
    mistakes: Sequence[Mistake],
    document: Any,
    table: Callable[[], Table],
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
        return use_cases().hosts.names()
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
        raise BadRequest(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    return kind


def answered(
    ask: Callable[[], Found], given: Mapping[str, str], filled: Sequence[str] = ("query", "vcpus", "pod")
) -> tuple[Found | None, list[Mistake]]:
    """Return the answer to a form if any of the fields `filled` is filled in, and what is wrong with it."""
    if not any(given.get(name, "").strip() for name in filled):
        return None, []
    try:
        return ask(), []
    except FlavorRefused as refused:
        return None, [Mistake(in_field(message)) for _, message in refused.problems]
    except NotFound as error:
        return None, [Mistake(str(error), status=404)]
    except BadRequest as error:
        text = given.get("query", "") if chosen_kind() == "query" else ""
        names = _known_names() if text else ()
        found = [mistake(each, text, names) for each in getattr(error, "findings", (str(error),))]
        return None, [
            each if each.word and not _UNKNOWN_HOST.match(each.message) else _of_host(each, given)
            for each in found
        ]


_UNKNOWN_HOST = re.compile(r"(?:world\.(without)|goal\.empty)\[\d+\]: there is no host '(.*)' here")
_MOST_LIKE = 50


def _of_host(found: Mistake, given: Mapping[str, str]) -> Mistake:
    """Return a mistake with its field by name, and if it is an unknown host, with a host that is like it."""
    message = in_field(found.message)
    unknown = _UNKNOWN_HOST.match(found.message)
    if unknown is None:
        return found._replace(message=message)
    field, name = unknown[1] or "hosts", unknown[2]
    typed = given.get(field, "")
    item = re.search(rf"(?:^|,)\s*({re.escape(name)})\s*(?:,|$)", typed)
    before, after = (typed[: item.start(1)], typed[item.end(1) :]) if item else (typed, "")
    instead = _host_like(name, given.get("cluster") or None)
    return Mistake(f"{message}.", before, name, after, instead, field=field)


def _host_like(name: str, cluster: str | None) -> str:
    """Return the name of a host that is like this name, empty if there is none or the caller sees none."""
    with suppress(Forbidden, NotFound):
        for part in filter(None, (name, re.split(r"\d", name)[0])):
            found = use_cases().finder.providers(part, cluster, _MOST_LIKE)
            like = get_close_matches(name, [each.name for each in found if each.is_root], 1, 0.5)
            if like:
                return like[0]
    return ""


def _known_names() -> set[str]:
    names = _offered()
    return {*names.classes, *names.traits, *(each.name for each in clusters())}


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
    drawn: dict[str, Any] = {"missed": missed, "searched": found.cluster, "called": {}}
    if found.search is None:
        drawn["steps"] = funnel(explanation)
    else:
        look = use_cases().hosts.look(found.cluster)
        drawn["steps"] = funnel(explanation, look.hosts)
        given_by = {each["host"]["uuid"] for each in found.document["candidates"]}
        hosts = given_by | {place.root_uuid for place in found.places.values()}
        classes = {stage["resource_class"] for stage in explanation["stages"] if "resource_class" in stage}
        uses = found.search.uses(sorted(hosts), classes & found.search.names.class_ids.keys())
        nodes = use_cases().host_views.nodes(given_by, lambda cluster: may("clusters:nodes:show", cluster))
        drawn["hosts"] = by_host(found.document["candidates"], uses, nodes)
        texts = [stage["condition"] for stage in explanation["stages"]]
        texts += [str(each["score_parts"]) for each in found.document["candidates"]]
        drawn["called"] = use_cases().aggregates.called(found.cluster, uuids_in(" ".join(texts)))
        pairs = typed_query(given)
        drawn["mend"] = _mended(found, pairs) or hopeless(explanation, look)
    if "query_used" in found.document:
        used = found.document["translation"][found.document["query_used"]]
        drawn["asked_with"] = query_text(operations.read(used))
    return drawn


def _mended(found: SearchFound, pairs: operations.Parameters) -> Mend | None:
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


def typed_query(given: Mapping[str, str]) -> operations.Parameters:
    """Return the parameters of the query in a form. Raises BadRequest."""
    return operations.read(given.get("query", "").strip().lstrip("?"))


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
    require("allocation_candidates:list", operations.single(pairs, "cluster"))
    pairs = [pair for pair in pairs if pair[0] != "explain"] + [("explain", "1")]
    query, options = candidate_query.parse_extended(pairs)
    _show_only(options.cluster)
    return _searched("query", use_cases().candidates.find(query, options), options, options.cluster)


def _flavor(given: Mapping[str, str]) -> SearchFound:
    cluster = given.get("cluster") or None
    require("flavors:candidates", cluster)
    document = {**flavor_document(given), "limit": _limit(given), "explain": True}
    if cluster:
        document["cluster"] = cluster
    _show_only(cluster)
    found = use_cases().flavors.find(document)
    translation = translation_document(found.translation)
    beside = {
        "translation": translation,
        "query_used": found.query_used,
        "warnings": translation["ignored"],
    }
    return _searched("flavor", found.search, NO_OPTIONS, cluster, **beside)


def _show_only(cluster: str | None) -> None:
    """Let a search that is about a cluster count its hosts only, and find its near misses among these."""
    if cluster is not None:
        request_scope.show_only(frozenset((cluster,)))


def flavor_document(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the flavor in a form, as a translation request. Raises BadRequest."""
    flavor: dict[str, Any] = {"extra_specs": _pairs("extra specs", given.get("specs", ""))}
    for name, field in _AMOUNTS.items():
        text = given.get(name, "").strip() or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise BadRequest(f"{name}: must be a whole number, not {text!r}")
        flavor[field] = int(text)
    return {"flavor": flavor, "image": _pairs("image properties", given.get("image", ""))}


def _pairs(what: str, text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, sign, value = line.partition("=")
        if not sign:
            raise BadRequest(f"{what}: {line!r} is not KEY=VALUE")
        found[name.strip()] = value.strip()
    return found


def _searched(
    kind: str, search: SearchResult, options: SearchOptions, cluster: str | None, **beside: Any
) -> SearchFound:
    """Return a search as the API answers it, with names, and without the summaries of trees."""
    renderer = current_app.extensions["placement_candidates_renderer"]
    table = search.answer.scores()
    scores = None if table is None else score_members(table, options.preferences)
    elements = orjson.loads(renderer.elements(search, NEWEST, scores))
    explanation = dump(ExplanationShownSchema, search.explanation)
    mentioned = {uuid for each in elements for uuid in each["allocations"]}
    mentioned |= {each["resource_provider"]["uuid"] for each in explanation["nearest"]}
    if search.explanation is not None and search.explanation.alternative is not None:
        mentioned.add(search.explanation.alternative.provider)
    places = use_cases().host_views.places(mentioned)
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
    preview = use_cases().pods.preview(cluster, pod, None, _limit(given))
    body = dump(PreviewSchema, preview, context=cluster)
    translation = None
    if may("clusters:pods:translate", cluster):
        translated = use_cases().pod_translation.translate(cluster, pod)
        translation = dump(PodTranslationSchema, translated)
    return SearchFound({"kind": "pod", **body, "translation": translation})


def cluster_of_pod(given: Mapping[str, str]) -> str:
    """Return the cluster that a form asks about. Raises BadRequest if there is none."""
    cluster = given.get("cluster", "")
    if not cluster:
        raise BadRequest("cluster: choose the cluster in which the pod shall run")
    return cluster


def manifest_of(given: Mapping[str, str]) -> Any:
    """Return the pod in a form. Raises BadRequest, ManifestError."""
    return manifest_of_kind(
        "Pod", parse_yaml(given.get("pod", "").encode("utf-8", "replace"), MOST_MANIFEST_VALUES)
    )


_ASKED = {"query": _query, "flavor": _flavor, "pod": _pod}


def _table(document: Mapping[str, Any]) -> Table:
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


# Claims by a click: of a candidate for a consumer, and of a node for a pod.


_CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")
_LONGEST_NAME = 255
_TYPE = re.compile(NAME)


@page("/claims", "POST")
def _claim() -> Response:
    """Let a consumer hold the candidate that was chosen; what it holds already is not replaced.

    Raises BadRequest naming the field of the form.
    """
    require("allocations:update")
    claimant = {name: request.form.get(name, "").strip() for name in _CLAIMANT}
    for name, text in claimant.items():
        if not 1 <= len(text) <= _LONGEST_NAME:
            raise BadRequest(f"{name}: must be 1 to {_LONGEST_NAME} characters")
    consumer = normalize_uuid(claimant["consumer_uuid"])
    if consumer is None:
        raise BadRequest(f"consumer_uuid: {claimant['consumer_uuid']!r} is no uuid")
    kind = claimant["consumer_type"]
    if not _TYPE.fullmatch(kind):
        raise BadRequest("consumer_type: must be of A-Z, 0-9 and _")
    claim = ConsumerClaim(
        consumer_uuid=consumer,
        resources=claim_of(request.form.get("allocations", "")),
        project_id=claimant["project_id"],
        user_id=claimant["user_id"],
        generation=None,
        consumer_type=kind,
    )
    cpus = request.form.get("dedicated_cpus")
    # A bad list of CPUs is refused before anything is written.
    parse_cpu_list(cpus or "")
    use_cases().claims.put([claim])
    if cpus:
        use_cases().claims.note_dedicated_cpus(consumer, 1, cpus)
    return to(address(f"/consumers/{consumer}", claimed=1))


def claim_of(text: str) -> dict[str, dict[str, int]]:
    """Return the candidate in a form: amounts by provider and class. Raises BadRequest."""
    try:
        given = orjson.loads(text)
        found = {
            uuid: {str(name): amount for name, amount in resources.items()}
            for uuid, resources in given.items()
        }
    except (ValueError, AttributeError):
        raise BadRequest(
            "allocations: the form does not say which candidate; go back and choose one"
        ) from None
    strange = [uuid for uuid in found if normalize_uuid(uuid) != uuid]
    if strange:
        raise BadRequest(f"allocations: {strange[0][:100]!r} is no uuid of a provider")
    amounts = [amount for resources in found.values() for amount in resources.values()]
    if not amounts or not all(type(amount) is int and amount > 0 for amount in amounts):
        raise BadRequest("allocations: every amount must be a whole number above 0")
    return found


@page("/pod-claims", "POST")
def _claim_pod() -> Response:
    given = request.form.to_dict()
    cluster = cluster_of_pod(given)
    require("clusters:pods:update", cluster)
    pod = manifest_of(given)
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not name:
        raise BadRequest("Pod.metadata.name: a pod that is placed needs a name")
    own_page = f"/pods/{cluster}/{namespace}/{name}"
    try:
        if given.get("node"):
            use_cases().pods.bind(cluster, namespace, name, "", given["node"], pod)
        else:
            use_cases().pods.place(cluster, PodDocument.named(cluster, namespace, name, pod))
    except Conflict as error:
        # With the form as it was, so that another node can be chosen.
        return html(
            "why.html",
            409,
            document={},
            kind="pod",
            given=given,
            mistakes=[Mistake(str(error), status=409)],
            conflicting=address(own_page),
            clusters=[cluster],
        )
    return to(address(own_page, claimed=1))
