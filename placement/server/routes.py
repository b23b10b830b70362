"""The version document, health and metrics. Source: placement-api.md, "Version document"."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flask import Blueprint, Response, request
from oslo_config import cfg
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from placement.common import probes
from placement.common.microversions import NEWEST, OLDEST
from placement.common.probes import METRICS
from placement.engine.domain.errors import Unavailable
from placement.health import Health
from placement.http import context
from placement.http.answers import json_response
from placement.http.context import component, service
from placement.http.credentials import PAGES
from placement.http.gate import route
from placement.http.operations import EMPTY, Content, Operation, Parameter, describes, shows
from placement.http.schemas import dump
from placement.metrics.sharing import exposition
from placement.planning.capacity_watch import Watch
from placement.providers.fleet import FleetCapacity
from placement.providers.schemas import StatusSchema, VersionsSchema

root_blueprint = Blueprint("root", __name__)
_JSON, _HTML = "application/json", "text/html"


@root_blueprint.get("/")
@describes(Operation({200: VersionsSchema, 302: EMPTY}))
def versions() -> Response:
    """Return the versions that this service speaks; needs no token. A browser is sent to the pages."""
    if request.accept_mimetypes.best_match((_JSON, _HTML), default=_JSON) == _HTML:
        at = f"{request.script_root}{PAGES}/"
        return Response(status=302, headers={"Location": at, "Vary": "Accept"})
    answer = json_response(
        {
            "versions": [
                {
                    "id": "v1.0",
                    "max_version": str(NEWEST),
                    "min_version": str(OLDEST),
                    "status": "CURRENT",
                    "links": [{"rel": "self", "href": ""}],
                }
            ]
        }
    )
    answer.vary.add("Accept")
    return answer


status_blueprint = Blueprint("status", __name__)


@route(
    status_blueprint, "/ext/v1/status", "GET", "placement:status:show", own_only=True, **shows(StatusSchema)
)
def status() -> Response:
    """Return the release, the kind of database, the caller as it is known here, and the checks of health."""
    answer = dump(StatusSchema, context.current().caller, context=service(Health))
    return json_response(answer)


# Health for load balancers and Kubernetes, where another server than ours hosts the application.
#
# Our own answers these paths itself, before any thread is asked (http.worker.event_loop).


health_blueprint = Blueprint("health", __name__)
_TEXT = Content(("text/plain", "text/html", "application/json"), {})
_PARAMETERS = [Parameter("verbose", "Every check by name; not of /healthcheck.")]


@health_blueprint.get(probes.LIVE)
@health_blueprint.get(probes.READY)
@health_blueprint.get(probes.HEALTHCHECK)
@describes(Operation({200: _TEXT, 204: EMPTY, 503: _TEXT}, query=_PARAMETERS))
def health() -> Response:
    """Return whether the process is alive or ready; needs no token."""
    probe = probes.answer(
        request.method,
        request.path,
        request.query_string.decode("latin-1"),
        request.headers.get("Accept", ""),
        service(Health).checks,
    )
    return Response(probe.body, probe.status, probe.headers)


# /metrics: the figures of all processes of this service, and capacity as dashboards of OpenStack know it.


LOG = logging.getLogger(__name__)
metrics_blueprint = Blueprint("metrics", __name__)
# Names and labels are as in openstack-exporter; `hostname` may be a cluster or an aggregate.
_LABELS = ("hostname", "resourcetype")
_CAPACITY = {
    "total": "Total amounts, reserved ones included",
    "reserved": "Amounts that are reserved",
    "allocation_ratio": "Allocation ratio, weighted over the hosts",
    "usage": "Amounts that consumers hold",
}


@metrics_blueprint.get(METRICS)
@describes(Operation({200: Content([CONTENT_TYPE_PLAIN_0_0_4])}))
def metrics() -> Response:
    """Return all figures in the text format of Prometheus; needs no token."""
    settings = component(cfg.ConfigOpts)
    capacity_collector = _CapacityCollector(service(FleetCapacity), per_host=settings.metrics.per_host)
    watch_collector = _WatchCollector(component(Watch))
    return Response(exposition([capacity_collector, watch_collector]), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _WatchCollector:
    """A collector that tells how many more of each kind in `[capacity] watch` fit, in all and by cluster."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the four families; without kinds there are none."""
        counted = self._watch.latest()
        if not counted:
            return
        labels = ("kind", "cluster")
        room, most, fragmentation, stranded = (
            GaugeMetricFamily(f"placement_capacity_{name}", text, labels=names)
            for name, text, names in (
                ("room", "How many more fit at least", labels),
                ("room_most", "How many more fit at most", labels),
                (
                    "fragmentation_ratio",
                    "The share of free amounts that would be usable in one place only",
                    labels,
                ),
                ("stranded", "Free amounts where no more of the kind fit", (*labels, "resourcetype")),
            )
        )
        for kind, found in counted.items():
            for each in (found.total, *(found.clusters or ())):
                cluster = each.place
                room.add_metric((kind, cluster), each.lower)
                most.add_metric((kind, cluster), each.upper)
                fragmentation.add_metric((kind, cluster), each.fragmentation)
                for name, offered in each.classes.items():
                    stranded.add_metric((kind, cluster, name), offered.stranded)
        yield from (room, most, fragmentation, stranded)


class _CapacityCollector:
    """A collector of capacity and use of groups of hosts, left out while the database cannot name them."""

    def __init__(self, capacity: FleetCapacity, *, per_host: bool) -> None:
        self._capacity = capacity
        self._per_host = per_host

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the four families."""
        families = {
            name: GaugeMetricFamily(f"openstack_placement_resource_{name}", text, labels=_LABELS)
            for name, text in _CAPACITY.items()
        }
        try:
            for group in self._capacity.groups(per_host=self._per_host):
                labels = (group.name, group.resource_class)
                families["total"].add_metric(labels, group.total)
                families["reserved"].add_metric(labels, group.reserved)
                families["allocation_ratio"].add_metric(labels, group.allocation_ratio)
                families["usage"].add_metric(labels, group.used)
        except Unavailable as error:
            LOG.warning("capacity is left out of /metrics: %s", error)
            return
        yield from families.values()
