"""The options of this service, by group, with names and meanings that OpenStack Placement has as well.

Libraries have options of their own (policy, CORS, proxy headers, Keystone's token middleware, logging); the
sample lists the ones that matter most.
"""

from __future__ import annotations

from oslo_config import cfg, types

from placement.engine.domain.audit import KEPT_DAYS
from placement.engine.domain.claims import UNKNOWN_OWNER
from placement.http.worker.lanes import WorkerLimits

DEFAULT = [
    cfg.BoolOpt("log_options", default=True, help="Write all options to the log at start, at level debug."),
    cfg.StrOpt("tempdir", help="Accepted for old configurations; nothing is written there."),
    cfg.StrOpt("pybasedir", help="Accepted for old configurations; nothing is read there."),
    cfg.StrOpt("state_path", help="Accepted for old configurations; nothing is kept there."),
]
API = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            ("keystone", "tokens of OpenStack Identity; install the extra `keystone`"),
            ("token", "static bearer tokens from tokens_file"),
            ("noauth2", "whatever the caller claims; development only"),
        ],
        help="How callers are identified.",
    ),
    cfg.BoolOpt(
        "allow_remote_noauth",
        default=False,
        help="With noauth2, also believe callers on other machines and behind proxies.",
    ),
    cfg.StrOpt(
        "tokens_file",
        help="File that maps static tokens, or their SHA-256, to user, project and roles. "
        "Only its owner may be able to read it.",
    ),
    cfg.IntOpt(
        "max_request_body_bytes",
        default=32 * 2**20,
        min=1024,
        help="Longer request bodies are answered 413.",
    ),
    cfg.FloatOpt(
        "request_timeout",
        default=30,
        min=1,
        help="Seconds within which a request is answered. It is given up 3 seconds earlier, or at half the "
        "time if that is later. If it still waits for its turn, it gets 503 and is not carried out. If it "
        "waits for the database, the wait ends.",
    ),
    cfg.IntOpt(
        "max_requests_per_caller",
        default=256,
        min=0,
        help="How many requests of one caller a process has in work or waiting; more are answered 429. "
        "0 means any number.",
    ),
]
_POOL_SIZE = 10
DATABASE = [
    cfg.StrOpt("connection", secret=True, help="URL of the database, SQLite or PostgreSQL. Required."),
    cfg.StrOpt(
        "password_file",
        help="File that holds nothing but the password of the user in `connection`; for PostgreSQL. "
        "Only its owner should be able to read it.",
    ),
    cfg.StrOpt(
        "connection_parameters",
        default="",
        secret=True,
        help="Appended to the URL as its query: name=value&name=value.",
    ),
    cfg.StrOpt(
        "slave_connection",
        secret=True,
        help="Accepted for old configurations; all reads go to `connection`.",
    ),
    cfg.BoolOpt("sync_on_startup", default=False, help="Bring the schema to the newest version at start."),
    cfg.StrOpt(
        "mysql_sql_mode", default="TRADITIONAL", help="Accepted for old configurations; MySQL is not used."
    ),
    cfg.BoolOpt(
        "sqlite_synchronous",
        default=True,
        help="Let SQLite wait until data is on the disk. False is faster and loses commits in a power cut.",
    ),
    cfg.IntOpt(
        "connection_recycle_time",
        default=3600,
        min=-1,
        help="Seconds after which a pooled connection is replaced, -1 for never.",
    ),
    cfg.IntOpt("max_pool_size", default=_POOL_SIZE, min=1, help="Connections kept open per process."),
    cfg.IntOpt(
        "max_overflow",
        default=WorkerLimits().connections - _POOL_SIZE,
        min=0,
        help="Connections opened beyond the pool under load. With fewer than the default in all, "
        "threads of a process wait for each other's connections.",
    ),
    cfg.IntOpt("pool_timeout", default=10, min=1, help="Seconds to wait for a connection before a 503."),
    cfg.IntOpt(
        "max_retries",
        default=10,
        min=-1,
        help="How often to try again at start while the database cannot be reached, -1 for ever.",
    ),
    cfg.IntOpt("retry_interval", default=10, min=0, help="Seconds between these attempts."),
    cfg.IntOpt(
        "connection_debug",
        default=0,
        min=0,
        max=100,
        help="How much SQL to log: 0 nothing, from 50 on statements, 100 results as well.",
    ),
    cfg.BoolOpt(
        "connection_trace",
        default=False,
        help="Accepted for old configurations; statements carry no traces of the code.",
    ),
]
PLACEMENT = [
    cfg.StrOpt(
        "policy_file", help="Former name of [oslo_policy] policy_file, which counts where both are set."
    ),
    cfg.BoolOpt(
        "randomize_allocation_candidates",
        default=False,
        help="Give a random choice of all candidates instead of the first ones, in random order.",
    ),
    cfg.IntOpt(
        "max_allocation_candidates",
        default=100_000,
        min=-1,
        help="How many candidates one query may generate; 0 counts as 1, -1 means any number.",
    ),
    cfg.FloatOpt(
        "search_timeout",
        default=5.0,
        min=0.01,
        help="Seconds after which a search, with its explanation, is ended and answered 503.",
    ),
    cfg.StrOpt(
        "allocation_candidates_generation_strategy",
        default="breadth-first",
        choices=[
            ("breadth-first", "one candidate per tree in turn, so a cut answer spreads over the trees"),
            ("depth-first", "all candidates of a tree before the next"),
        ],
        help="The order of generated candidates.",
    ),
    cfg.IntOpt(
        "allocation_conflict_retry_count",
        default=10,
        min=1,
        help="How often a write is tried when concurrent ones get in its way.",
    ),
    cfg.StrOpt(
        "incomplete_consumer_project_id",
        default=UNKNOWN_OWNER,
        help="Project of consumers written below microversion 1.8.",
    ),
    cfg.StrOpt(
        "incomplete_consumer_user_id",
        default=UNKNOWN_OWNER,
        help="User of consumers written below microversion 1.8.",
    ),
]
SCORING: list[cfg.Opt] = [
    cfg.StrOpt(
        "order_by",
        default="none",
        help="The order of candidates, unless a query or its cluster has one: none, pack, spread, "
        "the name of a strategy, a strategy or a list of strategies as JSON, or a kube-scheduler "
        "configuration as JSON; see docs/scoring.md.",
    ),
]
KUBERNETES: list[cfg.Opt] = [
    cfg.StrOpt(
        "kubeconfig",
        help="How the scheduler extender reaches the API servers that it binds pods in: a kubeconfig with a "
        "context for each cluster, named after the cluster. Install the extra `kubernetes`. Without it and "
        "own_cluster the extender filters and prioritizes, but does not bind.",
    ),
    cfg.StrOpt(
        "own_cluster",
        help="The cluster that the service itself runs in, as a pod: the extender binds pods there with the "
        "service account of its own pod, and needs no kubeconfig for it.",
    ),
]
CLUSTERS: list[cfg.Opt] = [
    cfg.ListOpt(
        "resource_prefixes",
        default=[],
        help="Prefixes of the names of extended resources, as in `nvidia.com/,koordinator.sh/`, for which "
        "imports of nodes may make resource classes. Other extended resources of a node are left out, with a "
        "remark. Empty: any resource.",
    ),
]
SSL: list[cfg.Opt] = [
    cfg.StrOpt(
        "cert_file",
        help="Certificate of `placement serve`, PEM, followed by intermediate authorities. "
        "With it and key_file the service speaks TLS.",
    ),
    cfg.StrOpt("key_file", help="Its key, PEM, not encrypted. Only its owner may be able to read it."),
    cfg.StrOpt(
        "ca_file",
        help="Authority that signs the certificates of clients, PEM. With it only clients that have one are "
        "answered, except for probes.",
    ),
]
METRICS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "per_host",
        default=False,
        help="Let /metrics show capacity and use of each host, a line for each host and class; "
        "otherwise of each cluster, or aggregate of hosts.",
    ),
]
CAPACITY: list[cfg.Opt] = [
    cfg.MultiStrOpt(
        "watch",
        default=[],
        help="A kind of request for which /metrics shows how many more fit: a name and a query, "
        "as in `small resources=VCPU:2,MEMORY_MB:4096`, or a name and a kind of POST /ext/v1/capacity as "
        'JSON, as in `web {"flavor": {"vcpus": 2, "memory_mb": 4096}}`, with "cluster" where it has one. '
        "Repeatable.",
    ),
]
PLANNING: list[cfg.Opt] = [
    cfg.ListOpt(
        "purpose",
        default=[],
        item_type=types.String(regex="^[A-Z0-9_]{1,255}$"),
        help="Traits of hosts that are kept for what needs them. Plans send a consumer to a host with one of "
        "these traits only where no other host takes it with as few moves, unless its request asks for "
        "the trait. Hosts with devices that it does not use come last anyway.",
    ),
]
AUDIT: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Keep a record of every change, in the transaction that makes it; /ext/v1/audit and "
        "/ext/v1/events tell of them.",
    ),
    cfg.IntOpt(
        "keep_days",
        default=KEPT_DAYS,
        min=2,
        help="How many days the records are kept.",
    ),
]
WORKAROUNDS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "optimize_for_wide_provider_trees",
        default=False,
        help="Accepted for old configurations; wide trees are always searched this way.",
    ),
]
GROUPS: dict[str, list[cfg.Opt]] = {
    "DEFAULT": DEFAULT,
    "api": API,
    "placement_database": DATABASE,
    "placement": PLACEMENT,
    "scoring": SCORING,
    "kubernetes": KUBERNETES,
    "clusters": CLUSTERS,
    "metrics": METRICS,
    "capacity": CAPACITY,
    "planning": PLANNING,
    "audit": AUDIT,
    "ssl": SSL,
    "workarounds": WORKAROUNDS,
}
