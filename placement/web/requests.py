"""The page "Why not": the stages, near misses and candidates of a query, a flavor or a pod."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson
from flask import Blueprint, Response, current_app

from placement.allocations import candidate_query
from placement.allocations.candidates import NO_OPTIONS, SearchOptions, SearchResult
from placement.allocations.rendering import explanation_body, score_members
from placement.common.documents import MOST_MANIFEST_VALUES, parse_yaml
from placement.common.manifest_lists import pod_manifest
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest
from placement.flavors.nova import FlavorRefused, translation_document
from placement.http import operations
from placement.http.context import use_cases
from placement.http.gate import PAGES, route
from placement.http.schemas import dump
from placement.pods.schemas import PodTranslationSchema, PreviewSchema
from placement.pods.views import NamedPlace
from placement.web import units
from placement.web.templating import address, asked, clusters, escaped, may, require, shown

# Candidates as the rows of a table, with all texts escaped.


def candidate_rows(document: Mapping[str, Any]) -> list[Sequence[str]]:
    """Return the rows of an answer, best first: host uuid and name, what it gives, score, its parts, claim.

    Rows of a pod: uuid and name of the node, score, CPUs, remarks. Line ends separate lines in a cell.
    """
    if document.get("kind") == "pod":
        return [*escaped(_node(each) for each in document["nodes"])]
    return [*escaped(_candidate_rows_candidate(each) for each in document.get("candidates", ()))]


def _node(place: Mapping[str, Any]) -> Sequence[str]:
    return (
        place["resource_provider"],
        place["name"],
        str(place["score"]),
        place["cpuset"] or "shared",
        "; ".join(place["remarks"]),
    )


def _candidate_rows_candidate(each: Mapping[str, Any]) -> Sequence[str]:
    return (
        each["host"]["uuid"],
        each["host"]["name"],
        "\n".join(_gives(each["allocations"])),
        "–" if each["score"] is None else str(each["score"]),
        "\n".join(_made_of(each["score_parts"])) or "–",
        _claim(each["allocations"]),
    )


def _gives(allocations: Mapping[str, Any]) -> Iterator[str]:
    for given in allocations.values():
        amounts = [
            f"{units.amount(amount, name)} {units.plain(name)}" for name, amount in given["resources"].items()
        ]
        yield f"{given['name']}: {', '.join(amounts)}"


def _made_of(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if "type" not in part:
            yield f"prefers {part['prefer']}: {'met' if part['met'] else 'not met'}"
            continue
        weight = "" if part["weight"] == 1 else f" × {part['weight']}"
        classes = [
            f"{units.plain(name)} {figures.get('score', figures.get('skipped'))}"
            for name, figures in part["resources"].items()
        ]
        yield f"{part['type']} {part['score']}/{part['max_score']}{weight}: {', '.join(classes)}"


def _claim(allocations: Mapping[str, Any]) -> str:
    """Return the text that a form sends to claim a candidate."""
    return orjson.dumps({uuid: given["resources"] for uuid, given in allocations.items()}).decode()


Found = TypeVar("Found")
KINDS = ("query", "flavor", "pod")
_USUAL, _MOST = 20, 200
EXAMPLES = {
    "query": "resources=PCPU:4,MEMORY_MB:8192",
    "pod": """apiVersion: v1
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
""",
}
_AMOUNTS = {"vcpus": "vcpus", "ram": "memory_mb", "disk": "root_gb"}


def register(blueprint: Blueprint) -> None:
    """Add the routes; each kind of request requires a policy rule of its own.

    Forms with pods and flavors are sent with POST: what is pasted into them stays out of logs and histories.
    """
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/why", "GET", listing, own_only=True)(_why)
    route(blueprint, f"{PAGES}/why", "POST", listing, own_only=True, reads=True)(_why)


def _why() -> Response:
    """Show the form, and what becomes of the request in it."""
    kind = chosen_kind()
    given = asked()
    found, problems = answered(lambda: _ASKED[kind](given), given)
    document = found or {}
    return shown(
        "why.html",
        document or {"problems": problems},
        lambda: _table(document),
        400 if problems else 200,
        kind=kind,
        given=given,
        problems=problems,
        examples=EXAMPLES,
        clusters=offered_clusters(given, is_answered=bool(document)),
        rows=candidate_rows(document),
        consumer_uuid=str(uuid.uuid4()),
        may_claim=_may_claim(kind, given.get("cluster") or None),
    )


def offered_clusters(given: Mapping[str, str], *, is_answered: bool) -> list[str]:
    """Return the clusters that the form offers; beside an answer only its own, as the page gets the rest."""
    if is_answered:
        return [given["cluster"]] if given.get("cluster") else []
    return [each.name for each in clusters()]


def chosen_kind() -> str:
    """Return the kind of request in the form. Raises BadRequest."""
    kind = asked().get("kind", KINDS[0])
    if kind not in KINDS:
        raise BadRequest(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    return kind


def answered(
    ask: Callable[[], Found], given: Mapping[str, str], filled: Sequence[str] = ("query", "vcpus", "pod")
) -> tuple[Found | None, list[str]]:
    """Return the answer to a form if any of the fields `filled` is filled in, and what is wrong with it."""
    if not any(given.get(name, "").strip() for name in filled):
        return None, []
    try:
        return ask(), []
    except FlavorRefused as refused:
        return None, [message for _, message in refused.problems]
    except BadRequest as error:
        return None, getattr(error, "findings", None) or [str(error)]


def _may_claim(kind: str, cluster: str | None) -> bool:
    return may("clusters:pods:update", cluster) if kind == "pod" else may("allocations:update")


def _limit(given: Mapping[str, str]) -> int:
    text = given.get("limit") or str(_USUAL)
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= _MOST):
        raise BadRequest(f"limit: must be 1 to {_MOST}, not {text!r}")
    return int(text)


# -- what is asked ----------------------------------------------------------------------------------


def _query(given: Mapping[str, str]) -> dict[str, Any]:
    """Search for a query string of candidates."""
    pairs = operations.read(given.get("query", "").strip().lstrip("?"))
    named = {name for name, _ in pairs}
    for name, value in (
        ("cluster", given.get("cluster")),
        ("order_by", given.get("order_by")),
        ("limit", str(_limit(given))),
    ):
        if value and name not in named:
            pairs.append((name, value))
    require("allocation_candidates:list", operations.single(pairs, "cluster"))
    pairs = [pair for pair in pairs if pair[0] != "explain"] + [("explain", "1")]
    query, options = candidate_query.parse_extended(pairs)
    return {"kind": "query", **_searched(use_cases().candidates.find(query, options), options)}


def _flavor(given: Mapping[str, str]) -> dict[str, Any]:
    """Search for a nova flavor, given by its amounts and extra specs."""
    cluster = given.get("cluster") or None
    require("flavors:candidates", cluster)
    document = {**flavor_document(given), "limit": _limit(given), "explain": True}
    if cluster:
        document["cluster"] = cluster
    found = use_cases().flavors.find(document, candidate_query.parse_newest)
    return {
        "kind": "flavor",
        "translation": translation_document(found.translation),
        "query_used": found.query_used,
        **_searched(found.search, NO_OPTIONS),
    }


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


def _searched(search: SearchResult, options: SearchOptions) -> dict[str, Any]:
    """Return a search as the API answers it, with names, and without the summaries of trees."""
    renderer = current_app.extensions["placement_candidates_renderer"]
    table = search.answer.scores()
    scores = None if table is None else score_members(table, options.preferences)
    elements = orjson.loads(renderer.elements(search, NEWEST, scores))
    places = use_cases().host_views.places({uuid for each in elements for uuid in each["allocations"]})
    explanation = None if search.explanation is None else explanation_body(search.explanation)
    return {"candidates": [_candidate(each, places) for each in elements], "explanation": explanation}


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


def _pod(given: Mapping[str, str]) -> dict[str, Any]:
    """Preview a pod, given as YAML or JSON."""
    cluster = cluster_of_pod(given)
    require("clusters:pods:preview", cluster)
    pod = manifest_of(given)
    preview = use_cases().pods.preview(cluster, pod, None, _limit(given))
    body = dump(PreviewSchema, preview, context=cluster)
    translation = None
    if may("clusters:pods:translate", cluster):
        translated = use_cases().pod_translation.translate(cluster, pod)
        translation = dump(PodTranslationSchema, translated)
    return {"kind": "pod", **body, "translation": translation}


def cluster_of_pod(given: Mapping[str, str]) -> str:
    """Return the cluster that a form asks about. Raises BadRequest if there is none."""
    cluster = given.get("cluster", "")
    if not cluster:
        raise BadRequest("cluster: choose the cluster in which the pod shall run")
    return cluster


def manifest_of(given: Mapping[str, str]) -> Any:
    """Return the pod in a form. Raises BadRequest, ManifestError."""
    return pod_manifest(parse_yaml(given.get("pod", "").encode("utf-8", "replace"), MOST_MANIFEST_VALUES))


_ASKED: dict[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
    "query": _query,
    "flavor": _flavor,
    "pod": _pod,
}


# -- what is shown ----------------------------------------------------------------------------------


def _table(document: Mapping[str, Any]) -> Any:
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


def miss_address(miss: Mapping[str, Any], page: str = "") -> str:
    """Return the address of the page of a near miss, or one below it, with what it lacks marked."""
    uuid = miss["resource_provider"]["uuid"]
    query = urlencode([("lacks", text) for text in lacks_of(miss)])
    return f"{address(f'/hosts/{uuid}{page}')}?{query}"


def lacks_of(miss: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a near miss lacks, as the page of its host takes it."""
    for shortage in miss.get("shortages", ()):
        where = (shortage.get("resource_provider") or miss["resource_provider"])["uuid"]
        name = shortage.get("resource_class") or ""
        words = (
            f"{units.amount(shortage['missing'], name)} missing" if shortage.get("missing") else "unsuitable"
        )
        yield f"{where},{name},{words}"
    if not miss.get("shortages"):
        yield f"{miss['resource_provider']['uuid']},,{'; '.join(miss['sentences'])}"
