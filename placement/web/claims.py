"""Claims by a click: of a candidate for a consumer, and of a node for a pod."""

from __future__ import annotations

import re

import orjson
from flask import Response, request

from placement.allocations.claims import Claims
from placement.engine.domain.claims import ConsumerClaim
from placement.engine.domain.errors import BadRequest, Conflict, RequestPlace, parameter
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.cpus import parse_cpu_list
from placement.http.context import service
from placement.http.schemas import NAME
from placement.pods.decide.reading import PodDocument
from placement.pods.services.pods import Pods
from placement.web.answers import address, html, to
from placement.web.callers import require
from placement.web.mistakes import Mistake
from placement.web.requests import cluster_of_pod, manifest_of
from placement.web.templating import page

_CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")
_LONGEST_NAME = 255
_TYPE = re.compile(NAME)


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
            "the form does not say which candidate; go back and choose one", place=parameter("allocations")
        ) from None
    strange = [uuid for uuid in found if normalize_uuid(uuid) != uuid]
    if strange:
        raise BadRequest(
            f"{strange[0][:100]!r} is not the UUID of a provider", place=parameter("allocations")
        )
    amounts = [amount for resources in found.values() for amount in resources.values()]
    if not amounts or not all(type(amount) is int and amount > 0 for amount in amounts):
        raise BadRequest("every amount must be a whole number above 0", place=parameter("allocations"))
    return found


@page("/claims", "POST")
def _claim() -> Response:
    """Let a consumer hold the candidate that was chosen; what it holds already is not replaced.

    Raises BadRequest naming the field of the form.
    """
    require("allocations:update")
    claimant = {name: request.form.get(name, "").strip() for name in _CLAIMANT}
    for name, text in claimant.items():
        if not 1 <= len(text) <= _LONGEST_NAME:
            raise BadRequest(f"must be 1 to {_LONGEST_NAME} characters", place=parameter(name))
    consumer = normalize_uuid(claimant["consumer_uuid"])
    if consumer is None:
        raise BadRequest(f"{claimant['consumer_uuid']!r} is not a UUID", place=parameter("consumer_uuid"))
    kind = claimant["consumer_type"]
    if not _TYPE.fullmatch(kind):
        raise BadRequest("must be of A-Z, 0-9 and _", place=parameter("consumer_type"))
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
    service(Claims).put([claim])
    if cpus:
        service(Claims).note_dedicated_cpus(consumer, 1, cpus)
    return to(address(f"/consumers/{consumer}", claimed=1))


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
        raise BadRequest("a pod that is placed needs a name", place=RequestPlace("Pod") / "metadata" / "name")
    own_page = f"/pods/{cluster}/{namespace}/{name}"
    try:
        if given.get("node"):
            service(Pods).bind(cluster, namespace, name, "", given["node"], pod)
        else:
            service(Pods).place(cluster, PodDocument.named(cluster, namespace, name, pod))
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
