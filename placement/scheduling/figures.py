"""The figures of `placement schedule kubernetes`, under the names that kube-scheduler has for them.

Source: Kubernetes documentation, "Kubernetes Metrics Reference".
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84)
_ATTEMPTS = (1, 2, 4, 8, 16)

PENDING_PODS = Gauge(
    "scheduler_pending_pods", "Pods that wait for a place: active, backoff, unschedulable, gated", ["queue"]
)
SLI_SECONDS = Histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "From when a pod entered the queue to its Binding, without the time behind gates of others",
    ["attempts"],
    buckets=(*_SECONDS, 327.68, 655.36),
)
ATTEMPTS = Counter("scheduler_schedule_attempts", "Attempts to place pods, by result", ["result", "profile"])
ATTEMPT_SECONDS = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "How long a call to the service took, and the Binding, for each pod in it",
    ["result", "profile"],
    buckets=_SECONDS,
)
POD_ATTEMPTS = Histogram(
    "scheduler_pod_scheduling_attempts", "Attempts until a pod was bound", buckets=_ATTEMPTS
)
VICTIMS = Counter("scheduler_preemption_victims", "Pods that were evicted for more important ones")
PREEMPTIONS = Counter("scheduler_preemption_attempts", "Searches for pods to evict")
QUARANTINED = Counter("placement_schedule_quarantined", "Pods that the service could not take")
REPLACED = Counter(
    "placement_schedule_replaced",
    "Pods that another scheduler refused on the node chosen for them, by what became of them",
    ["outcome"],
)
WRITES = Counter(
    "placement_schedule_writes",
    "Conditions and Events of pods, and statuses of Reservations, by kind and outcome",
    ["kind", "outcome"],
)
