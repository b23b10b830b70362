"""`Pod.spec.resources`: what a limit there without a request stands for, as API servers fill it in."""

from __future__ import annotations

from typing import Any

import pytest

from placement.pods.manifests.pod import pod_requests
from tests.unit.pods.koordinator.pods import build_pod, container, read

HUGE = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("of_the_pod", "of_the_container", "expected"),
    [
        # Where containers request a resource, the limit of the pod is only a limit.
        ({"limits": {"cpu": "4"}}, {"requests": {"cpu": "1"}}, {"cpu": 1}),
        ({"limits": {"cpu": "4"}}, {"requests": {"cpu": "0"}, "limits": {"cpu": "2"}}, {"cpu": 0}),
        ({"limits": {"cpu": "4"}}, {"limits": {"cpu": "2"}}, {"cpu": 2}),
        # Where none does, it is a request.
        ({"limits": {"cpu": "4"}}, {"requests": {"memory": "1"}}, {"cpu": 4, "memory": 1}),
        ({"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}, {"requests": {"cpu": "1"}}, {"cpu": 3}),
        # Huge pages are never overcommitted.
        ({"limits": {HUGE: "4Mi"}}, {"requests": {HUGE: "2Mi"}, "limits": {HUGE: "2Mi"}}, {HUGE: 2**22}),
    ],
)
def test_limits_of_the_pod_are_requests_where_no_container_requests_the_resource(
    of_the_pod: dict[str, Any], of_the_container: dict[str, Any], expected: dict[str, int]
) -> None:
    pod = build_pod(container(**of_the_container), resources=of_the_pod)
    assert pod_requests(read(pod)) == expected
