"""What a pod as a whole requests and may use at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil

from placement.kubernetes.pod import Container, Pod, Quantities
from placement.numa.amounts import Amounts


def pod_requests(pod: Pod) -> Quantities:
    """The requests of a whole pod: the larger of containers and init containers, plus overhead.

    Requests of the pod level stand in for those of its containers.
    Source: koordinator.md, "Who is bound"; Kubernetes effective requests.
    """
    return _effective(pod, lambda container: container.requests, pod.requests)


def pod_limit(pod: Pod, resource: str) -> Fraction | None:
    """What a whole pod may use of a resource, found like its requests; None if a container has no limit."""
    if resource not in pod.limits and any(resource not in item.limits for item in pod.all_containers):
        return None
    return _effective(pod, lambda container: container.limits, pod.limits).get(resource, Fraction(0))


def _effective(
    pod: Pod, quantities: Callable[[Container], Quantities], of_the_pod_level: Quantities
) -> Quantities:
    together = _sum(quantities(container) for container in pod.containers)
    sidecars: Quantities = {}
    largest: Quantities = {}
    for container in pod.init_containers:
        running = _sum((sidecars, quantities(container)))
        sidecars = running if container.is_sidecar else sidecars
        largest = _maximum(largest, running)
    effective = _maximum(_sum((together, sidecars)), largest)
    return _sum(({**effective, **of_the_pod_level}, pod.overhead))


def request_amounts(quantities: Quantities) -> Amounts:
    """Requests in the units of NUMA accounts, rounded up, without those of nothing."""
    amounts = {
        name: ceil(quantity * 1000) if name == "cpu" else ceil(quantity)
        for name, quantity in quantities.items()
    }
    return {name: amount for name, amount in amounts.items() if amount}


def names_resource(containers: Iterable[Container], names: frozenset[str]) -> bool:
    """Whether any container requests or limits one of these resources."""
    return any(names & (container.requests.keys() | container.limits.keys()) for container in containers)


def _sum(parts: Iterable[Quantities]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, quantity in part.items():
            total[name] = total.get(name, Fraction(0)) + quantity
    return total


def _maximum(one: Quantities, other: Quantities) -> dict[str, Fraction]:
    nothing = Fraction(0)
    return {name: max(one.get(name, nothing), other.get(name, nothing)) for name in {**one, **other}}
