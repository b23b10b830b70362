"""Bodies about pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.api.rendering.explanations import explanation_body
from placement.numa.refusal import Refusal
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_pages import PodPage, Preview
from placement.services.clusters.pod_translation import PodQueries

_PINNED_UNSEEN = "kubelet pins the pod to CPUs that no pod-cpu-allocs entry names: its CPUs are not known"


def pod_body(cluster: str, pod: PodAnswer) -> dict[str, Any]:
    """One pod; the annotations are ready to be written to it."""
    return {
        "cluster": cluster,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "consumer_uuid": pod.consumer_uuid,
        "node": pod.node,
        "resource_provider": pod.resource_provider,
        "phase": pod.phase,
        "qos_class": pod.qos or None,
        "kubernetes_qos_class": pod.kubernetes_qos,
        "scheduled": pod.scheduled,
        "cpuset": pod.cpuset,
        "annotations": pod.annotations,
        "containers": [_container_body(pod, name) for name in pod.containers],
        "score": pod.score,
        "warnings": pod.warnings,
        "remarks": (*pod.remarks, _PINNED_UNSEEN) if pod.is_pinned_unseen else pod.remarks,
        "unreadable": pod.unreadable,
    }


def _container_body(pod: PodAnswer, name: str) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name, "lift_cfs_quota": pod.lifts_cfs_quota}
    return body if pod.node is None else {**body, "cpuset": pod.container_cpus}


def page_body(cluster: str, page: PodPage) -> dict[str, Any]:
    """Pods in the order in which they were recorded; `next` is the marker of the following page."""
    return {"pods": [pod_body(cluster, pod) for pod in page.pods], "next": page.next}


def claims_body(cluster: str, page: PodPage) -> dict[str, Any]:
    """The same with `changed_at`, under which a claim can be released unless it was claimed again since."""
    pods = [{**pod_body(cluster, pod), "changed_at": pod.changed_at} for pod in page.pods]
    return {"pods": pods, "next": page.next}


def preview_body(cluster: str, preview: Preview) -> dict[str, Any]:
    """Where a pod would go, best first, and why it is refused elsewhere."""
    return {
        "cluster": cluster,
        "message": preview.message,
        "nodes": [
            {
                "name": place.answer.node,
                "resource_provider": place.answer.resource_provider,
                "score": place.answer.score,
                "cpuset": place.answer.cpuset,
                "annotations": place.answer.annotations,
                "remarks": place.answer.remarks,
            }
            for place in preview.places
        ],
        "fitting": preview.fitting,
        "rejected": refusals_body(preview.refusals),
        "explanation": explanation_body(preview.explanation),
        "warnings": preview.warnings,
    }


def translation_body(translation: PodQueries) -> dict[str, Any]:
    """Queries from the best to what is acceptable, and what they leave out."""
    return {
        "queries": [{"meaning": meaning, "query": query} for meaning, query in translation.queries],
        "not_expressed": translation.gaps,
        "warnings": translation.warnings,
    }


def refusals_body(refusals: Mapping[str, Refusal], most: int | None = None) -> list[dict[str, Any]]:
    """Why nodes refuse a pod, by name, at most so many of them: equal questions have equal answers."""
    return [
        {"node": name, "reasons": refusal.reasons, "status": str(refusal.status)}
        for name, refusal in sorted(refusals.items(), key=lambda item: item[0])[:most]
    ]
