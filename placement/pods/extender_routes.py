"""/ext/v1/clusters/{cluster}/extender: the scheduler extender protocol of Kubernetes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from flask import Blueprint, Response, request
from werkzeug.exceptions import HTTPException

from placement.common.extender_protocol import BIND, FILTER, PREEMPT, PRIORITIZE, failure, verb_at
from placement.engine.domain.errors import BadRequest
from placement.http.answers import json_response
from placement.http.bodies import json_body, json_body_or
from placement.http.context import ANONYMOUS, current, service
from placement.http.errors import HttpError, problem
from placement.http.gate import route
from placement.http.operations import Operation
from placement.metrics.catalog import EXTENDER_CALLS
from placement.pods import extender_bodies
from placement.pods.services.extender import Extender

blueprint = Blueprint("extender", __name__)
_PATH = "/ext/v1/clusters/<cluster>/extender"
_RULE = "placement:clusters:extender:"
LOG = logging.getLogger(__name__)
_call = partial(route, blueprint, method="POST", gives_json=True)
# Whatever happens is answered as `in_its_form` has it.
_described = partial(Operation, errors=None)


@_call(
    f"{_PATH}/filter",
    policy=f"{_RULE}filter",
    described=_described({200: extender_bodies.FILTER_RESULT}, body=extender_bodies.ARGS),
)
def filter_nodes(cluster: str) -> Response:
    """Return which nodes fit a pod. A write: it may release vanished pods, and a gang that does not fit."""
    args = extender_bodies.extender_args(json_body())
    with _counted(FILTER):
        filtered = service(Extender).filter(cluster, args.pod, args.names)
    if not filtered.releases:
        current().reads = True
    failed, unresolvable = filtered.failed, filtered.unresolvable
    left = args.names
    if failed or unresolvable:
        left = [name for name in args.names if name not in failed and name not in unresolvable]
    # The nodes that fit, in the form in which they came.
    objects = args.objects
    whole = None if objects is None else {"metadata": {}, "items": [objects[name] for name in left]}
    return json_response(
        {
            "Nodes": whole,
            "NodeNames": left if objects is None else None,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


@_call(
    f"{_PATH}/prioritize",
    policy=f"{_RULE}prioritize",
    reads=True,
    described=_described({200: extender_bodies.HOST_PRIORITIES}, body=extender_bodies.ARGS),
)
def prioritize(cluster: str) -> Response:
    """Return how well nodes fit a pod."""
    # The body is kept: the nodes in it have a score, too, where this fails.
    args = extender_bodies.extender_args(json_body_or(None))
    with _counted(PRIORITIZE):
        scores = service(Extender).prioritize(cluster, args.pod, args.names)
    return json_response(extender_bodies.host_priorities(args.names, scores))


@_call(
    f"{_PATH}/preempt",
    policy=f"{_RULE}preempt",
    described=_described({200: extender_bodies.PREEMPTION_RESULT}, body=extender_bodies.PREEMPTION_ARGS),
)
def preempt(cluster: str) -> Response:
    """Return which pods to evict so that a pod fits. A write: it may release pods that are gone."""
    pod, proposed = extender_bodies.preemption_args(json_body())
    with _counted(PREEMPT):
        victims = service(Extender).preempt(cluster, pod, proposed)
    # As uids: the protocol has no other form for answers.
    shown = {
        node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.violations}
        for node, each in victims.items()
    }
    return json_response({"NodeNameToMetaVictims": shown})


@_call(
    f"{_PATH}/bind",
    policy=f"{_RULE}bind",
    described=_described({200: extender_bodies.BINDING_RESULT}, body=extender_bodies.BINDING),
)
def bind(cluster: str) -> Response:
    """Claim a place for a pod on a node, and bind it there."""
    binding = extender_bodies.binding_of(json_body())
    with _counted(BIND):
        service(Extender).bind(cluster, binding)
    return json_response({"Error": ""})


@contextmanager
def _counted(call: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        EXTENDER_CALLS.labels(call, "error").inc()
        raise
    EXTENDER_CALLS.labels(call, "ok").inc()


def in_its_form(handler: Callable[[Any], Response]) -> Callable[[Any], Response]:
    """Return a handler of errors that answers a verb with 200, in its own form; other paths as before.

    What is logged and counted is the status that another path would have answered.
    """

    @wraps(handler)
    def handled(error: Any) -> Response:
        response, verb = handler(error), verb_at(request.path)
        if verb is None:
            return response
        at = current()
        at.status, message = response.status_code, problem(response.status_code)
        if verb in (PRIORITIZE, PREEMPT):
            # There is no place for it in the answer.
            LOG.info("%s of the extender failed: %s", verb, message)
        return json_response(failure(verb, message, _asked_about() if verb == PRIORITIZE else ()))

    return handled


def _asked_about() -> list[str]:
    """Return the nodes that the body names; none if it cannot be read, or comes from an unknown caller."""
    if current().caller is ANONYMOUS:
        return []
    try:
        return extender_bodies.extender_args(json_body()).names
    except (BadRequest, HttpError, HTTPException):
        return []
