"""The figures of `placement sync kubernetes`, on a port of its own."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

LAG_SECONDS = Gauge(
    "placement_sync_lag_seconds", "How long ago the service last had all that Kubernetes reported"
)
REJECTED = Gauge(
    "placement_sync_rejected", "Nodes, pods and reservations that the service refuses as they are"
)
OBJECTS = Gauge(
    "placement_sync_objects", "Objects that the service holds, and pods that wait for a node", ["kind"]
)
WRITES = Counter(
    "placement_sync_writes", "Objects that were sent to the service, by outcome", ["kind", "outcome"]
)
LEADS = Gauge("placement_sync_leads", "Whether this process sends, 1, or stands by, 0")
EVENTS = Counter(
    "placement_sync_events",
    "Events of Kubernetes about rejected objects, by outcome",
    ["outcome"],
)
WATCH_FAILURES = Counter(
    "placement_sync_watch_failures", "Lists and watches that failed, by kind of object", ["collection"]
)
