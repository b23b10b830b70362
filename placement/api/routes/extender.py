"""/ext/v1/clusters/{cluster}/extender: the scheduler extender protocol of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Blueprint, Response

from placement.api.bodies import json_body
from placement.api.context import use_cases
from placement.api.described import Operation
from placement.api.extender_bodies import (
    binding_of,
    binding_result,
    extender_args,
    filter_error,
    filter_result,
    host_priorities,
    preemption_args,
    preemption_result,
)
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.schemas import extender
from placement.domain.errors import PlacementError
from placement.metrics.catalog import EXTENDER_CALLS

blueprint = Blueprint("extender", __name__)
_PATH = "/ext/v1/clusters/<cluster>/extender"
_RULE = "placement:clusters:extender:"


@route(
    blueprint,
    f"{_PATH}/filter",
    "POST",
    f"{_RULE}filter",
    takes_json=True,
    gives_json=True,
    described=Operation({200: extender.FILTER_RESULT}, body=extender.ARGS),
)
def filter_nodes(cluster: str) -> Response:
    """Which nodes fit a pod. A write: it may release pods that are gone, and a gang that does not fit."""
    args = extender_args(json_body())
    try:
        with _counted("filter"):
            filtered = use_cases().extender.filter(cluster, args.pod, args.names)
    except PlacementError as error:
        return json_response(filter_error(str(error)))
    return json_response(filter_result(args, filtered.failed, filtered.unresolvable))


@route(
    blueprint,
    f"{_PATH}/prioritize",
    "POST",
    f"{_RULE}prioritize",
    takes_json=True,
    gives_json=True,
    reads=True,
    described=Operation({200: extender.HOST_PRIORITIES}, errors=[409], body=extender.ARGS),
)
def prioritize(cluster: str) -> Response:
    """How well nodes fit a pod."""
    args = extender_args(json_body())
    with _counted("prioritize"):
        scores = use_cases().extender.prioritize(cluster, args.pod, args.names)
    return json_response(host_priorities(args.names, scores))


@route(
    blueprint,
    f"{_PATH}/preempt",
    "POST",
    f"{_RULE}preempt",
    takes_json=True,
    gives_json=True,
    described=Operation({200: extender.PREEMPTION_RESULT}, errors=[409], body=extender.PREEMPTION_ARGS),
)
def preempt(cluster: str) -> Response:
    """Which pods to evict so that a pod fits. A write: it may release pods that are gone."""
    args = preemption_args(json_body())
    with _counted("preempt"):
        victims = use_cases().extender.preempt(cluster, args.pod, args.proposed)
    return json_response(preemption_result(victims))


@route(
    blueprint,
    f"{_PATH}/bind",
    "POST",
    f"{_RULE}bind",
    takes_json=True,
    gives_json=True,
    described=Operation({200: extender.BINDING_RESULT}, body=extender.BINDING),
)
def bind(cluster: str) -> Response:
    """Claim a place for a pod on a node, and bind it there."""
    binding = binding_of(json_body())
    try:
        with _counted("bind"):
            use_cases().extender.bind(cluster, binding)
    except PlacementError as error:
        return json_response(binding_result(str(error)))
    return json_response(binding_result())


@contextmanager
def _counted(call: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        EXTENDER_CALLS.labels(call, "error").inc()
        raise
    EXTENDER_CALLS.labels(call, "ok").inc()
