"""The metrics of the service by their names; the synchronization has its own (`sync.figures`).

Labels have few values: rules of routes, never paths; kinds, never texts. Each process sets gauges from time
to time (`health`); `live` gauges disappear with their process.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SUM: Final = "livesum"
_MOST: Final = "livemax"

# -- requests -----------------------------------------------------------------------------------------

REQUESTS = Counter(
    "placement_http_requests",
    "Requests that reached the application, by the rule of their route",
    ["route", "method", "status"],
)
REQUEST_SECONDS = Histogram(
    "placement_http_request_seconds",
    "From the arrival of a request, waiting for a thread included, to the head of its answer",
    ["route", "method"],
    buckets=_SECONDS,
)
REFUSED = Counter(
    "placement_http_refused", "Requests that the HTTP server refused before the application", ["status"]
)
CONNECTIONS = Gauge("placement_http_connections", "Open connections of clients", multiprocess_mode=_SUM)
IN_LANES = Gauge(
    "placement_http_in_lane",
    "Requests that wait for a thread or have one, by kind",
    ["lane", "state"],
    multiprocess_mode=_SUM,
)

# -- searches and claims ------------------------------------------------------------------------------

SEARCHES = Counter(
    "placement_searches", "Searches, by how they ended: found, empty, timeout, abandoned", ["outcome"]
)
STAGE_SECONDS = Histogram(
    "placement_search_stage_seconds",
    "Time in a stage of a search: catch_up, filter, combine",
    ["stage"],
    buckets=_SECONDS,
)
CANDIDATES = Histogram(
    "placement_search_candidates",
    "How many candidates a search found",
    buckets=(0, 1, 10, 100, 1_000, 10_000, 100_000),
)
CLAIMS = Counter(
    "placement_claims",
    "Attempts of consumers, pods and reservations to get something: won, repeated, or refused by reason",
    ["kind", "outcome"],
)
RETRIES = Counter(
    "placement_transaction_retries", "Transactions that were started again, by cause", ["reason"]
)
EXTENDER_CALLS = Counter(
    "placement_extender_calls",
    "Calls of kube-scheduler, ok or answered by an error",
    ["call", "outcome"],
)

IDENTITY = Counter(
    "placement_identity_checks",
    "Tokens that OpenStack Identity was to validate, by how that ended: valid, refused, unreachable, busy",
    ["outcome"],
)

# -- following the database ---------------------------------------------------------------------------

LOOK_SECONDS = Histogram(
    "placement_feed_look_seconds",
    "Time to read and apply one round of changes",
    ["follower"],
    buckets=_SECONDS,
)
FEED_ROWS = Counter("placement_feed_rows", "Changed and deleted rows that the feed reported", ["follower"])
RELOADS = Counter("placement_feed_reloads", "How often everything was loaded or forgotten", ["follower"])
LAG_SECONDS = Gauge(
    "placement_feed_lag_seconds",
    "How long ago the slowest process started its last complete read of the database",
    multiprocess_mode=_MOST,
)
PROVIDERS = Gauge("placement_forest_providers", "Providers in the forest", multiprocess_mode=_MOST)
FOREST_BYTES = Gauge(
    "placement_forest_bytes", "Columns of the forests of all processes", multiprocess_mode=_SUM
)
IMAGE_NODES = Gauge(
    "placement_image_nodes", "Nodes in the images of clusters, of all processes", multiprocess_mode=_SUM
)
IMAGE_BYTES = Gauge(
    "placement_image_bytes", "Columns of the images of clusters, of all processes", multiprocess_mode=_SUM
)
RESIDENT_BYTES = Gauge(
    "placement_resident_bytes", "Resident memory of all worker processes", multiprocess_mode=_SUM
)
WORKERS = Gauge("placement_workers", "Worker processes", multiprocess_mode=_SUM)

# -- the database -------------------------------------------------------------------------------------

DATABASE_CONNECTIONS = Gauge(
    "placement_database_connections",
    "Connections of the pools, used or idle, and how many there may be",
    ["state"],
    multiprocess_mode=_SUM,
)
DATABASE_FAILURES = Counter(
    "placement_database_failures", "Failures of the database or of the way to it, by kind", ["cause"]
)
RETENTION_HELD = Counter(
    "placement_retention_held",
    "How often old records stayed because the clock may be wrong, by kind of record and reason",
    ["kept", "reason"],
)
