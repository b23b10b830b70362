"""Claims by a click: of a candidate for a consumer, and of a node for a pod."""

from __future__ import annotations

import orjson
from flask import Blueprint, Response, request

from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.domain.inventories import ConsumerClaim
from placement.engine.numa.cpuset import parse_cpu_list
from placement.http.context import use_cases
from placement.http.gate import PAGES, route
from placement.web.requests import cluster_of_pod, manifest_of
from placement.web.templating import address, require, to

_CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")
_LONGEST_NAME = 255


def register(blueprint: Blueprint) -> None:
    """Add the routes; each requires a policy rule of its own."""
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/claims", "POST", listing, own_only=True)(_claim)
    route(blueprint, f"{PAGES}/pod-claims", "POST", listing, own_only=True)(_claim_pod)


def _claim() -> Response:
    """Let a consumer hold the candidate that was chosen; what it holds already is not replaced."""
    require("allocations:update")
    claimant = _claimant()
    allocations = _allocations(request.form.get("allocations", ""))
    claim = ConsumerClaim(
        consumer_uuid=claimant["consumer_uuid"],
        resources=allocations,
        project_id=claimant["project_id"],
        user_id=claimant["user_id"],
        generation=None,
        consumer_type=claimant["consumer_type"],
    )
    cpus = request.form.get("dedicated_cpus")
    # A bad list of CPUs is refused before anything is written.
    parse_cpu_list(cpus or "")
    use_cases().claims.replace([claim])
    if cpus:
        use_cases().claims.note_dedicated_cpus(claimant["consumer_uuid"], 1, cpus)
    return to(address(f"/consumers/{claimant['consumer_uuid']}", claimed=1))


def _claimant() -> dict[str, str]:
    """Return consumer, project, user and type in the form. Raises BadRequest naming the field."""
    claimant = {name: request.form.get(name, "").strip() for name in _CLAIMANT}
    for name, text in claimant.items():
        if not 1 <= len(text) <= _LONGEST_NAME:
            raise BadRequest(f"{name}: must be 1 to {_LONGEST_NAME} characters")
    normal = normalize_uuid(claimant["consumer_uuid"])
    if normal is None:
        raise BadRequest(f"consumer_uuid: {claimant['consumer_uuid']!r} is no uuid")
    if (
        not claimant["consumer_type"].replace("_", "").isalnum()
        or claimant["consumer_type"] != claimant["consumer_type"].upper()
    ):
        raise BadRequest("consumer_type: must be of A-Z, 0-9 and _")
    return {**claimant, "consumer_uuid": normal}


def _allocations(text: str) -> dict[str, dict[str, int]]:
    """Return the candidate in the form: amounts by provider and class. Raises BadRequest."""
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


def _claim_pod() -> Response:
    """Place a pod on the node that was chosen, or on the best."""
    given = request.form.to_dict()
    cluster = cluster_of_pod(given)
    require("clusters:pods:update", cluster)
    pod = manifest_of(given)
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not name:
        raise BadRequest("Pod.metadata.name: a pod that is placed needs a name")
    if given.get("node"):
        use_cases().pods.bind(cluster, namespace, name, "", given["node"], pod)
    else:
        use_cases().pods.put(cluster, namespace, name, pod)
    return to(address(f"/pods/{cluster}/{namespace}/{name}", claimed=1))
