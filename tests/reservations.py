"""Reservations for tests, built from the few things a test is about."""

from __future__ import annotations

from typing import Any

from tests.kubernetes import pod_manifest

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
ORDER = "scheduling.koordinator.sh/reservation-order"
WEB = {"app": "web"}


def reservation(
    name: str = "kept",
    cpu: str = "4",
    *,
    owners: list[Any] | None = None,
    template: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Reservation for pods that are called web."""
    pod = template or pod_manifest(cpu)
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "template": {"metadata": pod["metadata"], "spec": pod["spec"]},
            "owners": [{"labelSelector": {"matchLabels": WEB}}] if owners is None else owners,
            **spec,
        },
    }
