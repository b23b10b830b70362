"""/metrics: the figures of all processes of this service, and capacity as dashboards of OpenStack know it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flask import Blueprint, Response, current_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from placement.api import context
from placement.domain.errors import Unavailable
from placement.metrics.sharing import exposition
from placement.services.capacity import Capacity
from placement.services.health.probes import METRICS

LOG = logging.getLogger(__name__)
blueprint = Blueprint("metrics", __name__)
# Names and labels are those of openstack-exporter; `hostname` may be a cluster or an aggregate.
_LABELS = ("hostname", "resourcetype")
_CAPACITY = {
    "total": "All there is, reserved amounts included",
    "reserved": "What is kept back from consumers",
    "allocation_ratio": "How often what is not reserved may be handed out, weighed over the hosts",
    "usage": "What consumers hold",
}


@blueprint.get(METRICS)
def metrics() -> Response:
    """All figures in the text format of Prometheus; needs no token."""
    settings = current_app.extensions["placement_settings"]
    shown = _CapacityCollector(context.use_cases().capacity, per_host=settings.metrics_per_host)
    return Response(exposition([shown]), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _CapacityCollector:
    """Capacity and use of groups of hosts; left out while the database cannot tell what they are called."""

    def __init__(self, capacity: Capacity, *, per_host: bool) -> None:
        self._capacity = capacity
        self._per_host = per_host

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The four families."""
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
