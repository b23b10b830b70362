"""Health for load balancers and Kubernetes, where another server than ours hosts the application.

Our own answers these paths itself, before any thread is asked (operations.http.event_loop).
"""

from flask import Blueprint, Response, request

from placement.api import context
from placement.services.health import probes

blueprint = Blueprint("health", __name__)


@blueprint.get(probes.LIVE)
@blueprint.get(probes.READY)
@blueprint.get(probes.HEALTHCHECK)
def health() -> Response:
    """Whether the process is alive or ready; needs no token."""
    probe = probes.answer(
        request.method,
        request.path,
        request.query_string.decode("latin-1"),
        request.headers.get("Accept", ""),
        context.use_cases().health.checks,
    )
    return Response(probe.body, probe.status, probe.headers)
